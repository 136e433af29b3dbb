"""Cuts lie just after newlines, in order, and lines are counted right."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grepseek_env.corpus import slicer
from grepseek_env.corpus.slicer import LineCounter, count_newlines, cuts, first_cut, ranges

if TYPE_CHECKING:
    from collections.abc import Iterator

TEXT = st.lists(st.sampled_from([b"\n", b"a\n", b"bcd\n", b"long line " * 4 + b"\n", b"open"]), max_size=12).map(
    b"".join
)


@contextmanager
def opened(data: bytes) -> Iterator[int]:
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        file.seek(0)
        yield file.fileno()


@given(data=TEXT, n=st.integers(1, 9))
def test_cuts_part_a_file_at_line_ends(data: bytes, n: int) -> None:
    with opened(data) as fd:
        found = cuts(fd, len(data), n)
        assert os.lseek(fd, 0, os.SEEK_CUR) == 0
    assert len(found) < n
    assert list(found) == sorted(set(found))
    assert all(0 < cut < len(data) and data[cut - 1 : cut] == b"\n" for cut in found)
    pieces = [data[start:end] for start, end in ranges(found, len(data))]
    assert b"".join(pieces) == data
    longest = max(map(len, data.split(b"\n")), default=0) + 1
    assert max(map(len, pieces)) <= len(data) // n + longest + 1


@given(data=TEXT, wanted=st.integers(-2, 200))
def test_the_first_cut_is_the_nearest(data: bytes, wanted: int) -> None:
    with opened(data) as fd:
        found = first_cut(fd, len(data), wanted)
    places = [0, *(at for at in range(1, len(data) + 1) if data[at - 1 : at] == b"\n"), len(data)]
    assert found == next((at for at in places if at >= wanted), len(data))


def test_a_line_longer_than_what_is_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slicer, "_LOOK", 3)
    monkeypatch.setattr(slicer, "_READ", 5)
    data = b"a\n" + b"x" * 100 + b"\nb\n"
    with opened(data) as fd:
        assert first_cut(fd, len(data), 3) == 103
        assert cuts(fd, len(data), 4) == (103,)
        assert count_newlines(fd, 0, len(data)) == 3


def test_pieces_of_an_empty_file() -> None:
    with opened(b"") as fd:
        assert cuts(fd, 0, 3) == ()
    assert ranges((), 0) == ((0, 0),)


def test_a_file_is_not_cut_into_no_pieces() -> None:
    with opened(b"a\n") as fd, pytest.raises(ValueError, match="not 0"):
        cuts(fd, 2, 0)


@given(data=TEXT, offsets=st.lists(st.integers(0, 120), max_size=8))
def test_lines_before_an_offset(data: bytes, offsets: list[int]) -> None:
    counter = LineCounter()
    with opened(data) as fd:
        for offset in offsets:
            at = min(offset, len(data))
            assert counter.before(fd, at) == data[:at].count(b"\n")


def test_what_was_counted_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    counter = LineCounter()
    with opened(b"a\nb\nc\n") as fd:
        assert counter.before(fd, 4) == 2
        read: list[int] = []
        real = os.pread
        monkeypatch.setattr(os, "pread", lambda fd, size, at: read.append(at) or real(fd, size, at))
        assert (counter.before(fd, 4), counter.before(fd, 6)) == (2, 3)
    assert read == [4]
