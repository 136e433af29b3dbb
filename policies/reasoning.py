"""One text again from what servers return apart: reasoning in a field of its own, a stop string that was cut off."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "REASONING_FIELDS",
    "UNTOLD",
    "find_reasoning",
    "join_reasoning",
    "put_back_stop",
    "split_content",
    "without_thoughts",
]

# What servers call it: DeepSeek, vLLM and SGLang, then vLLM anew and OpenRouter, then others.
REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")
# A server that does not say which stop string it met.
UNTOLD = object()
_OPEN, _CLOSE = "<think>", "</think>"


def split_content(content: Any) -> tuple[str, str | None]:
    """Returns text and reasoning of a message's content, which is text or a list of parts of several types."""
    if isinstance(content, str):
        return content, None
    text, thoughts = "", ""
    for part in content if isinstance(content, list) else ():
        match part:
            case {"type": "thinking" | "reasoning", "thinking": [*pieces]}:
                thoughts += "".join(split_content([p])[0] for p in pieces)
            case {"type": "thinking" | "reasoning", "thinking": str(piece)} | {"type": "reasoning", "text": str(piece)}:
                thoughts += piece
            case {"text": str(piece)}:
                text += piece
            case _:
                continue
    return text, thoughts or None


def find_reasoning(message: Mapping[str, Any]) -> str | None:
    """Returns the reasoning of a server's message, whatever the field is called."""
    for field in REASONING_FIELDS:
        match message.get(field):
            case str(text) if text:
                return text
            case {"content": str(text)} | {"text": str(text)} if text:
                return text
            case _:
                continue
    return None


def join_reasoning(text: str, reasoning: str | None) -> str:
    """Returns the turn as the model wrote it: the reasoning between think tags, then the text.

    Text that already starts with a thought keeps it: some servers return it in both places. A closing tag that a
    server left at the start of the text is not doubled.
    """
    if not reasoning or not reasoning.strip() or text.lstrip().startswith(_OPEN):
        return text
    bare = reasoning.strip().removeprefix(_OPEN).removesuffix(_CLOSE).strip()
    rest = text.lstrip().removeprefix(_CLOSE).lstrip()
    return f"{_OPEN}{bare}{_CLOSE}\n{rest}" if rest else f"{_OPEN}{bare}{_CLOSE}"


def without_thoughts(text: str) -> str:
    """Returns what follows the last thought, for a format that has no place for thoughts.

    An unfinished thought (cut by a length limit) leaves nothing.
    """
    head, closing, rest = text.rpartition(_CLOSE)
    if closing:
        return rest.lstrip()
    return "" if (rest or head).lstrip().startswith(_OPEN) else text


def put_back_stop(text: str, stop: Sequence[str], *, matched: Any = UNTOLD) -> str:
    """Returns the text with the stop string that a server cut off.

    Args:
        text: what the server returned, which ended at a stop string or at the end of the turn.
        stop: the stop strings of the request.
        matched: the stop string that was met, or anything else where the turn ended by itself; `UNTOLD` where the
            server does not tell.
    """
    if any(text.endswith(s) for s in stop):
        return text
    if matched is not UNTOLD:
        return text + matched if isinstance(matched, str) and matched in stop else text
    # Not told: a closing tag belongs to the opening tag that is still open, the last one where there are several.
    open_tags: list[tuple[int, str]] = []
    for s in stop:
        if found := re.fullmatch(r"</([^<>]+)>", s):
            at = text.rfind(f"<{found.group(1)}>")
            if at >= 0:
                open_tags.append((at, s))
    return text + max(open_tags)[1] if open_tags else text
