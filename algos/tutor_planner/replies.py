"""Model replies: text -> the fields that were asked for, or a reason why not.

Strict JSON is tried first; what is not is mended by the json-repair library (cut ends, single quotes, trailing commas,
code fences), and then has to have the right fields all the same.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from grepseek_env.errors import ConfigError, GrepSeekError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Unreadable", "flag", "json_object", "text", "texts"]

_THOUGHTS = re.compile(r"<think>.*?</think>", re.DOTALL)
_FENCE = re.compile(r"```(?:json)?(.*?)```", re.DOTALL)


class Unreadable(GrepSeekError):
    """A reply has not the form that was asked for."""


def json_object(reply: str) -> dict[str, Any]:
    """Returns the JSON object of a reply.

    Raises:
        Unreadable: there is none, not even after repair.
        ConfigError: the library for repair is not installed.
    """
    head, closing, rest = reply.rpartition("</think>")  # an open tag after the last closing one ends nowhere
    reply = _THOUGHTS.sub("", head + closing).rpartition("</think>")[2] + rest
    fenced = _FENCE.search(reply)
    body = fenced[1] if fenced else reply
    start = body.find("{")
    if start < 0:
        raise Unreadable(f"no JSON object in the reply: {reply.strip()[:120]!r}")
    body = body[start:]
    try:
        value, _ = json.JSONDecoder().raw_decode(body)
    except (ValueError, RecursionError):
        value = _repaired(body)
    if not isinstance(value, dict):
        raise Unreadable(f"the reply is no JSON object: {reply.strip()[:120]!r}")
    return value


def _repaired(body: str) -> Any:
    try:
        import json_repair  # noqa: PLC0415 - needed by no other part
    except ImportError as e:
        raise ConfigError("a model's reply needs repair: pip install 'grepseek-env[tutor]'") from e
    try:
        return json_repair.loads(body, skip_json_loads=True)
    except (ValueError, RecursionError) as e:
        raise Unreadable(f"the reply cannot be repaired: {e}") from e


def text(values: Mapping[str, Any], name: str, *, optional: bool = False) -> str:
    """Returns a text field, stripped; empty where it is optional and absent.

    Raises:
        Unreadable: it is missing, empty or no text.
    """
    value = values.get(name)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = str(value)  # an answer such as 1951
    if isinstance(value, str) and value.strip():
        return value.strip()
    if optional and (value is None or value == ""):
        return ""
    raise Unreadable(f"{name} is {value!r:.80}; it must be text")


def texts(values: Mapping[str, Any], name: str, *, most: int) -> tuple[str, ...]:
    """Returns a list of texts, the first `most` of them; empty where it is absent.

    Raises:
        Unreadable: it is no list of texts.
    """
    value = values.get(name) or []
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list) or not all(isinstance(item, (str, int, float)) for item in value):
        raise Unreadable(f"{name} is {value!r:.80}; it must be a list of texts")
    return tuple(dict.fromkeys(stripped for item in value if (stripped := str(item).strip())))[:most]


_WORDS = {"yes": True, "true": True, "no": False, "false": False}


def flag(values: Mapping[str, Any], name: str) -> bool:
    """Returns true or false; the words yes and no are understood.

    Raises:
        Unreadable: it is neither.
    """
    value = values.get(name)
    if isinstance(value, str):
        value = _WORDS.get(value.strip().lower().rstrip("."))
    if not isinstance(value, bool):
        raise Unreadable(f"{name} is {values.get(name)!r:.80}; it must be true or false")
    return value
