"""Several endpoints of one role as one: caps on requests under way, and a rest for those that fail."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from grepseek_env.errors import ConfigError, GrepSeekError
from policies.chat import ModelError, run_async

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from policies.chat import ChatModel, Completion, Message, Sampling

__all__ = ["Endpoints", "Stopped"]

_LONGEST_REST = 600.0
_LOOK_FOR_STOP = 0.2


class Stopped(GrepSeekError):
    """The run is being stopped; the question is left for the next run."""


@dataclass
class _Endpoint:
    model: ChatModel
    under_way: int = 0
    failures: int = 0
    resting_until: float = 0.0
    served: int = 0


@dataclass
class Endpoints:
    """Sends each request to the healthy endpoint with the fewest requests under way.

    An endpoint that fails rests, twice as long after every failure in a row; the request goes to another one. Only
    when all have failed it is the request's failure.

    Attributes:
        models: the same model behind each.
        in_flight: requests under way at one endpoint.
        rest: seconds of the first rest.
        stop: set to end the waits of all threads.
        clock: seconds; replaced in tests.
    """

    models: Sequence[ChatModel]
    in_flight: int = 16
    rest: float = 10.0
    stop: threading.Event = field(default_factory=threading.Event)
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        if not self.models:
            raise ConfigError("no model is given; name at least one endpoint")
        if self.in_flight < 1:
            raise ConfigError(f"in_flight is {self.in_flight!r}; it must be at least 1")
        self._endpoints = [_Endpoint(model) for model in self.models]
        self._changed = threading.Condition()

    @property
    def name(self) -> str:
        """The names of the models, each once; endpoints of one model have one name."""
        return ", ".join(dict.fromkeys(model.name for model in self.models))

    @property
    def options(self) -> list[dict[str, Any]]:
        """The options of the models that decide their replies, each once; none where all are at their defaults."""
        found: list[dict[str, Any]] = []
        for model in self.models:
            if (options := dict(model.options)) not in found:
                found.append(options)
        return [] if found == [{}] else found

    def complete(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        """Completes one conversation; any number of threads may call it.

        Raises:
            ModelError: every endpoint failed.
            Stopped: the run is being stopped.
        """
        tried: list[_Endpoint] = []
        failure = ""
        while len(tried) < len(self._endpoints):
            endpoint = self._take(tried)
            tried.append(endpoint)
            try:
                completion = run_async(self._watched(endpoint.model, messages, sampling))
            except ModelError as e:
                failure = str(e)
                self._give(endpoint, ok=False)
                continue
            except BaseException:
                self._give(endpoint, ok=None)
                raise
            if completion.finish_reason == "error":
                failure = completion.error or f"{endpoint.model.name} failed"
                self._give(endpoint, ok=False)
                continue
            self._give(endpoint, ok=True)
            return completion
        raise ModelError(f"all {len(self._endpoints)} endpoints of {self.name} failed; the last one: {failure}")

    async def _watched(self, model: ChatModel, messages: Sequence[Message], sampling: Sampling) -> Completion:
        task = asyncio.ensure_future(model.acomplete(messages, sampling))
        while True:
            done, _ = await asyncio.wait({task}, timeout=_LOOK_FOR_STOP)
            if done:
                return task.result()
            if self.stop.is_set():
                task.cancel()
                raise Stopped("stopped while waiting for a model")

    def _take(self, tried: list[_Endpoint]) -> _Endpoint:
        with self._changed:
            while not self.stop.is_set():
                left = [endpoint for endpoint in self._endpoints if not any(endpoint is t for t in tried)]
                now = self.clock()
                # Where all rest, waiting would help nobody: the one whose rest ends first is tried.
                fit = [e for e in left if e.resting_until <= now] or [min(left, key=lambda e: e.resting_until)]
                free = [endpoint for endpoint in fit if endpoint.under_way < self.in_flight]
                if free:
                    chosen = min(free, key=lambda endpoint: endpoint.under_way)
                    chosen.under_way += 1
                    return chosen
                self._changed.wait(_LOOK_FOR_STOP)
        raise Stopped("stopped before a request")

    def _give(self, endpoint: _Endpoint, *, ok: bool | None) -> None:
        with self._changed:
            endpoint.under_way -= 1
            match ok:
                case True:
                    endpoint.failures, endpoint.resting_until = 0, 0.0
                    endpoint.served += 1
                case False:
                    rest = min(self.rest * 2**endpoint.failures, _LONGEST_REST)
                    endpoint.failures += 1
                    endpoint.resting_until = self.clock() + rest
                case None:
                    pass
            self._changed.notify_all()

    def health(self) -> str:
        """Returns how many endpoints are well, such as ``2/3``."""
        now = self.clock()
        well = sum(endpoint.resting_until <= now for endpoint in self._endpoints)
        return f"{well}/{len(self._endpoints)}"

    def close(self) -> None:
        """Closes the models."""
        for model in self.models:
            model.close()
