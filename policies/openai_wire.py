"""What OpenAI-compatible servers send, read without trust: plain dicts in, an `Answer` out."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from policies.reasoning import REASONING_FIELDS, UNTOLD, find_reasoning, split_content
from policies.retries import TransientError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Answer", "Overflow", "error_message", "find_overflow", "merge_stream", "read_answer"]


@dataclass(frozen=True, slots=True)
class Answer:
    """One choice of a response.

    Attributes:
        text: its content, as sent.
        finish_reason: as sent.
        matched: the stop string that was met, something else where none was, `UNTOLD` where the server does not tell.
        reasoning: what came in a field of its own.
        token_ids: None where the server does not send them.
        prompt_token_ids: the same.
        logprobs: of the tokens; None where they were not asked for or not sent.
        prompt_tokens: None where usage was not sent.
        completion_tokens: the same.
    """

    text: str
    finish_reason: str
    matched: Any = UNTOLD
    reasoning: str | None = None
    token_ids: tuple[int, ...] | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


def read_answer(body: bytes | str) -> Answer:
    """Reads the body of a response.

    Raises:
        TransientError: it is no JSON, or not what a server of this kind sends.
    """
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as e:
        raise TransientError(f"the server sent malformed JSON ({e}): {body[:80]!r}") from e
    return _answer(data)


def _answer(data: Any) -> Answer:
    match data:
        case {"error": {"message": str(told)}} | {"error": str(told)}:
            raise TransientError(f"the server sent an error: {told}")
        case {"choices": [{"finish_reason": str(reason)} as choice, *_]}:
            pass
        case _:
            raise TransientError(f"the server's response has no finished choice: {json.dumps(data)[:200]}")
    found = choice.get("message")
    # The completions interface has the text at the top.
    message: dict[str, Any] = found if isinstance(found, dict) else {"content": choice.get("text")}
    text, thoughts = split_content(message.get("content") or message.get("refusal"))
    usage = data.get("usage") if isinstance(data.get("usage"), dict) else {}
    prompt_ids = choice.get("prompt_token_ids") or data.get("prompt_token_ids")
    if "<tool_call>" not in text:
        text += _calls(message.get("tool_calls"))
    thoughts = find_reasoning(message) or thoughts
    return Answer(
        text=_characters(text),
        finish_reason=reason,
        matched=choice.get("stop_reason", choice.get("matched_stop", UNTOLD)),
        reasoning=None if thoughts is None else _characters(thoughts),
        token_ids=_numbers(choice.get("token_ids"), int),
        prompt_token_ids=_numbers(prompt_ids, int),
        logprobs=_logprobs(choice.get("logprobs")),
        prompt_tokens=_count(usage.get("prompt_tokens")),
        completion_tokens=_count(usage.get("completion_tokens")),
    )


def _characters(text: str) -> str:
    """Returns text that can be sent and tokenised: JSON may escape half of a surrogate pair, which is no character."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _calls(value: Any) -> str:
    """Returns the text of tool calls that a server has parsed out of what the model wrote."""
    text = ""
    for call in value if isinstance(value, list) else ():
        match call:
            case {"function": {"name": str(name), "arguments": str(arguments)}}:
                text += f'<tool_call>{{"name": {json.dumps(name)}, "arguments": {arguments}}}</tool_call>'
            case _:
                continue
    return text


def _numbers(values: Any, kind: type) -> Any:
    fits = isinstance(values, list) and all(isinstance(v, kind) for v in values)
    return tuple(values) if fits else None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _logprobs(value: Any) -> tuple[float, ...] | None:
    match value:
        case {"content": [*items]} if all(isinstance(i, dict) and isinstance(i.get("logprob"), float) for i in items):
            return tuple(i["logprob"] for i in items)
        case {"token_logprobs": [*numbers]} if all(isinstance(n, (int, float)) for n in numbers):
            return tuple(map(float, numbers))
        case _:
            return None


@dataclass(slots=True)
class _Call:
    """A tool call, as far as it has been received."""

    name: str | None = None
    arguments: str | None = None


@dataclass(slots=True)
class _Merged:
    text: list[str] = field(default_factory=list)
    refusal: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: dict[int, _Call] = field(default_factory=dict)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish_reason: str | None = None
    last: dict[str, Any] = field(default_factory=dict)
    top: dict[str, Any] = field(default_factory=dict)


def merge_stream(lines: Iterable[str]) -> Answer:
    """Puts the events of a stream together.

    Raises:
        TransientError: an event is no JSON, or the stream ended before the completion did.
    """
    merged = _Merged()
    for line in lines:
        if not line.startswith("data:"):
            continue
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            break
        try:
            event = json.loads(data)
        except (ValueError, RecursionError) as e:
            raise TransientError(f"the server streamed malformed JSON ({e}): {data[:80]!r}") from e
        _merge(merged, event)
    if merged.finish_reason is None:
        raise TransientError("the stream was cut before the completion had ended")
    message = {
        "content": "".join(merged.text),
        "refusal": "".join(merged.refusal),
        REASONING_FIELDS[0]: "".join(merged.reasoning),
        "tool_calls": [{"function": asdict(call)} for _, call in sorted(merged.calls.items())],
    }
    choice = {
        **merged.last,
        "message": message,
        "finish_reason": merged.finish_reason,
        "token_ids": merged.token_ids or None,
        "logprobs": {"token_logprobs": merged.logprobs} if merged.logprobs else None,
    }
    return _answer({**merged.top, "choices": [choice]})


def _merge(merged: _Merged, event: Any) -> None:
    match event:
        case {"error": {"message": str(message)}} | {"error": str(message)}:
            raise TransientError(f"the server sent an error: {message}")
        case dict():
            merged.top |= {k: event[k] for k in ("usage", "prompt_token_ids") if event.get(k)}
        case _:
            raise TransientError(f"the server streamed an event that is no object: {event!r:.80}")
    choices = event.get("choices")
    if not (isinstance(choices, list) and choices and isinstance(choices[0], dict)):
        return
    choice = choices[0]
    found = choice.get("delta")
    delta: dict[str, Any] = found if isinstance(found, dict) else {"content": choice.get("text")}
    text, thoughts = split_content(delta.get("content"))
    merged.text.append(text)
    merged.reasoning.append(find_reasoning(delta) or thoughts or "")
    if isinstance(refusal := delta.get("refusal"), str):
        merged.refusal.append(refusal)
    _merge_calls(merged.calls, delta.get("tool_calls"))
    merged.token_ids += _numbers(choice.get("token_ids"), int) or ()
    merged.logprobs += _logprobs(choice.get("logprobs")) or ()
    merged.last |= {k: choice[k] for k in ("stop_reason", "matched_stop", "prompt_token_ids") if k in choice}
    merged.finish_reason = choice.get("finish_reason") or merged.finish_reason


def _merge_calls(calls: dict[int, _Call], value: Any) -> None:
    """Adds the pieces of tool calls: a call's name comes once, its arguments in any number of pieces."""
    for piece in value if isinstance(value, list) else ():
        match piece:
            case {"function": {**function}}:
                pass
            case _:
                continue
        name, arguments, at = function.get("name"), function.get("arguments"), piece.get("index")
        if not isinstance(at, int):
            # Without a number a name begins the next call. The ids tell nothing: some servers send a new one a piece.
            last = max(calls, default=-1)
            at = last + 1 if name or not calls else last
        call = calls.setdefault(at, _Call())
        if isinstance(name, str):
            call.name = call.name or name
        if isinstance(arguments, str):
            call.arguments = (call.arguments or "") + arguments


@dataclass(frozen=True, slots=True)
class Overflow:
    """A request that did not fit the model's context.

    Attributes:
        message: what the server said.
        room: tokens that the prompt leaves; None where the message does not tell. May be below 1.
    """

    message: str
    room: int | None


_OVERFLOW = re.compile(
    r"context[ _]length|maximum model length|max_model_len|context window|too many tokens"
    r"|max_(?:completion_)?tokens\W.{0,60}too large|reduce the length",
    re.IGNORECASE | re.DOTALL,
)
_LIMIT = re.compile(r"(?:context length|model length|max_model_len|context window)\D{0,20}(\d{1,12})", re.IGNORECASE)
_PROMPT = re.compile(
    r"(\d{1,12})(?: tokens)? (?:in the messages|input tokens|in your prompt|from the input)"
    r"|(?:input|prompt) \((?:length )?(\d{1,12})|resulted in (\d{1,12}) tokens"
    r"|prompt contains (?:at least )?(\d{1,12})",
    re.IGNORECASE,
)


def find_overflow(code: Any, message: str) -> Overflow | None:
    """Returns what a server's refusal says about the context length; None where it is about something else."""
    if code != "context_length_exceeded" and not _OVERFLOW.search(message):
        return None
    limit, prompt = _LIMIT.search(message), _PROMPT.search(message)
    if limit is None or prompt is None:
        return Overflow(message, None)
    return Overflow(message, int(limit.group(1)) - int(next(g for g in prompt.groups() if g)))


def error_message(body: Mapping[str, Any] | Any, otherwise: str) -> tuple[Any, str]:
    """Returns code and message of an error response, in either of the layouts that are in use."""
    match body:
        case {"error": {"message": str(message)} as error}:
            return error.get("code"), message
        case {"message": str(message)}:
            return body.get("code"), message
        case {"error": str(message)} | {"detail": str(message)}:
            return None, message
        case _:
            return None, otherwise
