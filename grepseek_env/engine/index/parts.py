"""Parts of the dictionary: read from all runs, united, coded; and what they add up to."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from grepseek_env.engine.index.layout import BUCKET, HEADER_BYTES, PAGE_BYTES
from grepseek_env.engine.index.runs import PARTS, RunTable, read_exactly
from grepseek_env.errors import CorpusChanged, CorpusError

if TYPE_CHECKING:
    from pathlib import Path
    from threading import Lock

    from numpy.typing import NDArray

__all__ = ["Dictionary", "Part", "page_sums", "unite_part"]


@dataclass(slots=True)
class Part:
    """One part of the dictionary: arrays as `lists.encode` made them."""

    lists: NDArray[np.uint8]
    texts: NDArray[np.uint8]
    sizes: NDArray[np.uint8]
    rows: NDArray[np.uint64]
    tokens: int
    postings: int


@dataclass(slots=True)
class Dictionary:
    """What the parts add up to, but for the lists, which are written as they come."""

    texts: list[NDArray[np.uint8]] = field(default_factory=list)
    sizes: list[NDArray[np.uint8]] = field(default_factory=list)
    first: list[NDArray[np.uint32]] = field(default_factory=list)
    texts_at: list[NDArray[np.int64]] = field(default_factory=list)
    lists_at: list[NDArray[np.int64]] = field(default_factory=list)
    text_bytes: int = 0
    list_bytes: int = 0
    tokens: int = 0
    postings: int = 0

    def add(self, part: Part) -> None:
        """Appends a part."""
        rows = part.rows.astype(np.int64)
        self.texts.append(part.texts)
        self.sizes.append(part.sizes)
        self.first.append(part.rows[:, 0].astype(np.uint32))
        self.texts_at.append(rows[:, 1] + self.text_bytes)
        self.lists_at.append(rows[:, 2] + self.list_bytes)
        self.text_bytes += len(part.texts)
        self.list_bytes += len(part.lists)
        self.tokens += part.tokens
        self.postings += part.postings


def unite_part(
    number: int, tables: list[tuple[RunTable, int]], blocks: int, maps: NDArray[np.uint8], lock: Lock
) -> Part:
    """Reads one part of all runs, unites and codes it.

    Args:
        number: which of the 256.
        tables: the runs, each with the number of its first block.
        blocks: of the whole corpus.
        maps: bits of blocks for each of `layout.EXTRA`; those that the part's tokens ask for are set.
        lock: held while they are.
    """
    from grepseek_env.engine.index import lists  # noqa: PLC0415 - numba is slow to import

    ends = [int(table.parts[number + 1, 0]) if number + 1 < PARTS else table.size for table, _ in tables]
    begins = [int(table.parts[number, 0]) for table, _ in tables]
    data = np.empty(sum(ends) - sum(begins) + 64, np.uint8)
    segments = np.zeros((len(tables), 5), np.uint64)
    to = 0
    for row, ((table, first), begin, end) in enumerate(zip(tables, begins, ends, strict=True)):
        _read_part(table, begin, data[to : to + end - begin])
        segments[row] = (_at(data) + to, *table.parts[number, 1:], first)
        to += end - begin
    most, postings = int(segments[:, 1].sum()), int(segments[:, 3].sum())
    slots = 1 << max(4, (2 * most).bit_length())
    table32 = np.empty(slots, np.uint32)
    entries = np.empty((most, 5), np.uint64)
    owners, numbers = np.empty(most, np.uint32), np.empty(postings, np.uint32)
    tokens = int(lists.unite(_at(segments), len(tables), _at(table32), slots, _at(entries), _at(owners), _at(numbers)))
    order = np.argsort(entries[:tokens, 0], kind="stable").astype(np.uint64)
    buckets = -(-tokens // BUCKET)
    coded = np.empty(tokens * 32 + postings * 8 + 64, np.uint8)
    sizes = np.empty(buckets * BUCKET, np.uint8)
    texts = np.empty(int(entries[:tokens, 2].sum()) + tokens, np.uint8)
    rows = np.zeros((buckets + 1, 3), np.uint64)
    own_maps = np.zeros_like(maps)
    lists.encode(
        _at(order),
        tokens,
        _at(entries),
        _at(numbers),
        blocks,
        _at(coded),
        _at(sizes),
        _at(texts),
        _at(rows),
        _at(own_maps),
        maps.shape[1],
    )
    with lock:
        np.bitwise_or(maps, own_maps, out=maps)
    return Part(coded[: int(rows[-1, 2])].copy(), texts, sizes, rows[:-1], tokens, postings)


def _read_part(table: RunTable, begin: int, into: NDArray[np.uint8]) -> None:
    if table.path is None or not len(into):
        return
    handle = os.open(table.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        read_exactly(handle, into.data, table.at + begin, table.path)
    except CorpusChanged as error:
        raise CorpusError(f"{table.path} was damaged while the index was made: run it again") from error
    finally:
        os.close(handle)


def page_sums(fd: int, size: int, path: Path) -> NDArray[np.uint64]:
    """Reads what lies between the header and `size` and returns a sum a page."""
    from grepseek_env.engine.index import codes  # noqa: PLC0415 - numba is slow to import

    page = np.empty(PAGE_BYTES, np.uint8)
    sums = []
    for at in range(HEADER_BYTES, size, PAGE_BYTES):
        count = min(PAGE_BYTES, size - at)
        read_exactly(fd, page[:count].data, at, path)
        sums.append(int(codes.checksum(_at(page), count)))
    return np.array(sums, np.uint64)


def _at(array: NDArray[Any]) -> int:
    return int(array.ctypes.data)
