"""A launcher: gives everything up for good, then starts programs as it is told.

Runs in the small interpreter of the keeper that made it.
"""

from __future__ import annotations

import contextlib
import fcntl
import marshal
import os
import resource
import signal
import socket
import struct
import sys
from typing import TYPE_CHECKING, Any

from grepseek_env.engine.confine import landlock, seccomp
from grepseek_env.engine.confine.messages import decode, receive
from grepseek_env.engine.confine.privileges import drop_root, forbid_new_privileges, join_group
from grepseek_env.engine.confine.syscalls import CONDITIONAL
from grepseek_env.engine.confine.system import syscall

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Starter"]

_FOREVER_LIMITS = ("RLIMIT_CORE", "RLIMIT_MSGQUEUE", "RLIMIT_MEMLOCK", "RLIMIT_RTPRIO")


class Starter:
    """Starts programs under its own confinement.

    `wanted` holds: programs (name -> path), rules (pairs of path and rights), reachable (paths that must stay
    readable), spill (the folder for temporary files, or empty).
    """

    def __init__(self, caller: socket.socket, wanted: dict[str, Any], group: bytes, group_text: str) -> None:
        self.caller = caller
        # The filter knows programs by where these texts lie in memory, so they must stay.
        self.programs: dict[str, bytes] = {name: bytes(bytearray(path)) for name, path in wanted["programs"].items()}
        self.cookie = int.from_bytes(os.urandom(8), "little") | 1
        self.running: set[int] = set()
        self.machine = seccomp.machine()
        self.report = self._confine(wanted, group, group_text)

    def _confine(self, wanted: dict[str, Any], group: bytes, group_text: str) -> dict[str, Any]:
        """Gives everything up, the most powerful means last; returns layer -> (in force, how)."""
        report: dict[str, Any] = {}
        os.setsid()
        _limit()
        report["processes"] = (bool(group), group_text)
        if group:
            try:
                join_group(group)
            except OSError as error:
                report["processes"] = False, str(error)
        try:
            forbid_new_privileges()
            report["no_new_privs"] = True, "setuid programs gain nothing"
        except OSError as error:
            report["no_new_privs"] = False, str(error)
            report["landlock"] = False, "needs no_new_privs"
        restricted = report["no_new_privs"][0]  # the kernel takes neither from a process that could gain privileges
        version = _landlocked(wanted["rules"], report) if restricted else 0
        report["uid"], report["user"] = drop_root(
            wanted["reachable"], list(self.programs.values()), landlock=version > 0
        )
        report["network"] = version >= 4, "TCP by Landlock" if version >= 4 else "Landlock has it from ABI 4"
        report["signals"] = version >= 6, "kept inside by Landlock" if version >= 6 else "Landlock has it from ABI 6"
        self._filter(report, spill=bool(wanted["spill"]), restricted=restricted)
        return report

    def _filter(self, report: dict[str, Any], *, spill: bool, restricted: bool) -> None:
        if self.machine is None or not restricted:
            self.machine = None
            report["seccomp"] = False, "the numbers of this machine's system calls are not known"
            return
        addresses = [id(path) + sys.getsizeof(b"") - 1 for path in self.programs.values()]
        try:
            seccomp.install(seccomp.build(self.machine, paths=addresses, cookie=self.cookie, spill=spill))
        except OSError as error:
            self.machine = None
            report["seccomp"] = False, str(error)
        else:
            report["seccomp"] = True, "only listed system calls; nothing can be started but by the launcher"

    def serve(self) -> None:
        """Does as told until the caller is gone, then kills what runs."""
        self._reply(self.report)
        try:
            while True:
                data, handles = receive(self.caller)
                if not data:
                    return
                try:
                    match decode(data):
                        case ("spawn", *order):
                            self._spawn(order, handles)
                        case ("status", pids, take):
                            self._reply([self._status(pid, take=take) for pid in pids])
                finally:
                    for handle in handles:
                        os.close(handle)
        finally:
            for pid in self.running:
                with contextlib.suppress(OSError):
                    self._kill_group(pid)

    def _spawn(self, order: list[Any], handles: list[int]) -> None:
        name, argv, folder, environment, limits, inherited = order
        if len(handles) != 3 + len(inherited):
            self._reply(("failed", 24, "too many open files in the launcher"))
            return
        try:
            os.chdir(folder)
            pid = os.posix_spawn(
                self.programs[name],
                argv,
                environment,
                file_actions=_actions(handles, inherited),
                setsid=True,
                setsigmask=(),
            )
        except OSError as error:
            self._reply(("failed", error.errno, os.strerror(error.errno or 0)))
            return
        finally:
            os.chdir("/")  # keeps no folder busy
        self.running.add(pid)
        try:
            for kind, soft, hard in limits:
                self._limit(pid, kind, soft, hard)
            end = self._open(pid)
        except OSError as error:
            self._kill_group(pid)
            os.waitpid(pid, 0)
            self.running.discard(pid)
            self._reply(("failed", error.errno, f"its limits could not be set: {error}"))
            return
        try:
            self._reply(("started", pid), end)
        finally:
            if end >= 0:
                os.close(end)

    def _status(self, pid: int, *, take: bool) -> tuple[Any, ...]:
        """Returns how a program ended, as a wait status; with `take` its number is free afterwards."""
        try:
            found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | (0 if take else os.WNOWAIT))
        except ChildProcessError:
            return ("unknown",)
        if found is None:
            return ("running",)
        if take:
            self.running.discard(pid)
        if found.si_code == os.CLD_EXITED:
            return "ended", found.si_status
        # SIGSYS: the filter's answer to a program that sends itself SIGPIPE, or that makes calls of another machine.
        return "ended", -(signal.SIGPIPE if found.si_status == signal.SIGSYS else found.si_status)

    def _limit(self, pid: int, kind: int, soft: int, hard: int) -> None:
        number = seccomp.numbers(CONDITIONAL, self.machine)["prlimit64"] if self.machine else None
        if number is None:
            resource.prlimit(pid, kind, (soft, hard))
            return
        values = struct.pack("=QQ", soft, hard)
        syscall("setting a limit", number, pid, kind, values, None, self.cookie)

    def _open(self, pid: int) -> int:
        if self.machine is None:
            return os.pidfd_open(pid) if hasattr(os, "pidfd_open") else -1
        number = seccomp.numbers(CONDITIONAL, self.machine)["pidfd_open"]
        handle = syscall("opening a process", number, pid, 0, self.cookie)
        os.set_inheritable(handle, False)  # noqa: FBT003 - takes no keyword
        return handle

    def _kill_group(self, pid: int) -> None:
        if self.machine is None:
            os.killpg(pid, signal.SIGKILL)
            return
        number = seccomp.numbers(CONDITIONAL, self.machine)["kill"]
        syscall("killing a program", number, -pid, int(signal.SIGKILL), self.cookie)

    def _reply(self, message: Any, handle: int = -1) -> None:
        passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("=i", handle))] if handle >= 0 else []
        self.caller.sendmsg([marshal.dumps(message)], passed, socket.MSG_NOSIGNAL)


def _landlocked(rules: Iterable[tuple[bytes, int]], report: dict[str, Any]) -> int:
    """Applies Landlock, as far as there is any; returns its version."""
    try:
        version = landlock.restrict(rules)
    except OSError as error:
        report["landlock"] = False, str(error)
        return 0
    report["landlock"] = True, f"ABI {version}"
    return version


def _actions(handles: list[int], inherited: list[int]) -> list[tuple[int, int, int]]:
    """Returns what puts received descriptors under the numbers that the program expects."""
    wanted = [0, 1, 2, *inherited]
    if inherited:  # a number that is wanted may be one that was received: move those out of the way
        above = max(*wanted, *handles) + 1
        moved = [fcntl.fcntl(handle, fcntl.F_DUPFD_CLOEXEC, above) for handle in handles]
        for handle in handles:
            os.close(handle)
        handles[:] = moved
    return [(os.POSIX_SPAWN_DUP2, handle, number) for handle, number in zip(handles, wanted, strict=True)]


def _limit() -> None:
    """Sets limits that hold for every program alike."""
    for name in _FOREVER_LIMITS:
        kind = getattr(resource, name, None)
        if kind is not None:
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(kind, (0, 0))
