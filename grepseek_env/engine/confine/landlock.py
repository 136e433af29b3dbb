"""Landlock: which files may be read, written and started from now on, by this thread and all it starts.

It binds root too. It does not cover looking at names, sizes and times of files (stat), entering folders, changing
modes, owners and times, UDP and Unix sockets, and what is open already; the filter of system calls covers those but
the first two. Written here since it is three system calls: the packages there are pre-releases or lack the newer
scopes, and a core dependency that has to be current to be safe would be one more thing to keep current.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from typing import TYPE_CHECKING

from grepseek_env.engine.confine.system import libc, syscall

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["EXECUTE", "READ_DIR", "READ_FILE", "SPILL", "abi", "restrict"]

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # the same on every machine
_ASK_VERSION = 1
_PATH_BENEATH = 1

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE_FILE, _MAKE_REG, _TRUNCATE = 1 << 5, 1 << 8, 1 << 14
SPILL = READ_FILE | WRITE_FILE | _REMOVE_FILE | _MAKE_REG | _TRUNCATE
_OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | _TRUNCATE | 1 << 15

# ABI -> the highest right on files it knows; what it does not know cannot be denied by it.
_FILE_RIGHTS = ((1, 12), (2, 13), (3, 14), (5, 15))
_BIND_AND_CONNECT = 0b11  # TCP, from ABI 4
_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11  # from ABI 6


def abi() -> int:
    """Returns the version this kernel has; 0 where there is none or it is switched off."""
    return max(0, int(libc.syscall(ctypes.c_long(_CREATE), None, ctypes.c_size_t(0), ctypes.c_uint(_ASK_VERSION))))


def restrict(rules: Iterable[tuple[bytes, int]]) -> int:
    """Denies everything that Landlock knows but what the rules give; `no_new_privs` must be set.

    Args:
        rules: path -> rights, for a folder with all below it. A path that is not there gives nothing.

    Returns:
        The ABI in force.

    Raises:
        OSError: the kernel has no Landlock, or refuses.
    """
    version = abi()
    if version < 1:
        raise OSError(errno.ENOSYS, "this kernel has no Landlock")
    highest = max(right for since, right in _FILE_RIGHTS if since <= version)
    handled = (2 << highest) - 1
    words = [handled]
    if version >= 4:
        words.append(_BIND_AND_CONNECT)
    if version >= 6:
        words.append(_ABSTRACT_SOCKETS_AND_SIGNALS)
    attributes = struct.pack(f"={len(words)}Q", *words)
    ruleset = syscall("making a Landlock ruleset", _CREATE, attributes, len(attributes), 0)
    try:
        for path, rights in rules:
            _add(ruleset, path, rights & handled)
        syscall("restricting with Landlock", _RESTRICT, ruleset, 0)
    finally:
        os.close(ruleset)
    return version


def _add(ruleset: int, path: bytes, rights: int) -> None:
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(handle).st_mode):
            rights &= _OF_FILES
        syscall("adding a Landlock rule", _ADD, ruleset, _PATH_BENEATH, struct.pack("=Qi", rights, handle), 0)
    finally:
        os.close(handle)
