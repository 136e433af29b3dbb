"""The launchers of this process: finding the right one, making another when it is gone.

One keeper serves this process; a fork makes its own.
"""

from __future__ import annotations

import atexit
import contextlib
import marshal
import os
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grepseek_env.engine.confine.keeper import command
from grepseek_env.engine.confine.launcher import Launcher, Profile
from grepseek_env.engine.confine.messages import decode, receive
from grepseek_env.errors import SpawnFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

__all__ = ["LAUNCHERS", "Launchers"]

_START_SECONDS = 60
_ANSWER_SECONDS = 60
_TRIES = 4
_MOST_LAUNCHERS = 16  # a few MB of memory each; the one that was used least recently ends first
_PACKAGE = Path(__file__).parents[2]


class _Keeper:
    """The process that makes launchers."""

    def __init__(self) -> None:
        if not sys.executable:
            raise SpawnFailed("programs cannot be confined: this Python does not know its own path (sys.executable)")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self._process = subprocess.Popen(
                    command(sys.executable, str(_PACKAGE), theirs.fileno()),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    env={},
                    cwd="/",
                    start_new_session=True,
                    pass_fds=(theirs.fileno(),),
                )
            except OSError:
                ours.close()
                raise
        self._channel = ours

    def open(self, profile: Profile) -> Launcher:
        """Makes a launcher.

        Raises:
            OSError: the keeper is gone, or there are too many open files.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("=i", theirs.fileno()))]
                self._channel.sendmsg([profile.message()], passed, socket.MSG_NOSIGNAL)
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", _START_SECONDS, 0))
            data, _ = receive(ours)
            report = _checked(data)
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", _ANSWER_SECONDS, 0))
            return Launcher(ours, profile, report)
        except BaseException:
            ours.close()
            raise

    def fileno(self) -> int:
        return self._channel.fileno()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._channel.sendmsg([marshal.dumps({})], (), socket.MSG_NOSIGNAL)
        self._channel.close()
        with contextlib.suppress(ChildProcessError):
            self._process.wait()

    def forget(self) -> None:
        self._channel.close()
        self._process.returncode = 0  # it is the child of the process that forked


class Launchers:
    """All launchers of this process, by what their programs may do."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keeper: _Keeper | None = None
        self._open: dict[Hashable, Launcher] = {}

    def get(self, key: Hashable, profile: Callable[[], Profile]) -> Launcher:
        """Returns the launcher of a key, making it where there is none.

        Args:
            key: what the profile is made from.
            profile: what the programs may do.

        Raises:
            SpawnFailed: none can be made.
        """
        with self._lock:
            found = self._open.pop(key, None)
            if found is None or found.lost:
                found = self._make(profile())
                while len(self._open) >= _MOST_LAUNCHERS:
                    self._open.pop(next(iter(self._open))).retire()
            self._open[key] = found
            return found

    def drop(self, launcher: Launcher) -> None:
        """Has the next `get` make another one."""
        with self._lock:
            for key in [key for key, each in self._open.items() if each is launcher]:
                del self._open[key]
        launcher.retire()

    def handles(self) -> set[int]:
        """Returns the descriptors that stay open for whoever needs a launcher next."""
        with self._lock:
            kept = {each.fileno() for each in self._open.values()}
            return kept if self._keeper is None else kept | {self._keeper.fileno()}

    def close(self) -> None:
        """Ends all of them; whatever runs is killed."""
        with self._lock:
            for each in self._open.values():
                each.close()
            self._open.clear()
            if self._keeper is not None:
                self._keeper.close()
                self._keeper = None

    def forget(self) -> None:
        """Starts afresh in a fork; the parent keeps its own."""
        self._lock = threading.Lock()
        for each in self._open.values():
            each.forget()
        self._open = {}
        if self._keeper is not None:
            self._keeper.forget()
            self._keeper = None

    def _make(self, profile: Profile) -> Launcher:
        try:
            for _ in range(_TRIES):
                if self._keeper is None:
                    self._keeper = _Keeper()
                try:
                    return self._keeper.open(profile)
                except ConnectionError:  # somebody killed it, or the launcher it had made
                    self._keeper.close()
                    self._keeper = None
            raise BrokenPipeError("it was killed each time before it had begun")
        except OSError as error:
            raise SpawnFailed(
                f"the process that starts programs could not be started: {error}; too many open files or processes? "
                "(sandbox='off' does without it)"
            ) from error


def _checked(data: bytes) -> dict[str, Any]:
    if not data:
        raise BrokenPipeError("it ended before it had begun")
    report: dict[str, Any] = decode(data)
    if "failed" in report:
        raise OSError(report["failed"])
    return report


LAUNCHERS = Launchers()
atexit.register(LAUNCHERS.close)
os.register_at_fork(after_in_child=LAUNCHERS.forget)
