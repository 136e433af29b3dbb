"""What comes after the slices: the programs that run once, and the output that is kept."""

from __future__ import annotations

import contextlib
import io
import math
import os
import select
from typing import TYPE_CHECKING

from grepseek_env.engine.executor import LARGE_READ, Chain, drain, widen
from grepseek_env.engine.feed import held_pipe, no_fork, release
from grepseek_env.engine.loop import Decided
from grepseek_env.engine.worker import KILLED, PIPE_CLOSED
from grepseek_env.errors import EngineFault, SpawnFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from grepseek_env.engine.loop import Loop
    from grepseek_env.engine.plan import Argv
    from grepseek_env.engine.sandbox import Sandbox

__all__ = ["Once", "Output"]


class Output:
    """What a command has written so far.

    Args:
        max_bytes: how much is kept; None keeps all.

    Attributes:
        exit_code: the command's, whatever the programs' are; None: the last program's is.
    """

    exit_code: int | None = None

    def __init__(self, max_bytes: int | None) -> None:
        self._budget = math.inf if max_bytes is None else max_bytes
        self._data = io.BytesIO()  # grows in place and hands its buffer over without a copy
        self._size = 0

    @property
    def bounded(self) -> bool:
        """Whether not all may be kept."""
        return self._budget != math.inf

    @property
    def cut(self) -> bool:
        """Whether there was more than is kept."""
        return self._size > self._budget

    @property
    def full(self) -> bool:
        """Whether nothing more is wanted."""
        return self.cut

    def write(self, data: bytes | memoryview) -> None:
        """Keeps data.

        Raises:
            Decided: there is more than may be kept.
        """
        self._size += self._data.write(data)
        if self.cut:
            raise Decided

    def finish(self) -> None:
        """Writes what is only known at the end.

        Raises:
            Decided: there is more than may be kept.
        """

    def value(self) -> bytes:
        """Returns what is kept."""
        if self.cut:
            self._data.truncate(int(self._budget))
        return self._data.getvalue()


class Once:
    """The programs that run once, reading what is combined.

    Args:
        loop: where they are waited for.
        output: where what they write goes.
        argvs: what they are.
        stderr_bytes: messages kept of each.
    """

    def __init__(self, loop: Loop, output: Output, argvs: Sequence[Argv], stderr_bytes: int) -> None:
        self._loop = loop
        self._output = output
        self._argvs = argvs
        self._chain = Chain(stderr_bytes)
        self._sink = -1
        self._ended = False

    def start(
        self, sandbox: Sandbox, environment: dict[str, str], timeout: float, inherited: Sequence[int] | None = None
    ) -> None:
        """Starts the programs.

        Args:
            sandbox: how.
            environment: all of it.
            timeout: seconds they may run.
            inherited: descriptors that the first reads, which then gets nothing on stdin; None: `write` feeds it.

        Raises:
            SpawnFailed: one could not be started.
        """
        chain = self._chain
        with no_fork():
            source = self._open_source(to_write=inherited is None)
            chain.start(self._argvs, sandbox, environment, timeout, source, inherited=inherited or ())
        self._loop.watch(chain.out, self._read)
        self._loop.watch_messages(chain)
        if chain.end >= 0:
            self._loop.watch(chain.end, self._end)

    @property
    def blind(self) -> bool:
        """Whether the end has to be looked for, with `look`."""
        return self._chain.end < 0 and bool(self._chain.processes) and not self._ended

    def look(self) -> None:
        """Looks whether the last program has ended, where nothing tells.

        Raises:
            Decided: it has.
        """
        if self._chain.has_ended():
            self._end(-1)

    def write(self, data: bytes | memoryview, pump: Callable[[], None]) -> None:
        """Passes data on, calling `pump` to wait.

        Raises:
            Decided: nobody reads it any more.
        """
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._sink, view) :]
            except BlockingIOError:
                self._wait_for_room(pump)
            except BrokenPipeError:
                raise Decided from None

    def finish(self, pump: Callable[[], None]) -> None:
        """Ends the input and waits for the last program's end, calling `pump`."""
        self._close_sink()
        with contextlib.suppress(Decided):
            while not self._ended and not self._output.full:
                pump()

    def stop(self) -> None:
        """Kills what still runs and reads what is left."""
        self._close_sink()
        self._ended = True
        chain = self._chain
        self._loop.unwatch(*chain.handles)
        chain.stop()
        with contextlib.suppress(Decided):
            drain(chain.handles & {chain.out}, self._read)
        drain(chain.handles & chain.messages.keys(), self._loop.message_reader(chain))

    @property
    def first_read_everything(self) -> bool:
        """After `stop`: whether the first program ended well and by itself."""
        return self._chain.codes()[0] == 0 and 0 not in self._chain.killed

    @property
    def first_failed(self) -> bool:
        """After `stop`: whether the first program ended by itself before it had done all that was wanted.

        Raises:
            EngineFault: it was killed from outside.
        """
        code = self._chain.codes()[0]
        if 0 in self._chain.killed:
            return False
        if code == KILLED:
            raise EngineFault(f"{self._argvs[0][0]} was killed from outside: too little memory?")
        return code not in {0, PIPE_CLOSED}

    def exit_code(self) -> int:
        """Returns the last program's, after `stop`.

        Raises:
            EngineFault: a program was killed from outside.
        """
        self.check_not_killed()
        return self._chain.codes()[-1]

    def check_not_killed(self) -> None:
        """Looks, after `stop`, for programs that others killed.

        Raises:
            EngineFault: there is one; what was written may lack its part.
        """
        self._chain.check_not_killed(self._argvs)

    def messages(self) -> tuple[bytes, ...]:
        """Returns what each program wrote on stderr, after `stop`."""
        return tuple(map(bytes, self._chain.messages.values()))

    def close(self) -> None:
        """Closes everything, after `stop`."""
        self._loop.unwatch(*self._chain.handles)
        self._chain.close()

    def _open_source(self, *, to_write: bool) -> int:
        try:
            if not to_write:
                return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            source, self._sink = held_pipe()
        except OSError as error:
            raise SpawnFailed(f"{self._argvs[0][0]} was not started: {error}; too many open files?") from error
        widen(source)
        os.set_blocking(self._sink, False)
        return source

    def _wait_for_room(self, pump: Callable[[], None]) -> None:
        writable: list[int] = []
        self._loop.watch(self._sink, writable.append, select.POLLOUT)
        try:
            while not writable:
                pump()
        finally:
            self._loop.unwatch(self._sink)

    def _close_sink(self) -> None:
        if self._sink >= 0:
            sink, self._sink = self._sink, -1
            release(sink)

    def _read(self, out: int) -> int:
        data = os.read(out, LARGE_READ)
        if not data:
            self._loop.unwatch(out)
            self._chain.close_handle(out)
        self._output.write(data)
        return len(data)

    def _end(self, handle: int) -> None:
        self._loop.unwatch(handle)
        self._ended = True
        raise Decided
