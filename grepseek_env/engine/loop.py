"""One poll that a command waits in, whatever it waits for."""

from __future__ import annotations

import math
import select
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from grepseek_env.engine.executor import milliseconds, stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from grepseek_env.engine.executor import Cancellation, Chain
    from grepseek_env.engine.interrupts import HeldSignals

__all__ = ["Bounds", "Decided", "Loop", "OutOfTime"]


class Decided(Exception):
    """Nothing more is wanted of what is being waited for."""


class OutOfTime(Exception):
    """The deadline has passed."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What ends a command early.

    Attributes:
        timeout: seconds it may run from now on.
        max_output_bytes: stdout is cut after this many bytes; None keeps all.
        cancels: any of them ends it.
        signals: its held signals.
    """

    timeout: float
    max_output_bytes: int | None
    cancels: Sequence[Cancellation]
    signals: HeldSignals


class Loop:
    """Descriptors and what to do when they are ready; for one thread.

    Args:
        bounds: when to give up; the deadline counts from now.
    """

    def __init__(self, bounds: Bounds) -> None:
        self.started = time.monotonic()
        self._deadline = self.started + bounds.timeout
        self._signals = bounds.signals
        self._poller = select.poll()
        self._actions: dict[int, Callable[[int], object]] = {}
        for cancel in bounds.cancels:
            self.watch(cancel.fileno(), _give_up)

    def watch(self, handle: int, action: Callable[[int], object], event: int = select.POLLIN) -> None:
        """Calls `action` with the descriptor whenever it is ready, until `unwatch`."""
        self._actions[handle] = action
        self._poller.register(handle, event)

    def unwatch(self, *handles: int) -> None:
        """Forgets descriptors, before they are closed; unknown ones do not matter."""
        for handle in handles:
            if self._actions.pop(handle, None) is not None:
                self._poller.unregister(handle)

    def watch_messages(self, chain: Chain) -> None:
        """Reads what programs write on stderr."""
        read = self.message_reader(chain)
        for handle in chain.messages:
            self.watch(handle, read)

    def message_reader(self, chain: Chain) -> Callable[[int], int]:
        """Returns what reads once from a program's stderr and closes it at its end."""

        def read(handle: int) -> int:
            got = chain.read_messages(handle)
            if not got:
                self.unwatch(handle)
                chain.close_handle(handle)
            return got

        return read

    def turn(self, most: float = math.inf, *, blind: bool = False) -> None:
        """Waits until something is ready and does what is to be done.

        Args:
            most: seconds after which to return anyway.
            blind: return soon: there is something that cannot be waited for.

        Raises:
            OutOfTime: the deadline has passed.
            BackendClosed: the command was cancelled.
        """
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise OutOfTime
        for handle, _ in self._signals.poll(self._poller, milliseconds(min(left, most), can_wait=not blind)):
            if (action := self._actions.get(handle)) is not None:  # an earlier one may have closed it
                action(handle)


def _give_up(_handle: int) -> None:
    raise stopped()
