"""Runs a pipeline of programs without a shell: pipes, deadline, bounded output, nothing left behind.

A command is done when its last program ends; programs before it that still run are then killed, where bash would wait
for them. What a program suffers from its limits (time-outs apart) is its own failure and shows as such: 128 + 9 or
128 + 24 for processor time, 128 + 25 for the size of a temporary file, its own message and code for memory, a full
disk or descriptors. Those, and time-outs, depend on the host; everything else is the same on every run.
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

from grepseek_env.engine.interrupts import HeldSignals
from grepseek_env.errors import BackendClosed, EngineFault, SpawnFailed
from grepseek_env.types import CommandResult

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence

    from grepseek_env.engine.sandbox import Sandbox

__all__ = ["Cancellation", "execute"]

_SMALL_READ = 64 << 10  # a pipe's usual capacity
# Wider pipes between programs gave 5-10 %. Four times that gave little more, and all of an unprivileged user's pipes
# shrink to a page each once they hold 64 MiB together.
_LARGE_READ = 256 << 10
_SET_PIPE_SIZE = getattr(fcntl, "F_SETPIPE_SZ", None)  # Linux only
_HAS_PIDFD = hasattr(os, "pidfd_open")
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


def execute(
    argvs: Sequence[Sequence[str]],
    sandbox: Sandbox,
    *,
    timeout: float,
    max_output_bytes: int | None = None,
    cancels: Sequence[Cancellation] = (),
) -> CommandResult:
    """Runs the programs as one pipeline, the first reading /dev/null.

    Args:
        argvs: one argv a program, bare name first; already checked, since nothing is checked here.
        sandbox: how programs are started.
        timeout: seconds from the start to the deadline.
        max_output_bytes: stdout is cut after this many bytes; None keeps all.
        cancels: any of them ends the command early.

    Raises:
        SpawnFailed: a program could not be started; those before it were stopped.
        BackendClosed: one of `cancels` was set.
        EngineFault: the exit status of a program was taken by somebody else.
    """
    deadline = time.monotonic() + timeout
    with HeldSignals() as signals, sandbox.environment(argvs) as environment:
        run = _Run(signals, max_output_bytes, sandbox.limits.stderr_bytes)
        try:
            try:
                run.start(argvs, sandbox, environment, timeout)
                run.collect(deadline, cancels)
            finally:
                run.stop()
            run.drain()
            return run.result()
        finally:
            run.close()


class _Run:
    """One command while it runs."""

    def __init__(self, signals: HeldSignals, max_output_bytes: int | None, stderr_bytes: int) -> None:
        self.signals = signals
        self.budget = math.inf if max_output_bytes is None else max_output_bytes
        self.stderr_bytes = stderr_bytes
        self.processes: list[subprocess.Popen[bytes]] = []
        self.handles: set[int] = set()
        self.poller = select.poll()
        self.out = -1
        self.read_size = _SMALL_READ
        self.stdout = io.BytesIO()  # grows in place and hands its buffer over without a copy
        self.size = 0
        self.messages: dict[int, bytearray] = {}  # stderr handle -> bytes, in stage order
        self.last_end = -1
        self.timed_out = False

    def start(
        self, argvs: Sequence[Sequence[str]], sandbox: Sandbox, environment: dict[str, str], timeout: float
    ) -> None:
        rlimits = sandbox.rlimits(timeout)
        last = len(argvs) - 1
        try:
            source = self._own(os.open(os.devnull, os.O_RDONLY))
            for number, argv in enumerate(argvs):
                following, sink = self._pipe()
                # The less is wanted from the last program, the sooner it should stop.
                if number < last or self.budget > _SMALL_READ:
                    _widen(following)
                errors, error_sink = self._pipe()
                self.messages[errors] = bytearray()
                self.processes.append(
                    sandbox.start(
                        argv, stdin=source, stdout=sink, stderr=error_sink, environment=environment, rlimits=rlimits
                    )
                )
                self._close(source, sink, error_sink)
                source = following
            self.out = source
            if _HAS_PIDFD:
                with contextlib.suppress(ProcessLookupError):  # somebody took its exit status: `stop` will say so
                    self.last_end = self._own(os.pidfd_open(self.processes[-1].pid))
        except OSError as error:
            raise SpawnFailed(
                f"{' | '.join(argv[0] for argv in argvs)} was not started: {error}; too many open files or processes?"
            ) from error

    def collect(self, deadline: float, cancels: Sequence[Cancellation]) -> None:
        """Reads until the last program ends, the output is enough, or the deadline passes."""
        poller = self.poller
        for handle in (self.out, *self.messages):
            poller.register(handle, select.POLLIN)
        if self.last_end >= 0:
            poller.register(self.last_end, select.POLLIN)
        stops = {cancel.fileno() for cancel in cancels}
        for handle in stops:
            poller.register(handle, select.POLLIN)
        while True:
            if (left := deadline - time.monotonic()) <= 0:
                self.timed_out = True
                return
            wait = math.ceil(min(left * 1000, _LONGEST_WAIT_MS if self.last_end >= 0 else _LOOK_AGAIN_MS))
            events = self.signals.poll(poller, wait)
            ended = self.last_end < 0 and self._last_has_ended()
            for handle, _ in events:
                if handle in stops:
                    raise BackendClosed("the command was stopped: its backend was closed or its batch given up")
                if handle == self.last_end:
                    ended = True
                else:
                    self._read(handle)
            if ended or self.size > self.budget:
                return

    def stop(self) -> None:
        """Kills every program that still runs, with all it may have started, and takes every exit status.

        An ended program is a zombie until then, which keeps its number from being given to others.
        """
        for process in self.processes:
            # macOS answers EPERM when only zombies are left in the group.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        lost = ""
        for process in self.processes:
            try:
                _, status = os.waitpid(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
            except ChildProcessError:
                process.returncode = 0  # so that Popen does not look for it either
                lost = f"process {process.pid}"
        if lost:
            raise EngineFault(
                f"the exit status of {lost} was taken by other code of this process: "
                "it must not ignore SIGCHLD or wait for processes that it did not start"
            )

    def drain(self) -> None:
        """Reads what the programs left in the pipes when they ended, a pipe's capacity at most."""
        for handle in self.handles & {self.out, *self.messages}:
            poller = select.poll()
            poller.register(handle, select.POLLIN)
            left = _LARGE_READ
            while left > 0 and poller.poll(0) and (got := self._read(handle)):
                left -= got

    def result(self) -> CommandResult:
        cut = self.size > self.budget
        if cut:
            self.stdout.truncate(int(self.budget))
        code = self.processes[-1].returncode
        return CommandResult(
            stdout=self.stdout.getvalue(),
            stderr=b"".join(self.messages.values()),
            exit_code=None if cut or self.timed_out else code if code >= 0 else 128 - code,
            output_truncated=cut,
            timed_out=self.timed_out and not cut,
        )

    def close(self) -> None:
        self._close(*self.handles)
        self.processes.clear()  # while signals are held: an exception raised in Popen.__del__ would be swallowed

    def _last_has_ended(self) -> bool:
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        try:
            return os.waitid(os.P_PID, self.processes[-1].pid, options) is not None
        except ChildProcessError:  # somebody took its exit status: `stop` will say so
            return True

    def _read(self, handle: int) -> int:
        """Reads once, in a way that does not wait after `poll`; returns how many bytes, 0 at the end."""
        if handle != self.out:
            data = os.read(handle, _SMALL_READ)
            kept = self.messages[handle]
            kept += data[: self.stderr_bytes - len(kept)]
        else:
            data = os.read(handle, self.read_size)
            self.size += self.stdout.write(data)
            if len(data) == _SMALL_READ:
                self.read_size = _LARGE_READ
        if not data:
            self.poller.unregister(handle)
            self._close(handle)
        return len(data)

    def _pipe(self) -> tuple[int, int]:
        ends = os.pipe()
        self.handles.update(ends)
        return ends

    def _own(self, handle: int) -> int:
        self.handles.add(handle)
        return handle

    def _close(self, *handles: int) -> None:
        for handle in handles:
            self.handles.discard(handle)
            os.close(handle)


def _widen(handle: int) -> None:
    if _SET_PIPE_SIZE is not None:
        with contextlib.suppress(OSError):  # not allowed, or this user's share of pipe memory is used up
            fcntl.fcntl(handle, _SET_PIPE_SIZE, _LARGE_READ)
