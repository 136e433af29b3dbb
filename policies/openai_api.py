"""`OpenAIModel`: any server with OpenAI's interface (vLLM, SGLang, hosted ones), by the `openai` client.

Requests that fail for a while are tried again; what the server keeps apart (reasoning, the stop string) is put back
into one text; a request that does not fit the context is made smaller. With a tokenizer, and a server that returns
token ids (vLLM does), prompts are token ids and nothing that was sampled is tokenised again.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from grepseek_env.errors import ConfigError
from grepseek_env.tokens import ChatTokens
from policies.chat import ChatModel, Completion, ModelError, in_models_loop, run_async
from policies.openai_wire import Answer, Overflow, error_message, find_overflow, merge_stream, read_answer
from policies.reasoning import join_reasoning, put_back_stop
from policies.retries import Retry, TransientError, retry_after, with_retries
from policies.turn_options import turn_options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policies.chat import Message, Sampling

__all__ = ["OpenAIModel"]

_AGAIN = frozenset({408, 409, 425, 429})
# Fewer tokens than this hold no action; a request that has no room for them is not made.
_LEAST_TOKENS = 16
# Options that decide how the server is reached, not what it writes.
_CONNECTION = ("api_key", "attempts", "base_url", "deadline", "first_wait", "stream", "timeout")


class OpenAIModel(ChatModel):
    """A model behind an OpenAI-compatible server.

    Args:
        model: the name that the server gives it.
        base_url: such as ``http://localhost:8000/v1``; None takes $OPENAI_BASE_URL, else OpenAI's own.
        api_key: None takes $OPENAI_API_KEY; a server of one's own mostly needs none.
        timeout: seconds of one try.
        deadline: seconds of a completion, all tries and waits together.
        attempts: tries of a completion.
        stream: receive completions in pieces, which keeps proxies from giving up on long ones.
        extra_body: more fields of every request, such as ``{"chat_template_kwargs": {"enable_thinking": true}}``.
        omit: fields that the server refuses, such as "seed".
        max_tokens_field: what the server calls the limit; newer hosted models want "max_completion_tokens".
        tokenizer: folder or name of the model's tokenizer: prompts are then token ids, through the completions
            interface. The server has to return token ids, as vLLM does.
        chat_template: of the tokenizer, in place of its own; "chatml" is a prefix-stable one.
        context_tokens: prompt and completion together, where the server's error is not to be waited for.

    Raises:
        ConfigError: an option cannot work, or the client is not installed.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float = 300.0,
        deadline: float = 600.0,
        attempts: int = 8,
        first_wait: float = 0.5,
        stream: bool = False,
        extra_body: Mapping[str, Any] | None = None,
        omit: Sequence[str] = (),
        max_tokens_field: str = "max_tokens",
        tokenizer: str | None = None,
        chat_template: str | None = None,
        context_tokens: int | None = None,
    ) -> None:
        try:
            import openai  # noqa: PLC0415 - optional, and slow to import
        except ImportError as e:
            raise ConfigError(f"openai:{model} needs the client: pip install 'grepseek-env[openai]'") from e
        self.name = f"openai:{model}"
        self.options = turn_options(OpenAIModel, {**locals(), "omit": frozenset(omit)}, leave_out=_CONNECTION)
        self.context_tokens = context_tokens
        self.renderer = None if tokenizer is None else ChatTokens.load(tokenizer, chat_template=chat_template)
        self._model = model
        self._retry = Retry(attempts, first_wait=first_wait, deadline=deadline, timeout=timeout)
        self._stream = stream
        self._extra = dict(extra_body or {})
        self._omit = frozenset(omit)
        self._max_tokens_field = max_tokens_field
        key = api_key or os.environ.get("OPENAI_API_KEY") or "none"
        try:
            self._client = openai.AsyncOpenAI(base_url=base_url, api_key=key, max_retries=0)
        except openai.OpenAIError as e:
            raise ConfigError(f"openai:{model}: {e}") from e
        self._closed = False

    async def acomplete(
        self, messages: Sequence[Message], sampling: Sampling, *, prompt_ids: Sequence[int] | None = None
    ) -> Completion:
        """Completes one conversation; see `ChatModel`."""
        if prompt_ids is not None and self.renderer is None:
            raise ConfigError(f"{self.name} takes token ids only with a tokenizer; give tokenizer=FOLDER")
        if self._closed:
            raise ModelError(f"{self.name} was closed; make another model")
        return await in_models_loop(self._complete(messages, sampling, prompt_ids))

    def close(self) -> None:
        """Closes the connections."""
        if not self._closed:
            self._closed = True
            run_async(self._client.close())

    async def _complete(
        self, messages: Sequence[Message], sampling: Sampling, prompt_ids: Sequence[int] | None
    ) -> Completion:
        start = time.monotonic()
        own = sampling
        while True:
            body = self._body(messages, own, prompt_ids)

            async def call(seconds: float, body: dict[str, Any] = body) -> Answer | Overflow:
                return await self._request(body, seconds, ids=prompt_ids is not None)

            match await with_retries(call, self._retry, self.name, start=start):
                case Overflow(message=message, room=room):
                    fewer = own.max_tokens // 2 if room is None else room
                    if fewer < min(_LEAST_TOKENS, sampling.max_tokens) or fewer >= own.max_tokens:
                        return Completion("", "context", error=message, seconds=time.monotonic() - start)
                    if time.monotonic() - start >= self._retry.deadline:
                        raise ModelError(
                            f"{self.name}: the deadline of {self._retry.deadline:g} s passed while the request was "
                            f"made smaller, last to {own.max_tokens} tokens: {message}; raise the option deadline, or "
                            "lower max_tokens"
                        )
                    own = replace(own, max_tokens=fewer)
                case Answer() as answer:
                    return self._completion(answer, own, prompt_ids, time.monotonic() - start)

    def _body(
        self, messages: Sequence[Message], sampling: Sampling, prompt_ids: Sequence[int] | None
    ) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._model,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            self._max_tokens_field: sampling.max_tokens,
            "stop": list(sampling.stop) or None,
            "seed": sampling.seed,
            "top_k": sampling.top_k,
        }
        if prompt_ids is None:
            body["messages"] = [dict(m) for m in messages]
            body["logprobs"] = sampling.logprobs or None
        else:
            body["prompt"] = list(prompt_ids)
            body["logprobs"] = 1 if sampling.logprobs else None
            body |= {"return_token_ids": True, "include_stop_str_in_output": True}
        if self._stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        body |= self._extra
        return {k: v for k, v in body.items() if v is not None and k not in self._omit}

    async def _request(self, body: dict[str, Any], seconds: float, *, ids: bool) -> Answer | Overflow:
        """Sends one request. The body is read here, since servers send more, and less, than the client's types know."""
        import openai  # noqa: PLC0415

        fields = dict(body)
        options = {"model": fields.pop("model"), "timeout": seconds}
        client: Any = self._client
        if ids:
            create, options["prompt"] = client.completions.with_raw_response.create, fields.pop("prompt")
        else:
            create, options["messages"] = client.chat.completions.with_raw_response.create, fields.pop("messages")
        try:
            # The client's own time-out is one of silence; this one is of the whole try.
            raw = await asyncio.wait_for(create(**options, extra_body=fields), seconds)
        except asyncio.TimeoutError as e:
            raise TransientError(f"no complete response within {seconds:g} s") from e
        except openai.APIStatusError as e:
            return _refused(e, self.name)
        except openai.APIError as e:
            cause = f"{type(e.__cause__).__name__}: {e.__cause__}"
            raise TransientError(f"the connection to {self._client.base_url} failed: {e} ({cause})") from e
        content: bytes = raw.http_response.content
        if self._stream:
            return merge_stream(content.decode("utf-8", "replace").splitlines())
        return read_answer(content)

    def _completion(
        self, answer: Answer, sampling: Sampling, prompt_ids: Sequence[int] | None, seconds: float
    ) -> Completion:
        cut = answer.finish_reason == "length"
        text = join_reasoning(answer.text, answer.reasoning)
        if not cut:
            text = put_back_stop(text, sampling.stop, matched=answer.matched)
        if prompt_ids is not None and answer.token_ids is None:
            raise ModelError(
                f"{self.name}: the server returns no token ids; leave the option tokenizer out to send messages"
            )
        tokens = answer.completion_tokens
        logprobs = answer.logprobs
        if answer.token_ids is not None:
            tokens = len(answer.token_ids)
            if logprobs is not None and len(logprobs) != tokens:
                raise ModelError(f"{self.name}: the server sent {len(logprobs)} log-probabilities for {tokens} tokens")
        return Completion(
            text,
            "length" if cut else "stop",
            token_ids=answer.token_ids,
            logprobs=logprobs if sampling.logprobs else None,
            prompt_token_ids=tuple(prompt_ids) if prompt_ids is not None else answer.prompt_token_ids,
            prompt_tokens=answer.prompt_tokens,
            completion_tokens=tokens,
            reasoning=answer.reasoning,
            seconds=seconds,
        )


def _refused(error: Any, name: str) -> Overflow:
    """Sorts a server's error: what may pass, what is too long, what stays wrong.

    Raises:
        TransientError: it may pass.
        ModelError: it will not.
    """
    code, message = error_message(error.body, str(error))
    status: int = error.status_code
    if (status in _AGAIN or status >= 500) and code != "insufficient_quota":
        raise TransientError(f"HTTP {status}: {message}", wait=retry_after(error.response.headers))
    if (overflow := find_overflow(code, message)) is not None:
        return overflow
    hint = "; set OPENAI_API_KEY, or the option api_key" if status in {401, 403} else ""
    raise ModelError(f"{name}: HTTP {status}: {message}{hint}") from error
