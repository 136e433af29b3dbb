"""A program that runs: how to learn of its end, kill it, and take its exit code, however it was started."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING, Protocol

from grepseek_env.errors import EngineFault

if TYPE_CHECKING:
    import subprocess

__all__ = ["Direct", "Started", "is_ending"]

_PF_EXITING = 4
_HAS_PIDFD = hasattr(os, "pidfd_open")
_HAS_WAITID = hasattr(os, "waitid")  # without it (macOS before Python 3.13) nobody can look without taking


class Started(Protocol):
    """A program that was started.

    Attributes:
        pid: its process id, which names its group and session too.
        end: a descriptor that is readable from its end on, if there is one already; -1 otherwise. Whoever started the
            program closes it.
        returncode: its exit code, -s for death by signal s; None until `take`.
    """

    pid: int
    end: int
    returncode: int | None

    def open_end(self) -> int:
        """Returns `end`, opening it where that is possible."""

    def has_ended(self) -> bool:
        """Returns whether it has ended."""

    def peek(self) -> int | None:
        """Returns the exit code of a program that has ended, and leaves it to be taken; None if nobody knows it."""

    def kill(self) -> None:
        """Kills it, with all it may have started."""

    def take(self) -> int:
        """Waits for its end and takes its exit code; its number may be given to others from then on.

        Raises:
            EngineFault: the exit code was lost.
        """


def is_ending(pid: int) -> bool:
    """Returns whether a process that is still there has begun to end, where that can be seen.

    It closes its files first: whoever reads from it may have seen its end before it has an exit code.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - on the way to every cancelled program
            return bool(int(file.read().rpartition(b")")[2].split()[6]) & _PF_EXITING)
    except (OSError, IndexError, ValueError):
        return False


class Direct:
    """A child of this very process."""

    __slots__ = ("_process", "end", "pid", "returncode")

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.pid = process.pid
        self.end = -1
        self.returncode: int | None = None

    def open_end(self) -> int:
        """Returns `end`, opening it where that is possible."""
        if self.end < 0 and _HAS_PIDFD:
            with contextlib.suppress(ProcessLookupError):  # somebody took its exit status: `take` will say so
                self.end = os.pidfd_open(self.pid)
        return self.end

    def has_ended(self) -> bool:
        """Returns whether it has ended."""
        if self.returncode is not None:
            return True
        try:
            if _HAS_WAITID:
                return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
            pid, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:  # somebody took its exit status: `take` will say so
            return True
        if pid:
            self._note(os.waitstatus_to_exitcode(status))
        return self.returncode is not None

    def peek(self) -> int | None:
        """Returns the exit code of a program that has ended, and leaves it to be taken; None if nobody knows it."""
        if self.returncode is None and _HAS_WAITID:
            with contextlib.suppress(ChildProcessError):
                found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if found is not None:
                    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
        return self.returncode

    def kill(self) -> None:
        """Kills it, with all it may have started."""
        # macOS answers EPERM when only zombies are left in the group.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def take(self) -> int:
        """Waits for its end and takes its exit code; its number may be given to others from then on.

        Raises:
            EngineFault: the exit code was taken by somebody else.
        """
        if self.returncode is None:
            try:
                _, status = os.waitpid(self.pid, 0)
            except ChildProcessError:
                self._note(0)
                raise EngineFault(
                    f"the exit status of process {self.pid} was taken by other code of this process: "
                    "it must not ignore SIGCHLD or wait for processes that it did not start"
                ) from None
            self._note(os.waitstatus_to_exitcode(status))
        assert self.returncode is not None  # noqa: S101 - just noted
        return self.returncode

    def _note(self, code: int) -> None:
        self.returncode = self._process.returncode = code  # so that Popen does not look for it either
