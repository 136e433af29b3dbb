"""Gives up what root may do, and puts a process where its number of processes is bounded.

Root becomes nobody. Where nobody could not reach the corpus or the programs (`/root` is closed to others), one
privilege is kept with Landlock in force, that of reading any file, since Landlock bounds what is read; without
Landlock it stays root without any privilege, which can still do what the owner of a file can.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from typing import TYPE_CHECKING

from grepseek_env.engine.confine.system import libc, prctl, raise_errno

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["NOBODY", "drop_root", "forbid_new_privileges", "join_group", "make_group"]

NOBODY = 65534

_PR_SET_KEEPCAPS, _PR_CAPBSET_DROP, _PR_SET_SECUREBITS, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 8, 24, 28, 38, 47
_AMBIENT_RAISE = 2
_READ_ANY_FILE = 2  # CAP_DAC_READ_SEARCH
_MOST_CAPABILITIES = 64
_CAPABILITY_VERSION = 0x20080522
# A program that is started as user 0 gets no capabilities, now and for good.
_ROOT_IS_NOTHING = 0b1110_1111
_MOST_PROCESSES = 1024


def forbid_new_privileges() -> None:
    """Makes setuid programs and file capabilities ordinary from now on.

    Raises:
        OSError: this kernel cannot.
    """
    prctl("setting no_new_privs", _PR_SET_NO_NEW_PRIVS, 1)


def drop_root(readable: Sequence[bytes], startable: Sequence[bytes], *, landlock: bool) -> tuple[int, str]:
    """Leaves user 0 as far as the files stay within reach.

    Args:
        readable: files and folders that must be readable afterwards.
        startable: files that must be executable afterwards.
        landlock: reading will be bounded by Landlock.

    Returns:
        The user id from now on, and what was done in words.
    """
    if os.geteuid() != 0:
        return os.geteuid(), "not root"
    plain = _nobody_reaches(readable, startable)
    keep = 1 << _READ_ANY_FILE if landlock and not plain else 0
    for capability in range(_MOST_CAPABILITIES):
        if not keep >> capability & 1:
            with contextlib.suppress(OSError):  # more than this kernel has, or it may not
                prctl("dropping a capability", _PR_CAPBSET_DROP, capability)
    if plain or keep:
        try:
            if keep:
                prctl("keeping a capability", _PR_SET_KEEPCAPS, 1)
            _become_nobody()
            _set_capabilities(keep)
            if keep:
                prctl("keeping a capability", _PR_CAP_AMBIENT, _AMBIENT_RAISE, _READ_ANY_FILE)
        except OSError as error:  # a container without CAP_SETUID, or without such a user
            if os.geteuid() != 0:
                raise
            failed = str(error)
        else:
            return NOBODY, "root became nobody" + (", which may read what Landlock lets it" if keep else "")
    else:
        failed = "nobody could not read the corpus"
    with contextlib.suppress(OSError):
        prctl("making root ordinary", _PR_SET_SECUREBITS, _ROOT_IS_NOTHING)
    _set_capabilities(0)
    return 0, f"still root, without any capability: {failed}"


def _become_nobody() -> None:
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def _nobody_reaches(readable: Sequence[bytes], startable: Sequence[bytes]) -> bool:
    """Tries it in a process of its own."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            _become_nobody()
            for path in readable:
                os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
            code = 0 if all(os.access(path, os.X_OK) for path in startable) else 1
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return status == 0


def _set_capabilities(mask: int) -> None:
    header = ctypes.create_string_buffer(struct.pack("=II", _CAPABILITY_VERSION, 0))
    low, high = mask & 0xFFFFFFFF, mask >> 32
    data = ctypes.create_string_buffer(struct.pack("=6I", low, low, low, high, high, high))
    if libc.capset(header, data) != 0:
        raise_errno("giving up capabilities")


def make_group(name: str) -> tuple[bytes, str]:
    """Makes a control group for at most so many processes, where this user may.

    Returns:
        Its folder, empty where there is none, and what it does in words.
    """
    for folder, bounds in _own_groups():
        _sweep(folder, name.rpartition("-")[0])
        made = os.path.join(folder, name.encode())  # noqa: PTH118 - bytes, and a small interpreter
        try:
            os.mkdir(made)  # noqa: PTH102
        except OSError:
            continue
        try:
            if bounds:
                _write(made, b"pids.max", b"%d" % _MOST_PROCESSES)
        except OSError:
            with contextlib.suppress(OSError):
                os.rmdir(made)  # noqa: PTH106
            continue
        return made, f"at most {_MOST_PROCESSES} processes in {made.decode()}"
    return b"", "no control group that bounds processes may be made here"


def join_group(folder: bytes) -> None:
    """Moves this process.

    Raises:
        OSError: it may not.
    """
    _write(folder, b"cgroup.procs", b"0")


def _own_groups() -> list[tuple[bytes, bool]]:
    """Returns the folders of this process's groups in which processes can be bounded."""
    found = []
    try:
        with open("/proc/self/cgroup", "rb") as file:  # noqa: PTH123
            lines = file.read().splitlines()
    except OSError:
        return []
    for line in lines:
        number, kinds, path = line.split(b":", 2)
        if b"pids" in kinds.split(b","):
            found.append((b"/sys/fs/cgroup/pids" + path, True))
        elif number == b"0":
            folder = b"/sys/fs/cgroup" + path
            with contextlib.suppress(OSError), open(folder + b"/cgroup.subtree_control", "rb") as file:  # noqa: PTH123
                if b"pids" in file.read().split():
                    found.append((folder, True))
    return found


def _sweep(folder: bytes, prefix: str) -> None:
    """Removes empty groups that were left behind; the kernel keeps those in use."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):  # noqa: PTH208
            if name.startswith(prefix.encode() + b"-"):
                with contextlib.suppress(OSError):
                    os.rmdir(os.path.join(folder, name))  # noqa: PTH106, PTH118


def _write(folder: bytes, name: bytes, text: bytes) -> None:
    handle = os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CLOEXEC)  # noqa: PTH118
    try:
        os.write(handle, text)
    finally:
        os.close(handle)
