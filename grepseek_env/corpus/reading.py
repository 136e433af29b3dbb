"""Reading a file in chunks: the digest that can be continued, and the progress bar."""

from __future__ import annotations

import contextlib
import hashlib
import os
from concurrent.futures import Future, ThreadPoolExecutor
from io import FileIO
from typing import TYPE_CHECKING, final

from grepseek_env.corpus.sidecar import CHUNK_BYTES
from grepseek_env.errors import CorpusChanged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

__all__ = ["ChunkHasher", "hash_file", "meter", "opened", "read_blocks", "tree_digest"]

_BLOCK = 4 << 20


@contextlib.contextmanager
def opened(path: Path) -> Iterator[FileIO]:
    """Opens `path` for one sequential reading, unbuffered."""
    with FileIO(path) as file:
        if hasattr(os, "posix_fadvise"):  # absent on macOS
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        yield file


def read_blocks(file: FileIO, path: Path, size: int) -> Iterator[memoryview]:
    """Yields the next `size` bytes in blocks; a block stays as it is until the next but one is asked for.

    Two buffers take turns: the next block can be read while the last one is still hashed, and no memory is
    allocated on the way, which would cost as much as the reading.

    Raises:
        CorpusChanged: the file ends before that.
    """
    length = max(1, min(_BLOCK, size))
    buffers = memoryview(bytearray(length)), memoryview(bytearray(length))
    for turn in range(-(-size // length)):
        block = buffers[turn % 2][: min(length, size - turn * length)]
        filled = 0
        while filled < len(block):
            count = file.readinto(block[filled:])
            if not count:
                raise CorpusChanged(
                    f"{path} became shorter while it was read (it ends at byte {file.tell()}): try again"
                )
            filled += count
        yield block


@final
class ChunkHasher:
    """SHA-256 of one chunk after another, computed beside the caller's own work (hashing frees the interpreter)."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "grepseek-digest")
        self._sha = hashlib.sha256()
        self._last: Future[None] | None = None

    def update(self, block: memoryview) -> None:
        """Takes a block once the one before is done; it must stay as it is until the next call returns."""
        self._wait()
        self._last = self._pool.submit(self._sha.update, block)

    def finish(self) -> str:
        """Returns the chunk's SHA-256 in hexadecimal and begins the next chunk."""
        self._wait()
        digest, self._sha = self._sha.hexdigest(), hashlib.sha256()
        return digest

    def _wait(self) -> None:
        if self._last is not None:
            self._last.result()

    def __enter__(self) -> ChunkHasher:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()


def tree_digest(chunks: Sequence[str]) -> str:
    """Returns the SHA-256, in hexadecimal, over the chunks' SHA-256s (given in hexadecimal, in order).

    Plain SHA-256 cannot be continued in another process; with this one an interrupted build goes on where it was.
    """
    return hashlib.sha256(b"".join(map(bytes.fromhex, chunks))).hexdigest()


def hash_file(path: Path, *, progress: bool = False, chunk_bytes: int = CHUNK_BYTES) -> tuple[str, ...]:
    """Reads a whole file and returns the SHA-256s of its chunks, in hexadecimal.

    Raises:
        CorpusChanged: the file became shorter while it was read.
    """
    digests: list[str] = []
    with opened(path) as file, ChunkHasher() as hasher:
        size = os.fstat(file.fileno()).st_size
        with meter(size, f"checking {path.name}", enabled=progress) as advance:
            for offset in range(0, size, chunk_bytes):
                for block in read_blocks(file, path, min(chunk_bytes, size - offset)):
                    hasher.update(block)
                    advance(len(block))
                digests.append(hasher.finish())
    return tuple(digests)


@contextlib.contextmanager
def meter(total: int, what: str, *, enabled: bool, done: int = 0) -> Iterator[Callable[[int], object]]:
    """Yields a function to be told of bytes done; shows a bar on stderr when enabled."""
    if not enabled:
        yield lambda _: None
        return
    from tqdm import tqdm  # noqa: PLC0415 - opening a prepared corpus must not pay for it

    with tqdm(total=total, initial=done, desc=what, unit="B", unit_scale=True, unit_divisor=1024) as bar:
        yield bar.update
