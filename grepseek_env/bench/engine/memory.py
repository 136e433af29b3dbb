"""How much anonymous memory this process and its programs take, while something runs."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from typing_extensions import Self

__all__ = ["MemorySampler", "Peak"]

_PROC = Path("/proc")
_SECONDS = 0.005
_FEWEST_LOOKS = 3


@dataclass(frozen=True, slots=True)
class Peak:
    """Anonymous memory, above what there was before.

    Mapped file pages are not counted: the page cache holds them once for everybody.

    Attributes:
        here: bytes of this process; None where /proc does not tell, or it was over before there was anything to see.
        programs: bytes of all processes below this one together; None in the same cases.
    """

    here: int | None
    programs: int | None


class MemorySampler:
    """Context that looks every 5 ms, in a thread; what comes and goes between two looks is missed."""

    def __init__(self) -> None:
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="grepseek-memory", daemon=True)
        self._before = (0, 0)
        self._most = (0, 0)
        self._looks = 0
        self._known = (_PROC / "self" / "smaps_rollup").exists()

    def __enter__(self) -> Self:
        if self._known:
            _trim()
            self._before = self._most = _look()
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._known:
            self._done.set()
            self._thread.join()

    def peak(self) -> Peak:
        """Returns the most that was seen so far."""
        if self._looks < _FEWEST_LOOKS:
            return Peak(None, None)
        return Peak(self._most[0] - self._before[0], self._most[1] - self._before[1])

    def _watch(self) -> None:
        while not self._done.wait(_SECONDS):
            self._note()

    def _note(self) -> None:
        now = _look()
        self._looks += 1
        self._most = (max(self._most[0], now[0]), max(self._most[1], now[1]))


def _trim() -> None:
    """Gives freed memory back to the system: what is used again from it would not be seen."""
    with contextlib.suppress(AttributeError):  # another C library than glibc
        ctypes.CDLL(None).malloc_trim(0)


def _look() -> tuple[int, int]:
    """Returns anonymous bytes of this process and of those below it."""
    own = os.getpid()
    return _anonymous(own), sum(map(_anonymous, _below(own)))


def _below(ancestor: int) -> list[int]:
    """Returns the processes that descend from one."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir(_PROC):  # noqa: PTH208 - hundreds of looks a second
        if entry.isdigit():
            with contextlib.suppress(OSError):  # it ended
                # The name, in brackets, may hold anything; after it come the state and the parent.
                fields = (_PROC / entry / "stat").read_bytes().rpartition(b")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(entry))
    return list(_tree(ancestor, children))


def _tree(parent: int, children: dict[int, list[int]]) -> Iterator[int]:
    for child in children.get(parent, ()):
        # Until it executes its program, a child may still share its parent's memory, arguments included.
        if _arguments(parent) != _arguments(child):
            yield child
        yield from _tree(child, children)


def _arguments(process: int) -> bytes:
    try:
        return (_PROC / str(process) / "cmdline").read_bytes()
    except OSError:  # it ended
        return b""


def _anonymous(process: int) -> int:
    """Returns the bytes of a process that no file backs, 0 if it has ended."""
    try:
        lines = (_PROC / str(process) / "smaps_rollup").read_bytes().splitlines()
    except OSError:  # it ended or is a zombie
        return 0
    kilobytes = {line.partition(b":")[0]: line.split()[1] for line in lines[1:]}
    shared_out = kilobytes.get(b"Pss_Anon", kilobytes.get(b"Anonymous", b"0"))
    return (int(shared_out) + int(kilobytes.get(b"SwapPss", b"0"))) << 10
