"""The programs of one slice: started, read as far as memory allows, and asked whether they may count."""

from __future__ import annotations

import array
import contextlib
import dataclasses
import fcntl
import os
import select
import termios
from collections import deque
from typing import TYPE_CHECKING

from grepseek_env.engine.executor import LARGE_READ, Chain, drain
from grepseek_env.engine.feed import Feed, no_fork
from grepseek_env.engine.plan import failed
from grepseek_env.errors import EngineFault

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from grepseek_env.engine.combiners import Base
    from grepseek_env.engine.feed import Part
    from grepseek_env.engine.loop import Loop
    from grepseek_env.engine.plan import Argv
    from grepseek_env.engine.sandbox import Sandbox

__all__ = ["KILLED", "PIPE_CLOSED", "Corpus", "Worker"]

KILLED, PIPE_CLOSED = 128 + 9, 128 + 13

_MOST_HELD = 32 << 20  # output that a slice may have waiting


@dataclasses.dataclass(frozen=True, slots=True)
class Corpus:
    """What slices are cut from.

    Attributes:
        path: the file.
        file: a descriptor of it, open for as long as the command runs.
        size: its bytes.
        bases: slice number -> lines and bytes before it.
    """

    path: Path
    file: int
    size: int
    bases: Callable[[int], Base]


class Worker:
    """One slice's programs.

    Args:
        loop: where they are waited for.
        argvs: what they are.
        stderr_bytes: messages kept of each.
        sorts: the last one is silent until it has read everything, and what it then writes is left in its pipe.

    Attributes:
        chain: the programs.
        held: bytes of output that have been read and not taken.
        speaks: with `sorts`, the last program has begun to write.
    """

    def __init__(self, loop: Loop, argvs: tuple[Argv, ...], stderr_bytes: int, *, sorts: bool) -> None:
        self.chain = Chain(stderr_bytes)
        self.held = 0
        self.speaks = False
        self._loop = loop
        self._argvs = argvs
        self._sorts = sorts
        self._feed: Feed | None = None
        self._running: dict[int, int] = {}  # program -> what its end makes readable, -1 where nothing does
        self._chunks: deque[bytes] = deque()
        self._open = True  # more may come
        self._paused = False

    def start(self, part: Part, corpus: Corpus, sandbox: Sandbox, environment: dict[str, str], timeout: float) -> None:
        """Starts the programs, and what feeds them.

        Raises:
            SpawnFailed: one could not be started; `stop` ends those before it.
        """
        if part.folder is not None:
            sandbox = dataclasses.replace(sandbox, view=part.folder)
        chain = self.chain
        with no_fork():
            self._feed = feed = Feed(part, corpus.path, corpus.file, corpus.size)
            chain.start(self._argvs, sandbox, environment, timeout, feed.source)
        feed.begin()
        self._loop.watch(chain.out, self._ready)
        self._loop.watch_messages(chain)
        last = len(self._argvs) - 1
        for number in range(last + 1):
            self._running[number] = end = chain.end if number == last else chain.open_end(number)
            if end >= 0:
                self._loop.watch(end, lambda _, number=number: self._end(number))  # type: ignore[misc]

    @property
    def ended(self) -> bool:
        """Whether all programs have ended."""
        return not self._running

    @property
    def busy(self) -> bool:
        """Whether a core is needed: a program that has sorted only waits for its reader."""
        return bool(self._running) and not self.speaks

    @property
    def blind(self) -> bool:
        """Whether ends have to be looked for, with `look`."""
        return -1 in self._running.values()

    @property
    def has_sorted(self) -> bool:
        """With `sorts`: whether the output can be merged."""
        return self.ended or (self.speaks and self._running.keys() <= {len(self._argvs) - 1})

    def look(self) -> None:
        """Looks for programs that have ended, where nothing tells."""
        for number in [number for number in self._running if self.chain.has_ended(number)]:
            self._end(number)

    def take(self) -> bytes | None:
        """Returns a chunk of output, empty if one has to be waited for, None at the end."""
        while not self._chunks:
            if not self._open:
                return None if self.ended else b""
            if not self.ended:
                return b""
            # Its programs have ended: what they wrote is in the pipe. Who else holds it open does not matter.
            if _readable(self.chain.out):
                self._ready(self.chain.out)
            else:
                self._close_out()
        chunk = self._chunks.popleft()
        self.held -= len(chunk)
        if self._paused and self.held < _MOST_HELD:
            self._paused = False
            self._loop.watch(self.chain.out, self._ready)
        return chunk

    def hand_over(self) -> int | None:
        """Returns the descriptor of the output, for another program; None where there is none any more."""
        return self.chain.out if self._open else None

    def close_out(self) -> None:
        """Closes the output that was handed over."""
        if self._open:
            self._close_out()

    def may_count(self) -> bool:
        """Returns whether a slice that has ended counts; not if a program failed.

        Raises:
            EngineFault: a program was killed from outside, or its input could not be read.
        """
        if self._feed is not None:
            self._feed.end()
            if self._feed.fault:
                raise EngineFault(f"a slice was not read in full: {self._feed.fault}")
        ended = [number for number in range(len(self._argvs)) if number not in self.chain.killed]
        return all(self._went_well(number) for number in ended)

    def still_counts(self) -> bool:
        """Returns whether no program has failed so far.

        Raises:
            EngineFault: a program was killed from outside.
        """
        return all(self._went_well(number) for number in range(len(self._argvs)) if number not in self._running)

    def _went_well(self, number: int) -> bool:
        argv, code = self._argvs[number], self.chain.code(number)
        if code == KILLED:
            raise EngineFault(f"{argv[0]} was killed from outside while it ran on a slice: too little memory?")
        closed = code == PIPE_CLOSED and (self._sorts or number < len(self._argvs) - 1)
        return closed or not failed(argv, code)

    def messages(self) -> tuple[bytes, ...]:
        """Returns what each program, all of which have ended, wrote on stderr."""
        chain = self.chain
        drain(chain.handles & chain.messages.keys(), self._loop.message_reader(chain))
        return tuple(map(bytes, chain.messages.values()))

    def stop(self) -> None:
        """Kills what still runs, and waits until nothing is sent any more."""
        with contextlib.ExitStack() as stack:  # the feed ends even if an exit status was taken by others
            if self._feed is not None:
                stack.callback(self._feed.end)
            self.chain.stop()

    def close(self) -> None:
        """Closes everything, after `stop`."""
        self._loop.unwatch(*self.chain.handles)
        self.chain.close()

    def _end(self, number: int) -> None:
        self._loop.unwatch(self._running.pop(number))
        if not self._running:
            self.chain.stop()

    def _ready(self, out: int) -> None:
        if self._sorts:
            self._loop.unwatch(out)
            self.speaks = _holds_data(out)  # at its end without any, what counts is how the program ends
            return
        data = os.read(out, LARGE_READ)
        if not data:
            self._close_out()
            return
        self._chunks.append(data)
        self.held += len(data)
        if self.held >= _MOST_HELD:
            self._loop.unwatch(out)
            self._paused = True

    def _close_out(self) -> None:
        self._open = self._paused = False
        self._loop.unwatch(self.chain.out)
        self.chain.close_handle(self.chain.out)


def _holds_data(pipe: int) -> bool:
    waiting = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, waiting)
    return waiting[0] > 0


def _readable(handle: int) -> bool:
    poller = select.poll()
    poller.register(handle, select.POLLIN)
    return bool(poller.poll(0))
