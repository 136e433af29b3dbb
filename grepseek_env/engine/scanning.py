"""Scans parts of the corpus file with the kernels, in one thread and bounded memory.

The file is read into a buffer, not mapped: a corpus that becomes shorter meanwhile is a fault that can be told, where
a map would end the process. The buffer fits in the second-level cache, so that the copy costs next to nothing.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from grepseek_env.engine.kernels.load import load
from grepseek_env.engine.kernels.state import (
    AT,
    BYTES,
    DONE,
    DOUBT,
    EMIT,
    END,
    FULL,
    LEFT,
    LIMIT,
    LINES,
    LONG,
    MOST_DRIVERS,
    NEED,
    NEXT,
    OFFSET,
    OUT,
    OUT_END,
    PAUSED,
    SPAN,
    WORK,
)
from grepseek_env.errors import CorpusChanged

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from numpy.typing import NDArray
    from typing_extensions import Self

    from grepseek_env.engine.question import Question

__all__ = ["EVERY_LINE", "Scanner", "Spans", "Write", "read_pieces", "whole"]

EVERY_LINE = 1 << 62
"""More lines than any corpus has."""

_BUFFER = 256 << 10
_ROOM = 256 << 10
_BEFORE, _AFTER = 64, 72  # bytes that kernels may read around what is in the buffer
_LARGEST_KEPT = 4 << 20
_STEP = 16 << 20  # bytes between two looks at the clock: some milliseconds
_LOOK = 8 << 10

Spans: TypeAlias = "NDArray[np.int64]"
"""Shape (n, 2): starts and ends of parts of the corpus, in order, each a run of whole lines."""

Write: TypeAlias = "Callable[[memoryview | bytes], object]"
"""Takes whole lines; what it is given may change after it returns."""


def whole(end: int, start: int = 0) -> Spans:
    """Returns a run of bytes as spans."""
    return np.array([[start, end]] if end > start else [], np.int64).reshape(-1, 2)


class Buffers:
    """Room for what is read and for the lines that are found."""

    def __init__(self) -> None:
        self.grow_buffer(_BUFFER)
        self.grow_room(_ROOM)

    def grow_buffer(self, size: int) -> None:
        """Makes room for `size` bytes of the corpus, forgetting what is there."""
        self.size = size
        self.buffer: NDArray[np.uint8] = np.full(_BEFORE + size + _AFTER, 10, np.uint8)
        self.start = int(self.buffer.ctypes.data) + _BEFORE

    def grow_room(self, size: int) -> None:
        """Makes room for `size` bytes of lines, forgetting what is there."""
        room = np.empty(size, np.uint8)
        self.room = room.data
        self.at_room = int(room.ctypes.data)

    def line(self, start: int, end: int) -> bytes:
        """Returns the text of the line that begins at an address of the buffer; `end` is an address after it."""
        first, last = start - self.start + _BEFORE, end - self.start + _BEFORE
        line, found, look = b"", b"", _LOOK
        while not found:
            line, found, _ = self.buffer[first : min(first + look, last)].tobytes().partition(b"\n")
            look *= 8
        return line

    def last_line_end(self, count: int) -> int:
        """Returns how many of the first bytes that were read are whole lines."""
        look = _LOOK
        while True:
            start = max(count - look, 0)
            if (found := self.buffer[_BEFORE + start : _BEFORE + count].tobytes().rfind(b"\n")) >= 0:
                return start + found + 1
            if start == 0:
                return 0
            look *= 8

    @property
    def are_small(self) -> bool:
        """Whether they may be kept for the next search."""
        return self.size <= _LARGEST_KEPT and len(self.room) <= _LARGEST_KEPT


class _Free(threading.local):
    """Buffers of this thread that nobody uses; a signal's handler may search while a search is under way."""

    def __init__(self) -> None:
        self.buffers: list[Buffers] = []


_FREE = _Free()


class Scanner:
    """Looks for the lines that one question wants, within a block: buffers go back at its end.

    Args:
        question: which lines are wanted.
        check: called every few milliseconds; what it raises ends the scan.
        buffers: whose they are; None: its own.

    Attributes:
        lines: wanted lines so far.
        bytes: their bytes, newlines included.
    """

    def __init__(
        self, question: Question, check: Callable[[], None] = lambda: None, buffers: Buffers | None = None
    ) -> None:
        self._question = question
        self._check = check
        self._kernels = load()
        self._lent = buffers
        self._state = np.zeros(NEXT + MOST_DRIVERS, np.uint64)
        self._at_state = int(self._state.ctypes.data)
        self.lines = self.bytes = 0

    def __enter__(self) -> Self:
        self._buffers = self._lent or (_FREE.buffers.pop() if _FREE.buffers else Buffers())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lent is None and self._buffers.are_small:
            _FREE.buffers.append(self._buffers)
        del self._buffers

    @property
    def offset(self) -> int:
        """Everything before this offset of the last span has been looked at."""
        return int(self._state[OFFSET])

    def scan(
        self,
        file: int,
        spans: Spans,
        write: Write | None,
        *,
        most_lines: int = EVERY_LINE,
        most_read: int = EVERY_LINE,
    ) -> bool:
        """Reads parts of the corpus and looks for wanted lines, in order.

        Args:
            file: a descriptor of the corpus.
            spans: where; see `Spans`.
            write: is given them, some at a time. None: they are counted.
            most_lines: stops after so many.
            most_read: stops at the next end of a line after so many bytes have been read.

        Returns:
            whether more may be in the spans, from `offset` on.

        Raises:
            CorpusChanged: the file ends before a span does.
        """
        state, buffers = self._state, self._buffers
        state[SPAN] = state[AT] = state[END] = 0
        state[OFFSET] = spans[0, 0] if len(spans) else 0
        self.begin(write, most_lines)
        kernel = self._kernels.scan_spans
        program, at_spans, count = self._question.program.address, spans.ctypes.data, len(spans)
        left = most_read
        try:
            while True:
                state[OUT] = buffers.at_room
                state[OUT_END] = buffers.at_room + len(buffers.room)
                state[WORK] = work = min(left, _STEP)
                why = kernel(program, self._at_state, file, at_spans, count, buffers.start, buffers.size)
                left -= work - int(state[WORK])
                self._flush(write)
                if why in {DONE, LIMIT}:
                    return False
                if why == PAUSED and left <= 0:
                    return True
                self._go_on(int(why), write)
        finally:
            self._count()

    def scan_buffer(self, end: int, write: Write | None) -> bool:
        """Looks at the lines that are in the buffers, up to an address; returns whether more are wanted."""
        state, buffers = self._state, self._buffers
        state[AT], state[END] = buffers.start, end
        kernel, program = self._kernels.scan_lines, self._question.program.address
        try:
            while True:
                state[OUT] = buffers.at_room
                state[OUT_END] = buffers.at_room + len(buffers.room)
                why = kernel(program, self._at_state)
                if write is not None:
                    self._flush(write)
                if why == DONE:
                    return True
                if why == LIMIT:
                    return False
                self._go_on(int(why), write)
        finally:
            self._count()

    def begin(self, write: Write | None, most_lines: int) -> None:
        """Prepares for `scan_buffer`; the arguments are those of `scan`."""
        state = self._state
        state[LINES] = state[BYTES] = 0
        state[LEFT] = most_lines
        state[EMIT] = write is not None

    def _count(self) -> None:
        state = self._state
        self.lines += int(state[LINES])
        self.bytes += int(state[BYTES])
        state[LINES] = state[BYTES] = 0

    def _flush(self, write: Write | None) -> None:
        if write is not None and (wrote := int(self._state[OUT]) - self._buffers.at_room):
            write(self._buffers.room[:wrote])

    def _go_on(self, why: int, write: Write | None) -> None:
        """Does what is needed for a scan to go on."""
        state, buffers = self._state, self._buffers
        if why == PAUSED:
            self._check()
        elif why == FULL:
            if (need := int(state[NEED])) > len(buffers.room):
                buffers.grow_room(need)
            self._check()
        elif why == LONG:
            buffers.grow_buffer(int(state[NEED]))
        elif why == DOUBT:
            self._decide(write)
        else:
            raise _shorter(self.offset)

    def _decide(self, write: Write | None) -> None:
        """Decides about a line that the kernels leave to others, such as one with a rare letter beside a word."""
        state = self._state
        line = self._buffers.line(int(state[AT]), int(state[END]))
        if self._question.wants(line):
            if write is not None:
                write(line + b"\n")
            state[LINES] += np.uint64(1)
            state[BYTES] += np.uint64(len(line) + 1)
            state[LEFT] -= np.uint64(1)
        state[AT] += np.uint64(len(line) + 1)


def read_pieces(file: int, size: int, buffers: Buffers, scan: Callable[[int], bool], check: Callable[[], None]) -> None:
    """Reads the whole corpus through one buffer.

    Args:
        file: a descriptor of the corpus.
        size: its bytes.
        buffers: where to read it to.
        scan: looks at the whole lines that are in the buffer, up to an address; returns whether to go on.
        check: called every few milliseconds.

    Raises:
        CorpusChanged: the file ends before `size`.
    """
    at, checked = 0, 0
    while at < size:
        wanted = min(buffers.size, size - at)
        got = _read(file, buffers.buffer[_BEFORE : _BEFORE + wanted].data, at)
        if got < wanted:
            raise _shorter(at + got)
        end = got
        if at + got < size:
            end = buffers.last_line_end(got)
            if end == 0:
                buffers.grow_buffer(2 * buffers.size)
                continue
        elif buffers.buffer[_BEFORE + got - 1] != 10:
            buffers.buffer[_BEFORE + got] = 10  # programs print an open last line with a newline
            end = got + 1
        if not scan(buffers.start + end):
            return
        at += min(end, got)
        if at - checked >= _STEP:
            checked = at
            check()


def _read(file: int, place: memoryview, offset: int) -> int:
    total = 0
    with contextlib.suppress(OSError):  # the same to those who ask as a file that ends here
        while total < len(place) and (got := os.preadv(file, [place[total:]], offset + total)):
            total += got
    return total


def _shorter(at: int) -> CorpusChanged:
    return CorpusChanged(
        f"the corpus ends before byte {at + 1}: it became shorter, or cannot be read, while a command ran; prepare it "
        "again with grepseek corpus build"
    )
