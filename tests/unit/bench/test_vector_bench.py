"""The parts of the benchmark of many environments."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

from grepseek_env.backend import open_corpus
from grepseek_env.bench.engine.measure import WrongAnswer
from grepseek_env.bench.engine.pipelines import LETTERS
from grepseek_env.bench.engine.words import Sample, line_ranges, read_sample
from grepseek_env.bench.vector import measure as module
from grepseek_env.bench.vector.contestants import Contestant, parse_contestants
from grepseek_env.bench.vector.measure import Measurement, Run, measure
from grepseek_env.bench.vector.mix import EPISODE, GROUP, mix_words, replay
from grepseek_env.bench.vector.report import check_plot, figures, plot, results, table
from grepseek_env.bench.vector.run import VectorBench
from grepseek_env.commands import parse
from grepseek_env.errors import ConfigError
from grepseek_env.tasks.world.bench import generate_corpus

if TYPE_CHECKING:
    from pathlib import Path

    from grepseek_env.corpus.store import CorpusStore

WORDS = {letter: tuple(f"{letter.lower()}{i}" for i in range(500)) for letter in LETTERS}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> CorpusStore:
    path = tmp_path_factory.mktemp("bench") / "corpus.jsonl"
    return open_corpus(generate_corpus(path, bytes=1_000_000))


def kind(command: str) -> str:
    programs = [argv[0] for argv in parse(command).argv]
    match programs:
        case ["rg", "head"] if "-o" not in command:
            return "rg | head"
        case ["rg", "rg", "head"]:
            return "rg | rg | head"
        case [*_, "wc"]:
            return "... | wc -l"
        case _:
            return "other"


def test_the_mix_has_the_published_shares() -> None:
    # Groups of one command each: nothing is repeated, so each draw counts.
    firsts = [next(replay(WORDS, 1, seed=seed))[0] for seed in range(4000)]
    shares = Counter(map(kind, firsts))
    for name, share in {"rg | head": 0.56, "rg | rg | head": 0.21, "... | wc -l": 0.08, "other": 0.15}.items():
        assert abs(shares[name] / 4000 - share) < 0.03, name


def test_groups_repeat_their_own_commands_and_only_these() -> None:
    again = total = 0
    steps = islice(replay(WORDS, 10, seed=1), 40 * EPISODE)
    everywhere: Counter[str] = Counter()
    while episode := list(islice(steps, EPISODE)):
        for first in (0, GROUP):
            commands = [command for step in episode for command in step[first : first + GROUP]]
            again += len(commands) - len(set(commands))
            total += len(commands)
            everywhere.update(set(commands))
    assert 0.25 < again / total < 0.32
    # Another group writes other commands, as long as there are words.
    assert sum(count > 1 for count in everywhere.values()) < 0.01 * len(everywhere)


def test_equal_arguments_give_equal_commands_and_other_seeds_others() -> None:
    one, same, other = (list(islice(replay(WORDS, 7, seed=seed), 12)) for seed in (3, 3, 4))
    assert one == same != other
    assert all(len(step) == 7 for step in one)


def test_words_are_taken_from_the_corpus(store: CorpusStore) -> None:
    words = mix_words(read_sample(store.corpus_file), store.facts.lines, seed=0)
    text = store.corpus_file.read_text(encoding="utf-8")
    assert set(words) == set(LETTERS)
    assert all(word in text for letter in "RMFPH" for word in words[letter][:50])
    assert line_ranges(store.facts.lines)["F"][0] <= sum(words["F"][0] in line for line in text.splitlines())
    with pytest.raises(ConfigError, match="no word for"):
        mix_words(Sample(first=(), words={}, pairs={}, lines=0), 100, seed=0)


def test_contestants_are_named_and_checked() -> None:
    assert [c.name for c in parse_contestants(" vector:auto, sync:sequential")] == ["vector:auto", "sync:sequential"]
    assert parse_contestants("")[-1] == Contestant("async", "sequential")
    for text, message in (
        ("vectr:auto", "did you mean 'vector'"),
        ("sync", "no mode ''"),
        ("sync:fast", "there are"),
        ("sync:auto,sync:auto", "once"),
    ):
        with pytest.raises(ConfigError, match=message):
            parse_contestants(text)


@pytest.mark.slow
def test_all_ways_see_the_same_and_only_commands_of_this_process_are_timed_apart(store: CorpusStore) -> None:
    words = mix_words(read_sample(store.corpus_file), store.facts.lines, seed=0)
    measurement = Measurement()
    told: list[str] = []
    ways = parse_contestants("vector:auto,sync:sequential,async:sequential")
    measure(
        measurement,
        ways,
        (1, 3),
        store,
        words,
        rounds=2,
        seconds=0.05,
        seed=0,
        before=lambda: told.append("before"),
        after=told.append,
    )
    assert measurement.complete
    assert len(measurement.runs) == 12
    assert told.count("before") == told.count("async:sequential 3") * 6 == 12
    for run in measurement.runs:
        assert run.commands <= run.steps * run.num_envs
        assert run.seconds >= 0.05
        assert (run.inside is not None) == (run.contestant == "vector:auto")


def test_another_observation_is_no_figure(store: CorpusStore, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = module.replay

    def cheating(words: Any, num_envs: int, *, seed: int) -> Any:
        calls.append(seed)
        for step in honest(words, num_envs, seed=seed):
            yield step if len(calls) == 1 else ["wc -l corpus.jsonl"] * num_envs

    calls: list[int] = []
    monkeypatch.setattr(module, "replay", cheating)
    words = mix_words(read_sample(store.corpus_file), store.facts.lines, seed=0)
    with pytest.raises(WrongAnswer, match="observe different things with 2 environments, at step 0 of environment 0"):
        measure(
            Measurement(),
            parse_contestants("vector:auto,vector:sequential"),
            (2,),
            store,
            words,
            rounds=1,
            seconds=0.01,
            seed=0,
            before=lambda: None,
            after=lambda _: None,
        )


RUNS = [
    # contestant, environments, round, seconds, steps, commands, seconds inside
    Run("vector:auto", 8, 0, 2.0, 70, 400, 1.44),
    Run("vector:auto", 8, 1, 1.0, 35, 200, 0.72),
    Run("vector:auto", 8, 2, 1.0, 70, 400, 0.44),
    Run("async:sequential", 8, 0, 4.0, 70, 400, None),
    Run("async:sequential", 8, 1, 4.0, 35, 200, None),
    Run("async:sequential", 8, 2, 4.0, 70, 400, None),
    Run("async:sequential", 1, 0, 1.0, 7, 5, None),
]


def test_figures_are_medians_and_ratios_within_rounds() -> None:
    alone, ours, theirs = figures(RUNS, "async:sequential")
    assert (alone.num_envs, alone.ratio, alone.beyond_us) == (1, 1.0, None)
    assert (ours.contestant, ours.env_steps_per_second, ours.commands_per_second) == ("vector:auto", 280.0, 200.0)
    assert (ours.ratio, ours.ratio_low, ours.ratio_high, ours.rounds) == (4.0, 2.0, 4.0, 3)
    assert ours.beyond_us == pytest.approx(1000.0)
    assert (theirs.commands_per_second, theirs.ratio) == (100.0, 1.0)
    assert figures(RUNS, "nobody")[0].ratio is None


def test_the_table_and_the_file_say_what_is_missing(tmp_path: Path) -> None:
    text = table(Measurement(RUNS), "async:sequential")
    assert max(map(len, text.splitlines())) <= 100
    assert "4.00  (2.00 to 4.00)" in text
    assert "stopped early" in text
    assert "stopped early" not in table(Measurement(RUNS, complete=True), "async:sequential")
    assert table(Measurement(), "x") == "nothing was measured"
    assert len(results(Measurement(RUNS), "async:sequential")["runs"]) == len(RUNS)
    plot(tmp_path / "out.png", figures(RUNS, "async:sequential"), "title")
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ConfigError, match="must end in one of"):
        check_plot(tmp_path / "out.docx")


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"rounds": 0}, "rounds is 0"),
        ({"seconds": float("nan")}, "seconds is nan"),
        ({"envs": "1,x"}, "envs is '1,x'"),
        ({"envs": "0"}, "envs is '0'"),
        ({"envs": ""}, "envs is ''"),
    ],
)
def test_options_that_cannot_work_are_named(kwargs: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        VectorBench(**kwargs).numbers()
    for name in ("out", "plot"):
        with pytest.raises(ConfigError, match=f"{name} is .* cannot be written"):
            VectorBench(**{name: tmp_path})
    assert VectorBench(envs="8, 1,8").numbers() == (1, 8)
