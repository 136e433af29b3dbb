"""One scheduler for the whole process: commands of any number of backends and threads share the cores.

A command waits in line until it is granted a core, and only then does its deadline begin to run. It may ask for more
cores while it runs, and gets them only if nobody waits, so a lone command uses the whole machine and many commands
get one core each.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections import deque
from typing import TYPE_CHECKING

from grepseek_env.engine.executor import stopped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from grepseek_env.engine.executor import Cancellation
    from grepseek_env.engine.interrupts import HeldSignals

__all__ = ["SCHEDULER", "Grant", "Scheduler", "usable_cores"]

_FOREVER = 1 << 30  # milliseconds; poll takes a C int


def usable_cores() -> int:
    """Returns how many cores this process may use, which in a container can be fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Waiter:
    """A command in line; its descriptor becomes readable when it is granted a core."""

    __slots__ = ("granted", "read", "write")

    def __init__(self) -> None:
        self.granted = False
        self.read, self.write = os.pipe()

    def close(self) -> None:
        os.close(self.read)
        os.close(self.write)


class Grant:
    """The cores that one command holds; for its own thread only.

    Attributes:
        cores: how many they are, at least 1.
    """

    __slots__ = ("_scheduler", "cores")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.cores = 1

    def widen(self, most: int) -> int:
        """Asks for cores that nobody uses, until it holds `most`; returns how many it holds now."""
        if self.cores < most:
            self.cores += self._scheduler._take_idle(most - self.cores)  # noqa: SLF001 - one unit, two classes
        return self.cores

    def yield_extra(self, needed: int) -> int:
        """Gives back cores above `needed` while others wait, but never the last; returns how many it holds now."""
        if self.cores > max(needed, 1) and self._scheduler.waiting:
            self._scheduler._give(self.cores - max(needed, 1))  # noqa: SLF001 - one unit, two classes
            self.cores = max(needed, 1)
        return self.cores


class Scheduler:
    """Hands out cores: first come, first served, one a command, more where nobody waits.

    Args:
        cores: how many there are to hand out; None: those that this process may use.
    """

    def __init__(self, cores: int | None = None) -> None:
        self.cores = usable_cores() if cores is None else cores
        self._begin()

    def _begin(self) -> None:
        """Starts with all cores free: commands of a process that forked run there, not in the child."""
        self._lock = threading.Lock()
        self._free = self.cores
        self._line: deque[_Waiter] = deque()

    def forget(self) -> None:
        """Starts fresh after a fork; descriptors of the parent's waiting threads are closed."""
        line = self._line
        self._begin()
        for waiter in line:
            waiter.close()

    @property
    def waiting(self) -> int:
        """How many commands wait in line."""
        return len(self._line)

    @property
    def free(self) -> int:
        """How many cores nobody holds."""
        return self._free

    @contextlib.contextmanager
    def admit(self, signals: HeldSignals, cancels: Sequence[Cancellation] = ()) -> Iterator[Grant]:
        """Waits for a core, and gives back all that the command holds when the block ends.

        Args:
            signals: the command's held signals, so that Ctrl-C ends the wait and loses no core.
            cancels: any of them ends the wait.

        Raises:
            BackendClosed: one of `cancels` was set.
        """
        self._wait(signals, cancels)
        grant = Grant(self)
        owner = self._lock
        try:
            yield grant
        finally:
            if owner is self._lock:  # else this is a fork's child, where nothing is held
                self._give(grant.cores)

    def _wait(self, signals: HeldSignals, cancels: Sequence[Cancellation]) -> None:
        with self._lock:
            if self._free and not self._line:
                self._free -= 1
                return
            waiter = _Waiter()
            self._line.append(waiter)
        try:
            _await(waiter, signals, cancels)
        except BaseException:
            with self._lock:
                if not waiter.granted:
                    self._line.remove(waiter)
            if waiter.granted:
                self._give(1)
            raise
        finally:
            with self._lock:  # whoever grants has then written
                waiter.close()

    def _take_idle(self, most: int) -> int:
        with self._lock:
            taken = 0 if self._line else min(most, self._free)
            self._free -= taken
            return taken

    def _give(self, cores: int) -> None:
        with self._lock:
            self._free += cores
            while self._free and self._line:
                waiter = self._line.popleft()
                self._free -= 1
                waiter.granted = True
                os.write(waiter.write, b"x")


def _await(waiter: _Waiter, signals: HeldSignals, cancels: Sequence[Cancellation]) -> None:
    poller = select.poll()
    poller.register(waiter.read, select.POLLIN)
    stops = {cancel.fileno() for cancel in cancels}
    for handle in stops:
        poller.register(handle, select.POLLIN)
    while not waiter.granted:
        if any(handle in stops for handle, _ in signals.poll(poller, _FOREVER)):
            raise stopped()


SCHEDULER = Scheduler()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=SCHEDULER.forget)
