"""Answers commands that are nothing but searches for literals, without starting a program.

The lines come from a search (`Search`), which is a scan of the corpus file or of what an index leaves of it, in one
thread or several, or of a small corpus in memory. What becomes of them is the sink.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from grepseek_env.corpus.slicer import first_cut
from grepseek_env.engine.literals.records import (
    CountBytes,
    CountLines,
    Everything,
    Exists,
    GrepCount,
    HeadLines,
    Rest,
)
from grepseek_env.engine.scanning import EVERY_LINE, Scanner, whole
from grepseek_env.engine.scheduler import usable_cores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from grepseek_env.engine.literals.records import Clause, Sink
    from grepseek_env.engine.once import Output
    from grepseek_env.engine.question import Question
    from grepseek_env.engine.scanning import Spans, Write
    from grepseek_env.engine.scheduler import Grant

__all__ = ["FIRST_BYTES", "Demand", "FileSearch", "Index", "Search", "conclude", "demand"]

FIRST_BYTES = 256 << 10
"""What is scanned before anything is planned, where the first lines may be enough."""

_ALONE = 8 << 20  # fewer bytes are scanned by one thread: handing them out takes as long
_FIRST_PIECE, _WRITTEN_PIECE, _COUNTED_PIECE = 2 << 20, 4 << 20, 16 << 20  # what is found is held in memory
_WAIT = 0.02  # seconds between looks at the clock while others scan


class Search(Protocol):
    """Finds wanted lines in order."""

    def __call__(self, write: Write | None, *, most_lines: int = EVERY_LINE, early: bool = False) -> tuple[int, int]:
        """Searches.

        Args:
            write: is given lines, whole ones and in order; None: they are only counted.
            most_lines: stops after so many.
            early: the first lines may be enough.

        Returns:
            how many there were, and their bytes, newlines included.
        """


class Index(Protocol):
    """What knows parts of the corpus outside of which no line satisfies clauses."""

    def __call__(self, clauses: tuple[Clause, ...], /) -> Spans | None:
        """Returns the parts; None where they would be about everything."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What a sink needs of a search.

    Attributes:
        written: the lines themselves; else only how many there are.
        most_lines: no more than so many.
        early: the first lines may be enough.
    """

    written: bool
    most_lines: int = EVERY_LINE
    early: bool = False


def demand(sink: Sink, *, bounded: bool) -> Demand:
    """Returns what is needed.

    Args:
        sink: what becomes of the lines.
        bounded: not all of the output may be kept.
    """
    match sink:
        case HeadLines(lines):
            return Demand(written=True, most_lines=lines, early=True)
        case Exists():
            return Demand(written=False, most_lines=1, early=True)
        case CountLines() | CountBytes() | GrepCount():
            return Demand(written=False)
        case Everything() | Rest():
            return Demand(written=True, early=bounded)


def conclude(sink: Sink, lines: int, size: int, output: Output) -> int:
    """Writes what a sink prints beside lines, and returns the exit code.

    Args:
        sink: what becomes of the lines; not `Rest`, where programs decide.
        lines: how many there were.
        size: their bytes, newlines included.
        output: what the command prints.

    Raises:
        Decided: the output is full.
    """
    match sink:
        case Everything() | Exists():
            return int(lines == 0)
        case HeadLines(search=fails):
            return int(fails and lines == 0)
        case CountLines():
            output.write(b"%d\n" % lines)
            return 0
        case CountBytes():
            output.write(b"%d\n" % size)
            return 0
        case GrepCount(zero):
            if lines or zero:
                output.write(b"%d\n" % lines)
            return int(lines == 0)
        case Rest():
            raise AssertionError("what programs do with lines is not concluded here")


@dataclass(frozen=True, slots=True)
class FileSearch:
    """Searches the corpus file with the kernels.

    Attributes:
        file: its descriptor.
        size: its bytes.
        question: which lines are wanted.
        index: what narrows the search; None: the whole file is scanned.
        grant: the cores that the command holds.
        check: called every few milliseconds; what it raises ends the search.
    """

    file: int
    size: int
    question: Question
    index: Index | None
    grant: Grant
    check: Callable[[], None]

    def __call__(self, write: Write | None, *, most_lines: int = EVERY_LINE, early: bool = False) -> tuple[int, int]:
        """Searches; see `Search`."""
        with Scanner(self.question, self.check) as scanner:
            start = 0
            if most_lines == 0:
                return 0, 0
            if early:
                more = scanner.scan(self.file, whole(self.size), write, most_lines=most_lines, most_read=FIRST_BYTES)
                if not more:
                    return scanner.lines, scanner.bytes
                start = scanner.offset
            spans = self._spans(start)
            left = most_lines - scanner.lines
            cores = self.grant.widen(usable_cores()) if int((spans[:, 1] - spans[:, 0]).sum()) > _ALONE else 1
            if cores == 1:
                scanner.scan(self.file, spans, write, most_lines=left)
                return scanner.lines, scanner.bytes
            counts = _Parallel(self, write, left).run(spans, early=early)
            return scanner.lines + counts[0], scanner.bytes + counts[1]

    def _spans(self, start: int) -> Spans:
        """Returns what is left to be scanned from an offset on."""
        found = self.index(self.question.clauses) if self.index is not None and self.question.clauses else None
        if found is None:
            return whole(self.size, start)
        if start and len(found):
            found = found[found[:, 1] > start]
            if len(found) and found[0, 0] < start:
                found = found.copy()
                found[0, 0] = start
        return np.ascontiguousarray(found)


@dataclass(frozen=True, slots=True)
class _Found:
    """What a thread has found in a piece: how many lines, their bytes, and the lines if they are wanted."""

    piece: Spans
    lines: int
    size: int
    data: list[bytes]


class _Stopped(Exception):
    """Others have ended the search."""


class _Parallel:
    """Pieces of the corpus are scanned by several threads, and what they find is taken in order."""

    def __init__(self, search: FileSearch, write: Write | None, most_lines: int) -> None:
        self._search = search
        self._write = write
        self._left = most_lines
        self._stop = threading.Event()
        self._counts = [0, 0]

    def run(self, spans: Spans, *, early: bool) -> tuple[int, int]:
        most = _COUNTED_PIECE if self._write is None else _WRITTEN_PIECE
        pieces = _pieces(self._search.file, self._search.size, spans, _FIRST_PIECE if early else most, most)
        flying: deque[Future[_Found]] = deque()
        threads = _threads()
        try:
            while self._left > 0:
                while self._may_start(flying) and (piece := next(pieces, None)) is not None:
                    flying.append(threads.submit(self._scan, piece))
                if not flying:
                    break
                while not wait((flying[0],), _WAIT).done:
                    self._search.check()
                self._search.check()
                self._take(flying.popleft().result())
        finally:
            self._stop.set()
            for future in flying:
                future.cancel()
            wait(flying)
        return self._counts[0], self._counts[1]

    def _may_start(self, flying: deque[Future[_Found]]) -> bool:
        cores = self._search.grant.yield_extra(1)
        return len(flying) < cores + 2 and sum(not each.done() for each in flying) < cores

    def _scan(self, piece: Spans) -> _Found:
        return self._scan_for(piece, self._left)

    def _scan_for(self, piece: Spans, most_lines: int) -> _Found:
        found: list[bytes] = []
        write = None if self._write is None else lambda data: found.append(bytes(data))
        with Scanner(self._search.question, self._look) as scanner:
            scanner.scan(self._search.file, piece, write, most_lines=most_lines)
            return _Found(piece, scanner.lines, scanner.bytes, found)

    def _look(self) -> None:
        if self._stop.is_set():
            raise _Stopped

    def _take(self, found: _Found) -> None:
        if found.lines > self._left:  # it was begun when more were wanted
            found = self._scan_for(found.piece, self._left)
        self._left -= found.lines
        self._counts[0] += found.lines
        self._counts[1] += found.size
        if self._write is not None:
            for data in found.data:
                self._write(data)


def _pieces(file: int, size: int, spans: Spans, first: int, most: int) -> Iterator[Spans]:
    """Yields the spans in pieces of about `first` bytes, then of twice as many each time, up to `most`."""
    ends = np.cumsum(spans[:, 1] - spans[:, 0])  # bytes of all spans up to each one's end
    room, index = first, 0
    at = int(spans[0, 0]) if len(spans) else 0
    while index < len(spans):
        full = int(ends[index]) - (int(spans[index, 1]) - at) + room
        last = min(int(np.searchsorted(ends, full)), len(spans) - 1)
        piece = spans[index : last + 1].copy()
        piece[0, 0] = at
        end, over = int(spans[last, 1]), int(ends[last]) - full
        cut = min(first_cut(file, size, end - over), end) if over > room // 2 else end
        piece[-1, 1] = cut
        index, at = (last, cut) if cut < end else (last + 1, int(spans[min(last + 1, len(spans) - 1), 0]))
        yield piece
        room = min(room * 2, most)


_POOLS: dict[int, ThreadPoolExecutor] = {}
_POOLS_LOCK = threading.Lock()


def _threads() -> ThreadPoolExecutor:
    """Returns this process's scanning threads; a fork gets its own."""
    process = os.getpid()
    with _POOLS_LOCK:
        if process not in _POOLS:
            _POOLS.clear()
            _POOLS[process] = ThreadPoolExecutor(usable_cores(), thread_name_prefix="grepseek-scan")
        return _POOLS[process]


def _forget() -> None:
    """Starts fresh after a fork, in which another thread may have held the lock."""
    global _POOLS_LOCK  # noqa: PLW0603 - a lock that a thread of the parent holds is never released here
    _POOLS_LOCK = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
