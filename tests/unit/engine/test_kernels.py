from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grepseek_env.engine import scanning
from grepseek_env.engine.kernels import load
from grepseek_env.engine.kernels.encode import Needle, Rule, encode
from grepseek_env.engine.literals.records import ExactFilter, Literal
from grepseek_env.engine.question import Question
from grepseek_env.engine.scanning import EVERY_LINE, Buffers, Scanner, read_pieces, whole
from grepseek_env.errors import CorpusChanged
from tests.support.questions import filters, literals, matching, texts

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(not load.are_possible(), reason="numba cannot be imported here")


def scanned(
    question: Question, file: int, spans: np.ndarray[tuple[int, int], np.dtype[np.int64]], most_lines: int = EVERY_LINE
) -> tuple[list[bytes], int, int]:
    found: list[bytes] = []
    with Scanner(question) as scanner:
        assert not scanner.scan(file, spans, lambda data: found.append(bytes(data)), most_lines=most_lines)
        return b"".join(found).splitlines(keepends=True) if found else [], scanner.lines, scanner.bytes


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return tmp_path / "corpus.jsonl"


@pytest.mark.parametrize(("buffer", "room"), [(1, 1), (64, 7), (256 << 10, 256 << 10)])
def test_lines_are_those_of_the_slow_way(corpus: Path, buffer: int, room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "_BUFFER", buffer)
    monkeypatch.setattr(scanning, "_ROOM", room)
    monkeypatch.setattr(scanning, "_FREE", scanning._Free())
    monkeypatch.setattr(scanning, "_LARGEST_KEPT", 0)  # each scan begins with buffers of this size

    @settings(max_examples=80)
    @given(data=texts, chosen=st.lists(filters(), min_size=1, max_size=3), clause=st.lists(literals(), max_size=2))
    def check(data: bytes, chosen: list[ExactFilter], clause: list[Literal]) -> None:
        corpus.write_bytes(data)
        question = Question(chosen, (tuple(clause),) if clause else ())
        wanted = matching(question, data)
        file = os.open(corpus, os.O_RDONLY)
        try:
            lines, count, size = scanned(question, file, whole(len(data)))
            assert (b"".join(lines), count, size) == (b"".join(wanted), len(wanted), len(b"".join(wanted)))
            first = scanned(question, file, whole(len(data)), most_lines=1)[0]
            assert b"".join(first) == b"".join(wanted[:1])
            with Scanner(question) as scanner:
                scanner.scan(file, whole(len(data)), None)
                assert (scanner.lines, scanner.bytes) == (count, size)
        finally:
            os.close(file)

    check()


def lines_of(*parts: bytes) -> bytes:
    return b"".join(part + b"\n" for part in parts)


def test_only_the_spans_are_looked_at(corpus: Path) -> None:
    rows = [b"needle %d" % number for number in range(20)]
    data = lines_of(*rows)
    corpus.write_bytes(data)
    ends = [at + 1 for at, byte in enumerate(data) if byte == 10]
    spans = np.array([[ends[2], ends[4]], [ends[4], ends[5]], [ends[18], ends[19]]], np.int64)
    question = Question([ExactFilter((Literal(b"needle"),))])
    file = os.open(corpus, os.O_RDONLY)
    try:
        found, count, _ = scanned(question, file, spans)
        none = scanned(question, file, whole(0))
    finally:
        os.close(file)
    assert found == [row + b"\n" for row in (rows[3], rows[4], rows[5], rows[19])]
    assert count == 4
    assert none == ([], 0, 0)


def test_a_scan_can_stop_and_tell_how_far_it_came(corpus: Path) -> None:
    data = lines_of(*(b"line %06d" % number for number in range(100_000)))
    corpus.write_bytes(data)
    question = Question([ExactFilter((Literal(b"line"),))])
    file = os.open(corpus, os.O_RDONLY)
    try:
        with Scanner(question) as scanner:
            assert scanner.scan(file, whole(len(data)), None, most_read=300_000)
            at, before = scanner.offset, scanner.lines
            assert 300_000 <= at < len(data)
            assert data[:at].endswith(b"\n")
            assert before == data[:at].count(b"\n")
            assert not scanner.scan(file, whole(len(data), at), None)
            assert scanner.lines == 100_000
    finally:
        os.close(file)


def test_a_file_that_became_shorter_is_a_fault(corpus: Path) -> None:
    corpus.write_bytes(b"needle\n" * 10)
    question = Question([ExactFilter((Literal(b"needle"),))])
    file = os.open(corpus, os.O_RDONLY)
    try:
        with Scanner(question) as scanner, pytest.raises(CorpusChanged, match="ends before byte"):
            scanner.scan(file, whole(1000), None)
        buffers = Buffers()
        with pytest.raises(CorpusChanged, match="ends before byte 71"):
            read_pieces(file, 1000, buffers, lambda _: True, lambda: None)
    finally:
        os.close(file)


def test_a_check_may_end_a_scan(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "_STEP", 1 << 10)
    corpus.write_bytes(b"needle\n" * 100_000)
    question = Question([ExactFilter((Literal(b"absent"),))])

    def check() -> None:
        raise InterruptedError("now")

    file = os.open(corpus, os.O_RDONLY)
    try:
        with Scanner(question, check) as scanner, pytest.raises(InterruptedError):
            scanner.scan(file, whole(700_000), None)
    finally:
        os.close(file)


@pytest.mark.parametrize("size", [1, 100, 64 << 10])
def test_pieces_are_whole_lines_and_together_the_corpus(corpus: Path, size: int) -> None:
    data = b"".join(b"y" * (number * 37 % 300) + b"\n" for number in range(500)) + b"open"
    corpus.write_bytes(data)
    buffers = Buffers()
    buffers.grow_buffer(size)
    seen: list[bytes] = []

    def look(end: int) -> bool:
        offset = buffers.start - int(buffers.buffer.ctypes.data)
        seen.append(buffers.buffer[offset : offset + end - buffers.start].tobytes())
        return True

    file = os.open(corpus, os.O_RDONLY)
    try:
        read_pieces(file, len(data), buffers, look, lambda: None)
    finally:
        os.close(file)
    assert all(piece.endswith(b"\n") for piece in seen)
    assert b"".join(seen) == data + b"\n"


def test_the_rarest_two_bytes_are_looked_for() -> None:
    record = encode([Rule((Needle(b"the quiz"),))]).keep[0]
    places = set(record[-8:-6].tolist())
    assert {b"the quiz"[place] for place in places} == {ord("q"), ord("z")}


def test_importing_the_engine_does_not_import_numba() -> None:
    code = "import sys, grepseek_env.engine.local; sys.exit('numba' in sys.modules or 'llvmlite' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_code_folder_tells_versions_and_sources_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    first = load.code_folder.__wrapped__()
    assert first.startswith(str(tmp_path))
    assert first == load.code_folder.__wrapped__()
    monkeypatch.setattr(load, "_processor", lambda: "another")
    assert load.code_folder.__wrapped__() != first


def test_a_numba_that_will_not_be_imported_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> object:
        raise ImportError(f"{name} needs an older numpy")

    monkeypatch.setattr(load, "_LOADED", [])
    monkeypatch.setattr(load, "_REFUSED", [])
    monkeypatch.setattr(load.importlib, "import_module", refuse)
    assert load.load() is None
    assert not load.are_possible()
    assert not load.are_compiled()
    monkeypatch.setattr(load.importlib, "import_module", None)
    assert load.load() is None


def test_a_compilation_is_announced_and_noted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told: list[str] = []
    monkeypatch.setattr(load, "_LOADED", [])
    monkeypatch.setattr(load, "code_folder", lambda: str(tmp_path))
    monkeypatch.setattr(load.importlib, "import_module", lambda name: name)
    assert not load.are_compiled()
    assert load.load(lambda: told.append("now")) is not None
    assert load.are_loaded()
    load._LOADED.clear()
    assert load.are_compiled()
    load.load(lambda: told.append("again"))
    assert told == ["now"]


def test_without_a_writable_folder_there_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file"))
    assert load.code_folder.__wrapped__() == ""
