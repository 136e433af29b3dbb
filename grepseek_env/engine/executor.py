"""Runs a pipeline of programs without a shell: pipes, deadline, bounded output, nothing left behind.

A command is done when its last program ends; programs before it that still run are then killed, where bash would wait
for them. A program that somebody else kills (the kernel does when memory runs out) is a fault and no result. What it
suffers from its limits (time-outs apart) is its own failure and shows as such: 128 + 24 for processor time, its own
message and code for memory, a full disk, descriptors or the size of a temporary file (128 + 25 where programs are not
confined). Those, and time-outs, depend on the host; everything else is the same on every run.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import math
import os
import select
import signal
import time
from typing import TYPE_CHECKING

from grepseek_env.engine.confine.launcher import take_all
from grepseek_env.engine.interrupts import HeldSignals
from grepseek_env.engine.started import is_ending
from grepseek_env.errors import BackendClosed, EngineFault, SpawnFailed
from grepseek_env.types import CommandResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from grepseek_env.engine.sandbox import Sandbox
    from grepseek_env.engine.started import Started

__all__ = [
    "KILLED",
    "LARGE_READ",
    "SMALL_READ",
    "Cancellation",
    "Chain",
    "drain",
    "execute",
    "milliseconds",
    "stopped",
    "widen",
]

SMALL_READ = 64 << 10  # a pipe's usual capacity
# Wider pipes between programs gave 5-10 %. Four times that gave little more, and all of an unprivileged user's pipes
# shrink to a page each once they hold 64 MiB together.
LARGE_READ = 256 << 10
KILLED = 128 + signal.SIGKILL
_SET_PIPE_SIZE = getattr(fcntl, "F_SETPIPE_SZ", None)  # Linux only
_LONGEST_WAIT_MS = 1 << 30  # poll takes a C int
_LOOK_AGAIN_MS = 5  # where the end of a process cannot be waited for together with its output


class Cancellation:
    """Ends all commands that were given it, from any thread; they raise `BackendClosed`.

    Its two descriptors are freed with the object.
    """

    __slots__ = ("_read", "_write")

    def __init__(self) -> None:
        self._read = self._write = -1
        self._read, self._write = os.pipe()

    def fileno(self) -> int:
        """Returns a descriptor that is readable from `set` on."""
        return self._read

    def set(self) -> None:
        """Cancels, for good."""
        os.write(self._write, b"x")  # never read, so that every waiting thread sees it

    def __del__(self) -> None:
        for handle in (self._read, self._write):
            if handle >= 0:
                os.close(handle)


def stopped() -> BackendClosed:
    """Returns what a command raises that was ended by a `Cancellation`."""
    return BackendClosed("the command was stopped: its backend was closed or its batch given up")


def execute(
    argvs: Sequence[Sequence[str]],
    sandbox: Sandbox,
    *,
    timeout: float,
    max_output_bytes: int | None = None,
    cancels: Sequence[Cancellation] = (),
    signals: HeldSignals | None = None,
) -> CommandResult:
    """Runs the programs as one pipeline, the first reading /dev/null.

    Args:
        argvs: one argv a program, bare name first; already checked, since nothing is checked here.
        sandbox: how programs are started.
        timeout: seconds from the start to the deadline.
        max_output_bytes: stdout is cut after this many bytes; None keeps all.
        cancels: any of them ends the command early.
        signals: the caller's held signals; None holds them here.

    Raises:
        SpawnFailed: a program could not be started; those before it were stopped.
        BackendClosed: one of `cancels` was set.
        EngineFault: a program was killed from outside, or its exit status taken by somebody else.
    """
    if signals is None:
        with HeldSignals() as held:
            return execute(
                argvs, sandbox, timeout=timeout, max_output_bytes=max_output_bytes, cancels=cancels, signals=held
            )
    deadline = time.monotonic() + timeout
    with sandbox.environment(argvs) as environment:
        chain = Chain(sandbox.limits.stderr_bytes)
        run = _Run(chain, signals, max_output_bytes)
        try:
            try:
                # The less is wanted from the last program, the sooner it should stop.
                chain.start(
                    argvs, sandbox, environment, timeout, os.open(os.devnull, os.O_RDONLY), wide=run.budget > SMALL_READ
                )
                run.collect(deadline, cancels)
            finally:
                chain.stop()
            run.drain()
            if not run.timed_out:
                chain.check_not_killed(argvs)
            return run.result()
        finally:
            chain.close()


class Chain:
    """Programs joined by pipes, from their start until every exit status is taken.

    Attributes:
        processes: the programs, in order.
        out: the descriptor of the last one's output; closed by `close_handle` or with the chain.
        messages: stderr descriptor of a program -> what it wrote, in order.
        end: a descriptor that is readable from the end of the last program on; -1 where there is no such thing.
        killed: indices of the programs that `stop` found running.
    """

    def __init__(self, stderr_bytes: int) -> None:
        self.processes: list[Started] = []
        self.out = -1
        self.messages: dict[int, bytearray] = {}
        self.end = -1
        self.killed: set[int] = set()
        self.handles: set[int] = set()
        self._stderr_bytes = stderr_bytes

    def start(
        self,
        argvs: Sequence[Sequence[str]],
        sandbox: Sandbox,
        environment: dict[str, str],
        timeout: float,
        source: int,
        *,
        wide: bool = True,
        inherited: Sequence[int] = (),
    ) -> None:
        """Starts the programs.

        Args:
            argvs: one argv a program.
            sandbox: how programs are started.
            environment: all of it.
            timeout: seconds they may run, for their limits.
            source: the first one's stdin; it belongs to the chain from now on, which closes it.
            wide: give the last pipe much room too.
            inherited: descriptors that the first program gets under the same numbers.

        Raises:
            SpawnFailed: a program could not be started; those before it are in `processes`.
        """
        rlimits = sandbox.rlimits(timeout)
        last = len(argvs) - 1
        self.handles.add(source)
        try:
            for number, argv in enumerate(argvs):
                following, sink = self._pipe()
                if number < last or wide:
                    widen(following)
                errors, error_sink = self._pipe()
                self.messages[errors] = bytearray()
                program = sandbox.start(
                    argv,
                    stdin=source,
                    stdout=sink,
                    stderr=error_sink,
                    environment=environment,
                    rlimits=rlimits,
                    inherited=() if number else inherited,
                )
                self.processes.append(program)
                if program.end >= 0:
                    self.handles.add(program.end)
                self.close_handle(source, sink, error_sink)
                source = following
            self.out = source
            self.end = self.open_end(last)
        except OSError as error:
            raise SpawnFailed(
                f"{' | '.join(argv[0] for argv in argvs)} was not started: {error}; too many open files or processes?"
            ) from error

    def read_messages(self, handle: int) -> int:
        """Reads once from a program's stderr, keeping what fits; returns how many bytes, 0 at the end."""
        data = os.read(handle, SMALL_READ)
        kept = self.messages[handle]
        kept += data[: self._stderr_bytes - len(kept)]
        return len(data)

    def open_end(self, number: int) -> int:
        """Returns a new descriptor that is readable from the end of a program on; -1 where there is no such thing."""
        handle = self.processes[number].open_end()
        if handle >= 0:
            self.handles.add(handle)
        return handle

    def has_ended(self, number: int = -1) -> bool:
        """Returns whether a program, by default the last, has ended."""
        return self.processes[number].has_ended()

    def code(self, number: int) -> int:
        """Returns the exit code of a program that `has_ended`, 128 + s for death by signal s; 0 if others took it."""
        return _shell_code(self.processes[number].peek() or 0)

    def stop(self) -> None:
        """Kills every program that still runs, with all it may have started, and takes every exit status.

        An ended program is a zombie until then, which keeps its number from being given to others.

        Raises:
            EngineFault: the exit status of a program was lost.
        """
        waiting = [number for number, process in enumerate(self.processes) if process.returncode is None]
        for number in waiting:
            process = self.processes[number]
            if not (process.has_ended() or is_ending(process.pid)):
                self.killed.add(number)
        for number in waiting:
            self.processes[number].kill()
        lost = take_all([self.processes[number] for number in waiting])
        if lost is not None:
            try:
                raise lost
            finally:
                del lost  # as it holds this frame

    def check_not_killed(self, argvs: Sequence[Sequence[str]]) -> None:
        """Looks, after `stop`, for programs that others killed: what they had yet to write is missing.

        Raises:
            EngineFault: there is one; a limit on processor time would have ended it with another signal first.
        """
        for number, code in enumerate(self.codes()):
            if code == KILLED and number not in self.killed:
                raise EngineFault(f"{argvs[number][0]} was killed from outside: too little memory?")

    def codes(self) -> list[int]:
        """Returns the exit codes after `stop`, 128 + s for death by signal s."""
        return [_shell_code(process.returncode or 0) for process in self.processes]

    def close(self) -> None:
        """Closes all descriptors that are left."""
        self.close_handle(*self.handles)
        self.processes.clear()  # while signals are held: an exception raised in Popen.__del__ would be swallowed

    def close_handle(self, *handles: int) -> None:
        """Closes descriptors of this chain."""
        for handle in handles:
            self.handles.discard(handle)
            os.close(handle)

    def _pipe(self) -> tuple[int, int]:
        ends = os.pipe()
        self.handles.update(ends)
        return ends


class _Run:
    """One command while it runs."""

    def __init__(self, chain: Chain, signals: HeldSignals, max_output_bytes: int | None) -> None:
        self.chain = chain
        self.signals = signals
        self.budget = math.inf if max_output_bytes is None else max_output_bytes
        self.poller = select.poll()
        self.read_size = SMALL_READ
        self.stdout = io.BytesIO()  # grows in place and hands its buffer over without a copy
        self.size = 0
        self.timed_out = False

    def collect(self, deadline: float, cancels: Sequence[Cancellation]) -> None:
        """Reads until the last program ends, the output is enough, or the deadline passes."""
        poller, end = self.poller, self.chain.end
        for handle in (self.chain.out, *self.chain.messages):
            poller.register(handle, select.POLLIN)
        if end >= 0:
            poller.register(end, select.POLLIN)
        stops = {cancel.fileno() for cancel in cancels}
        for handle in stops:
            poller.register(handle, select.POLLIN)
        while True:
            if (left := deadline - time.monotonic()) <= 0:
                self.timed_out = True
                return
            events = self.signals.poll(poller, milliseconds(left, can_wait=end >= 0))
            ended = end < 0 and self.chain.has_ended()
            for handle, _ in events:
                if handle in stops:
                    raise stopped()
                if handle == end:
                    ended = True
                else:
                    self._read(handle)
            if ended or self.size > self.budget:
                return

    def drain(self) -> None:
        """Reads what the programs left in the pipes when they ended, a pipe's capacity at most."""
        drain(self.chain.handles & {self.chain.out, *self.chain.messages}, self._read)

    def result(self) -> CommandResult:
        cut = self.size > self.budget
        if cut:
            self.stdout.truncate(int(self.budget))
        return CommandResult(
            stdout=self.stdout.getvalue(),
            stderr=b"".join(self.chain.messages.values()),
            exit_code=None if cut or self.timed_out else self.chain.codes()[-1],
            output_truncated=cut,
            timed_out=self.timed_out and not cut,
        )

    def _read(self, handle: int) -> int:
        """Reads once, in a way that does not wait after `poll`; returns how many bytes, 0 at the end."""
        if handle != self.chain.out:
            got = self.chain.read_messages(handle)
        else:
            data = os.read(handle, self.read_size)
            got = len(data)
            self.size += self.stdout.write(data)
            if got == SMALL_READ:
                self.read_size = LARGE_READ
        if not got:
            self.poller.unregister(handle)
            self.chain.close_handle(handle)
        return got


def _shell_code(status: int) -> int:
    return status if status >= 0 else 128 - status


def drain(handles: Iterable[int], read: Callable[[int], int]) -> None:
    """Calls `read` for each pipe until it is empty or as much was read as a pipe holds."""
    for handle in handles:
        poller = select.poll()
        poller.register(handle, select.POLLIN)
        left = LARGE_READ
        while left > 0 and poller.poll(0) and (got := read(handle)):
            left -= got


def milliseconds(seconds: float, *, can_wait: bool) -> int:
    """Returns how long `poll` may wait; `can_wait`: the end of every program wakes it."""
    return math.ceil(min(seconds * 1000, _LONGEST_WAIT_MS if can_wait else _LOOK_AGAIN_MS))


def widen(handle: int, size: int = LARGE_READ) -> int:
    """Makes room for `size` bytes in a pipe, where that is possible; returns how much there is, as far as known."""
    if _SET_PIPE_SIZE is not None:
        with contextlib.suppress(OSError):  # not allowed, or this user's share of pipe memory is used up
            return int(fcntl.fcntl(handle, _SET_PIPE_SIZE, size))
    return SMALL_READ
