"""What a chat model is: conversations in, completions out, one at a time with asyncio or many at once.

    model = make_model("hf:checkpoints/sft")
    [completion] = model.complete([[{"role": "user", "content": "..."}]], Sampling(max_tokens=64))

A model implements `complete` or `acomplete`; the base class makes the other of it. Turns that `acomplete` is asked for
while a batch is running are gathered into the next batch.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from abc import ABC
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from importlib import import_module
from numbers import Integral, Real
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from grepseek_env.config import closest
from grepseek_env.errors import ConfigError, EngineFault

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

__all__ = [
    "ChatModel",
    "Completion",
    "Message",
    "ModelError",
    "Sampling",
    "in_models_loop",
    "make_model",
    "model_class",
    "per_conversation",
    "raise_if_all_failed",
    "run_async",
]

_T = TypeVar("_T")
Message: TypeAlias = Mapping[str, str]
FinishReason: TypeAlias = Literal["stop", "length", "context", "error"]


class ModelError(EngineFault):
    """A model or its server failed, not the policy: never a reward of 0 to learn from."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How one completion is drawn.

    Attributes:
        temperature: 0 takes the most likely token every time.
        top_p: draw from the smallest set of tokens that holds this much probability.
        top_k: draw from this many tokens; None takes all.
        max_tokens: of one completion.
        stop: strings that end a completion; the one that was met is included in its text.
        seed: the same seed, the same completion, as far as the model can promise it; None draws anew.
        logprobs: ask for the log-probabilities of the sampled tokens.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int | None = None
    max_tokens: int = 512
    stop: tuple[str, ...] = ()
    seed: int | None = None
    logprobs: bool = False

    def __post_init__(self) -> None:
        for name in ("temperature", "top_p", "top_k", "max_tokens", "seed"):
            value, kind = getattr(self, name), Real if name in {"temperature", "top_p"} else Integral
            absent = value is None and name in {"top_k", "seed"}
            if not absent and (not isinstance(value, kind) or isinstance(value, bool)):
                raise ConfigError(f"Sampling.{name} is {value!r}; it must be a number")
        checks = (
            ("temperature", self.temperature >= 0, "at least 0"),
            ("top_p", 0 < self.top_p <= 1, "above 0 and at most 1"),
            ("top_k", self.top_k is None or self.top_k >= 1, "at least 1, or None"),
            ("max_tokens", self.max_tokens >= 1, "at least 1"),
            ("stop", all(self.stop), "without empty strings"),
        )
        for name, fits, rule in checks:
            if not fits:
                raise ConfigError(f"Sampling.{name} is {getattr(self, name)!r}; it must be {rule}")


@dataclass(frozen=True, slots=True)
class Completion:
    """What a model wrote.

    Attributes:
        text: without the token that ends a turn, with the stop string that was met.
        finish_reason: "stop" (a stop string or the end of the turn), "length" (`max_tokens`), "context" (the request
            did not fit the model's context, also with fewer tokens to write) or "error" (it failed after all retries).
        token_ids: what was sampled, the end-of-turn token included where it was. They may decode to more than `text`,
            since a stop string can end inside a token.
        logprobs: of `token_ids` under the model itself: before temperature, top_p and top_k.
        prompt_token_ids: what it was sampled after.
        prompt_tokens: their number.
        completion_tokens: number of tokens sampled.
        reasoning: what a server returned apart; `text` already holds it, put back.
        seconds: how long the request took.
        error: what failed, for finish_reason "error" and "context".
    """

    text: str
    finish_reason: FinishReason
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning: str | None = None
    seconds: float | None = None
    error: str | None = None


def per_conversation(sampling: Sampling | Sequence[Sampling], count: int) -> list[Sampling]:
    """Returns one `Sampling` a conversation.

    A seed that is given once is varied, so that equal conversations get different completions.

    Raises:
        ConfigError: there are not as many as conversations.
    """
    if isinstance(sampling, Sampling):
        seed = sampling.seed
        return [sampling if seed is None or i == 0 else replace(sampling, seed=seed + i) for i in range(count)]
    if len(sampling) != count:
        raise ConfigError(f"{len(sampling)} samplings for {count} conversations; give one, or one for each")
    return list(sampling)


class ChatModel(ABC):  # noqa: B024 - either of two methods has to be implemented, which __init_subclass__ checks
    """Completes conversations.

    Attributes:
        name: written to manifests.
        renderer: turns messages into token ids (`grepseek_env.tokens.ChatTokens`), for a model that takes
            `prompt_ids`; None for one that takes messages alone.
        context_tokens: tokens of prompt and completion together; None where it is not known.
        options: what else decides its turns, as JSON values for manifests; only what is not at its default.
    """

    name: str = "model"
    renderer: Any = None
    context_tokens: int | None = None
    options: Mapping[str, Any] = MappingProxyType({})

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.complete is ChatModel.complete and cls.acomplete is ChatModel.acomplete:
            raise TypeError(f"{cls.__name__} must implement complete or acomplete")

    def complete(
        self,
        conversations: Sequence[Sequence[Message]],
        sampling: Sampling | Sequence[Sampling],
        *,
        prompt_ids: Sequence[Sequence[int]] | None = None,
    ) -> list[Completion]:
        """Completes several conversations, each up to its next assistant message.

        Args:
            conversations: messages of `role` and `content`.
            sampling: one for all, or one for each.
            prompt_ids: token ids to complete in place of the messages; only for a model with a `renderer`.

        Returns:
            Completions in the order of the conversations. One that failed while others did not is in its place, with
            finish_reason "error".

        Raises:
            ModelError: the model or its server failed, for all of them.
        """
        samplings = per_conversation(sampling, len(conversations))

        async def one(i: int) -> Completion:
            ids = {} if prompt_ids is None else {"prompt_ids": prompt_ids[i]}
            try:
                return await self.acomplete(conversations[i], samplings[i], **ids)
            except ModelError as e:
                return Completion("", "error", error=str(e))

        async def every() -> list[Completion]:
            return list(await asyncio.gather(*(one(i) for i in range(len(conversations)))))

        return raise_if_all_failed(_loop().run(every()))

    async def acomplete(
        self, messages: Sequence[Message], sampling: Sampling, *, prompt_ids: Sequence[int] | None = None
    ) -> Completion:
        """Completes one conversation; many may wait at once.

        Raises:
            ModelError: the model or its server failed.
        """
        completion = await asyncio.wrap_future(self._gatherer().submit(messages, sampling, prompt_ids))
        if completion.finish_reason == "error":
            raise ModelError(completion.error or f"{self.name} failed")
        return completion

    def _gatherer(self) -> _Gatherer:
        with _LOCK:
            if "_gathered" not in self.__dict__:
                self._gathered = _Gatherer(self)
            return self._gathered

    def close(self) -> None:  # noqa: B027 - most models have nothing to free
        """Frees what the model holds; calling it again does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def raise_if_all_failed(completions: list[Completion]) -> list[Completion]:
    """Returns the completions.

    Raises:
        ModelError: every one of them failed.
    """
    if completions and all(c.finish_reason == "error" for c in completions):
        raise ModelError(completions[0].error or "every request failed")
    return completions


_LOCK = threading.Lock()


class _Loop:
    """An event loop in a thread of its own, so that synchronous code may wait for coroutines anywhere."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="grepseek-models", daemon=True)
        self._thread.start()

    def run(self, coroutine: Any) -> Any:
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise ModelError("a coroutine of the models' event loop called complete(), which would wait for itself")
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C: requests under way are given up
            raise


_shared_loop: _Loop | None = None


def _loop() -> _Loop:
    global _shared_loop  # noqa: PLW0603 - clients are bound to the loop of their first request, so there is only one
    with _LOCK:
        if _shared_loop is None:
            _shared_loop = _Loop()
        return _shared_loop


def run_async(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Runs a coroutine in the one event loop to which models' connections are bound, and waits for it.

    It works in any thread but that loop's own, also where another loop is running, as in a notebook. Ctrl-C cancels the
    coroutine and is raised without waiting for its end.
    """
    result: _T = _loop().run(coroutine)
    return result


async def in_models_loop(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Awaits a coroutine in the event loop of `run_async`, from whatever loop is running.

    A client whose connections belong to one loop can so be used from many.
    """
    loop = _loop().loop
    if asyncio.get_running_loop() is loop:
        return await coroutine
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, loop))


@dataclass(frozen=True, slots=True)
class _Request:
    messages: Sequence[Message]
    sampling: Sampling
    prompt_ids: Sequence[int] | None
    future: Future[Completion]


# Turns that come together, as at the start of many episodes, should not have the first of them run alone.
_GATHER_SECONDS = 0.005


class _Gatherer:
    """Runs `complete` in one thread, each time with all requests that have come since the last batch."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model
        self._waiting: list[_Request] = []
        self._running = False
        self._lock = threading.Lock()

    def submit(
        self, messages: Sequence[Message], sampling: Sampling, prompt_ids: Sequence[int] | None
    ) -> Future[Completion]:
        request = _Request(messages, sampling, prompt_ids, Future())
        with self._lock:
            self._waiting.append(request)
            start, self._running = not self._running, True
        if start:
            threading.Thread(target=self._run, name="grepseek-batches", daemon=True).start()
        return request.future

    def _run(self) -> None:
        time.sleep(_GATHER_SECONDS)
        while True:
            with self._lock:
                batch, self._waiting = self._waiting, []
                if not batch:
                    self._running = False
                    return
            batch = [r for r in batch if r.future.set_running_or_notify_cancel()]
            # Prompts of ids and prompts of messages are different calls.
            for group in ([r for r in batch if r.prompt_ids is None], [r for r in batch if r.prompt_ids is not None]):
                if group:
                    self._complete(group)

    def _complete(self, batch: list[_Request]) -> None:
        ids = {} if batch[0].prompt_ids is None else {"prompt_ids": [r.prompt_ids or () for r in batch]}
        try:
            done = self._model.complete([r.messages for r in batch], [r.sampling for r in batch], **ids)
        except BaseException as e:  # noqa: BLE001 - it belongs to those who wait, who would otherwise wait for ever
            for request in batch:
                request.future.set_exception(e)
            return
        for request, completion in zip(batch, done, strict=True):
            request.future.set_result(completion)


_KINDS = {
    "hf": ("policies.hf", "HFModel"),
    "vllm": ("policies.vllm_engine", "VLLMModel"),
    "openai": ("policies.openai_api", "OpenAIModel"),
}


def model_class(kind: str) -> Any:
    """Returns the class behind a kind of model: "hf", "vllm" or "openai"."""
    module, name = _KINDS[kind]
    return getattr(import_module(module), name)


def make_model(spec: str, **options: Any) -> ChatModel:
    """Builds a chat model from its name.

    Args:
        spec: "hf:PATH" (transformers), "vllm:PATH" (vLLM in this process) or "openai:MODEL@BASE_URL" (any server with
            OpenAI's interface; without a URL what the environment variable OPENAI_BASE_URL says).
        options: keywords of the model's class.

    Raises:
        ConfigError: the name or an option cannot work.
        ModelError: the model cannot be loaded.
    """
    kind, colon, rest = spec.partition(":")
    if not colon or not rest or kind not in _KINDS:
        raise ConfigError(
            f"model is {spec!r}{closest(kind, list(_KINDS))}; it must be hf:PATH, vllm:PATH or openai:MODEL@BASE_URL"
        )
    make = model_class(kind)
    if kind == "openai":
        rest, at, url = rest.partition("@")
        options |= {"base_url": url} if at else {}
    known = [p for p in inspect.signature(make).parameters if p != "self"][1:]
    for option in options:
        if option not in known:
            raise ConfigError(f"{spec}: no option {option!r}{closest(option, known)}; there are {', '.join(known)}")
    model: ChatModel = make(rest, **options)
    return model
