"""Turn text -> Action.

Finding the action is lenient, judging the turn is strict: the first action of a turn counts, whatever stands around
it, while `well_formed` asks for the exact transcript format. No text raises, and every parser runs in linear time: the
text is walked once with plain searches, and JSON is decoded where it stands, by the JSON decoder itself.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from grepseek_env.types import FinalAnswer, MalformedAction, ToolCall

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grepseek_env.types import Action

__all__ = [
    "HERMES_TAGS",
    "MALFORMED",
    "TOOL_NAME",
    "hermes_thought",
    "hermes_valid",
    "is_text",
    "malformed",
    "parse_hermes",
    "parse_plain",
    "plain_valid",
]

TOOL_NAME = "shell"
HERMES_TAGS = ("think", "tool_call", "tool_response", "answer")

# Reason -> what the policy reads. This is training data: a change is a new version of the environment. The messages
# name tags without angle brackets, because they are shown inside a tool_response block.
MALFORMED = {
    "no-action": "no action found: after the think block write one tool_call block or one answer block",
    "bad-json": 'the tool_call block must hold valid JSON: {"name": "shell", "arguments": {"command": "..."}}',
    "duplicate-key": "the tool_call object has the same key twice",
    "extra-text": "only one JSON object may stand in a tool_call block, and nothing after it",
    "not-an-object": 'the tool_call block must hold an object: {"name": "shell", "arguments": {"command": "..."}}',
    "wrong-name": 'the tool_call object must have "name": "shell", the only tool',
    "bad-arguments": 'the tool_call object must have "arguments": {"command": "..."}, an object and not a string',
    "no-command": 'the arguments object must have "command", a string',
    "empty-command": "the command is empty",
    "bad-text": "the action holds half of a surrogate pair, which is no character",
    "empty-turn": "the turn is empty: write one command, or answer: and the final answer",
}

_TAG = re.compile(f"</?(?:{'|'.join(HERMES_TAGS)})>")
_SPACE = re.compile(r"\s*")


class _DuplicateKeyError(ValueError):
    """A JSON object names a key twice: readers disagree on which one counts."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _DuplicateKeyError
    return made


def _no_constant(name: str) -> float:
    raise ValueError(name)


# Numbers are never used, and float() reads a million digits in linear time where int() does not. NaN is not JSON.
_JSON = json.JSONDecoder(object_pairs_hook=_object, parse_int=float, parse_constant=_no_constant)


def hermes_valid(turns: Sequence[Action]) -> bool:
    """Tells whether a transcript is (tool call)* answer, every turn of it well formed."""
    match turns:
        case [*calls, FinalAnswer(well_formed=True)]:
            return all(isinstance(call, ToolCall) and call.well_formed for call in calls)
        case _:
            return False


def plain_valid(turns: Sequence[Action]) -> bool:
    """Tells whether a transcript is (tool call)* answer; the answer has text, and what follows its line is ignored."""
    match turns:
        case [*calls, FinalAnswer(answer=answer)]:
            return bool(answer) and all(isinstance(call, ToolCall) for call in calls)
        case _:
            return False


def malformed(reason: str) -> MalformedAction:
    """Returns the action for an entry of `MALFORMED`."""
    return MalformedAction(reason=reason, message=MALFORMED[reason])


def is_text(value: str) -> bool:
    """Tells whether `value` can leave the process as UTF-8; half a surrogate pair, as JSON may hold it, cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def parse_hermes(text: str) -> Action:
    """Reads a turn of the form think block, then tool_call block or answer block.

    - The first `<tool_call>` or `<answer>` outside a closed think block is the action. Text in a closed think block is
      reasoning. A think block that is never closed hides nothing: the action in it counts, but is not well formed.
    - What follows the action is dropped, a tool_response that the policy wrote itself included, and makes the turn not
      well formed.
    - A tool call's JSON ends where the JSON decoder says, so that tags may stand inside the command.
    - A closing tag that is missing at the very end of the text (a server that strips stop strings, a length limit) is
      forgiven: the action counts and is not well formed. Code that samples should hand over the stop string too.
    """
    start, tag = _first_action(text)
    match tag:
        case "<tool_call>":
            return _tool_call(text, start)
        case "<answer>":
            return _answer(text, start)
        case _:
            return malformed("no-action")


def hermes_thought(text: str) -> str:
    """Returns the reasoning of a turn without surrounding white space; empty where there is none."""
    opening = text.find("<think>")
    closing = text.find("</think>", opening)
    if opening < 0 or closing < 0 or opening > _first_action(text)[0]:
        return ""
    return text[opening + len("<think>") : closing].strip()


def parse_plain(text: str) -> Action:
    """Reads a turn that is one command as it stands, or `answer:` (in any case) and the final answer.

    The answer is the rest of its line, or the next line with text; anything after that line is dropped and the turn
    is then not well formed. White space around a command is dropped.
    """
    bare = text.strip()
    if not bare:
        return malformed("empty-turn")
    if not is_text(bare):
        return malformed("bad-text")
    if bare[: len("answer:")].lower() != "answer:":
        return ToolCall(bare)
    answer, newline, _ = bare[len("answer:") :].strip().partition("\n")
    return FinalAnswer(answer.rstrip(), well_formed=bool(answer) and not newline)


def _first_action(text: str) -> tuple[int, str]:
    """Returns where the action's opening tag starts, and the tag; (length, "") where there is none."""
    position = 0
    last_close = text.rfind("</think>")
    while found := _TAG.search(text, position):
        tag, position = found.group(), found.end()
        if tag in {"<tool_call>", "<answer>"}:
            return found.start(), tag
        if tag == "<think>" and position <= last_close:
            position = text.index("</think>", position) + len("</think>")
    return len(text), ""


def _tool_call(text: str, start: int) -> Action:
    position = _skip_space(text, start + len("<tool_call>"))
    try:
        call, position = _JSON.raw_decode(text, position)
    except _DuplicateKeyError:
        return malformed("duplicate-key")
    except (ValueError, RecursionError):
        return malformed("bad-json")
    position = _skip_space(text, position)
    closed = text.startswith("</tool_call>", position)
    if not closed and position < len(text):
        return malformed("extra-text")
    action = _call_of(call)
    if not isinstance(action, ToolCall):
        return action
    exact = set(call) == {"name", "arguments"} and set(call["arguments"]) == {"command"}
    ends = closed and not text[position + len("</tool_call>") :].strip()
    return ToolCall(action.command, well_formed=exact and ends and _head_valid(text[:start]))


def _call_of(call: object) -> Action:
    """Checks the decoded object; keys beyond the known ones are left to `well_formed`."""
    match call:
        case {"name": str(name), "arguments": arguments} if name == TOOL_NAME:
            match arguments:
                case {"command": str(command)} if not command.strip():
                    return malformed("empty-command")
                case {"command": str(command)}:
                    return ToolCall(command) if is_text(command) else malformed("bad-text")
                case dict():
                    return malformed("no-command")
                case _:
                    return malformed("bad-arguments")
        case {"name": str(name)} if name == TOOL_NAME:
            return malformed("bad-arguments")
        case dict():
            return malformed("wrong-name")
        case _:
            return malformed("not-an-object")


def _answer(text: str, start: int) -> Action:
    begin = start + len("<answer>")
    end = text.find("</answer>", begin)
    closed = end >= 0
    answer = text[begin : end if closed else len(text)].strip()
    if not is_text(answer):
        return malformed("bad-text")
    ends = closed and not text[end + len("</answer>") :].strip()
    well_formed = bool(answer) and ends and not _TAG.search(answer) and _head_valid(text[:start])
    return FinalAnswer(answer, well_formed=well_formed)


def _head_valid(head: str) -> bool:
    """Tells whether the text before the action is exactly one think block without tags of the format in it."""
    bare = head.strip()
    if not (bare.startswith("<think>") and bare.endswith("</think>")):
        return False
    return not _TAG.search(bare, len("<think>"), len(bare) - len("</think>"))


def _skip_space(text: str, position: int) -> int:
    found = _SPACE.match(text, position)
    return found.end() if found else position
