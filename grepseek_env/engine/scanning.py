"""Scans parts of the corpus file with the kernels, in one thread and bounded memory.

The file is read into a buffer, not mapped: a corpus that becomes shorter meanwhile is a fault that can be told, where
a map would end the process. The buffer fits in the second-level cache, so that the copy costs next to nothing.
"""

from __future__ import annotations

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

__all__ = ["EVERY_LINE", "Scanner", "Spans"]

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


class _Scratch:
    """Buffers and state of one scan."""

    def __init__(self) -> None:
        self.state = np.zeros(NEXT + MOST_DRIVERS, np.uint64)
        self.at_state = int(self.state.ctypes.data)
        self.grow_buffer(_BUFFER)
        self.grow_room(_ROOM)

    def grow_buffer(self, size: int) -> None:
        self.size = size
        self.buffer: NDArray[np.uint8] = np.full(_BEFORE + size + _AFTER, 10, np.uint8)
        self.at_buffer = int(self.buffer.ctypes.data) + _BEFORE

    def grow_room(self, size: int) -> None:
        room = np.empty(size, np.uint8)
        self.room = room.data
        self.at_room = int(room.ctypes.data)

    @property
    def is_small(self) -> bool:
        return self.size <= _LARGEST_KEPT and len(self.room) <= _LARGEST_KEPT


class _Free(threading.local):
    """Scratches of this thread that nobody uses; a signal's handler may scan while a scan is under way."""

    def __init__(self) -> None:
        self.free: list[_Scratch] = []


_FREE = _Free()


class Scanner:
    """Scans with buffers of its own, which go back at the end of the block.

    Args:
        file: a descriptor of the corpus.
        question: which lines are wanted.
        check: called every few milliseconds; what it raises ends the scan.

    Attributes:
        lines: wanted lines so far.
        bytes: their bytes, newlines included.
    """

    def __init__(self, file: int, question: Question, check: Callable[[], None] = lambda: None) -> None:
        self._file = file
        self._question = question
        self._check = check
        self._kernel = load().scan_spans
        self.lines = self.bytes = 0

    def __enter__(self) -> Self:
        self._scratch = _FREE.free.pop() if _FREE.free else _Scratch()
        self._scratch.state[:NEXT] = 0
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._scratch.is_small:
            _FREE.free.append(self._scratch)
        del self._scratch

    @property
    def offset(self) -> int:
        """Everything before this offset of the last span has been looked at."""
        return int(self._scratch.state[OFFSET])

    def scan(
        self,
        spans: Spans,
        write: Callable[[memoryview], object] | None,
        *,
        most_lines: int = EVERY_LINE,
        most_read: int = EVERY_LINE,
    ) -> bool:
        """Looks for wanted lines, in order.

        Args:
            spans: where; see `Spans`.
            write: is given them, some at a time; what it is given changes after it returns. None: they are counted.
            most_lines: stops after so many.
            most_read: stops at the next end of a line after so many bytes have been read.

        Returns:
            whether more may be in the spans, from `offset` on.

        Raises:
            CorpusChanged: the file ends before a span does.
        """
        scratch = self._scratch
        state = scratch.state
        state[SPAN] = state[AT] = state[END] = state[LINES] = state[BYTES] = 0
        state[OFFSET] = spans[0, 0] if len(spans) else 0
        state[LEFT] = most_lines
        state[EMIT] = write is not None
        program, at_spans = self._question.program.address, spans.ctypes.data
        left = most_read
        try:
            while True:
                state[OUT] = scratch.at_room
                state[OUT_END] = scratch.at_room + len(scratch.room)
                state[WORK] = work = min(left, _STEP)
                why = self._kernel(
                    program,
                    scratch.at_state,
                    self._file,
                    at_spans,
                    len(spans),
                    scratch.at_buffer,
                    scratch.size,
                )
                left -= work - int(state[WORK])
                if write is not None and (wrote := int(state[OUT]) - scratch.at_room):
                    write(scratch.room[:wrote])
                if why in {DONE, LIMIT}:
                    return False
                if why == PAUSED and left <= 0:
                    return True
                self._go_on(int(why), write)
        finally:
            self.lines += int(state[LINES])
            self.bytes += int(state[BYTES])

    def _go_on(self, why: int, write: Callable[[memoryview], object] | None) -> None:
        """Does what is needed for a scan to go on."""
        scratch = self._scratch
        match why:
            case _ if why == PAUSED:
                self._check()
            case _ if why == FULL:
                if (need := int(scratch.state[NEED])) > len(scratch.room):
                    scratch.grow_room(need)
                self._check()
            case _ if why == LONG:
                scratch.grow_buffer(int(scratch.state[NEED]))
            case _ if why == DOUBT:
                self._decide(write)
            case _:
                raise CorpusChanged(
                    f"the corpus ends before byte {int(scratch.state[OFFSET]) + 1}: it became shorter, or cannot be "
                    "read, while a command ran; prepare it again with grepseek corpus build"
                )

    def _decide(self, write: Callable[[memoryview], object] | None) -> None:
        """Decides about a line that the kernels leave to others, such as one with a rare letter beside a word."""
        scratch = self._scratch
        state = scratch.state
        start = int(state[AT]) - scratch.at_buffer + _BEFORE
        end = int(state[END]) - scratch.at_buffer + _BEFORE
        line, found, look = b"", b"", _LOOK
        while not found:
            line, found, _ = scratch.buffer[start : min(start + look, end)].tobytes().partition(b"\n")
            look *= 8
        if self._question.wants(line):
            if write is not None:
                write(memoryview(line + b"\n"))
            state[LINES] += np.uint64(1)
            state[BYTES] += np.uint64(len(line) + 1)
            state[LEFT] -= np.uint64(1)
        state[AT] += np.uint64(len(line) + 1)
