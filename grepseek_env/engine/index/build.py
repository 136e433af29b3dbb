"""`build_index`: makes the token index of a corpus.

Threads make runs (see `runs`); then each of 256 parts of the tokens, chosen by hash, is united over all runs, coded,
and written; what the dictionary needs beside comes last, then the sums, then the header. The file gets its name when
it is whole.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import IO, TYPE_CHECKING, Any, TypeVar, final

import numpy as np

from grepseek_env.corpus.prepare import explained
from grepseek_env.corpus.reading import meter
from grepseek_env.corpus.sidecar import Sidecar
from grepseek_env.engine.index import runs as runs_module
from grepseek_env.engine.index.layout import (
    EXTRA,
    GROUP_SHIFT,
    HEADER_BYTES,
    PADDING,
    ROWS,
    SECTIONS,
    Header,
    IndexInfo,
    index_path,
    read_header,
)
from grepseek_env.engine.index.parts import Dictionary, page_sums, unite_part
from grepseek_env.engine.index.runs import (
    PARTS,
    Plan,
    Run,
    RunMaker,
    RunTable,
    check_run_bytes,
    open_plan,
    plan_runs,
)
from grepseek_env.errors import ConfigError, CorpusError
from grepseek_env.paths import atomic_file, file_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from grepseek_env.corpus.store import CorpusStore

__all__ = ["build_index"]

T = TypeVar("T")
R = TypeVar("R")

_RUNS = "runs.partial"
_SPARE_BYTES = 16 << 20
_NEEDED = 0.45  # of the corpus: the runs and the index, both there for a moment


def build_index(
    store: CorpusStore,
    *,
    workers: int | None = None,
    memory: int = 1 << 30,
    block_bytes: int = 4096,
    rebuild: bool = False,
    progress: bool = False,
) -> IndexInfo:
    """Makes the token index of a corpus, unless that is done already; an interrupted build goes on.

    Args:
        store: the opened corpus.
        workers: threads; None takes one a core, 8 at most.
        memory: bytes that the build may keep in memory beside pages of files.
        block_bytes: least size of a block, 16 to 65536. Smaller blocks narrow more and need a larger index.
        rebuild: make it anew where there is a good one.
        progress: show bars on stderr.

    Returns:
        what was made or found.

    Raises:
        ConfigError: an option has a value that cannot work, or numba cannot be imported.
        CorpusChanged: the corpus is not what was prepared.
        CorpusError: the index cannot be written, or the disk is full; finished runs are kept.
    """
    workers = min(8, os.cpu_count() or 1) if workers is None else workers
    if not 1 <= workers <= 256:
        raise ConfigError(f"workers is {workers!r}; it must be 1 to 256, best the number of cores")
    if not 16 <= block_bytes <= 1 << 16:
        raise ConfigError(f"block_bytes is {block_bytes!r}; it must be 16 to 65536, best 4096")
    run_bytes = check_run_bytes(memory, workers, block_bytes)
    load_kernels()
    sidecar, path = Sidecar(store.sidecar), index_path(store)
    with explained(store.path, sidecar), file_lock(sidecar.lock, on_wait=_say_waiting if progress else None):
        if not rebuild and (found := _whole(path, store)) is not None and found.block_bytes == block_bytes:
            return found.info(path)
        store.check_unchanged()
        wanted = Plan(store.digest, block_bytes, run_bytes, runs_module.MOST_BLOCK, runs_module.UNIT)
        path.parent.mkdir(exist_ok=True)
        for left in path.parent.glob(".*.tmp"):
            left.unlink()
        plan = open_plan(path.parent / _RUNS, wanted)
        _check_room(path.parent, store.facts.bytes)
        with store.corpus_file.open("rb") as file, ThreadPoolExecutor(workers, "grepseek-index") as pool:
            try:
                header = _Build(store, plan, file.fileno(), pool, workers, progress=progress).write(path)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        shutil.rmtree(path.parent / _RUNS)
        return header.info(path)


def load_kernels() -> None:
    """Imports numba and compiles, or loads, what building and asking need.

    Raises:
        ConfigError: numba cannot be imported here.
    """
    try:
        from grepseek_env.engine.index import codes, lists, query, tokens  # noqa: F401, PLC0415 - see above
    except ImportError as error:
        raise ConfigError(
            f"an index needs numba, which cannot be imported here ({error}): pip install 'numba>=0.61', or search "
            "without an index"
        ) from error


def _say_waiting() -> None:
    print("another process is preparing this corpus; waiting for it", file=sys.stderr)


def _whole(path: Path, store: CorpusStore) -> Header | None:
    """Returns the header of the index at `path` if nothing in it is damaged."""
    try:
        header = read_header(path, store)
        with path.open("rb") as file:
            sums = page_sums(file.fileno(), header.sums[0], path)
            file.seek(header.sums[0])
            written = file.read()
    except (FileNotFoundError, CorpusError):
        return None
    return header if written == sums.tobytes() else None


def _check_room(folder: Path, size: int) -> None:
    kept = sum(file.stat().st_size for file in (folder / _RUNS).iterdir())
    needed = int(size * _NEEDED) - kept + _SPARE_BYTES
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise CorpusError(
            f"an index needs about {needed:,} bytes in {folder} while it is made, {free:,} are free. Free some space, "
            "or prepare the corpus in a folder on another disk (into=..., --into FOLDER)"
        )


@final
class _Build:
    """One build, from runs to the header."""

    def __init__(
        self, store: CorpusStore, plan: Plan, fd: int, pool: ThreadPoolExecutor, workers: int, *, progress: bool
    ) -> None:
        self._store = store
        self._plan = plan
        self._fd = fd
        self._pool = pool
        self._ahead = workers + 2
        self._progress = progress
        self._lock = threading.Lock()
        self._sections: dict[str, tuple[int, int]] = {}

    def write(self, path: Path) -> Header:
        """Makes the whole index."""
        folder = path.parent / _RUNS
        tables = self._make_runs(RunMaker(self._fd, self._store.corpus_file, folder, self._plan))
        starts = np.concatenate([*(table.starts[:-1] for table in tables), [self._store.facts.bytes]]).astype(np.int64)
        blocks = len(starts) - 1
        maps = np.zeros((len(EXTRA), blocks // 8 + 9), np.uint8)
        with atomic_file(path) as file:
            file.write(bytes(HEADER_BYTES))
            dictionary = self._write_lists(file, tables, blocks, maps)
            extra = self._write_extra(file, dictionary, blocks, maps, starts)
            self._write_dictionary(file, dictionary)
            self._write_starts(file, starts)
            file.flush()
            at = file.tell()
            sums = page_sums(file.fileno(), at, path)
            file.seek(at)
            file.write(sums.view(np.uint8).data)
            header = Header(
                digest=self._store.digest,
                corpus_bytes=self._store.facts.bytes,
                block_bytes=self._plan.block_bytes,
                blocks=blocks,
                buckets=sum(map(len, dictionary.first)),
                tokens=dictionary.tokens,
                postings=dictionary.postings,
                sections=self._sections,
                extra=extra,
                sums=(at, sums.nbytes),
                sums_sha256=hashlib.sha256(sums.tobytes()).hexdigest(),
            )
            file.seek(0)
            file.write(header.to_bytes())
            self._store.check_unchanged()
        return header

    def _make_runs(self, maker: RunMaker) -> list[RunTable]:
        size = self._store.facts.bytes
        with meter(size, "indexing", enabled=self._progress) as advance:

            def make(run: Run) -> RunTable:
                made = maker.find(run)
                if made is None:
                    made = maker.make(run)
                    self._store.check_unchanged()
                with self._lock:
                    advance(run.end - run.start)
                return made

            return list(self._in_order(make, plan_runs(self._fd, size, self._plan)))

    def _in_order(self, work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Yields the results of work done by the threads, a few ahead."""
        waiting: deque[Any] = deque()
        for item in items:
            waiting.append(self._pool.submit(work, item))
            if len(waiting) > self._ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def _write_lists(self, file: IO[bytes], tables: list[RunTable], blocks: int, maps: NDArray[np.uint8]) -> Dictionary:
        dictionary = Dictionary()
        at = file.tell()
        firsts = np.cumsum([0, *(table.blocks for table in tables)])
        filled = [(table, int(first)) for table, first in zip(tables, firsts, strict=False) if table.path is not None]
        total = sum(table.size for table, _ in filled)
        with meter(total, "writing index", enabled=self._progress) as advance:
            for number, part in enumerate(
                self._in_order(lambda number: unite_part(number, filled, blocks, maps, self._lock), range(PARTS))
            ):
                file.write(part.lists.data)
                dictionary.add(part)
                advance(total * (number + 1) // PARTS - total * number // PARTS)
        self._sections["lists"] = (at, dictionary.list_bytes)
        return dictionary

    def _write_extra(
        self,
        file: IO[bytes],
        dictionary: Dictionary,
        blocks: int,
        maps: NDArray[np.uint8],
        starts: NDArray[np.int64],
    ) -> tuple[tuple[int, int, int], ...]:
        """Writes the lists of `EXTRA` behind those of tokens and ends the section."""
        from grepseek_env.engine.index import codes  # noqa: PLC0415 - numba is slow to import

        bits = np.unpackbits(maps, axis=1, count=blocks, bitorder="little").astype(bool)
        bits[2:6] |= bits[1]  # what was cut off a token may have held any of them
        bits[6] = np.diff(starts) > self._plan.most_block
        made = []
        at = dictionary.list_bytes
        for row in bits:
            numbers = np.flatnonzero(row).astype(np.uint32)
            coded = np.empty(len(numbers) * 8 + 64, np.uint8)
            size = int(codes.code_bits(_at(numbers), len(numbers), blocks, _at(coded)))
            file.write(coded[:size].data)
            made.append((at, size, len(numbers)))
            at += size
        self._sections["lists"] = (self._sections["lists"][0], at)
        _pad(file)
        return tuple(made)

    def _write_dictionary(self, file: IO[bytes], dictionary: Dictionary) -> None:
        from grepseek_env.engine.index import lists  # noqa: PLC0415 - numba is slow to import

        texts = np.concatenate([*dictionary.texts, np.frombuffer(b"\n", np.uint8)])
        dictionary.texts.clear()
        if len(texts) >> 32:
            raise CorpusError(f"the corpus has {len(texts):,} bytes of different words, more than an index can hold")
        self._section(file, "texts", texts)
        groups = (len(texts) >> GROUP_SHIFT) + 1
        row_bytes = (groups + 127) // 64 * 8  # the kernels look one bit ahead
        grams = np.zeros((ROWS, row_bytes), np.uint8)
        lists.mark_grams(_at(texts), len(texts), GROUP_SHIFT, _at(grams), row_bytes)
        self._section(file, "grams", grams)
        self._section(file, "sizes", np.concatenate([*dictionary.sizes, np.zeros(0, np.uint8)]))
        self._section(file, "first", np.concatenate([*dictionary.first, np.zeros(0, np.uint32)]))
        texts_at = np.concatenate([*dictionary.texts_at, [dictionary.text_bytes]])
        self._section(file, "texts_at", texts_at.astype(np.uint32))
        lists_at = np.concatenate([*dictionary.lists_at, [dictionary.list_bytes]])
        self._section(file, "lists_at", lists_at.astype(np.uint64))

    def _write_starts(self, file: IO[bytes], starts: NDArray[np.int64]) -> None:
        coarse = starts[::64]
        within = starts - np.repeat(coarse, 64)[: len(starts)]
        if int(within.max()) >> 32:
            raise CorpusError("lines of gigabytes cannot be indexed: search this corpus without an index")
        self._section(file, "starts", coarse.astype(np.uint64))
        self._section(file, "within", within.astype(np.uint32))

    def _section(self, file: IO[bytes], name: str, array: NDArray[Any]) -> None:
        if name not in SECTIONS:
            raise AssertionError(name)
        self._sections[name] = (file.tell(), array.nbytes)
        file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        _pad(file)


def _pad(file: IO[bytes]) -> None:
    file.write(bytes(PADDING + -file.tell() % 64))


def _at(array: NDArray[Any]) -> int:
    return int(array.ctypes.data)
