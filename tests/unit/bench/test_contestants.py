from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from grepseek_env.bench.engine.contestants import Answer, ceiling, parse_contestants, split_corpus
from grepseek_env.corpus.store import CorpusStore
from grepseek_env.engine.local import MODES
from grepseek_env.errors import ConfigError
from tests.support.oracle import oracle

if TYPE_CHECKING:
    from pathlib import Path

COMMANDS = (
    "rg -F 'line' corpus.jsonl | head -n 3",
    "grep -c '7' corpus.jsonl",
    "rg -F 'absent' corpus.jsonl",
    "rg '(' corpus.jsonl",
    "awk 'BEGIN { exit 7 }' corpus.jsonl",
)


@pytest.fixture
def store(tmp_path: Path) -> CorpusStore:
    path = tmp_path / "text.jsonl"
    path.write_bytes(b"".join(b"line %d\n" % i for i in range(1000)))
    return CorpusStore.open(path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["bash", *MODES, "sliced:2", "sliced:3:file", "auto:index", "parts:2", "parts:3:index"]
)
def test_contestants_answer_as_the_oracle(
    store: CorpusStore, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GREPSEEK_CACHE", str(tmp_path / "cache"))
    from grepseek_env.engine.programs import open_programs

    (contestant,) = (c for c in parse_contestants((name,)) if c.name == name)
    with contestant.open(store) as ready:
        assert (ready.index_bytes > 0) is name.endswith(":index")
        for command in COMMANDS:
            truth = oracle(command, store.view, open_programs().folder)
            assert ready.run(command, 60) == Answer(truth.stdout, truth.exit_code)


@pytest.mark.parametrize("name", ["bash", "sequential"])
def test_time_outs_are_told(store: CorpusStore, name: str) -> None:
    (contestant,) = (c for c in parse_contestants((name,)) if c.name == name)
    with contestant.open(store) as ready:
        answer = ready.run("awk 'BEGIN { while (1) x++ }'", 0.2)
        assert answer.timed_out
        assert answer.exit_code is None
        assert ready.run("wc -l corpus.jsonl", 60) == Answer(b"1000 corpus.jsonl\n", 0)


def test_bash_always_takes_part_and_comes_first() -> None:
    assert [c.name for c in parse_contestants(("auto", "sequential"))] == ["bash", "auto", "sequential"]
    assert [c.name for c in parse_contestants(("sequential", "bash"))] == ["bash", "sequential"]


@pytest.mark.parametrize(
    "name", ["sequentia", "sequential:0", "sequential:x", "sequential:", "sliced:2:tape", "parts", "ray:0", "zsh", ""]
)
def test_unknown_names_are_errors(name: str) -> None:
    with pytest.raises(ConfigError, match="no contestant is named"):
        parse_contestants((name,))


def test_a_name_may_come_once() -> None:
    with pytest.raises(ConfigError, match="once"):
        parse_contestants(("auto", "auto"))


def test_parts_are_whole_lines_and_all_of_them(store: CorpusStore, tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    parts = [path.read_bytes() for path in split_corpus(store.corpus_file, 3, folder)]
    assert len(parts) == 3
    assert all(part.endswith(b"\n") for part in parts)
    assert b"".join(parts) == store.corpus_file.read_bytes()
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) < 30


def test_the_ceiling_runs_on_every_part_and_leaves_nothing(store: CorpusStore, tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    with ceiling(2, folder).open(store) as ready:
        assert b"".join(file.read_bytes() for file in ready.files) == store.corpus_file.read_bytes()
        assert all(folder in file.parents for file in ready.files)
        answer = ready.run("wc -l corpus.jsonl", 60)
        counts = [int(line.split()[0]) for line in answer.stdout.splitlines()]
        assert len(counts) == 2
        assert sum(counts) == 1000
        assert ready.run("rg -F 'line' corpus.jsonl", 60).stdout == store.corpus_file.read_bytes()
        assert ready.run("awk 'BEGIN { while (1) x++ }'", 0.2).timed_out
    assert not list(folder.iterdir())
