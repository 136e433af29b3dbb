from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grepseek_env.engine import fastpath, scanning
from grepseek_env.engine.fastpath import FileSearch, conclude, demand
from grepseek_env.engine.interrupts import HeldSignals
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
    Rest,
)
from grepseek_env.engine.loop import Decided
from grepseek_env.engine.memory import MemoryCorpus
from grepseek_env.engine.once import Output
from grepseek_env.engine.question import Question
from grepseek_env.engine.scanning import EVERY_LINE
from grepseek_env.engine.scheduler import Scheduler
from grepseek_env.errors import CorpusChanged
from tests.support.questions import filters, literals, matching, texts

if TYPE_CHECKING:
    from pathlib import Path

    from grepseek_env.engine.literals.records import Clause, Sink
    from grepseek_env.engine.scanning import Spans

needs_kernels = pytest.mark.skipif(not load.are_possible(), reason="numba cannot be imported here")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return tmp_path / "corpus.jsonl"


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is parted among threads, in pieces of a few lines."""
    monkeypatch.setattr(fastpath, "_ALONE", 0)
    monkeypatch.setattr(fastpath, "FIRST_BYTES", 40)
    monkeypatch.setattr(scanning, "_BUFFER", 45)
    monkeypatch.setattr(scanning, "_FREE", scanning._Free())
    monkeypatch.setattr(scanning, "_LARGEST_KEPT", 0)
    for name in ("_FIRST_PIECE", "_WRITTEN_PIECE", "_COUNTED_PIECE"):
        monkeypatch.setattr(fastpath, name, 50)
    monkeypatch.setattr(fastpath, "usable_cores", lambda: 4)


def file_search(
    path: Path, question: Question, most_lines: int, index: fastpath.Index | None = None, *, early: bool, cores: int
) -> tuple[bytes, int, int]:
    found: list[bytes] = []
    file = os.open(path, os.O_RDONLY)
    try:
        with HeldSignals() as signals, Scheduler(cores).admit(signals) as grant:
            search = FileSearch(file, path.stat().st_size, question, index, grant, lambda: None)
            lines, size = search(lambda data: found.append(bytes(data)), most_lines=most_lines, early=early)
            counted = search(None, most_lines=most_lines, early=early)
    finally:
        os.close(file)
    assert counted == (lines, size)
    return b"".join(found), lines, size


@needs_kernels
@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize(("early", "cores"), [(True, 1), (True, 4), (False, 1), (False, 4)])
def test_searches_in_threads_and_after_a_first_look_give_the_same(corpus: Path, cores: int, *, early: bool) -> None:
    @settings(max_examples=60)
    @given(data=texts, chosen=st.lists(filters(), min_size=1, max_size=2), most=st.sampled_from([1, 2, EVERY_LINE]))
    def check(data: bytes, chosen: list[ExactFilter], most: int) -> None:
        corpus.write_bytes(data * 5)
        question = Question(chosen)
        wanted = matching(question, data * 5)[:most]
        whole = b"".join(wanted)
        assert file_search(corpus, question, most, early=early, cores=cores) == (whole, len(wanted), len(whole))

    check()


@needs_kernels
@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("early", [True, False])
def test_an_index_leaves_only_its_parts_to_be_searched(corpus: Path, *, early: bool) -> None:
    rows = [b"row %02d needle" % number for number in range(50)]
    corpus.write_bytes(b"\n".join(rows) + b"\n")
    width = len(rows[0]) + 1
    asked: list[tuple[Clause, ...]] = []

    def index(clauses: tuple[Clause, ...]) -> Spans:
        asked.append(clauses)
        return np.array([[1 * width, 4 * width], [40 * width, 41 * width]], np.int64)

    literal = Literal(b"needle")
    question = Question([ExactFilter((literal,))], (), ((literal,),))
    found, lines, _ = file_search(corpus, question, EVERY_LINE, index, early=early, cores=4)
    first = rows[:3] if early else rows[1:3]  # what the first look saw counts, and counts once
    assert found.splitlines() == [*first, rows[3], rows[40]]
    assert lines == len(first) + 2
    assert asked == [((literal,),)] * 2


@needs_kernels
@pytest.mark.usefixtures("small_pieces")
def test_a_full_output_ends_all_threads(corpus: Path) -> None:
    corpus.write_bytes(b"needle\n" * 10_000)
    question = Question([ExactFilter((Literal(b"needle"),))])
    output = Output(100)
    file = os.open(corpus, os.O_RDONLY)
    try:
        with HeldSignals() as signals, Scheduler(4).admit(signals) as grant:
            search = FileSearch(file, 70_000, question, None, grant, lambda: None)
            with pytest.raises(Decided):
                search(output.write)
    finally:
        os.close(file)
    assert output.value() == (b"needle\n" * 15)[:100]


@needs_kernels
@pytest.mark.usefixtures("small_pieces")
def test_a_check_that_raises_ends_all_threads(corpus: Path) -> None:
    corpus.write_bytes(b"needle\n" * 10_000)
    question = Question([ExactFilter((Literal(b"needle"),))])

    def check() -> None:
        raise InterruptedError("now")

    file = os.open(corpus, os.O_RDONLY)
    try:
        with HeldSignals() as signals, Scheduler(4).admit(signals) as grant, pytest.raises(InterruptedError):
            FileSearch(file, 70_000, question, None, grant, check)(None)
    finally:
        os.close(file)


@pytest.mark.slow
def test_a_corpus_in_memory_gives_the_same(corpus: Path) -> None:
    @settings(max_examples=200)
    @given(
        data=texts,
        chosen=st.lists(filters(), max_size=3),
        clause=st.lists(literals(), min_size=1, max_size=2),
        most=st.sampled_from([0, 1, 2, EVERY_LINE]),
    )
    def check(data: bytes, chosen: list[ExactFilter], clause: list[Literal], most: int) -> None:
        corpus.write_bytes(data)
        question = Question(chosen, () if chosen and most == 1 else (tuple(clause),))
        wanted = matching(question, data)[:most]
        held = MemoryCorpus(corpus, len(data))
        found: list[bytes] = []
        counts = held.search(question, found.append, most_lines=most)
        assert found == wanted
        assert counts == (len(wanted), len(b"".join(wanted))) == held.search(question, None, most_lines=most)

    check()


def test_a_corpus_of_another_size_is_not_held(corpus: Path) -> None:
    corpus.write_bytes(b"line\n")
    with pytest.raises(CorpusChanged, match="5 bytes instead of 6"):
        MemoryCorpus(corpus, 6)


@pytest.mark.parametrize(
    ("sink", "lines", "printed", "code"),
    [
        (Everything(), 0, b"", 1),
        (Everything(), 2, b"", 0),
        (HeadLines(3), 0, b"", 0),
        (HeadLines(3, search=True), 0, b"", 1),
        (HeadLines(3, search=True), 2, b"", 0),
        (CountLines(), 0, b"0\n", 0),
        (CountLines(), 12, b"12\n", 0),
        (CountBytes(), 12, b"120\n", 0),
        (GrepCount(zero=True), 0, b"0\n", 1),
        (GrepCount(zero=False), 0, b"", 1),
        (GrepCount(zero=False), 12, b"12\n", 0),
        (Exists(), 1, b"", 0),
        (Exists(), 0, b"", 1),
    ],
)
def test_what_sinks_print_beside_lines(sink: Sink, lines: int, printed: bytes, code: int) -> None:
    output = Output(None)
    assert conclude(sink, lines, 10 * lines, output) == code
    assert output.value() == printed


def test_counts_are_cut_like_everything() -> None:
    output = Output(1)
    with pytest.raises(Decided):
        conclude(CountLines(), 12, 120, output)
    assert output.value() == b"1"


def test_what_sinks_need() -> None:
    assert demand(HeadLines(3), bounded=False).most_lines == 3
    assert demand(Exists(), bounded=False).most_lines == 1
    assert not demand(CountLines(), bounded=True).written
    assert not demand(Everything(), bounded=False).early
    assert demand(Everything(), bounded=True).early
    assert demand(Rest(1), bounded=False).written
