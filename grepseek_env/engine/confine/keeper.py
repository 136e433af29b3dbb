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
import marshal
import os
import resource
import select
import signal
import socket
from typing import Any

from grepseek_env.engine.confine.messages import decode, receive
from grepseek_env.engine.confine.privileges import make_group
from grepseek_env.engine.confine.starter import Starter
from grepseek_env.engine.confine.system import prctl

__all__ = ["command", "main"]

_NAMES = (b"grepseek-keeper", b"grepseek-launch")  # 15 bytes are shown

_PR_SET_NAME, _PR_SET_SUBREAPER = 15, 36
_TRIES = 400


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
    _name(_NAMES[0])
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
                data, handles = receive(self.control)
                if not data:
                    break
                wanted = decode(data)
                if wanted:
                    self._launch(wanted, handles, (woken, wake))
                else:  # a farewell: who says it lives on, and removes its temporary files itself
                    self.spills.clear()
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
                _name(_NAMES[1])
                caller = socket.socket(fileno=handles[0])
                try:
                    launcher = Starter(caller, wanted, self.group, self.group_text)
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
