"""Looks at this process from outside: its children, its descriptors."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

linux_only = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads Linux's /proc")


def children() -> set[int]:
    """Returns the process ids of all children, zombies included, but for multiprocessing's own helpers.

    Those are started by whichever test first uses multiprocessing and stay until the test run ends.
    """
    found: set[int] = set()
    for file in Path("/proc/self/task").glob("*/children"):
        try:
            found.update(map(int, file.read_text().split()))
        except FileNotFoundError:  # the thread ended meanwhile
            continue
    return {pid for pid in found if not _helps_multiprocessing(pid)}


def _helps_multiprocessing(pid: int) -> bool:
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return False
    return b"multiprocessing.resource_tracker" in line or b"multiprocessing.forkserver" in line


def descriptors() -> set[str]:
    """Returns the open descriptors."""
    return {entry.name for entry in Path("/proc/self/fd").iterdir()}


def wait_for_children(number: int) -> None:
    """Waits until there are this many; where they do not come, the test that asked fails instead of hanging."""
    for _ in range(30_000):
        if len(children()) >= number:
            return
        time.sleep(0.001)
    pytest.fail(f"{number} children were to come, there are {len(children())}")


def running(text: str) -> Iterator[int]:
    """Yields the ids of all processes whose command line holds this text."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if text.encode() in line and int(folder.name) != os.getpid():
            yield int(folder.name)
