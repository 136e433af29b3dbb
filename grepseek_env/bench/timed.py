"""A backend that adds up the time spent in it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from typing_extensions import Self

    from grepseek_env.errors import GrepSeekError
    from grepseek_env.types import CommandResult, SearchBackend

__all__ = ["TimedBackend"]


class TimedBackend:
    """Passes calls on to a backend and adds up the time inside it; for one thread.

    Attributes:
        seconds: so far; may be set.
    """

    def __init__(self, inner: SearchBackend) -> None:
        self._inner = inner
        self.seconds = 0.0

    @property
    def program_dir(self) -> Path:
        """See `SearchBackend`."""
        return self._inner.program_dir

    @property
    def corpus_digest(self) -> str:
        """See `SearchBackend`."""
        return self._inner.corpus_digest

    def run(self, command: str, *, timeout: float | None = None, max_output_bytes: int | None = None) -> CommandResult:
        """Runs one command and counts its time."""
        start = time.perf_counter()
        try:
            return self._inner.run(command, timeout=timeout, max_output_bytes=max_output_bytes)
        finally:
            self.seconds += time.perf_counter() - start

    def run_many(
        self, commands: Sequence[str], *, timeout: float | None = None, max_output_bytes: int | None = None
    ) -> list[CommandResult | GrepSeekError]:
        """Runs several commands and counts the time until all are done."""
        start = time.perf_counter()
        try:
            return self._inner.run_many(commands, timeout=timeout, max_output_bytes=max_output_bytes)
        finally:
            self.seconds += time.perf_counter() - start

    def explain(self, command: str) -> str:
        """See `SearchBackend`."""
        return self._inner.explain(command)

    def close(self) -> None:
        """Closes the backend."""
        self._inner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()
