"""What the figures depend on beyond this package: the machine, and whether the corpus fits into its memory."""

from __future__ import annotations

import math
import os
import platform
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grepseek_env.engine.scheduler import usable_cores
from grepseek_env.errors import CorpusError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["FreshCache", "OtherWork", "check_room", "machine", "memory_available"]

_READ = 8 << 20
_FRESH_SECONDS = 15.0


def machine() -> dict[str, Any]:
    """Returns JSON values that describe this machine."""
    return {
        "cores": usable_cores(),
        "cpu": _field("/proc/cpuinfo", "model name") or platform.processor() or platform.machine(),
        "kernel": f"{platform.system()} {platform.release()}",
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "load_before": os.getloadavg()[0],
    }


def memory_available() -> int | None:
    """Returns the bytes that the page cache and programs may take, None where /proc does not tell."""
    field = _field("/proc/meminfo", "MemAvailable")
    return int(field.split()[0]) << 10 if field else None


class OtherWork:
    """How much of the cores everybody else took since this was made; figures of a busy machine are no figures."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._own, self._all = _own_seconds(), _busy_seconds()

    def share(self) -> float | None:
        """Returns the share of this machine's cores that other processes and other machines had, None if unknown."""
        if self._all is None or (now := _busy_seconds()) is None:
            return None
        others = (now - self._all) - (_own_seconds() - self._own)
        return max(others, 0.0) / ((time.monotonic() - self._start) * (os.cpu_count() or 1))


def _own_seconds() -> float:
    """Returns processor seconds of this process and of all below it, ended or not.

    Programs are started by launchers that live on, so their seconds are not yet among those of this process's children.
    """
    return sum(os.times()[:4]) + _seconds_below(os.getpid())


def _seconds_below(root: int) -> float:
    """Returns processor seconds of all live processes below one, and of what they have waited for; 0 without /proc."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = entry.read_bytes().rpartition(b")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        number = int(entry.parent.name)
        parents[number] = int(words[1])
        ticks[number] = sum(map(int, words[11:15]))
    below = {root}
    while more := {number for number, parent in parents.items() if parent in below} - below:
        below |= more
    return sum(ticks.get(number, 0) for number in below - {root}) / os.sysconf("SC_CLK_TCK")


def _busy_seconds() -> float | None:
    """Returns processor seconds of everything since the start, those taken by other virtual machines included."""
    try:
        words = Path("/proc/stat").read_bytes().split(b"\n", 1)[0].split()
    except OSError:
        return None
    user, nice, system, _idle, _waiting, interrupts, soft, stolen = map(int, words[1:9])
    return (user + nice + system + interrupts + soft + stolen) / os.sysconf("SC_CLK_TCK")


def _field(file: str, name: str) -> str:
    try:
        lines = Path(file).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.partition(":")[0].strip() == name), "")


def check_room(folder: Path, needed: int, what: str) -> None:
    """Makes sure that a folder's file system has room.

    Args:
        folder: it may not exist yet.
        needed: bytes.
        what: what they are for, for the message.

    Raises:
        CorpusError: it has not.
    """
    there = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(there).free
    if free < needed:
        raise CorpusError(
            f"{what} takes {needed / 1e6:.0f} MB, and {there} has {free / 1e6:.0f} MB free: "
            "choose a smaller --size, or set GREPSEEK_CACHE to a folder with more room"
        )


class FreshCache:
    """Keeps files in the page cache, read not long ago and all in the same way.

    How the cache holds a file matters as much as whether it does. Where the system pages out what it takes for cold and
    reads it again bit by bit, rg, which maps its file, took 55 ms for 1.5 GB that had just been read, and 130 ms three
    minutes later; older files then lose to younger ones for that alone.

    Args:
        files: what to keep; read when `renew` is first called.
        seconds: how long they pass for fresh.
    """

    def __init__(self, files: Iterable[Path], seconds: float = _FRESH_SECONDS) -> None:
        self._files = tuple(dict.fromkeys(files))
        self._seconds = seconds
        self._renewed = -math.inf

    def renew(self) -> bool:
        """Drops the files from the cache and reads them, unless that was done lately; returns whether it did."""
        if time.monotonic() - self._renewed < self._seconds:
            return False
        for file in self._files:
            with file.open("rb", buffering=0) as stream:
                if hasattr(os, "posix_fadvise"):
                    os.fsync(stream.fileno())  # unwritten pages would stay
                    os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                while stream.read(_READ):
                    pass
        self._renewed = time.monotonic()
        return True
