"""Runs: stretches of the corpus whose tokens are grouped in memory, and the files in which they wait to be united.

An index under construction keeps them in `index/runs.partial/`; a build that was interrupted goes on with those that
are whole.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from grepseek_env.corpus.slicer import first_cut
from grepseek_env.errors import ConfigError, CorpusChanged
from grepseek_env.paths import atomic_write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = [
    "MOST_BLOCK",
    "PARTS",
    "Plan",
    "Run",
    "RunMaker",
    "RunTable",
    "check_run_bytes",
    "open_plan",
    "plan_runs",
    "read_exactly",
]

MOST_BLOCK = 16 << 20
"""A line longer than this, in bytes, is not looked at: its block is always a candidate."""
UNIT = 1 << 20
"""Blocks end with the first line end after each multiple of this; so do runs."""

PARTS = 256
_FORMAT = 1
_MAGIC = 0x676E_7572_0001
_PLAN = "plan.json"
_LOOK = 1 << 20
_TEXT_PADDING = 128


@dataclass(frozen=True, slots=True)
class Plan:
    """What the files of a folder of runs belong to.

    Attributes:
        digest: that of the corpus.
        block_bytes: least size of a block.
        run_bytes: most bytes of a run.
        most_block: a longer block is not looked at.
        unit: see `UNIT`.
    """

    digest: str
    block_bytes: int
    run_bytes: int
    most_block: int
    unit: int


@dataclass(frozen=True, slots=True)
class Run:
    """Whole lines of the corpus, `[start, end)`; `huge`: a single one that is not looked at."""

    number: int
    start: int
    end: int
    huge: bool


@dataclass(frozen=True, slots=True)
class RunTable:
    """What is known about a finished run.

    Attributes:
        path: its file; None for a huge one, which has none.
        starts: offsets in the corpus where its blocks begin, and the end.
        at: offset in the file where its parts begin.
        parts: for each of 256 parts: offset from there, tokens, bytes of text, blocks.
        size: bytes from there on.
    """

    path: Path | None
    starts: NDArray[np.int64]
    at: int
    parts: NDArray[np.uint64]
    size: int

    @property
    def blocks(self) -> int:
        """How many blocks it has."""
        return len(self.starts) - 1


def open_plan(folder: Path, wanted: Plan) -> Plan:
    """Returns the plan to go on with: the one found if it is of the same index, else `wanted` in an emptied folder."""
    try:
        values = json.loads((folder / _PLAN).read_bytes())
        found = Plan(**values["plan"]) if values["format"] == _FORMAT else None
    except (OSError, ValueError, KeyError, TypeError):
        found = None
    same = found is not None and replace(found, run_bytes=wanted.run_bytes) == wanted
    if found is not None and same and 0 < found.run_bytes <= wanted.run_bytes * 2:
        for left in folder.glob(".*.tmp"):
            left.unlink()
        return found
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    atomic_write(folder / _PLAN, json.dumps({"format": _FORMAT, "plan": asdict(wanted)}) + "\n")
    return wanted


def plan_runs(fd: int, size: int, plan: Plan) -> Iterator[Run]:
    """Cuts a file into runs, reading a little around each cut."""
    number, at = 0, 0
    while at < size:
        border = max(at // plan.unit + 1, (at + plan.run_bytes) // plan.unit) * plan.unit
        end = first_cut(fd, size, border) if border < size else size
        if end - border > plan.most_block:
            begin = _line_before(fd, at, border)
            if begin > at:
                yield Run(number, at, begin, huge=False)
                number += 1
            yield Run(number, begin, end, huge=True)
        else:
            yield Run(number, at, end, huge=False)
        number, at = number + 1, end


def _line_before(fd: int, least: int, at: int) -> int:
    """Returns where the line begins that holds the byte before `at`; `least` is where a line begins."""
    while at > least:
        low = max(least, at - _LOOK)
        data = os.pread(fd, at - low, low)
        if (found := data.rfind(b"\n")) >= 0:
            return low + found + 1
        at = low
    return least


def read_exactly(fd: int, view: memoryview, offset: int, what: Path) -> None:
    """Fills `view` from a file.

    Raises:
        CorpusChanged: the file ends before that.
    """
    while view:
        if hasattr(os, "preadv"):
            count = os.preadv(fd, [view[: 1 << 30]], offset)
        else:  # not on macOS
            data = os.pread(fd, min(len(view), 1 << 24), offset)
            count = len(data)
            view[:count] = data
        if not count:
            raise CorpusChanged(f"{what} became shorter while it was read (it ends at byte {offset}): try again")
        view, offset = view[count:], offset + count


class RunMaker:
    """Makes runs, from several threads.

    Args:
        fd: a descriptor of the corpus.
        corpus: its name, for messages.
        folder: where the runs' files are.
        plan: what they belong to.
    """

    def __init__(self, fd: int, corpus: Path, folder: Path, plan: Plan) -> None:
        self._fd = fd
        self._corpus = corpus
        self._folder = folder
        self._plan = plan
        self._room = threading.local()

    def find(self, run: Run) -> RunTable | None:
        """Returns a run that an interrupted build finished, None where it must be made."""
        if run.huge:
            return RunTable(None, np.array([run.start, run.end], np.int64), 0, np.zeros((PARTS, 4), np.uint64), 0)
        try:
            data = np.fromfile(self._path(run), np.uint8)
        except OSError:
            return None
        return _parse(data, self._path(run), run)

    def make(self, run: Run) -> RunTable:
        """Reads a run's lines, groups its tokens and writes its file.

        Raises:
            CorpusChanged: the corpus became shorter.
            OSError: the file cannot be written.
        """
        from grepseek_env.engine.index import codes, tokens  # noqa: PLC0415 - numba is slow to import

        size, least = run.end - run.start, self._plan.block_bytes
        text = self._space("text", size + _TEXT_PADDING)
        text[size : size + _TEXT_PADDING] = 0
        read_exactly(self._fd, text[:size].data, run.start, self._corpus)
        unit, most_block = self._plan.unit, self._plan.most_block
        starts = np.zeros(size // least + 2 * (size // unit) + 4, np.uint32)
        blocks = int(tokens.block_starts(_at(text), size, run.start, least, unit, most_block, _at(starts)))
        starts = starts[: blocks + 1]
        slots = 1 << max(4, min(10, least.bit_length() - 3))
        seen = self._space("seen", slots * 16)
        most = size // 2 + 64  # a token has a byte and another one before the next, or begins with a byte of 0xE2 on
        if size and int(text[:size].max()) >= 0xE2:
            most = size + 64
        hashes, places = self._space("hashes", most * 8), self._space("places", most * 4)
        count = int(
            tokens.tokenise(_at(text), _at(starts), blocks, most_block, _at(seen), slots, _at(hashes), _at(places))
        )
        sorted_hashes, sorted_places = self._space("hashes2", count * 8 + 8), self._space("places2", count * 4 + 8)
        parts = np.zeros(PARTS + 1, np.uint64)
        tokens.scatter(_at(hashes), _at(places), count, _at(sorted_hashes), _at(sorted_places), _at(parts))
        largest = int(np.diff(parts.astype(np.int64)).max())
        shift = least.bit_length() - 1
        marks = np.arange((size >> shift) + 1, dtype=np.uint64) << np.uint64(shift)
        granules = (np.searchsorted(starts[:-1], marks, "right") - 1).astype(np.uint32)
        work = self._space("work", largest * 24 + 64)
        table = self._space("table", 4 << max(4, (2 * largest + 1).bit_length()))
        out = self._space("out", PARTS * 32 + count * 40 + size + 64 * PARTS)
        written = int(
            tokens.group(
                _at(text),
                _at(sorted_hashes),
                _at(sorted_places),
                _at(parts),
                _at(granules),
                shift,
                _at(starts),
                _at(work),
                _at(table),
                _at(out),
            )
        )
        body = out[:written]
        head = np.zeros(-(-len(starts) * 4 // 8) * 8, np.uint8)
        head[: len(starts) * 4] = starts.view(np.uint8)
        sums = [int(codes.checksum(_at(each), len(each))) for each in (head, body)]
        front = np.array([_MAGIC, run.start, run.end, blocks, len(head), written, *sums], np.uint64)
        path = self._path(run)
        temp = path.with_name(f".{path.name}.tmp")
        try:
            with temp.open("wb", buffering=0) as file:
                for each in (front.view(np.uint8), head, body):
                    _write(file.fileno(), each.data)
            temp.replace(path)
        except BaseException:
            temp.unlink(missing_ok=True)
            raise
        return _table(path, run, starts, front, np.array(body[: PARTS * 32]))

    def _path(self, run: Run) -> Path:
        return self._folder / f"run.{run.number:06d}"

    def _space(self, name: str, size: int) -> NDArray[np.uint8]:
        """Returns room that this thread uses again in its next run; pages that are not touched cost nothing."""
        held: NDArray[np.uint8] | None = getattr(self._room, name, None)
        if held is None or len(held) < size:
            held = np.empty(size + (size >> 3), np.uint8)
            setattr(self._room, name, held)
        return held


def _at(array: NDArray[Any]) -> int:
    return int(array.ctypes.data)


def _write(fd: int, data: memoryview) -> None:
    while data:
        data = data[os.write(fd, data[: 1 << 28]) :]


def _parse(data: NDArray[np.uint8], path: Path, run: Run) -> RunTable | None:
    from grepseek_env.engine.index import codes  # noqa: PLC0415 - numba is slow to import

    if len(data) < 64:
        return None
    front = data[:64].view(np.uint64)
    magic, start, end, blocks, head_bytes, written, head_sum, body_sum = (int(value) for value in front)
    if (magic, start, end) != (_MAGIC, run.start, run.end) or len(data) != 64 + head_bytes + written:
        return None
    head, body = np.ascontiguousarray(data[64 : 64 + head_bytes]), np.ascontiguousarray(data[64 + head_bytes :])
    sums = [int(codes.checksum(_at(each), len(each))) for each in (head, body)]
    if sums != [head_sum, body_sum] or written < PARTS * 32 or head_bytes < (blocks + 1) * 4:
        return None
    return _table(path, run, head[: (blocks + 1) * 4].view(np.uint32), front, np.array(body[: PARTS * 32]))


def _table(
    path: Path, run: Run, starts: NDArray[np.uint32], front: NDArray[np.uint64], rows: NDArray[np.uint8]
) -> RunTable:
    at = 64 + int(front[4])
    parts = rows.view(np.uint64).reshape(PARTS, 4)
    return RunTable(path, starts.astype(np.int64) + run.start, at, parts, int(front[5]))


def check_run_bytes(memory: int, workers: int, block_bytes: int) -> int:
    """Returns how many bytes a run may have so that `workers` of them fit in `memory` bytes.

    Raises:
        ConfigError: it is less than a megabyte.
    """
    run_bytes = min(64 << 20, memory // workers // 10, 65_000 * block_bytes)
    if memory // workers // 10 < 1 << 20:
        raise ConfigError(
            f"memory is {memory:,}, too few for {workers} workers: give 10 MiB a worker at least, or fewer workers"
        )
    return run_bytes
