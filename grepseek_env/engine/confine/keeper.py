"""The processes between this one and its programs: a keeper, and the launchers it makes.

The keeper is a small interpreter that stays as it was started. For each set of folders that programs may read it
forks a launcher, which gives up everything for good and from then on starts programs as it is told. Programs inherit
the launcher's confinement, which costs them nothing.

Nobody outlives anybody: a launcher whose caller is gone kills its programs and ends; programs of a launcher that was
killed become children of the keeper, which kills them; the keeper ends with its caller, and everything with it.

This module runs alone in a fresh interpreter (see `command`), so it imports no more than it must.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import marshal
import os
import resource
import select
import signal
import socket
import struct
import sys
from typing import TYPE_CHECKING, Any

from grepseek_env.engine.confine import landlock, seccomp
from grepseek_env.engine.confine.privileges import drop_root, forbid_new_privileges, join_group, make_group
from grepseek_env.engine.confine.syscalls import CONDITIONAL
from grepseek_env.engine.confine.system import prctl, syscall

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["MESSAGE_BYTES", "MOST_HANDLES", "command", "decode", "main"]

MESSAGE_BYTES = 1 << 17
MOST_HANDLES = 200  # the kernel passes 253 at most
NAMES = (b"grepseek-keeper", b"grepseek-launch")  # 15 bytes are shown

_PR_SET_NAME, _PR_SET_SUBREAPER = 15, 36
_TRIES = 400
_FOREVER_LIMITS = ("RLIMIT_CORE", "RLIMIT_MSGQUEUE", "RLIMIT_MEMLOCK", "RLIMIT_RTPRIO")


def command(executable: str, package: str, control: int) -> list[str]:
    """Returns the argv of a keeper.

    Args:
        executable: the Python to run.
        package: the folder of grepseek_env. Its own and the engine's initialisation are skipped: they import much.
        control: the descriptor of its control socket.
    """
    code = (
        "import sys, types\n"
        "root = sys.argv[2]\n"
        "for name in ('grepseek_env', 'grepseek_env.engine'):\n"
        "    module = sys.modules[name] = types.ModuleType(name)\n"
        "    module.__path__ = [root + name[len('grepseek_env'):].replace('.', '/')]\n"
        "from grepseek_env.engine.confine.keeper import main\n"
        "main(int(sys.argv[3]))\n"
    )
    return [executable, "-I", "-S", "-c", code, "grepseek-keeper", package, str(control)]


def main(control: int) -> None:
    """Serves the control socket until its other end is closed."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with contextlib.suppress(OSError, ValueError):  # those that the C library keeps for itself
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.umask(0o077)
    os.chdir("/")
    _name(NAMES[0])
    with contextlib.suppress(OSError):
        prctl("becoming the parent of orphans", _PR_SET_SUBREAPER, 1)
    with contextlib.suppress(OSError, ValueError):
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    _Keeper(socket.socket(fileno=control)).serve()


class _Keeper:
    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.launchers: set[int] = set()
        self.spills: set[bytes] = set()
        self.group, self.group_text = make_group(f"grepseek-{os.getpid()}")

    def serve(self) -> None:
        """Makes launchers; ends with the caller."""
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        poller = select.poll()
        poller.register(woken, select.POLLIN)
        poller.register(self.control, select.POLLIN)
        while True:
            ready = {handle for handle, _ in poller.poll()}
            if woken in ready:
                os.read(woken, 4096)
                self._bury()
            if self.control.fileno() in ready:
                data, handles = _receive(self.control)
                if not data:
                    break
                self._launch(decode(data), handles, (woken, wake))
        self._end()

    def _launch(self, wanted: dict[str, Any], handles: list[int], own: tuple[int, int]) -> None:
        if wanted["spill"]:
            self.spills.add(wanted["spill"])
        pid = os.fork()
        if not pid:
            try:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                self.control.close()
                for handle in own:
                    os.close(handle)
                _name(NAMES[1])
                caller = socket.socket(fileno=handles[0])
                try:
                    launcher = _Launcher(caller, wanted, self.group, self.group_text)
                except BaseException as error:  # noqa: BLE001 - it is told, and this process ends
                    caller.sendmsg([marshal.dumps({"failed": repr(error)})], (), socket.MSG_NOSIGNAL)
                else:
                    launcher.serve()
            finally:
                os._exit(0)
        self.launchers.add(pid)
        for handle in handles:
            os.close(handle)

    def _bury(self) -> None:
        """Takes the exit statuses of all who died; orphans of a launcher follow it."""
        orphaned = False
        with contextlib.suppress(ChildProcessError):
            while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                orphaned |= pid in self.launchers
                self.launchers.discard(pid)
        if orphaned:
            for pid in _children() - self.launchers:
                _kill(pid)

    def _end(self) -> None:
        signal.set_wakeup_fd(-1)
        for _ in range(_TRIES):
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            left = _children()
            if not left:
                break
            for pid in left:
                _kill(pid)
            select.select((), (), (), 0.005)
        for folder in self.spills:
            _remove(folder)
        if self.group:
            for _ in range(_TRIES):
                try:
                    os.rmdir(self.group)  # noqa: PTH106 - bytes
                    break
                except OSError:
                    select.select((), (), (), 0.005)


class _Launcher:
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
                data, handles = _receive(self.caller)
                if not data:
                    return
                try:
                    match decode(data):
                        case ("spawn", *order):
                            self._spawn(order, handles)
                        case ("status", pid, take):
                            self._reply(self._status(pid, take=take))
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
        return "ended", found.si_status if found.si_code == os.CLD_EXITED else -found.si_status

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


def decode(data: bytes) -> Any:
    """Reads a message of the other end, which is as trusted as this one."""
    return marshal.loads(data)  # noqa: S302


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


def _receive(channel: socket.socket) -> tuple[bytes, list[int]]:
    """Returns one message with the descriptors that came with it; no bytes at the end."""
    data, passed, _, _ = channel.recvmsg(
        MESSAGE_BYTES, socket.CMSG_SPACE(4 * MOST_HANDLES), getattr(socket, "MSG_CMSG_CLOEXEC", 0)
    )
    handles: list[int] = []
    for level, kind, content in passed:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            handles += struct.unpack(f"={len(content) // 4}i", content[: len(content) // 4 * 4])
    return data, handles


def _limit() -> None:
    """Sets limits that hold for every program alike."""
    for name in _FOREVER_LIMITS:
        kind = getattr(resource, name, None)
        if kind is not None:
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(kind, (0, 0))


def _name(name: bytes) -> None:
    text = ctypes.create_string_buffer(name)
    with contextlib.suppress(OSError):
        prctl("naming this process", _PR_SET_NAME, ctypes.addressof(text))


def _kill(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)


def _children() -> set[int]:
    """Returns the ids of this process's children, zombies included."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:  # noqa: PTH123 - a small interpreter
            return set(map(int, file.read().split()))
    except OSError:
        pass
    found = set()
    for name in os.listdir("/proc"):  # noqa: PTH208 - the same
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                if int(file.read().rpartition(b")")[2].split()[1]) == os.getpid():
                    found.add(int(name))
    return found


def _remove(folder: bytes) -> None:
    """Removes a folder with the temporary files in it."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False):
                _remove(entry.path)
            else:
                os.unlink(entry.path)  # noqa: PTH108
        os.rmdir(folder)  # noqa: PTH106
