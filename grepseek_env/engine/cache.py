"""Results of commands that were run before, and one run for equal commands that come at the same time.

Only what a second run would give again is kept: no time-outs, no faults, nothing that ended by a signal, and nothing
that came with a message, since "no space left on device" is true today only.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import select
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from grepseek_env.engine.executor import Cancellation
from grepseek_env.errors import BackendClosed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from grepseek_env.types import CommandResult

__all__ = ["CacheStats", "ResultCache"]

Argvs: TypeAlias = "tuple[tuple[str, ...], ...]"

_ENTRY_BYTES = 1024  # what an entry takes beside its text, about
_LARGEST_PART = 4  # an entry takes at most the n-th part of the cache, so that one result cannot empty it


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Counters since the start.

    Attributes:
        hits: commands answered from the cache.
        shared: commands that waited for an equal one and took its result.
        misses: commands that were run.
        entries: results kept now.
        bytes: what they take, about.
        max_bytes: the bound on `bytes`.
    """

    hits: int
    shared: int
    misses: int
    entries: int
    bytes: int
    max_bytes: int


@dataclass(slots=True)
class _Flight:
    """A command that is being run.

    Attributes:
        budget: its `max_output_bytes`, infinite for all.
        timeout: seconds it may run.
        result: None until it ends, and for ever if it fails.
        done: set at its end, whatever that is; made by the first who waits.
    """

    budget: float
    timeout: float
    result: CommandResult | None = None
    done: Cancellation | None = None

    def joined(self, budget: float, timeout: float) -> Cancellation | None:
        """Returns what to wait for; None if this command is of no use to one with these bounds."""
        if self.budget < budget or self.timeout > timeout:
            return None
        if self.done is None:
            with contextlib.suppress(OSError):  # out of descriptors: the command that asks will say so itself
                self.done = Cancellation()
        return self.done


class ResultCache:
    """Keeps results of one backend, the least recently used going first; any number of threads may use it.

    Corpus, limits and locale are those of the backend, so a command's argv alone tells it apart.

    Args:
        max_bytes: about how much memory results may take.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[Argvs, tuple[CommandResult, int]] = OrderedDict()
        self._bytes = 0
        self._flights: dict[Argvs, _Flight] = {}
        self._hits = self._shared = self._misses = 0

    def stats(self) -> CacheStats:
        """Returns the counters."""
        with self._lock:
            return CacheStats(self._hits, self._shared, self._misses, len(self._kept), self._bytes, self._max_bytes)

    def known(self, argvs: Argvs, max_output_bytes: int | None) -> CommandResult | None:
        """Returns what is kept of a command, if that is enough."""
        budget = math.inf if max_output_bytes is None else max_output_bytes
        with self._lock:
            if argvs not in self._kept or (served := _cut(self._kept[argvs][0], budget)) is None:
                return None
            self._kept.move_to_end(argvs)
            self._hits += 1
            return served

    def keep(self, argvs: Argvs, result: CommandResult) -> None:
        """Keeps the result of a command that was run without `run`."""
        with self._lock:
            self._misses += 1
            self._keep(argvs, result)

    def run(
        self,
        argvs: Argvs,
        compute: Callable[[], CommandResult],
        *,
        timeout: float,
        max_output_bytes: int | None,
        cancels: Sequence[Cancellation] = (),
    ) -> CommandResult:
        """Returns the result of a command: the kept one, that of an equal command under way, or that of `compute`.

        A command joins one under way only if that one produces at least as much and runs no longer than this one may,
        so that waiting for it is never worse than running. If it fails, one of those who wait runs the command.

        Args:
            argvs: the canonical pipeline.
            compute: runs it, within `timeout`, `max_output_bytes` and `cancels`.
            timeout: seconds it may run.
            max_output_bytes: stdout is cut after this many bytes; None keeps all.
            cancels: any of them ends the wait.

        Raises:
            BackendClosed: one of `cancels` was set.
        """
        budget = math.inf if max_output_bytes is None else max_output_bytes
        while True:
            with self._lock:
                if argvs in self._kept and (served := _cut(self._kept[argvs][0], budget)) is not None:
                    self._kept.move_to_end(argvs)
                    self._hits += 1
                    return served
                flight = self._flights.get(argvs)
                done = None if flight is None else flight.joined(budget, timeout)
                if flight is None or done is None:
                    flight = _Flight(budget, timeout)
                    self._flights[argvs] = flight  # in the place of one that is of less use to those who come
                    self._misses += 1
                    break
            _wait(done, cancels)
            if (served := _shared(flight, budget, timeout)) is not None:
                with self._lock:
                    self._shared += 1
                return served
        try:
            flight.result = compute()
            return flight.result
        finally:
            with self._lock:
                if self._flights.get(argvs) is flight:
                    del self._flights[argvs]
                if flight.result is not None:
                    self._keep(argvs, flight.result)
            if flight.done is not None:
                flight.done.set()

    def _keep(self, argvs: Argvs, result: CommandResult) -> None:
        if not _repeatable(result):
            return
        size = _ENTRY_BYTES + len(result.stdout) + 2 * sum(len(word) for argv in argvs for word in argv)
        if size > self._max_bytes // _LARGEST_PART:
            return
        if argvs in self._kept:
            known, known_size = self._kept[argvs]
            if not known.output_truncated or len(known.stdout) >= len(result.stdout):
                return
            del self._kept[argvs]
            self._bytes -= known_size
        self._kept[argvs] = result, size
        self._bytes += size
        while self._bytes > self._max_bytes:
            _, (_, freed) = self._kept.popitem(last=False)
            self._bytes -= freed


def _repeatable(result: CommandResult) -> bool:
    ended_well = result.exit_code is not None and result.exit_code < 128
    return not result.timed_out and not result.stderr and (result.output_truncated or ended_well)


def _cut(result: CommandResult, budget: float) -> CommandResult | None:
    """Returns what the engine would have returned for this budget; None where the result is too short to say."""
    if len(result.stdout) > budget:
        return dataclasses.replace(result, stdout=result.stdout[: int(budget)], exit_code=None, output_truncated=True)
    if result.output_truncated and len(result.stdout) < budget:
        return None
    return result


def _shared(flight: _Flight, budget: float, timeout: float) -> CommandResult | None:
    """Returns what a command that waited for `flight` may take as its own result, if anything."""
    result = flight.result
    if result is None:
        return None
    if result.timed_out:
        return result if (flight.budget, flight.timeout) == (budget, timeout) else None
    if result.stderr and flight.budget != budget:  # the cut may come before the message
        return None
    return _cut(result, budget)


def _wait(done: Cancellation, cancels: Sequence[Cancellation]) -> None:
    poller = select.poll()
    poller.register(done.fileno(), select.POLLIN)
    for cancel in cancels:
        poller.register(cancel.fileno(), select.POLLIN)
    ready = {handle for handle, _ in poller.poll()}
    if done.fileno() not in ready:
        raise BackendClosed("the command was stopped: its backend was closed or its batch given up")
