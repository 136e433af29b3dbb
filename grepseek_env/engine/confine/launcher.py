"""A launcher as the engine sees it: what it is told, and the programs it has started.

Any number of threads may start programs at once.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import select
import signal
import socket
import struct
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from grepseek_env.engine.confine.messages import MOST_HANDLES, decode, receive
from grepseek_env.errors import EngineFault, LauncherLost

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from grepseek_env.engine.started import Started

__all__ = ["Launched", "Launcher", "Profile", "take_all"]

_PIDFD_EXPECTED = hasattr(os, "pidfd_open")


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
        return self._launcher.status(self.pid) is not None

    def peek(self) -> int | None:
        """Returns the exit code of a program that has ended, and leaves it to be taken; None of one that runs.

        Raises:
            LauncherLost: nobody knows any more.
        """
        return self._launcher.status(self.pid) if self.returncode is None else self.returncode

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
            self.wait()
            self._launcher.take([self])
        assert self.returncode is not None  # noqa: S101 - just taken
        return self.returncode

    @property
    def launcher(self) -> Launcher:
        """Who started it."""
        return self._launcher

    def wait(self) -> None:
        """Waits for its end, where something tells of it."""
        if self.end >= 0:
            self._poll(None)

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

    def status(self, pid: int) -> int | None:
        """Returns how a program ended, -s for death by signal s; None while it runs.

        Raises:
            LauncherLost: the launcher is gone, or does not know it.
        """
        return _code(pid, self._ask(marshal.dumps(("status", [pid], False)))[0][0])

    def take(self, programs: Sequence[Launched]) -> None:
        """Takes the exit codes of programs of this launcher, and frees their numbers.

        Args:
            programs: those that have ended, or soon will.

        Raises:
            LauncherLost: the launcher is gone, or does not know one; those it knew are taken.
        """
        left = list(programs)
        try:
            while left:
                answers, _ = self._ask(marshal.dumps(("status", [each.pid for each in left], True)))
                for program, answer in zip(tuple(left), answers, strict=True):
                    code = _code(program.pid, answer)
                    if code is not None:
                        program.returncode = code
                        left.remove(program)
                        self._let_go()
                if left:
                    time.sleep(0.001)
        finally:
            for program in left:  # nobody need ask again
                program.returncode = 0

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
                raise self._gone("it ended earlier", untold=True)
            told = False
            try:
                self._channel.sendmsg([message], passed, socket.MSG_NOSIGNAL)
                told = True
                data, found = receive(self._channel)
            except OSError as error:
                self._end()
                raise self._gone(str(error), untold=not told) from error
            except BaseException:  # an answer that nobody reads would be taken for the next one's
                self._end()
                raise
            if not data:
                self._end()
                raise self._gone("it was killed")
        return decode(data), found

    def _let_go(self) -> None:
        with self._lock:
            self._running -= 1
            self._rest()

    def _rest(self) -> None:
        if self._retired and not self._running:
            self._end()

    def _end(self) -> None:
        self.lost = True
        self._channel.close()

    @staticmethod
    def _gone(why: str, *, untold: bool = False) -> LauncherLost:
        return LauncherLost(
            f"the process that starts programs is gone ({why}); the next command starts another", untold=untold
        )


def take_all(programs: Sequence[Started]) -> EngineFault | None:
    """Takes the exit codes of programs that have ended or were killed; returns what was lost, if any was."""
    lost: EngineFault | None = None
    together: dict[Launcher, list[Launched]] = {}
    try:
        for program in programs:
            if isinstance(program, Launched):
                program.wait()
                together.setdefault(program.launcher, []).append(program)
                continue
            try:
                program.take()
            except EngineFault as fault:
                lost = fault
        for launcher, ours in together.items():
            try:
                launcher.take(ours)
            except EngineFault as fault:
                lost = fault
        return lost
    finally:
        lost = None  # it holds this frame, and with it descriptors of the command, until the collector comes


def _code(pid: int, answer: tuple[Any, ...]) -> int | None:
    match answer:
        case ("ended", int(code)):
            return code
        case ("running",):
            return None
        case _:
            raise LauncherLost(f"the exit status of process {pid} is not known: {answer!r}")
