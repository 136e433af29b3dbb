from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from grepseek_env.corpus.store import CorpusStore
from grepseek_env.engine import narrowed, scanning, together
from grepseek_env.engine.batch import Asked, answer_together
from grepseek_env.engine.kernels import load
from grepseek_env.engine.literals.records import (
    CountBytes,
    CountLines,
    Everything,
    ExactFilter,
    Exists,
    GrepCount,
    HeadLines,
    Literal,
)
from grepseek_env.engine.local import LocalBackend
from grepseek_env.engine.lookups import Lookups
from grepseek_env.engine.loop import OutOfTime
from grepseek_env.engine.narrowed import NarrowedRunner
from grepseek_env.engine.once import Output
from grepseek_env.engine.question import Question
from grepseek_env.errors import BackendClosed, CommandRefused, CorpusChanged, GrepSeekError
from grepseek_env.types import CommandResult
from tests.support.odd_corpora import ordinary

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from grepseek_env.commands import Pipeline
    from grepseek_env.engine.literals.records import Sink

pytestmark = pytest.mark.skipif(not load.are_possible(), reason="numba cannot be imported here")

LINES = [b"%03d Einstein %s" % (number, b"Ulm" if number % 3 else b"K\xc3\xb6ln") for number in range(200)]
COMMANDS = [
    "rg -F Einstein corpus.jsonl | head -n 3",
    "rg -F Einstein corpus.jsonl | wc -l",
    "grep -i einstein corpus.jsonl | wc -c",
    "rg -F Einstein corpus.jsonl",
    "rg -c QQQ corpus.jsonl",
    "grep -c QQQ corpus.jsonl",
    "rg -q Ulm corpus.jsonl",
    "rg -F QQQ corpus.jsonl",
    "rg -F Ulm corpus.jsonl | rg -v -F Einstein | head -n 2",
    "rg -F Einstein corpus.jsonl | sort -r | head -n 2",
    "rg 'Einstein.*[0-9]' corpus.jsonl | head -n 2",
    "wc -l corpus.jsonl",
    "rg -F Einstein corpus.jsonl > out",
    "rg '(' corpus.jsonl",
]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CorpusStore]:
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(ordinary(300))
    with CorpusStore.open(path) as opened:
        yield opened


def asked(sink: Sink, *texts: bytes, most: int | None = None) -> Asked:
    filters = [ExactFilter((Literal(text),)) for text in texts]
    return Asked(Question(filters), sink, Output(most))


def one_pass(path: Path, commands: Sequence[Asked]) -> list[CommandResult]:
    file = os.open(path, os.O_RDONLY)
    try:
        return answer_together(file, path.stat().st_size, commands)
    finally:
        os.close(file)


@pytest.mark.parametrize("buffer", [50, 256 << 10])
@pytest.mark.parametrize("final", [b"\n", b""])
def test_one_pass_answers_every_sink(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, buffer: int, final: bytes
) -> None:
    monkeypatch.setattr(scanning, "_BUFFER", buffer)
    monkeypatch.setattr(scanning, "_ROOM", 40)
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(b"\n".join(LINES) + final)
    ulm = [line + b"\n" for line in LINES if b"Ulm" in line]
    cologne = [line + b"\n" for line in LINES if b"Ulm" not in line]
    results = one_pass(
        path,
        [
            asked(Everything(), b"Einstein"),
            asked(Everything(), b"Einstein", most=1000),
            asked(Everything(), b"QQQ"),
            asked(HeadLines(2), b"Ulm", b"Einstein"),
            asked(HeadLines(0), b"Ulm"),
            asked(HeadLines(0, search=True), b"Ulm"),
            asked(HeadLines(5), b"199"),
            asked(CountLines(), b"Ulm"),
            asked(CountBytes(), b"K\xc3\xb6ln"),
            asked(GrepCount(zero=True), b"QQQ"),
            asked(GrepCount(zero=False), b"QQQ"),
            asked(Exists(), b"Ulm"),
            asked(CountLines(), b"Ulm", most=1),
        ],
    )
    everything = b"".join(line + b"\n" for line in LINES)
    assert results == [
        CommandResult(everything, b"", 0),
        CommandResult(everything[:1000], b"", None, output_truncated=True),
        CommandResult(b"", b"", 1),
        CommandResult(b"".join(ulm[:2]), b"", 0),
        CommandResult(b"", b"", 0),
        CommandResult(b"", b"", 1),
        CommandResult(LINES[199] + b"\n", b"", 0),
        CommandResult(b"%d\n" % len(ulm), b"", 0),
        CommandResult(b"%d\n" % len(b"".join(cologne)), b"", 0),
        CommandResult(b"0\n", b"", 1),
        CommandResult(b"", b"", 1),
        CommandResult(b"", b"", 0),
        CommandResult(b"1", b"", None, output_truncated=True),
    ]
    assert one_pass(path, []) == []


def test_a_pass_ends_when_nobody_wants_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "_BUFFER", 100)
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(b"needle\n" * 1000)
    file = os.open(path, os.O_RDONLY)
    try:  # the file is said to be longer than it is: reading on would be a fault
        results = answer_together(file, 10**6, [asked(HeadLines(3), b"needle"), asked(Exists(), b"need")])
    finally:
        os.close(file)
    assert [each.exit_code for each in results] == [0, 0]


def test_a_deadline_ends_only_those_that_want_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "_BUFFER", 100)
    monkeypatch.setattr(scanning, "_STEP", 1)
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(b"needle\n" * 1000)

    def check() -> None:
        raise OutOfTime

    file = os.open(path, os.O_RDONLY)
    try:
        first, second = answer_together(file, 7000, [asked(HeadLines(3), b"needle"), asked(CountLines(), b"n")], check)
    finally:
        os.close(file)
    assert first == CommandResult(b"needle\n" * 3, b"", 0)
    assert second == CommandResult(b"", b"", None, timed_out=True)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["auto", "narrowed", "sliced"])
@pytest.mark.parametrize("budget", [None, 30])
@pytest.mark.parametrize("quick", [0, 8 << 20])
def test_a_batch_gives_what_single_commands_give(
    store: CorpusStore, monkeypatch: pytest.MonkeyPatch, mode: str, budget: int | None, quick: int
) -> None:
    monkeypatch.setattr(narrowed, "QUICK_BYTES", quick)  # 0: in-process commands share a pass
    with LocalBackend(store, mode=mode) as batching, LocalBackend(store, mode="sequential") as single:
        results = batching.run_many([*COMMANDS, COMMANDS[0]], max_output_bytes=budget)
        for command, result in zip(COMMANDS, results, strict=False):
            if isinstance(result, CommandRefused):
                with pytest.raises(CommandRefused):
                    single.run(command)
            else:
                assert result == single.run(command, max_output_bytes=budget), command
        assert results[-1] == results[0]
        assert batching.run_many(COMMANDS, max_output_bytes=budget)[:12] == results[:12]


def manners(store: CorpusStore, **changes: object) -> list[str]:
    with LocalBackend(store, mode="narrowed") as backend:
        runner = backend._runner
        assert isinstance(runner, NarrowedRunner)
        for name, value in changes.items():
            setattr(runner, name, value)
        from grepseek_env.commands import parse

        return [runner.manner(parse(command)) for command in (*COMMANDS[:2], COMMANDS[9], COMMANDS[11])]


def test_how_commands_of_a_batch_are_run(store: CorpusStore, monkeypatch: pytest.MonkeyPatch) -> None:
    assert manners(store) == ["quick", "quick", "alone", "alone"]
    monkeypatch.setattr(narrowed, "QUICK_BYTES", 10)
    assert manners(store) == ["together", "together", "alone", "alone"]
    says_nothing = {"_candidates": Lookups(lambda: lambda _: None)}
    assert manners(store, **says_nothing) == ["together", "together", "alone", "alone"]
    parts = {"_candidates": Lookups(lambda: lambda _: scanning.whole(100))}
    assert manners(store, **parts) == ["quick", "alone", "alone", "alone"]


def test_first_lines_that_an_index_says_nothing_about_share_a_pass(
    store: CorpusStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(narrowed, "QUICK_BYTES", 10)
    passes: list[int] = []

    def one_pass(self: NarrowedRunner, pipelines: Sequence[Pipeline], **options: Any) -> list[CommandResult]:
        passes.append(len(pipelines))
        return together_as_ever(self, pipelines, **options)

    together_as_ever = NarrowedRunner.run_together
    monkeypatch.setattr(NarrowedRunner, "run_together", one_pass)
    monkeypatch.setattr(together, "_FEWEST_TOGETHER", 64)
    # Some are near the beginning, some further on, some nowhere.
    texts = ["Einstein", "Ulm", "T49", "T2", "the file", "\u212aelvin", "QQQ", "~~", "ZZ"]
    commands = [f"rg -F {text!r} corpus.jsonl | head -n {count}" for text in texts for count in (1, 7)]
    with LocalBackend(store, mode="narrowed") as batching, LocalBackend(store, mode="sequential") as single:
        assert isinstance(batching._runner, NarrowedRunner)
        batching._runner._candidates = Lookups(lambda: lambda _: None)
        assert batching.run_many(commands) == [single.run(command) for command in commands]
    assert passes == [len(commands)]


def test_results_are_kept_and_taken_from_the_cache(store: CorpusStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalBackend(store) as backend:
        first = backend.run_many(COMMANDS[:6])
        stats = backend.cache_stats()
        assert stats is not None
        assert (stats.hits, stats.misses, stats.entries) == (0, 6, 6)
        monkeypatch.setattr(together.Batch, "_run_all", None)
        assert backend.run_many(COMMANDS[:6]) == first
        assert backend.run(COMMANDS[0]) == first[0]
        stats = backend.cache_stats()
        assert stats is not None
        assert stats.hits == 7


def test_a_corpus_that_changed_is_told_for_each_command(store: CorpusStore) -> None:
    with LocalBackend(store) as backend:
        backend.run_many(COMMANDS[:2])
        store.corpus_file.write_bytes(b"other\n")
        results = backend.run_many(COMMANDS[4:8])
    assert all(isinstance(each, CorpusChanged) for each in results)


def test_a_closed_backend_ends_a_batch(store: CorpusStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalBackend(store, cache_bytes=0) as backend:
        run = NarrowedRunner.run_quick

        def close_first(self: NarrowedRunner, *args: object, **options: object) -> list[CommandResult]:
            backend._closing.set()
            monkeypatch.setattr(scanning, "_STEP", 1)
            return run(self, *args, **options)  # type: ignore[arg-type] # passed on

        monkeypatch.setattr(NarrowedRunner, "run_quick", close_first)
        results = backend.run_many([*COMMANDS[:2], COMMANDS[9]])
    # What needs no time to finish may finish; a program is never left running.
    assert all(isinstance(each, CommandResult | BackendClosed) for each in results)


def test_errors_stand_in_their_places(store: CorpusStore) -> None:
    with LocalBackend(store) as backend:
        results = backend.run_many(["rm -rf /", COMMANDS[0], "nonsense"])
    assert [isinstance(each, GrepSeekError) for each in results] == [True, False, True]
