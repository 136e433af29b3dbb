"""The engine's side of launchers: finding the right one, telling it what to start, starting another when it is gone.

One keeper serves this process; a fork makes its own. Any number of threads may start programs at once.
"""

from __future__ import annotations

import atexit
import contextlib
import marshal
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grepseek_env.engine.confine.keeper import MESSAGE_BYTES, MOST_HANDLES, command, decode
from grepseek_env.errors import LauncherLost, SpawnFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

__all__ = ["LAUNCHERS", "Launched", "Launcher", "Launchers", "Profile"]

_START_SECONDS = 60
_ANSWER_SECONDS = 60
_MOST_LAUNCHERS = 16  # a few MB of memory each; the one that was used least recently ends first
_PACKAGE = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Profile:
    """What a launcher's programs may do.

    Attributes:
        programs: name -> path.
        rules: path -> rights of Landlock, in pairs.
        reachable: files and folders that must stay readable when root is given up.
        spill: the folder for temporary files; empty forbids any.
        files: corpus file -> device and inode that the rules are for.
        source: what it was made from, kept for as long as the launcher lives.
    """

    programs: Mapping[str, bytes]
    rules: Sequence[tuple[bytes, int]]
    reachable: Sequence[bytes]
    spill: bytes = b""
    files: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    source: object = None

    def message(self) -> bytes:
        """Returns what the keeper is told."""
        return marshal.dumps(
            {
                "programs": dict(self.programs),
                "rules": list(self.rules),
                "reachable": list(self.reachable),
                "spill": self.spill,
            }
        )


class Launched:
    """A program that a launcher started.

    Attributes:
        pid: its process id, which is its group's too.
        end: a descriptor that is readable from its end on; it belongs to whoever started it. -1 where there is none.
        returncode: its exit code, -s for death by signal s; None until `take`.
    """

    __slots__ = ("_launcher", "end", "pid", "returncode")

    def __init__(self, launcher: Launcher, pid: int, end: int) -> None:
        self._launcher = launcher
        self.pid = pid
        self.end = end
        self.returncode: int | None = None

    def open_end(self) -> int:
        """Returns `end`."""
        return self.end

    def has_ended(self) -> bool:
        """Returns whether it has ended."""
        if self.returncode is not None:
            return True
        if self.end >= 0:
            return bool(self._poll(0))
        return self._launcher.status(self.pid, take=False) is not None

    def peek(self) -> int | None:
        """Returns the exit code of a program that has ended, and leaves it to be taken; None of one that runs.

        Raises:
            LauncherLost: nobody knows any more.
        """
        return self._launcher.status(self.pid, take=False) if self.returncode is None else self.returncode

    def kill(self) -> None:
        """Kills it, with all it may have started."""
        if self.end >= 0:  # its number may be another's if the launcher died, its descriptor never is
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(self.end, signal.SIGKILL)  # type: ignore[attr-defined, unused-ignore]
        if not self._launcher.lost:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def take(self) -> int:
        """Waits for its end and takes its exit code; its number may be given to others from then on.

        Raises:
            LauncherLost: nobody knows any more.
        """
        if self.returncode is None:
            if self.end >= 0:
                self._poll(None)
            try:
                while (code := self._launcher.status(self.pid, take=True)) is None:
                    time.sleep(0.001)
            except LauncherLost:
                self.returncode = 0
                raise
            self.returncode = code
        return self.returncode

    def _poll(self, milliseconds: int | None) -> list[tuple[int, int]]:
        poller = select.poll()
        poller.register(self.end, select.POLLIN)
        return poller.poll(milliseconds)


class Launcher:
    """One launcher.

    Attributes:
        profile: what its programs may do.
        report: layer -> (in force, how); `uid` is the user that programs run as.
        lost: it is gone.
    """

    def __init__(self, channel: socket.socket, profile: Profile, report: Mapping[str, Any]) -> None:
        self.profile = profile
        self.report = report
        self.lost = False
        self._channel = channel
        self._lock = threading.Lock()
        self._running = 0
        self._retired = False

    def spawn(
        self,
        name: str,
        argv: Sequence[bytes],
        *,
        folder: bytes,
        environment: Mapping[bytes, bytes],
        limits: Sequence[tuple[int, int, int]],
        handles: Sequence[int],
        inherited: Sequence[int],
    ) -> Launched:
        """Starts a program.

        Args:
            name: a program of the profile.
            argv: its arguments, the name first.
            folder: its working folder.
            environment: all of it.
            limits: resource, soft and hard limit.
            handles: its stdin, stdout and stderr.
            inherited: descriptors that it gets under the same numbers.

        Raises:
            OSError: it could not be started.
            LauncherLost: there is no launcher any more.
        """
        order = ("spawn", name, list(argv), folder, dict(environment), list(limits), list(inherited))
        answer, passed = self._ask(marshal.dumps(order), (*handles, *inherited))
        match answer:
            case ("started", pid):
                with self._lock:
                    self._running += 1
                program = Launched(self, pid, passed[0] if passed else -1)
                if _PIDFD_EXPECTED and not passed:  # this process had no room for it
                    program.kill()
                    program.take()
                    raise OSError(24, "too many open files")
                return program
            case ("failed", number, text):
                raise OSError(number, text)
            case _:
                raise self._gone(f"it answered {answer!r}")

    def status(self, pid: int, *, take: bool) -> int | None:
        """Returns how a program ended, -s for death by signal s; None while it runs.

        Args:
            pid: the program.
            take: its number is free afterwards.

        Raises:
            LauncherLost: the launcher is gone, or does not know it.
        """
        match self._ask(marshal.dumps(("status", pid, take)))[0]:
            case ("ended", int(code)):
                if take:
                    with self._lock:
                        self._running -= 1
                        self._rest()
                return code
            case ("running",):
                return None
            case answer:
                raise LauncherLost(f"the exit status of process {pid} is not known: {answer!r}")

    def fileno(self) -> int:
        """Returns the descriptor of its channel, -1 when it is closed."""
        return self._channel.fileno()

    def retire(self) -> None:
        """Ends it as soon as the last of its programs is taken."""
        with self._lock:
            self._retired = True
            self._rest()

    def close(self) -> None:
        """Ends it, and with it whatever it started."""
        with self._lock:
            self._end()

    def forget(self) -> None:
        """Lets go of it in a fork of the process that it belongs to."""
        self.lost = True
        self._channel.close()

    def __del__(self) -> None:
        self._channel.close()

    def _ask(self, message: bytes, handles: Sequence[int] = ()) -> tuple[Any, list[int]]:
        if len(handles) > MOST_HANDLES:
            raise OSError(24, f"a program can be given {MOST_HANDLES} open files, not {len(handles)}")
        passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f"={len(handles)}i", *handles))] if handles else []
        with self._lock:
            if self.lost:
                raise self._gone("it ended earlier")
            try:
                self._channel.sendmsg([message], passed, socket.MSG_NOSIGNAL)
                data, found = _receive(self._channel)
            except OSError as error:
                self._end()
                raise self._gone(str(error)) from error
            except BaseException:  # an answer that nobody reads would be taken for the next one's
                self._end()
                raise
            if not data:
                self._end()
                raise self._gone("it was killed")
        return decode(data), found

    def _rest(self) -> None:
        if self._retired and not self._running:
            self._end()

    def _end(self) -> None:
        self.lost = True
        self._channel.close()

    @staticmethod
    def _gone(why: str) -> LauncherLost:
        return LauncherLost(f"the process that starts programs is gone ({why}); the next command starts another")


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
            data, _ = _receive(ours)
            report = _checked(data)
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", _ANSWER_SECONDS, 0))
            return Launcher(ours, profile, report)
        except BaseException:
            ours.close()
            raise

    def fileno(self) -> int:
        return self._channel.fileno()

    def close(self) -> None:
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
            if self._keeper is not None:
                try:
                    return self._keeper.open(profile)
                except ConnectionError:
                    self._keeper.close()
                    self._keeper = None
            self._keeper = _Keeper()
            return self._keeper.open(profile)
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


def _receive(channel: socket.socket) -> tuple[bytes, list[int]]:
    data, passed, _, _ = channel.recvmsg(MESSAGE_BYTES, socket.CMSG_SPACE(4), getattr(socket, "MSG_CMSG_CLOEXEC", 0))
    handles: list[int] = []
    for level, kind, content in passed:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS and len(content) >= 4:
            handles.append(struct.unpack("=i", content[:4])[0])
    return data, handles


_PIDFD_EXPECTED = hasattr(os, "pidfd_open")
LAUNCHERS = Launchers()
atexit.register(LAUNCHERS.close)
os.register_at_fork(after_in_child=LAUNCHERS.forget)
