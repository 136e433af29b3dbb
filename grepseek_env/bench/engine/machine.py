"""What the figures depend on beyond this package: the machine, and whether the corpus fits into its memory."""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grepseek_env.engine.scheduler import usable_cores
from grepseek_env.errors import CorpusError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["check_room", "machine", "memory_available", "read_all"]

_READ = 8 << 20


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


def read_all(files: Iterable[Path]) -> None:
    """Reads files, so that the page cache holds them."""
    for file in files:
        with file.open("rb", buffering=0) as stream:
            while stream.read(_READ):
                pass
