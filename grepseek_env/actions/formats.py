"""The formats in which a policy writes its turns, as a table: `ACTION_FORMATS`.

An entry holds both directions, reading a turn and writing one, so that prompt, parser, scripted policies, chat
messages and stop strings cannot disagree.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, Protocol

from grepseek_env.actions.parser import (
    HERMES_TAGS,
    TOOL_NAME,
    hermes_thought,
    hermes_valid,
    is_text,
    parse_hermes,
    parse_plain,
    plain_valid,
)
from grepseek_env.config import closest
from grepseek_env.errors import ConfigError
from grepseek_env.types import FinalAnswer, ToolCall

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from grepseek_env.types import Action

__all__ = ["ACTION_FORMATS", "ActionFormat", "get_action_format"]


class _RenderAction(Protocol):
    def __call__(self, thought: str, command: str | None = None, answer: str | None = None) -> str: ...


@dataclass(frozen=True, slots=True)
class ActionFormat:
    """One way to write turns.

    Attributes:
        name: its key in `ACTION_FORMATS`.
        instructions: how to write a turn, for the system prompt. Nothing in it reads as a scorable answer.
        stop_strings: where sampling may stop. Servers strip them by default: hand them to `parse` with the text.
        tool_role: the chat role of an observation. It is "user" with the tags in the text, since that is what the
            Qwen and Hermes templates make of role "tool"; a template that adds tags of its own would double them.
        parse: turn text -> action; never raises.
        thought: turn text -> its reasoning without surrounding white space, or "".
        render_question: question -> first user message.
        render_observation: tool output -> observation text, with `inert` applied.
        render_action: `(thought, command=None, answer=None)` -> the canonical turn, which `parse` reads back. Exactly
            one of command and answer must be given. Raises `ConfigError` for what the format cannot carry.
        inert: text -> text in which nothing reads as the format's own tags.
        format_valid: actions of all turns -> whether the transcript is valid as a whole: (tool call)* answer, in
            hermes all of them well formed.
    """

    name: str
    instructions: str
    stop_strings: tuple[str, ...]
    tool_role: Literal["user", "tool"]
    parse: Callable[[str], Action]
    thought: Callable[[str], str]
    render_question: Callable[[str], str]
    render_observation: Callable[[str], str]
    render_action: _RenderAction
    inert: Callable[[str], str]
    format_valid: Callable[[Sequence[Action]], bool]


# The format's tags in any case and spacing, and the <|...|> tokens of chat templates: a tokenizer that is not told
# otherwise turns those into real control tokens. Every branch starts at a literal "<", so the search is linear.
_CONTROL = r"[|｜][^\s|｜<>]{1,64}[|｜]>"  # noqa: RUF001 - DeepSeek's bars
_CONTROL_START = re.compile(f"<(?={_CONTROL})")
_TAG_START = re.compile(rf"<(?=\s*(?:/\s*)?(?:{'|'.join(HERMES_TAGS)})\b|{_CONTROL})", re.IGNORECASE)
_ANY_TAG = re.compile(f"</?(?:{'|'.join(HERMES_TAGS)})>")


def _query(question: str) -> str:
    return f"Query: {question}"


def _hermes_inert(text: str) -> str:
    return _TAG_START.sub("&lt;", text)


def _hermes_observation(output: str) -> str:
    return f"<tool_response>\n{_hermes_inert(output)}\n</tool_response>"


def _hermes_action(thought: str, command: str | None = None, answer: str | None = None) -> str:
    _carried("thought", thought, tags=_ANY_TAG)
    head = f"<think>{thought.strip()}</think>\n"
    if _is_call(command, answer):
        call = {"name": TOOL_NAME, "arguments": {"command": command}}
        return f"{head}<tool_call>{json.dumps(call, ensure_ascii=False)}</tool_call>"
    return f"{head}<answer>{_carried('answer', answer, tags=_ANY_TAG).strip()}</answer>"


def _plain_action(thought: str, command: str | None = None, answer: str | None = None) -> str:
    del thought  # the format has no place for it, and a policy should not need to know
    if _is_call(command, answer):
        turn = _carried("command", command).strip()
        if parse_plain(turn) != ToolCall(turn):
            raise ConfigError(f"command {command!r} reads as an answer in the plain format; use the hermes format")
        return turn
    turn = f"answer: {_carried('answer', answer).strip()}"
    if parse_plain(turn) != FinalAnswer(turn.removeprefix("answer: ")):
        raise ConfigError(f"answer {answer!r} has more than one line; the plain format carries a single one")
    return turn


def _plain_inert(text: str) -> str:
    # The format has no tags of its own, but chat templates have, and a tokenizer may take them for its own.
    return _CONTROL_START.sub("&lt;", text)


def _no_thought(text: str) -> str:  # noqa: ARG001 - the table's signature
    return ""


def _is_call(command: str | None, answer: str | None) -> bool:
    """Tells call from answer, and refuses what neither format can carry."""
    match command, answer:
        case (str(text), None):
            _filled("command", text)
            return True
        case (None, str(text)):
            _filled("answer", text)
            return False
        case _:
            raise ConfigError(f"command is {command!r} and answer is {answer!r}; give exactly one of them, as text")


def _filled(label: str, text: str) -> None:
    _carried(label, text)
    if not text.strip():
        raise ConfigError(f"{label} is {text!r}; it must hold more than white space")


def _carried(label: str, text: str | None, *, tags: re.Pattern[str] | None = None) -> str:
    if not isinstance(text, str):
        raise ConfigError(f"{label} is {text!r}; it must be text")
    if not is_text(text):
        raise ConfigError(f"{label} {text!r} holds half of a surrogate pair, which is no character")
    if tags and (found := tags.search(text)):
        raise ConfigError(f"{label} holds {found.group()!r}, a tag of the hermes format; write it without brackets")
    return text


_HERMES_INSTRUCTIONS = """\
Every turn has two parts and nothing else.
1. <think></think> with two to five sentences inside: what is known so far, what is missing, what to look for next.
2. Exactly one action, either of
   - a command: <tool_call></tool_call> with one JSON object inside, \
{"name": "shell", "arguments": {"command": "the pipeline"}}
   - the final answer: <answer></answer> with the answer alone inside, as short as possible: a name, a date, a number \
or a noun phrase.
Stop after the action. A command's output comes back inside <tool_response></tool_response>; never write that block \
yourself. The final answer ends the episode."""

_PLAIN_INSTRUCTIONS = """\
Every turn is one line: either a command as it would be typed into a terminal, or the word "answer", a colon and the \
final answer, as short as possible: a name, a date, a number or a noun phrase. A command's output comes back as it is. \
The final answer ends the episode."""

ACTION_FORMATS: Mapping[str, ActionFormat] = MappingProxyType(
    {
        entry.name: entry
        for entry in (
            ActionFormat(
                name="hermes",
                instructions=_HERMES_INSTRUCTIONS,
                stop_strings=("</tool_call>", "</answer>"),
                tool_role="user",
                parse=parse_hermes,
                thought=hermes_thought,
                render_question=_query,
                render_observation=_hermes_observation,
                render_action=_hermes_action,
                inert=_hermes_inert,
                format_valid=hermes_valid,
            ),
            ActionFormat(
                name="plain",
                instructions=_PLAIN_INSTRUCTIONS,
                stop_strings=(),
                tool_role="user",
                parse=parse_plain,
                thought=_no_thought,
                render_question=_query,
                render_observation=_plain_inert,
                render_action=_plain_action,
                inert=_plain_inert,
                format_valid=plain_valid,
            ),
        )
    }
)


def get_action_format(name: str) -> ActionFormat:
    """Returns an entry of `ACTION_FORMATS`.

    Raises:
        ConfigError: no format has this name.
    """
    try:
        return ACTION_FORMATS[name]
    except (KeyError, TypeError):  # TypeError: what cannot be a key, such as a list
        known = ", ".join(map(repr, ACTION_FORMATS))
        raise ConfigError(
            f"action_format is {name!r}{closest(name, list(ACTION_FORMATS))}; it must be one of {known}"
        ) from None
