"""The commands of many episodes: those that wait are handed to the engine together, and each returns by itself.

An engine answers a batch faster than its commands one by one: searches share a pass over the corpus. So no command
waits for company, but while as many batches as there are cores are running, those that come are gathered for the next;
and since one slow command may hold a batch up, a gathered batch waits only a moment for its turn.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from grepseek_env.distributed.backend import PartsBackend
from grepseek_env.engine.executor import Cancellation
from grepseek_env.engine.local import LocalBackend
from grepseek_env.engine.scheduler import usable_cores
from grepseek_env.errors import GrepSeekError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from grepseek_env.episode import Pending, Result
    from grepseek_env.types import SearchBackend

__all__ = ["Commands", "run_command"]

_THREADS = 32
_MOMENT = 0.05  # seconds
_CANCELLABLE = (LocalBackend, PartsBackend)


def run_command(backend: SearchBackend, pending: Pending, cancel: Cancellation | None = None) -> Result:
    """Runs one episode's command; what a command may raise is returned.

    Args:
        backend: where it runs.
        pending: the command.
        cancel: ends it when it is set, where the backend is not behind a connection.
    """
    bounds: dict[str, Any] = {"timeout": pending.timeout, "max_output_bytes": pending.max_output_bytes}
    if cancel is not None and isinstance(backend, _CANCELLABLE):
        bounds["cancel"] = cancel
    try:
        return backend.run(pending.command, **bounds)
    except GrepSeekError as error:
        return error


class Commands:
    """Runs commands for the coroutines of one event loop; made in that loop.

    Args:
        backend: where they run. Only one in this process is given batches: one behind a connection, or over parts,
            gets each command by itself.
        most: commands that may wait at a time.
    """

    def __init__(self, backend: SearchBackend, most: int) -> None:
        self._backend = backend
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(min(most, _THREADS), thread_name_prefix="grepseek-rollout")
        self._cancel = Cancellation()
        self._waiting: list[tuple[Pending, asyncio.Future[Result]]] = []
        self._batches = 0
        self._timer: asyncio.Handle | None = None

    async def run(self, pending: Pending) -> Result:
        """Runs a command; what it may raise is returned."""
        if not isinstance(self._backend, LocalBackend):
            return await self._loop.run_in_executor(self._threads, run_command, self._backend, pending, self._cancel)
        future: asyncio.Future[Result] = self._loop.create_future()
        self._waiting.append((pending, future))
        if len(self._waiting) == 1:
            self._plan()
        return await future

    def close(self, *, cancel: bool) -> None:
        """Ends the threads.

        Args:
            cancel: stop the commands that run. One behind a connection ends with its connection.
        """
        if cancel:
            self._cancel.set()
        if self._timer is not None:
            self._timer.cancel()
        for _, future in self._waiting:  # a batch that ends now must find nothing to go on with
            future.cancel()
        self._waiting.clear()
        self._threads.shutdown(wait=not cancel or isinstance(self._backend, _CANCELLABLE), cancel_futures=True)

    def _plan(self) -> None:
        """Sees to it that what waits is handed over: after what else happens now, or after a moment."""
        if self._batches < usable_cores():
            self._timer = self._loop.call_soon(self._hand_over)
        else:
            self._timer = self._loop.call_later(_MOMENT, self._hand_over)

    def _hand_over(self) -> None:
        """Starts batches of all that waits, one for each pair of bounds; usually there is one pair."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        groups: dict[tuple[float, int], dict[str, list[asyncio.Future[Result]]]] = {}
        for pending, future in self._waiting:
            group = groups.setdefault((pending.timeout, pending.max_output_bytes), {})
            group.setdefault(pending.command, []).append(future)
        self._waiting.clear()
        for (timeout, most), group in groups.items():
            self._batches += 1
            batch = self._loop.run_in_executor(self._threads, self._batch, group, timeout, most)
            batch.add_done_callback(self._ended)

    def _ended(self, batch: asyncio.Future[None]) -> None:
        self._batches -= 1
        if batch.cancelled() or batch.exception() is not None:  # those who waited for it have been told
            return
        if self._waiting:
            self._hand_over()

    def _batch(self, group: dict[str, list[asyncio.Future[Result]]], timeout: float, most: int) -> None:
        def tell(command: str, result: Result) -> None:
            self._loop.call_soon_threadsafe(_settle, group[command], result)

        backend: LocalBackend = self._backend  # type: ignore[assignment]  # the only kind that is given batches
        try:
            backend.run_many(list(group), timeout=timeout, max_output_bytes=most, cancel=self._cancel, on_result=tell)
        except GrepSeekError as error:
            for command in group:
                tell(command, error)
        except BaseException as error:
            for futures in group.values():
                self._loop.call_soon_threadsafe(_fail, futures, error)
            raise


def _settle(futures: Iterable[asyncio.Future[Result]], result: Result) -> None:
    for future in futures:
        if not future.done():
            future.set_result(result)


def _fail(futures: Iterable[asyncio.Future[Result]], error: BaseException) -> None:
    for future in futures:
        if not future.done():
            future.set_exception(error)
