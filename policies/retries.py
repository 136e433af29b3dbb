"""Tries again what failed for a while: waits that grow, a wish of the server's heeded, a deadline for everything."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from numbers import Real
from typing import TYPE_CHECKING, TypeVar

from grepseek_env.errors import ConfigError
from policies.chat import ModelError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

__all__ = ["Retry", "TransientError", "retry_after", "with_retries"]

_T = TypeVar("_T")
_LOG = logging.getLogger(__name__)

# Many requests fail together: what is tried again is told about once in so many seconds.
_TOLD_EVERY = 30.0
_told: dict[str, float] = {}


class TransientError(Exception):
    """A try failed in a way that may pass.

    Args:
        message: what failed.
        wait: seconds that the server asked to wait; None where it did not say.
    """

    def __init__(self, message: str, *, wait: float | None = None) -> None:
        super().__init__(message)
        self.wait = wait


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and how long something is tried.

    Attributes:
        attempts: tries in all.
        first_wait: seconds after the first failure; doubled after every other one.
        longest_wait: seconds of one wait at most. A server's own wish is not bounded by it.
        deadline: seconds for all tries and waits together.
        timeout: seconds of one try.
    """

    attempts: int = 8
    first_wait: float = 0.5
    longest_wait: float = 30.0
    deadline: float = 600.0
    timeout: float = 300.0

    def __post_init__(self) -> None:
        for name in ("attempts", "first_wait", "longest_wait", "deadline", "timeout"):
            if not isinstance(getattr(self, name), Real):
                raise ConfigError(f"Retry.{name} is {getattr(self, name)!r}; it must be a number")
        for name, least in (("attempts", 1), ("first_wait", 0), ("longest_wait", 0)):
            if getattr(self, name) < least:
                raise ConfigError(f"Retry.{name} is {getattr(self, name)!r}; it must be at least {least}")
        for name in ("deadline", "timeout"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"Retry.{name} is {getattr(self, name)!r}; it must be more than 0 seconds")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Returns the seconds that a server's headers ask to wait, as a number or as a date; None where they do not."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name)
        if not text:
            continue
        try:
            return max(0.0, float(text) * unit)
        except ValueError:
            pass
        try:
            when = parsedate_to_datetime(text)
        except ValueError:
            continue
        now = datetime.now(timezone.utc)
        return max(0.0, (when.replace(tzinfo=when.tzinfo or timezone.utc) - now).total_seconds())
    return None


async def with_retries(
    call: Callable[[float], Awaitable[_T]], retry: Retry, what: str, *, start: float | None = None
) -> _T:
    """Calls until it succeeds.

    Args:
        call: gets the seconds that it may take; raises `TransientError` to be called again.
        retry: how often and how long.
        what: named in the error.
        start: when the deadline began to run, by `time.monotonic`, where this is not the first call of its work; None
            begins now.

    Raises:
        ModelError: the last try failed, or the deadline would pass before the next.
    """
    start = time.monotonic() if start is None else start
    wait = retry.first_wait
    for attempt in range(1, retry.attempts + 1):
        left = retry.deadline - (time.monotonic() - start)
        try:
            return await call(min(retry.timeout, max(left, 0.001)))
        except TransientError as e:
            # Jitter keeps clients that failed together from coming back together.
            pause = e.wait if e.wait is not None else wait * random.uniform(0.5, 1.0)  # noqa: S311
            spent = time.monotonic() - start
            if attempt == retry.attempts:
                raise ModelError(f"{what} failed {attempt} times in {spent:.1f} s, the last time with: {e}") from e
            if spent + pause >= retry.deadline:
                raise ModelError(
                    f"{what} failed {attempt} times, and the next try would be past the deadline of "
                    f"{retry.deadline:g} s; the last error was: {e}"
                ) from e
            if attempt > 1:
                _tell(what, attempt, retry, e)
        await asyncio.sleep(pause)
        wait = min(wait * 2, retry.longest_wait)
    raise AssertionError("unreachable: the last attempt returns or raises")


def _tell(what: str, attempt: int, retry: Retry, error: TransientError) -> None:
    """Warns that something goes on failing, so that nobody waits in silence."""
    now = time.monotonic()
    if now - _told.get(what, -_TOLD_EVERY) < _TOLD_EVERY:
        return
    _told[what] = now
    _LOG.warning("%s failed %d times, and is tried up to %d times: %s", what, attempt, retry.attempts, error)
