"""Looks at this process from outside: its children, its descriptors."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

linux_only = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads Linux's /proc")


def children() -> set[int]:
    """Returns the process ids of all children, zombies included."""
    found: set[int] = set()
    for file in Path("/proc/self/task").glob("*/children"):
        try:
            found.update(map(int, file.read_text().split()))
        except FileNotFoundError:  # the thread ended meanwhile
            continue
    return found


def descriptors() -> set[str]:
    """Returns the open descriptors."""
    return {entry.name for entry in Path("/proc/self/fd").iterdir()}


def running(text: str) -> Iterator[int]:
    """Yields the ids of all processes whose command line holds this text."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if text.encode() in line and int(folder.name) != os.getpid():
            yield int(folder.name)
