"""Keeps signals from cutting in where a program would be lost.

Python raises KeyboardInterrupt (or whatever else a signal handler raises) between any two steps of the main thread,
so also between the start of a program and the note that it runs. While a command runs, handlers are called only in the
one place where nothing can be lost: the wait for the programs.
"""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import select
    from collections.abc import Callable
    from types import FrameType, TracebackType

    from typing_extensions import Self

__all__ = ["HeldSignals"]

# Those whose handlers commonly raise: Ctrl-C, orderly ends, a hung-up terminal, alarms that serve as time-outs.
_NUMBERS = (signal.SIGALRM, signal.SIGHUP, signal.SIGTERM, signal.SIGINT)


class HeldSignals:
    """Context in which handlers written in Python run during `poll` or after the end, and at no other time.

    Only the main thread runs handlers, so in any other this does nothing.
    """

    __slots__ = ("_held", "_open", "_pending", "_previous")

    def __init__(self) -> None:
        self._previous: dict[signal.Signals, Callable[[int, FrameType | None], Any]] = {}
        self._held: list[signal.Signals] = []  # those whose handler is replaced
        self._pending: list[int] = []
        self._open = True  # handlers are called at once

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._open = False
            try:
                for number in _NUMBERS:
                    previous = signal.getsignal(number)
                    if callable(previous):
                        self._previous[number] = previous
                        self._held.append(number)
                        signal.signal(number, self._catch)
            except BaseException:  # a handler that was not yet replaced raised
                self._restore()
                self._open = True
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._restore()
        finally:
            self._open = True
            self._deliver()

    def poll(self, poller: select.poll, milliseconds: int) -> list[tuple[int, int]]:
        """Waits as `poller.poll` does; what a handler raises comes out of here."""
        if not self._held:
            return poller.poll(milliseconds)
        self._open = True
        try:
            self._deliver()
            return poller.poll(milliseconds)
        finally:
            self._open = False

    def _restore(self) -> None:
        try:
            while self._held:
                number = self._held[-1]
                # It first calls handlers of signals that have come; `_catch` still only notes them.
                signal.signal(number, self._previous[number])
                self._held.pop()
        except BaseException:  # one that was put back already raised
            self._restore()
            raise

    def _deliver(self) -> None:
        while self._pending:
            number = self._pending.pop(0)
            self._previous[signal.Signals(number)](number, None)

    def _catch(self, number: int, frame: FrameType | None) -> None:
        if self._open:
            self._previous[signal.Signals(number)](number, frame)
        else:
            self._pending.append(number)
