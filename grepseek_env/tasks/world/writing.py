"""Writing generated corpora: streamed, resumable, in parallel, and whole or absent."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import shutil
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Protocol

from tqdm import tqdm

from grepseek_env.errors import CorpusError
from grepseek_env.paths import file_lock, sync_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["ChunkSource", "write_corpus"]

_NOTE_BYTES = 64 << 20  # how much work an interruption may cost
_AHEAD = 4  # finished chunks each worker may be ahead of the writer


class ChunkSource(Protocol):
    """What can be written: chunks that do not depend on one another. Must be picklable."""

    @property
    def key(self) -> str:
        """Names the content: equal keys, equal bytes."""

    @property
    def chunks(self) -> int | None:
        """Number of chunks; None where only the limit ends them."""

    def chunk(self, number: int) -> bytes:
        """Returns whole lines."""


@dataclass(slots=True)
class _Progress:
    """What is safely in the unfinished file."""

    chunks: int = 0
    size: int = 0


def write_corpus(
    source: ChunkSource,
    path: Path,
    *,
    limit: int | None = None,
    expected: int | None = None,
    workers: int = 1,
    progress: bool = False,
) -> Path:
    """Writes a generated corpus to `path`, which appears only when it is whole.

    An interrupted run leaves ``.<name>.part`` and its note, and the next one goes on from there. Another process that
    writes the same file meanwhile is waited for. The bytes do not depend on `workers`.

    Args:
        source: the chunks.
        path: the file to be; an existing one is taken to be right.
        limit: bytes after which no more lines are written; the file ends with the last line that fits.
        expected: bytes there will be about, for the check of free space and the progress bar.
        workers: processes that generate; 1 generates in this one.
        progress: show a progress bar on stderr.

    Raises:
        CorpusError: the folder cannot be written, or the disk is full or will be.
    """
    if path.exists():
        return path
    part, note = path.with_name(f".{path.name}.part"), path.with_name(f".{path.name}.part.json")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with file_lock(path.with_name(f".{path.name}.lock")):
            if path.exists():
                return path
            done = _resume(part, note, source.key)
            _check_space(path, (limit or expected or 0) - done.size)
            with part.open("r+b" if part.exists() else "w+b") as file:
                file.truncate(done.size)
                file.seek(done.size)
                _write(source, file, note, done, limit=limit, expected=expected, workers=workers, progress=progress)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
            note.unlink(missing_ok=True)
            sync_dir(path.parent)
    except OSError as error:
        raise CorpusError(
            f"{path}: the generated corpus cannot be written: {error.strerror or error}; "
            "set GREPSEEK_CACHE to a folder that you may write, with room, or give another path"
        ) from error
    return path


def _resume(part: Path, note: Path, key: str) -> _Progress:
    try:
        record = json.loads(note.read_text(encoding="utf-8"))
        done = _Progress(int(record["chunks"]), int(record["size"]))
        if record["key"] == key and part.stat().st_size >= done.size:
            return done
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        pass  # nothing to go on from
    return _Progress()


def _check_space(path: Path, needed: int) -> None:
    free = shutil.disk_usage(path.parent).free
    if needed > free:
        raise CorpusError(f"{path}: {needed:,} more bytes are needed, but {free:,} are free on this disk")


def _write(
    source: ChunkSource,
    file: IO[bytes],
    note: Path,
    done: _Progress,
    *,
    limit: int | None,
    expected: int | None,
    workers: int,
    progress: bool,
) -> None:
    saved = done.size
    with contextlib.ExitStack() as stack:
        bar = stack.enter_context(
            tqdm(
                total=limit or expected,
                initial=done.size,
                unit="B",
                unit_scale=True,
                disable=not progress,
                desc="corpus",
            )
        )
        pool: Executor | None = None
        if workers > 1:
            # Fresh interpreters: a fork of a process with threads may hang.
            pool = stack.enter_context(ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")))
        for data in _chunks(source, done.chunks, pool, workers):
            room = len(data) if limit is None else limit - done.size
            if len(data) > room:
                file.write(data[: data.rfind(b"\n", 0, room) + 1])
                return
            file.write(data)
            done.chunks, done.size = done.chunks + 1, done.size + len(data)
            bar.update(len(data))
            if done.size - saved >= _NOTE_BYTES:
                file.flush()
                os.fsync(file.fileno())
                _save(note, source.key, done)
                saved = done.size


def _chunks(source: ChunkSource, first: int, pool: Executor | None, workers: int) -> Iterator[bytes]:
    last = source.chunks
    if pool is None:
        number = first
        while last is None or number < last:
            yield source.chunk(number)
            number += 1
        return
    make: Callable[[int], bytes] = source.chunk
    waiting = [pool.submit(make, n) for n in range(first, _end(first + workers * _AHEAD, last))]
    number = first + len(waiting)
    while waiting:
        data = waiting.pop(0).result()
        if last is None or number < last:
            waiting.append(pool.submit(make, number))
            number += 1
        yield data


def _end(wanted: int, last: int | None) -> int:
    return wanted if last is None else min(wanted, last)


def _save(note: Path, key: str, done: _Progress) -> None:
    temp = note.with_suffix(".tmp")
    temp.write_text(json.dumps({"key": key, "chunks": done.chunks, "size": done.size}), encoding="utf-8")
    temp.replace(note)
