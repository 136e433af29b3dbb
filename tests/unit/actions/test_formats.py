from __future__ import annotations

import copy
import json
import pickle
import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grepseek_env.actions import ACTION_FORMATS, get_action_format
from grepseek_env.actions.parser import MALFORMED
from grepseek_env.errors import ConfigError
from grepseek_env.types import FinalAnswer, MalformedAction, ToolCall
from tests.support.golden import ROOT

if TYPE_CHECKING:
    from grepseek_env.types import Action
    from tests.support.golden import Golden

FORMATS = sorted(ACTION_FORMATS)
TAGS = ["think", "tool_call", "tool_response", "answer"]

# Text that a policy may write: anything, and above all pieces of the format in any order.
PIECES = st.sampled_from(
    [f"<{slash}{tag}>" for tag in TAGS for slash in ("", "/")]
    + ['{"name": "shell", "arguments": {"command": "rg x"}}', '{"name": "shell"', "answer:", "\n", " ", "{", "}", "x"]
)
TURNS = st.lists(PIECES | st.text(max_size=8), max_size=12).map("".join) | st.text()
UTF8 = st.text(st.characters(codec="utf-8"))
FILLED = UTF8.filter(str.strip)
THOUGHTS = UTF8.filter(lambda t: not re.search(f"</?({'|'.join(TAGS)})>", t))


def described(action: Action) -> dict[str, Any]:
    return {"action": type(action).__name__, **asdict(action)}


@pytest.mark.parametrize("name", FORMATS)
def test_parse_golden(golden: Golden, name: str) -> None:
    golden.check(f"actions/{name}.jsonl", lambda row: described(ACTION_FORMATS[name].parse(row["text"])))


def test_render_action_golden(golden: Golden) -> None:
    def compute(row: dict[str, Any]) -> str:
        write = ACTION_FORMATS[row["format"]].render_action
        try:
            return write(row["thought"], command=row.get("command"), answer=row.get("answer"))
        except ConfigError as error:
            return f"ConfigError: {error}"

    golden.check("actions/render_action.jsonl", compute)


def test_render_observation_golden(golden: Golden) -> None:
    golden.check(
        "actions/render_observation.jsonl", lambda row: ACTION_FORMATS[row["format"]].render_observation(row["text"])
    )


def test_format_valid_golden(golden: Golden) -> None:
    def compute(row: dict[str, Any]) -> bool:
        entry = ACTION_FORMATS[row["format"]]
        return entry.format_valid([entry.parse(turn) for turn in row["turns"]])

    golden.check("actions/format_valid.jsonl", compute)


def test_every_malformed_reason_is_reached_by_a_golden_case() -> None:
    reached = set()
    for name in FORMATS:
        lines = (ROOT / f"actions/{name}.jsonl").read_text(encoding="ascii").splitlines()
        reached |= {json.loads(line)["want"].get("reason") for line in lines}
    assert reached - {None} == set(MALFORMED)


def test_malformed_messages_are_short_and_hold_no_tag() -> None:
    # They are shown inside a tool_response block.
    for message in MALFORMED.values():
        assert len(message) <= 120
        assert ACTION_FORMATS["hermes"].inert(message) == message


@pytest.mark.parametrize("name", FORMATS)
@given(text=TURNS)
def test_no_text_raises_and_what_is_read_can_be_written_down(name: str, text: str) -> None:
    action = ACTION_FORMATS[name].parse(text)
    match action:
        case ToolCall(command=command):
            assert command.strip()
            command.encode()
        case FinalAnswer(answer=answer, well_formed=well_formed):
            assert answer == answer.strip()
            assert answer or not well_formed
            answer.encode()
        case MalformedAction(reason=reason, message=message):
            assert MALFORMED[reason] == message
    ACTION_FORMATS[name].thought(text).strip()


@given(thought=THOUGHTS, command=FILLED)
def test_hermes_call_round_trip(thought: str, command: str) -> None:
    entry = ACTION_FORMATS["hermes"]
    turn = entry.render_action(thought, command=command)
    assert entry.parse(turn) == ToolCall(command, well_formed=True)
    assert entry.thought(turn) == thought.strip()


@given(thought=THOUGHTS, answer=FILLED.filter(lambda t: "<" not in t))
def test_hermes_answer_round_trip(thought: str, answer: str) -> None:
    entry = ACTION_FORMATS["hermes"]
    turn = entry.render_action(thought, answer=answer)
    assert entry.parse(turn) == FinalAnswer(answer.strip(), well_formed=True)
    assert entry.format_valid([entry.parse(turn)])


@given(text=FILLED)
def test_plain_round_trip_or_refusal(text: str) -> None:
    entry = ACTION_FORMATS["plain"]
    if not text.strip().lower().startswith("answer:"):
        assert entry.parse(entry.render_action("", command=text)) == ToolCall(text.strip())
    if "\n" not in text.strip():
        assert entry.parse(entry.render_action("", answer=text)) == FinalAnswer(text.strip())


@given(thought=THOUGHTS, command=FILLED, tail=FILLED)
def test_anything_after_the_action_is_dropped_and_flagged(thought: str, command: str, tail: str) -> None:
    entry = ACTION_FORMATS["hermes"]
    assert entry.parse(entry.render_action(thought, command=command) + tail) == ToolCall(command, well_formed=False)


@given(st.lists(PIECES | st.text(max_size=8), max_size=12).map("".join))
def test_observation_holds_no_tag_of_the_format_but_its_own(output: str) -> None:
    entry = ACTION_FORMATS["hermes"]
    inner = entry.render_observation(output).removeprefix("<tool_response>\n").removesuffix("\n</tool_response>")
    assert not re.search(rf"<\s*/?\s*({'|'.join(TAGS)})\s*>", inner, re.IGNORECASE)
    assert entry.inert(inner) == inner
    assert isinstance(entry.parse(inner), MalformedAction)


@pytest.mark.parametrize("name", FORMATS)
def test_instructions_hold_no_answer_that_could_be_scored(name: str) -> None:
    text = ACTION_FORMATS[name].instructions
    assert not isinstance(ACTION_FORMATS[name].parse(text), FinalAnswer)
    # Graders that search prompt and completion alike must find nothing either.
    assert not [found for found in re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL) if found.strip()]
    assert not re.search(r"^answer:", text, re.IGNORECASE | re.MULTILINE)


@pytest.mark.parametrize("name", FORMATS)
def test_stop_strings_end_canonical_turns(name: str) -> None:
    entry = ACTION_FORMATS[name]
    turns = [entry.render_action("t", command="rg x"), entry.render_action("t", answer="x")]
    assert [next((s for s in entry.stop_strings if turn.endswith(s)), "") for turn in turns] == (
        list(entry.stop_strings) or ["", ""]
    )


@pytest.mark.parametrize("name", FORMATS)
def test_formats_travel_between_processes(name: str) -> None:
    entry = ACTION_FORMATS[name]
    assert entry.name == name
    assert pickle.loads(pickle.dumps(entry)) == entry
    assert copy.deepcopy(entry) == entry
    assert entry.render_question("Who?") == "Query: Who?"


def test_unknown_format_is_named_with_the_nearest() -> None:
    assert get_action_format("plain") is ACTION_FORMATS["plain"]
    with pytest.raises(ConfigError, match=r"action_format is 'herms'.*did you mean 'hermes'.*'plain'"):
        get_action_format("herms")


# A turn of a megabyte in every shape that makes a careless parser quadratic, or the JSON decoder recurse. The limit on
# time is the test run's own: a quadratic pass over a megabyte takes hours.
BIG = 1 << 20
HUGE = {
    "think opened": "<think>" * (BIG // 7),
    "think closed": "</think>" * (BIG // 8),
    "thinks": "<think></think>" * (BIG // 15),
    "calls": "<tool_call>" * (BIG // 11),
    "open angles": "<" * BIG,
    "space": "<think>t</think>" + " " * BIG + "<answer>x",
    "space after call": "<tool_call>" + " " * BIG,
    "nested lists": "<tool_call>" + "[" * BIG,
    "nested objects": '<tool_call>{"name":' * 2 + '{"a":' * (BIG // 5),
    "digits": "<tool_call>" + "9" * BIG,
    "quotes": '<tool_call>{"name": "' + '\\"' * (BIG // 2),
    "answers": "<answer>" * (BIG // 8) + "</answer>",
    "answer prefix": "answer:" * (BIG // 7),
    "NUL": "\0" * BIG,
}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("text", HUGE.values(), ids=HUGE)
def test_huge_turns(name: str, text: str) -> None:
    entry = ACTION_FORMATS[name]
    assert isinstance(entry.parse(text), (ToolCall, FinalAnswer, MalformedAction))
    assert len(entry.render_observation(text)) >= len(text)
    entry.thought(text)


def test_a_long_command_is_kept_whole() -> None:
    command = "rg -F '" + 'é\\"</tool_call>' * 50_000 + "' corpus.jsonl"
    entry = ACTION_FORMATS["hermes"]
    assert entry.parse(entry.render_action("t", command=command)) == ToolCall(command)
