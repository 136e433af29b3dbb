"""Where a corpus can be cut: offsets just after a newline, found by reading a few bytes around each."""

from __future__ import annotations

import itertools
import os
import threading
from bisect import bisect_right

__all__ = ["LineCounter", "count_newlines", "cuts", "first_cut", "ranges"]

_LOOK = 64 << 10  # most lines are far shorter
_READ = 1 << 20


def first_cut(fd: int, size: int, wanted: int) -> int:
    """Returns the first cut at or after `wanted` bytes, or `size` where there is none.

    Args:
        fd: a descriptor of the file; its position is neither used nor moved.
        size: bytes of the file.
        wanted: a number of bytes; 0 and less give 0.
    """
    if wanted <= 0:
        return 0
    at = wanted - 1  # a newline there makes `wanted` itself a cut
    step = _LOOK
    while at < size:
        data = os.pread(fd, min(step, size - at), at)
        if not data:
            break
        if (found := data.find(b"\n")) >= 0:
            return at + found + 1
        at += len(data)
        step = _READ
    return size


def cuts(fd: int, size: int, n: int) -> tuple[int, ...]:
    """Returns up to `n - 1` cuts that part the file into pieces of about equal size, in order, none at its ends.

    Where lines are longer than a piece there are fewer.

    Raises:
        ValueError: `n` is less than 1.
    """
    if n < 1:
        raise ValueError(f"a file is cut into 1 piece or more, not {n}")
    found: list[int] = []
    for number in range(1, n):
        wanted = size * number // n
        if found and wanted <= found[-1]:
            continue
        cut = first_cut(fd, size, wanted)
        if cut >= size:
            break
        if cut > 0:
            found.append(cut)
    return tuple(found)


def ranges(cut_at: tuple[int, ...], size: int) -> tuple[tuple[int, int], ...]:
    """Returns the pieces between cuts, as offsets of their start and end; at least one, which may be empty."""
    edges = (0, *cut_at, size)
    return tuple(itertools.pairwise(edges))


def count_newlines(fd: int, start: int, end: int) -> int:
    """Counts the newlines of `file[start:end]`, reading a megabyte at a time."""
    total = 0
    while start < end and (data := os.pread(fd, min(_READ, end - start), start)):
        total += data.count(b"\n")
        start += len(data)
    return total


class LineCounter:
    """Counts newlines before offsets of one file that does not change, remembering what it counted.

    Any number of threads may ask; memory grows with the number of different offsets asked for.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._offsets = [0]
        self._counts = [0]

    def before(self, fd: int, offset: int) -> int:
        """Returns the number of newlines in the first `offset` bytes.

        Args:
            fd: a descriptor of the file.
            offset: at most the file's size.
        """
        with self._lock:
            index = bisect_right(self._offsets, offset) - 1
            at, count = self._offsets[index], self._counts[index]
            if at == offset:
                return count
        count += count_newlines(fd, at, offset)
        with self._lock:
            index = bisect_right(self._offsets, offset)
            if self._offsets[index - 1] != offset:
                self._offsets.insert(index, offset)
                self._counts.insert(index, count)
        return count
