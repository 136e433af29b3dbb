"""The few calls of the C library that Python lacks."""

from __future__ import annotations

import ctypes
import os
import sys

__all__ = ["libc", "prctl", "raise_errno", "syscall"]

libc = ctypes.CDLL(None, use_errno=True)
if sys.platform.startswith("linux"):
    libc.syscall.restype = ctypes.c_long


def raise_errno(doing: str) -> None:
    """Raises the last call's error.

    Raises:
        OSError: always; says what was being done.
    """
    number = ctypes.get_errno()
    raise OSError(number, f"{doing}: {os.strerror(number)}")


def syscall(doing: str, number: int, *arguments: object) -> int:
    """Makes a system call; integers are passed as 64 bits.

    Raises:
        OSError: it failed.
    """
    words = [ctypes.c_ulong(each & (1 << 64) - 1) if isinstance(each, int) else each for each in arguments]
    result = int(libc.syscall(ctypes.c_long(number), *words))
    if result < 0:
        raise_errno(doing)
    return result


def prctl(doing: str, option: int, *arguments: int) -> int:
    """Changes or asks for a property of this process.

    Raises:
        OSError: it failed.
    """
    words = [ctypes.c_ulong(each) for each in (*arguments, 0, 0, 0, 0)[:4]]
    result = int(libc.prctl(ctypes.c_int(option), *words))
    if result < 0:
        raise_errno(doing)
    return result
