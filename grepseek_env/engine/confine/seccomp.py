"""A filter of system calls, written as the kernel's small machine language.

What is not in the tables does not exist. A few calls are allowed for some arguments only:

- opening a file to read; with `spill` also making a new one, never writing to one that exists;
- `clone` for threads, and in the exact form in which C libraries start a program. A fork is denied;
- `execve` with the launcher's own text of a program's path, by the address where that text lies. A started program
  has other memory, so nothing it does can start another;
- limits, signals to processes and process handles with a number in a register that the kernel does not look at and
  that only the launcher knows; reading its own limits needs none.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import struct
from typing import TYPE_CHECKING

from grepseek_env.engine.confine.syscalls import ALLOWED, CONDITIONAL, MACHINES, SPILLING
from grepseek_env.engine.confine.system import prctl

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    # (argument, its low or high half, mask, value): holds if half & mask == value
    Test = tuple[int, int, int, int]
    Instruction = tuple[int, int, int, int]

__all__ = ["build", "install", "machine", "numbers"]

_LOAD, _AND, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
_ALLOW, _ERRNO, _TRAP, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x00030000, 0x80000000
_WORD = 0xFFFFFFFF
_LOW, _HIGH = 0, 1
_X32 = 0x40000000
_MOST_IN_A_JUMP = 250

_SECCOMP_MODE_FILTER, _PR_SET_SECCOMP = 2, 22

_O_ACCMODE, _O_CREAT, _O_EXCL, _O_TRUNC, _O_APPEND, _O_TMPFILE = 0o3, 0o100, 0o200, 0o1000, 0o2000, 0o20000000
_CLONE_THREAD, _CLONE_VM, _CLONE_VFORK, _SIGCHLD = 0x10000, 0x100, 0x4000, 17
_CLONE_NEW = 0x7E020000  # every namespace
_PR_NAMES = (15, 16)  # set and get the thread's name
_FCNTLS = (0, 1, 2, 3, 4, 1030, 1031, 1032)  # duplicate, flags, pipe size
_IOCTLS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451, 0x540F)  # is it a terminal, how wide, how much is there


def machine() -> str | None:
    """Returns the name of this machine in the tables; None where its numbers are not known."""
    name = os.uname().machine
    return name if name in MACHINES and struct.calcsize("P") == 8 else None


def numbers(table: dict[str, tuple[int | None, int | None]], name: str) -> dict[str, int]:
    """Returns call -> number on a machine, without those it lacks."""
    column = MACHINES[name][1]
    return {call: found for call, row in table.items() if (found := row[column]) is not None}


def build(name: str, *, paths: Sequence[int] | None, cookie: int, spill: bool) -> bytes:
    """Returns the filter as the kernel takes it.

    Args:
        name: a machine of the tables.
        paths: addresses that `execve` may be given; None allows all.
        cookie: 64-bit number that unlocks limits, signals and handles.
        spill: files may be made.
    """
    known = numbers(CONDITIONAL, name)
    calls = {**numbers(ALLOWED, name), **(numbers(SPILLING, name) if spill else {})}
    code: list[Instruction] = [
        (_LOAD, 0, 0, 4),
        (_EQUAL, 1, 0, MACHINES[name][0]),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, 0),
    ]
    if name == "x86_64":
        code += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _KILL_PROCESS)]
    code += _any_of(sorted(calls.values()))
    for call, (alternatives, error) in _conditions(paths, cookie, spill=spill).items():
        if call in known:
            code += _block(known[call], alternatives, error)
    if "tgkill" in known:
        # sort catches SIGPIPE, cleans up, and sends it to itself again. Its number is not known here, so the call ends
        # the caller by another signal, which the launcher reads as this one; refused, sort would go on and complain.
        code += _block(known["tgkill"], [[(2, _LOW, _WORD, signal.SIGPIPE)]], errno.EPERM, _TRAP)
    code.append((_RETURN, 0, 0, _ERRNO | errno.ENOSYS))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def install(program: bytes) -> None:
    """Applies a filter to this thread and all it starts; `no_new_privs` must be set.

    Raises:
        OSError: the kernel has no filters, or refuses.
    """
    text = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(struct.pack("@HP", len(program) // 8, ctypes.addressof(text)))
    prctl("installing the filter of system calls", _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(header))


def _conditions(paths: Sequence[int] | None, cookie: int, *, spill: bool) -> dict[str, tuple[list[list[Test]], int]]:
    """Returns call -> alternatives, each a list of tests that must all hold, and the error where none does."""
    changing = _O_ACCMODE | _O_CREAT | _O_TRUNC | _O_TMPFILE
    new = _O_CREAT | _O_EXCL

    def opening(argument: int) -> tuple[list[list[Test]], int]:
        found: list[list[Test]] = [[(argument, _LOW, changing, 0)]]
        if spill:
            found.append([(argument, _LOW, new | _O_TRUNC | _O_TMPFILE, new)])
        return found, errno.EACCES

    def unlocked(argument: int) -> list[Test]:
        return [*_whole(argument, cookie)]

    starting = [_whole(0, each) for each in paths] if paths is not None else [[]]
    return {
        "openat": opening(2),
        "open": opening(1),
        "clone": (
            [
                [(0, _LOW, _CLONE_THREAD, _CLONE_THREAD), (0, _LOW, _CLONE_NEW, 0)],
                [(0, _LOW, _WORD, _CLONE_VM | _CLONE_VFORK | _SIGCHLD)],
            ],
            errno.EPERM,
        ),
        "execve": (starting, errno.EPERM),
        "fcntl": ([[(1, _LOW, _WORD, each)] for each in _FCNTLS], errno.EINVAL),
        "ioctl": ([[(1, _LOW, _WORD, each)] for each in _IOCTLS], errno.ENOTTY),
        "prctl": ([[(0, _LOW, _WORD, each)] for each in _PR_NAMES], errno.EINVAL),
        "prlimit64": ([_whole(2, 0), unlocked(4)], errno.EPERM),
        "kill": ([unlocked(2)], errno.EPERM),
        "pidfd_open": ([unlocked(2)], errno.EPERM),
    }


def _whole(argument: int, value: int) -> list[Test]:
    return [(argument, _LOW, _WORD, value & _WORD), (argument, _HIGH, _WORD, value >> 32)]


def _any_of(values: Sequence[int]) -> Iterable[Instruction]:
    for start in range(0, len(values), _MOST_IN_A_JUMP):
        some = values[start : start + _MOST_IN_A_JUMP]
        for index, value in enumerate(some):
            last = index == len(some) - 1
            yield _EQUAL, len(some) - 1 - index, int(last), value
        yield _RETURN, 0, 0, _ALLOW


def _block(number: int, alternatives: Iterable[Iterable[Test]], error: int, action: int = _ALLOW) -> list[Instruction]:
    body: list[Instruction] = []
    for tests in alternatives:
        body += _alternative(list(tests), action)
    body.append((_RETURN, 0, 0, _ERRNO | error))
    return [(_LOAD, 0, 0, 0), (_EQUAL, 0, len(body), number), *body]


def _alternative(tests: Sequence[Test], action: int) -> list[Instruction]:
    code: list[Instruction] = []
    failing = []
    for argument, half, mask, value in tests:
        code.append((_LOAD, 0, 0, 16 + 8 * argument + 4 * half))
        if mask != _WORD:
            code.append((_AND, 0, 0, mask))
        failing.append(len(code))
        code.append((_EQUAL, 0, 0, value))
    code.append((_RETURN, 0, 0, action))
    for at in failing:
        code[at] = (_EQUAL, 0, len(code) - at - 1, code[at][3])
    return code
