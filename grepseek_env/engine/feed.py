"""Brings a slice of the corpus to its programs: as a file of its own, by a pipe, or as the corpus file from there on.

A file of its own is the fastest for rg, which maps it, and takes the corpus's room once more on disk and in the page
cache. A pipe takes none: the kernel moves pages of the corpus into it (sendfile), which costs rg about a third of its
speed and others a few per cent. The last slice is the corpus file itself, opened and seeked, which costs nothing.

Many programs read 4 KB at a time. Whoever waits for room in a full pipe is woken by each such read, moves one page and
waits again; that took up to half of the speed of sed and cut. So the sender sleeps, just as long as the program needs
for about half of the pipe.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from grepseek_env.engine.executor import widen
from grepseek_env.errors import SpawnFailed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Feed", "Part", "held_pipe", "no_fork", "release"]

_PIPE_BYTES = 1 << 20  # what an unprivileged process may usually ask for; a quarter of it was a few per cent slower
_COPY_BYTES = 256 << 10
_SHORTEST_NAP, _FIRST_NAP, _LONGEST_NAP = 2e-5, 1e-4, 5e-3  # seconds
_CAN_SENDFILE = sys.platform.startswith("linux")  # elsewhere it only writes into sockets

# A pipe ends when its last writer closes it. What a fork of this process would keep open, it closes.
_FORK = threading.RLock()
_WRITERS: set[int] = set()


@dataclass(frozen=True, slots=True)
class Part:
    """A slice: a run of whole lines of the corpus.

    Attributes:
        number: its place in the order, from 0.
        start: offset of its first byte in the corpus.
        end: offset after its last byte.
        folder: the folder that holds it as a file of its own; None where there is none.
    """

    number: int
    start: int
    end: int
    folder: Path | None = None


@contextlib.contextmanager
def no_fork() -> Iterator[None]:
    """Keeps other threads from forking meanwhile, so that no fork keeps a descriptor that is about to be closed."""
    with _FORK:
        yield


def held_pipe() -> tuple[int, int]:
    """Makes a pipe whose writing end forks of this process close; call it within `no_fork`."""
    read, write = os.pipe()
    _WRITERS.add(write)
    return read, write


def release(write: int) -> None:
    """Closes the writing end of a `held_pipe`."""
    with _FORK:
        _WRITERS.discard(write)
        os.close(write)


def _close_in_child() -> None:
    for handle in _WRITERS:
        os.close(handle)
    _WRITERS.clear()
    _FORK.release()


os.register_at_fork(before=_FORK.acquire, after_in_parent=_FORK.release, after_in_child=_close_in_child)


class Feed:
    """The stdin of one slice's programs.

    Attributes:
        source: the descriptor to read from; whoever starts the programs closes it.
        fault: why not all of the slice could be sent; None if it was, or if nobody wanted the rest.
    """

    def __init__(self, part: Part, corpus: Path, file: int, size: int) -> None:
        """Opens it, within `no_fork`; nothing flows before `begin`.

        Args:
            part: the slice.
            corpus: the corpus file.
            file: a descriptor of it, which stays open until `end`.
            size: its bytes.

        Raises:
            SpawnFailed: too many files are open.
        """
        self.fault: str | None = None
        self._file = file
        self._part = part
        self._sink = -1
        self._room = 0  # bytes that the pipe holds
        self._thread: threading.Thread | None = None
        try:
            if part.folder is not None:
                self.source = os.open(os.devnull, os.O_RDONLY)
            elif part.end == size:
                self.source = os.open(corpus, os.O_RDONLY | os.O_CLOEXEC)
                os.lseek(self.source, part.start, os.SEEK_SET)
            else:
                self.source, self._sink = held_pipe()
                self._room = widen(self.source, _PIPE_BYTES)
                os.set_blocking(self._sink, not _CAN_SENDFILE)
        except OSError as error:
            raise SpawnFailed(f"slice {part.number} cannot be fed: {error}; too many open files?") from error

    def begin(self) -> None:
        """Starts to send, once the programs run.

        Raises:
            SpawnFailed: there are too many threads.
        """
        if self._sink >= 0:
            thread = threading.Thread(target=self._send, name="grepseek-feed", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                raise SpawnFailed(f"slice {self._part.number} cannot be fed: {error}") from error
            self._thread = thread

    def end(self) -> None:
        """Waits until nothing is sent any more; call it after the programs have ended."""
        if self._thread is not None:
            self._thread.join()
        elif self._sink >= 0:
            release(self._sink)
        self._sink = -1

    def _send(self) -> None:
        at, end, nap = self._part.start, self._part.end, _FIRST_NAP
        try:
            while True:
                sent = self._some(at, end - at)
                at += sent
                if at >= end:
                    return
                if sent > self._room * 3 // 4:  # it was empty, or nearly so
                    nap = max(nap / 2, _SHORTEST_NAP)
                elif sent < self._room // 4:
                    nap = min(nap * 1.5, _LONGEST_NAP)
                if _CAN_SENDFILE:
                    time.sleep(nap)
        except BrokenPipeError:  # nobody wants the rest
            pass
        except OSError as error:
            self.fault = f"the corpus cannot be read at byte {at}: {error}"
        finally:
            release(self._sink)

    def _some(self, at: int, most: int) -> int:
        """Sends what fits; where the pipe cannot be filled without waiting, waits."""
        if most <= 0:
            return 0
        if not _CAN_SENDFILE:
            return self._copy(at, most)
        try:
            sent = os.sendfile(self._sink, self._file, at, most)
        except BlockingIOError:
            return 0
        if not sent:
            raise OSError(errno.ENODATA, "the file has become shorter")
        return sent

    def _copy(self, at: int, most: int) -> int:
        data = memoryview(os.pread(self._file, min(most, _COPY_BYTES), at))
        if not data:
            raise OSError(errno.ENODATA, "the file has become shorter")
        written = 0
        while written < len(data):
            written += os.write(self._sink, data[written:])
        return written
