"""Keeps a killed daemon from leaving programs behind.

A process that is killed with SIGKILL can stop nothing any more, and a program of a command may run for minutes. So the
daemon has a parent that does nothing but wait: the kernel hands it whatever the daemon leaves behind, and it ends
that. Should the parent be killed, the daemon notices the end of a pipe and stops at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

__all__ = ["ending_signals", "supervise"]

_PR_SET_CHILD_SUBREAPER = 36


def ending_signals() -> list[signal.Signals]:
    """Returns the signals that end a daemon: not those that whoever started it wanted ignored, as nohup does."""
    wanted = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return [number for number in wanted if signal.getsignal(number) is not signal.SIG_IGN]


def supervise(argv: Sequence[str]) -> int:
    """Runs the daemon as a child and returns its exit code (128 + s for signal s).

    The signals that end a daemon are passed on, the child being in a session of its own so that it gets each once.

    Args:
        argv: starts the daemon; ``{guard}`` in it becomes the descriptor that ends when this process does.
    """
    _adopt_orphans()
    watched, held = os.pipe()
    process: subprocess.Popen[bytes] | None = None
    early: list[int] = []

    def forward(number: int, _frame: FrameType | None) -> None:
        if process is None:
            early.append(number)
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)

    previous = {number: signal.signal(number, forward) for number in ending_signals()}
    try:
        filled = [word.replace("{guard}", str(watched)) for word in argv]
        process = subprocess.Popen(filled, pass_fds=(watched,), start_new_session=True)
        for number in early:
            forward(number, None)
        os.close(watched)
        code = _wait_for(process)
        _end_orphans()
    finally:
        os.close(held)
        for number, handler in previous.items():
            signal.signal(number, handler)
    if code < 0:
        print(f"grepseek: the daemon was killed by signal {-code}; what it ran was ended", file=sys.stderr)
    return code if code >= 0 else 128 - code


def _adopt_orphans() -> None:
    """Makes this process the parent of its descendants' orphans, where the system can (Linux)."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _wait_for(process: subprocess.Popen[bytes]) -> int:
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == process.pid:
            process.returncode = os.waitstatus_to_exitcode(status)  # so that Popen does not wait for it again
            return process.returncode


def _end_orphans() -> None:
    while True:
        for pid in _children():
            for end in (os.killpg, os.kill):  # a program of a command leads a group of its own
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    end(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _children() -> list[int]:
    """Returns the ids of this process's children."""
    me = os.getpid()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
            if int(fields[1]) == me:
                found.append(int(folder.name))
    return found
