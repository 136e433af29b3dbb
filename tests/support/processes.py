"""Looks at this process from outside: its children, its descriptors."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from grepseek_env.engine.confine.client import LAUNCHERS

if TYPE_CHECKING:
    from collections.abc import Iterator

linux_only = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads Linux's /proc")


_KEEPER, _LAUNCHER = "grepseek-keeper", "grepseek-launch"  # the processes between this one and programs


def children() -> set[int]:
    """Returns the process ids of all programs that this process has started, zombies included.

    Those that a launcher started for it count; launchers, their keeper and multiprocessing's helpers do not: they stay
    for the next who needs them.
    """
    found: set[int] = set()
    for pid in _children_of("self"):
        if _name_of(pid) == _KEEPER:
            for each in _children_of(pid):
                found.update(_children_of(each) if _name_of(each) == _LAUNCHER else {each})
        elif not _helps_multiprocessing(pid):
            found.add(pid)
    return {pid for pid in found if _name_of(pid) not in {_KEEPER, _LAUNCHER, ""}}


def below(parent: int) -> set[int]:
    """Returns the process ids of all processes under one; quickly, so that those that live briefly are seen."""
    found: set[int] = set()
    fresh = _children_of(parent)
    while fresh:
        found |= fresh
        fresh = {each for pid in fresh for each in _children_of(pid)} - found
    return found


def is_launcher(pid: int) -> bool:
    """Returns whether a process is a launcher of programs, or the keeper of some."""
    return _name_of(pid) in {_KEEPER, _LAUNCHER}


def launchers() -> set[int]:
    """Returns the process ids of this process's launchers."""
    return {
        each
        for pid in _children_of("self")
        if _name_of(pid) == _KEEPER
        for each in _children_of(pid)
        if _name_of(each) == _LAUNCHER
    }


def keepers() -> set[int]:
    """Returns the process ids of this process's keepers, of which there should be one at most."""
    return {pid for pid in _children_of("self") if _name_of(pid) == _KEEPER}


def _children_of(pid: int | str) -> set[int]:
    found: set[int] = set()
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
        for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - often, and quickly
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # or this thread of it
                found.update(map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split()))
    return found


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _helps_multiprocessing(pid: int) -> bool:
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return False
    return b"multiprocessing.resource_tracker" in line or b"multiprocessing.forkserver" in line


def descriptors() -> set[str]:
    """Returns the open descriptors, but for those that lead to launchers."""
    names = [entry.name for entry in Path("/proc/self/fd").iterdir()]  # one is that of the folder, closed by now
    return {name for name in names if os.path.lexists(f"/proc/self/fd/{name}")} - set(map(str, LAUNCHERS.handles()))


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
