from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

import pytest

from grepseek_env.commands import parse
from grepseek_env.engine import modes
from grepseek_env.engine.modes import Engine, SequentialRunner, SlicedRunner
from grepseek_env.engine.scheduler import Scheduler
from tests.support.odd_corpora import ordinary
from tests.support.slicing import Sliceable

if TYPE_CHECKING:
    from pathlib import Path

MB = 1 << 20
CPU = "grep -i einstein corpus.jsonl | sort"
SCAN = "rg -F Einstein corpus.jsonl"


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """A corpus that claims to be large, on a machine of four cores."""
    monkeypatch.setattr(modes, "SCHEDULER", Scheduler(4))
    corpus = Sliceable(tmp_path, ordinary(200))
    with corpus.file.open("r+b") as file:  # holes: nothing here reads them
        for place in range(1, 17):
            file.seek(place * 25 * MB - 1)
            file.write(b"\n")
    facts = dataclasses.replace(corpus.facts, bytes=400 * MB)
    return Engine(corpus.sandbox, corpus.file, facts)


def explained(engine: Engine, command: str, mode: str = "sliced") -> str:
    return modes.MODES[mode](engine).explain(parse(command))


@pytest.mark.parametrize("mode", ["sliced", "auto"])
def test_what_the_processor_limits_is_sliced_and_what_memory_limits_is_not(engine: Engine, mode: str) -> None:
    assert "4, 4 at once, as pipes" in explained(engine, CPU, mode)
    assert "limited by memory" in explained(engine, SCAN, mode)


def test_sequential_says_what_it_starts(engine: Engine) -> None:
    text = explained(engine, CPU, "sequential")
    assert text.startswith("sequential: one process a program")
    assert text == SequentialRunner(engine).explain(parse(CPU))


@pytest.mark.parametrize(
    ("change", "command", "reason"),
    [
        ({"slices": 1}, CPU, "there is one core"),
        ({}, "rg -H Einstein corpus.jsonl", "the file's name matters and there are no slice files"),
        ({}, "sed -n 1p corpus.jsonl", "a line number"),
        ({}, "sort -u corpus.jsonl | wc -l", "sort uses all cores by itself"),
        ({}, "cat corpus.jsonl | sort", "sort uses all cores by itself"),
    ],
)
def test_the_reason_for_one_pass_is_told(engine: Engine, change: dict[str, int], command: str, reason: str) -> None:
    assert reason in explained(dataclasses.replace(engine, **change), command)


@pytest.mark.parametrize(("size", "sliced", "auto"), [(1, False, False), (20, True, False), (40, True, True)])
def test_small_corpora_are_read_in_one_pass(engine: Engine, size: int, *, sliced: bool, auto: bool) -> None:
    engine = dataclasses.replace(engine, facts=dataclasses.replace(engine.facts, bytes=size * MB))
    assert ("smaller than" not in explained(engine, CPU, "sliced")) is sliced
    assert ("smaller than" not in explained(engine, CPU, "auto")) is auto


def test_slice_files_are_taken_where_there_are_any_unless_pipes_are_wanted(engine: Engine, tmp_path: Path) -> None:
    files = tuple((tmp_path / str(number), 200 * MB) for number in range(2))
    with_files = dataclasses.replace(engine, slice_files=files)
    assert "2, 4 at once, as files of their own" in explained(with_files, CPU)
    assert "as pipes" in explained(dataclasses.replace(with_files, feeding="pipe"), CPU)
    many = dataclasses.replace(engine, slice_files=files * 9)
    assert "as pipes" in explained(many, CPU)  # a merge of so many needs temporary files
    assert "as files" in explained(many, "grep -ci einstein corpus.jsonl")


def test_slices_cover_the_corpus_and_grow_where_the_first_may_decide(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    with file.open("wb") as out:
        for _ in range(200):
            out.write(b"x" * (MB // 2 - 1) + b"\n")
    size = file.stat().st_size
    handle = os.open(file, os.O_RDONLY)
    try:
        even = modes._layout(handle, size, 2, early=False, big_last=False)
        growing = modes._layout(handle, size, 2, early=True, big_last=False)
        large = modes._layout(handle, size, 2, early=False, big_last=True)
    finally:
        os.close(handle)
    for cuts in (even, growing, large):
        assert list(cuts) == sorted(set(cuts))
        assert all(0 < cut < size and cut % (MB // 2) == 0 for cut in cuts)
    assert len(even) == 7
    assert large[-1] == size // 2
    assert len(large) == 4


def test_a_busy_machine_gets_one_pass_in_auto(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = Sliceable(tmp_path, ordinary(200))
    monkeypatch.setattr(modes, "_WORTH_IT", {"auto": 0, "sliced": 0})
    used: list[str] = []
    monkeypatch.setattr(modes, "run_sliced", lambda *_, **__: used.append("slices"))  # which gives None: only whole
    for cores, expected in ((1, []), (2, ["slices"])):
        monkeypatch.setattr(modes, "SCHEDULER", Scheduler(cores))
        runner = SlicedRunner(Engine(corpus.sandbox, corpus.file, corpus.facts, slices=2), "auto")
        result = runner.run(parse(CPU), timeout=60)
        assert result.stdout == corpus.wanted(CPU).stdout
        assert used == expected
