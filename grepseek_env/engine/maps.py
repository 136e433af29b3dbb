"""Maps of files that may become shorter while they are read.

Touching a page of a map behind the file's new end is answered with SIGBUS, which ends the process. In a map that was
protected here such pages read as zero bytes instead; whoever reads them must be able to tell, by a checksum or by
comparing the file's stamp afterwards.
"""

from __future__ import annotations

import ctypes
import mmap
import signal
import sys
import threading
import weakref

import numpy as np

__all__ = ["protect"]

_LINUX_64 = sys.platform.startswith("linux") and sys.maxsize > 1 << 32
_SA_SIGINFO, _SA_NODEFER, _SA_ONSTACK = 4, 0x40000000, 0x08000000
_FIXED = 0x10
_ADDRESS_AT = 16  # of si_addr in siginfo_t, on 64-bit Linux

_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class _Action(ctypes.Structure):
    """The C library's struct sigaction; the mask's size is generous."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ulong * 16),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


_LOCK = threading.Lock()
_MAPS: dict[int, int] = {}  # address -> bytes; looked at in the handler, so replaced as a whole never
_PREVIOUS: list[_Action] = []
_LIBC = ctypes.CDLL(None, use_errno=True)


def protect(mapped: mmap.mmap) -> None:
    """Has pages of a map that the file no longer holds read as zero bytes, for as long as the map lives.

    Does nothing where it cannot be done (not 64-bit Linux).
    """
    if not _LINUX_64 or not len(mapped):
        return
    address = int(np.frombuffer(mapped, np.uint8).ctypes.data)
    with _LOCK:
        _MAPS[address] = len(mapped)
        if not _PREVIOUS:
            _LIBC.mmap.restype = ctypes.c_void_p
            _LIBC.mmap.argtypes = (
                *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int),
                *(ctypes.c_int, ctypes.c_int, ctypes.c_long),
            )
            action, previous = _Action(), _Action()
            action.handler = ctypes.cast(_ON_BUS_ERROR, ctypes.c_void_p).value
            action.flags = _SA_SIGINFO | _SA_NODEFER | _SA_ONSTACK
            if _LIBC.sigaction(int(signal.SIGBUS), ctypes.byref(action), ctypes.byref(previous)) == 0:
                _PREVIOUS.append(previous)
    weakref.finalize(mapped, _MAPS.pop, address, None).atexit = False


def _on_bus_error(_number: int, info: int, _context: int) -> None:
    """Puts empty pages in place of those that are gone; the reading instruction is then run again."""
    address = ctypes.c_size_t.from_address(info + _ADDRESS_AT).value
    page = address & -mmap.PAGESIZE
    for start, size in list(_MAPS.items()):
        if start <= address < start + size:
            length = start + size - page
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _FIXED
            if _LIBC.mmap(page, length, mmap.PROT_READ, flags, -1, 0) == page:
                return
    # Not ours: whoever was responsible before is asked again, as the reading instruction fails once more.
    _LIBC.sigaction(int(signal.SIGBUS), ctypes.byref(_PREVIOUS[0]), None)


_ON_BUS_ERROR = _HANDLER(_on_bus_error)
