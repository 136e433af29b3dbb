"""Reading a file in chunks: the digest that can be continued, and the progress bar."""

from __future__ import annotations

import contextlib
import hashlib
import os
from typing import TYPE_CHECKING

from grepseek_env.corpus.sidecar import CHUNK_BYTES
from grepseek_env.errors import CorpusChanged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

__all__ = ["hash_file", "meter", "opened", "read_chunk", "tree_digest"]


@contextlib.contextmanager
def opened(path: Path) -> Iterator[int]:
    """Opens `path` for one sequential reading and yields the descriptor."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if hasattr(os, "posix_fadvise"):  # absent on macOS
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        yield handle
    finally:
        os.close(handle)


def read_chunk(handle: int, path: Path, offset: int, size: int) -> bytes:
    """Returns exactly `size` bytes from `offset`.

    Raises:
        CorpusChanged: the file ends before that.
    """
    parts: list[bytes] = []
    while size > 0:
        part = os.pread(handle, size, offset)  # at most 2 GiB come at once
        if not part:
            raise CorpusChanged(f"{path} became shorter while it was read (it ends at byte {offset} now): run it again")
        parts.append(part)
        offset += len(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


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
    with opened(path) as handle:
        size = os.fstat(handle).st_size
        digests: list[str] = []
        with meter(size, f"checking {path.name}", enabled=progress) as advance:
            for offset in range(0, size, chunk_bytes):
                data = read_chunk(handle, path, offset, min(chunk_bytes, size - offset))
                digests.append(hashlib.sha256(data).hexdigest())
                advance(len(data))
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
