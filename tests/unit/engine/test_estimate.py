from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import pytest

from grepseek_env.commands import parse
from grepseek_env.engine import estimate
from grepseek_env.engine.estimate import Costs, Estimate, frequencies, near_bytes, total
from grepseek_env.engine.explain import explain_costs, explain_why
from grepseek_env.engine.kernels import load
from grepseek_env.engine.modes import Engine
from grepseek_env.engine.narrow import narrow
from grepseek_env.engine.narrowed import NarrowedRunner
from grepseek_env.engine.prepared import prepare
from grepseek_env.engine.scheduler import SCHEDULER
from grepseek_env.errors import CorpusChanged
from tests.support.elsewhere import Elsewhere
from tests.support.odd_corpora import ordinary
from tests.support.oracle import DEADLINE
from tests.support.slicing import Sliceable

if TYPE_CHECKING:
    from pathlib import Path

    from grepseek_env.engine.prepared import Prepared

needs_kernels = pytest.mark.skipif(not load.are_possible(), reason="numba cannot be imported here")

SIZE = 1 << 30


@pytest.fixture
def corpus(tmp_path: Path) -> Sliceable:
    return Sliceable(tmp_path, ordinary(300))


@pytest.fixture
def engine(corpus: Sliceable) -> Engine:
    return Engine(corpus.sandbox, corpus.file, corpus.facts)


def look_at(corpus: Sliceable, command: str) -> Prepared:
    pipeline = parse(command)
    proven = narrow(pipeline, corpus.facts, locale="C")
    return prepare(proven, pipeline, lambda: [1] * 256)


@needs_kernels
@pytest.mark.parametrize(
    ("share", "indexed", "command", "worth"),
    [
        # programs on the lines
        (0.001, 0.01, "rg 'Einstein.*[0-9]' corpus.jsonl", True),
        (0.001, None, "rg 'Einstein.*[0-9]' corpus.jsonl", False),  # rg reads faster than that
        (0.9, 0.95, "rg 'Einstein.*[0-9]' corpus.jsonl", False),
        (0.05, None, "grep -o 'Einstein.*[0-9]' corpus.jsonl", True),
        (0.9, None, "grep -o 'Einstein.*[0-9]' corpus.jsonl", False),
        # no program at all
        (0.0, None, "rg -F Einstein corpus.jsonl", False),
        (0.0, None, "rg -F Einstein corpus.jsonl | head -n 3", False),
        (0.0, 0.001, "rg -F Einstein corpus.jsonl", True),
        (0.01, None, "rg -F Einstein corpus.jsonl | head -n 3", True),
        (1e-6, None, "rg -F Einstein corpus.jsonl | head -n 9000", False),  # these are not near the beginning
        (0.05, None, "rg -F Einstein corpus.jsonl | wc -l", True),
        (0.0, None, "grep -F Einstein corpus.jsonl", True),
    ],
)
def test_auto_searches_in_process_only_where_that_is_faster(
    corpus: Sliceable,
    monkeypatch: pytest.MonkeyPatch,
    share: float,
    indexed: float | None,
    command: str,
    *,
    worth: bool,
) -> None:
    spans = None if indexed is None else np.array([[0, int(indexed * SIZE)]], np.int64)
    made = Estimate(SIZE, SIZE // 500)
    monkeypatch.setattr(made, "share", lambda *_: share)
    prepared = look_at(corpus, command)
    assert prepared.question is not None
    assert made.is_worth_it(parse(command), prepared, prepared.question, -1, spans) is worth


@needs_kernels
@pytest.mark.parametrize(
    ("size", "share", "indexed", "command", "told"),
    [
        (SIZE, 0.9, 0.95, "rg 'Einstein.*[0-9]' corpus.jsonl", "about 90 % of the corpus holds"),
        (SIZE, 0.001, None, "rg 'Einstein.*[0-9]' corpus.jsonl", "without an index rg reads all of it faster"),
        (SIZE, 0.001, 0.9, "rg 'Einstein.*[0-9]' corpus.jsonl", "faster than what its index leaves"),
        (SIZE, 0.001, 0.01, "rg 'Einstein.*[0-9]' corpus.jsonl", "its index leaves little"),
        (SIZE, 0.01, None, "rg -F Einstein corpus.jsonl | head -n 3", "expected near the beginning"),
        (SIZE, 0.2, None, "rg -F Einstein corpus.jsonl | wc -l", "taking what rg prints"),
        (SIZE, 0.0, None, "grep -F Einstein corpus.jsonl", "grep would read it more slowly"),
        # Of a small corpus little is handed on, whatever the share is.
        (6_800_000, 0.01, None, "rg 'Einstein.*[0-9]' corpus.jsonl", "without an index rg reads all of it faster"),
        (6_800_000, 0.01, None, "rg -F Einstein corpus.jsonl | wc -l", "starting programs"),
        (200_000_000, 0.004, None, "rg -F Einstein corpus.jsonl | wc -l", "rg would lose more by being started"),
    ],
)
def test_the_reason_is_what_takes_longest(
    corpus: Sliceable,
    monkeypatch: pytest.MonkeyPatch,
    size: int,
    share: float,
    indexed: float | None,
    command: str,
    told: str,
) -> None:
    spans = None if indexed is None else np.array([[0, int(indexed * size)]], np.int64)
    monkeypatch.setattr(SCHEDULER, "cores", 2)
    made = Estimate(size, size // 500)
    monkeypatch.setattr(made, "share", lambda *_: share)
    prepared = look_at(corpus, command)
    assert prepared.question is not None
    asked = (parse(command), prepared, prepared.question, -1, spans)
    costs, worth = made.costs(*asked), made.is_worth_it(*asked)
    assert worth is (costs.here < costs.usual)
    narrowed = indexed is not None
    text = explain_why(costs, asked[0].stages[0].program, worth=worth, indexed=narrowed, narrowed=narrowed)
    assert told in text


def test_costs_are_told_in_milliseconds() -> None:
    costs = Costs(search=0.0005, hand_on=0.0012, read=0.25, take=0.0, start=0.0, share=0.0123)
    told = explain_costs(costs)
    assert told.startswith("1.7 ms here, 250 ms as it stands")
    assert told.endswith("about 1.23 % of the corpus is wanted")
    assert "under 0.01 ms here" in explain_costs(dataclasses.replace(costs, search=0.0, hand_on=0.0))
    assert "nothing that is wanted" in explain_costs(dataclasses.replace(costs, share=0.0))
    assert "wanted" not in explain_costs(dataclasses.replace(costs, share=None))
    assert "compiled" in explain_costs(None)


@needs_kernels
def test_the_share_of_wanted_lines_is_sampled_once(corpus: Sliceable, monkeypatch: pytest.MonkeyPatch) -> None:
    command = "rg 'Einstein.*[0-9]' corpus.jsonl | head -n 3"
    made = Estimate(corpus.facts.bytes, corpus.facts.lines)
    question = look_at(corpus, command).question
    assert question is not None
    with corpus.file.open("rb") as file:
        share = made.share(command, question, file.fileno())
    lines = corpus.data.splitlines(keepends=True)
    wanted = sum(len(line) for line in lines if b"Einstein" in line) / len(corpus.data)
    assert share == pytest.approx(wanted, abs=0.1)
    monkeypatch.setattr(estimate, "Scanner", None)
    assert made.share(command, question, -1) == share
    made.forget(command)
    with pytest.raises(TypeError), corpus.file.open("rb") as file:
        made.share(command, question, file.fileno())


@pytest.mark.parametrize(
    ("command", "bounded", "wanted"),
    [
        ("rg -F Einstein corpus.jsonl | head -n 3", False, SIZE // 32),
        ("rg -q Einstein corpus.jsonl", False, SIZE // 32),
        ("rg -F Einstein corpus.jsonl", True, SIZE // 32),  # a little may be more than is kept
        ("rg -F Einstein corpus.jsonl", False, 0),
        ("rg -F Einstein corpus.jsonl | wc -l", True, 0),
        ("rg -F Einstein corpus.jsonl | sort | head -n 3", False, 0),
        ("rg 'Einstein.*[0-9]' corpus.jsonl | head -n 3", False, 0),  # programs are started anyway
        ("grep -F Einstein corpus.jsonl | head -n 3", False, 0),  # grep is slower from the first byte on
    ],
)
def test_how_much_is_searched_before_anything_is_guessed(
    corpus: Sliceable, command: str, wanted: int, *, bounded: bool
) -> None:
    prepared = look_at(corpus, command)
    assert near_bytes(parse(command), prepared, SIZE, bounded=bounded) == wanted
    assert near_bytes(parse(command), prepared, estimate.MOST_BYTES, bounded=bounded) == 0


@needs_kernels
@pytest.mark.parametrize("budget", [None, 60])
@pytest.mark.parametrize(
    ("command", "near"),
    [
        ("rg -F begins corpus.jsonl | head -n 2", True),
        ("rg -F begins corpus.jsonl | head -n 99", False),  # some are there, and not all
        ("rg -F ends corpus.jsonl | head -n 2", False),
        ("rg -F both corpus.jsonl | head -n 2", True),
        ("rg -F both corpus.jsonl | head -n 3", False),
        ("rg -m 2 -F begins corpus.jsonl", True),
        ("rg -q begins corpus.jsonl", True),
        ("rg -q ends corpus.jsonl", False),
        ("rg -F nowhere corpus.jsonl | head -n 2", False),
        ("rg -F line corpus.jsonl | rg -v -F begins | head -n 1", True),
    ],
)
def test_the_beginning_answers_what_it_can_and_nothing_is_said_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, budget: int | None, *, near: bool
) -> None:
    middle = [b"line %d" % n for n in range(200)]
    beginning, end = [b"line both", b"line begins", b"line both begins"], [b"line both ends", b"line ends"]
    corpus = Sliceable(tmp_path, b"\n".join([*beginning, *middle, *end]) + b"\n")
    engine = Engine(corpus.sandbox, corpus.file, corpus.facts)
    monkeypatch.setattr(estimate, "MOST_BYTES", 0)
    monkeypatch.setattr(estimate, "_NEAR_PART", 4)
    monkeypatch.setattr(Estimate, "is_worth_it", lambda *_: False)
    monkeypatch.setattr("grepseek_env.engine.narrowed.MOST_BYTES", 0)
    monkeypatch.setattr("grepseek_env.engine.narrowed.are_compiled", lambda: True)
    elsewhere = Elsewhere(engine)
    ours = NarrowedRunner(engine, elsewhere, "auto").run(parse(command), timeout=DEADLINE, max_output_bytes=budget)
    wanted = corpus.wanted(command)
    cut = budget is not None and len(wanted.stdout) > budget
    assert ours.stdout == (wanted.stdout[:budget] if cut else wanted.stdout)
    assert ours.exit_code == (None if cut else wanted.exit_code)
    assert bool(elsewhere.commands) is not near


@needs_kernels
def test_a_corpus_that_became_shorter_is_a_fault_while_its_beginning_is_searched(
    corpus: Sliceable, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimate, "MOST_BYTES", 0)
    monkeypatch.setattr(estimate, "_NEAR_PART", 2)
    monkeypatch.setattr("grepseek_env.engine.narrowed.MOST_BYTES", 0)
    monkeypatch.setattr("grepseek_env.engine.narrowed.are_compiled", lambda: True)
    large = dataclasses.replace(engine, facts=dataclasses.replace(engine.facts, bytes=4 * len(corpus.data)))
    runner = NarrowedRunner(large, Elsewhere(engine), "auto")
    with pytest.raises(CorpusChanged):
        runner.run(parse("rg -F nowhere corpus.jsonl | head -n 2"), timeout=DEADLINE)


def test_how_common_bytes_are(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"aab\n" * 100_000)
    with (tmp_path / "f").open("rb") as file:
        counts = frequencies(file.fileno(), 400_000)
    assert counts[ord("a")] == 2 * counts[ord("b")] == 2 * counts[ord("\n")]
    assert sum(counts) == counts[ord("a")] * 2
    assert total(np.array([[0, 3], [7, 8]], np.int64)) == 4
