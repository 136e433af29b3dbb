"""Faults of `grepseek tutor check` on odd trajectory files, each named in its test."""

from __future__ import annotations

import copy
import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from algos.tutor_planner import Rule, check_trajectory
from algos.tutor_planner.__main__ import main
from algos.tutor_planner.check import check_file
from grepseek_env.actions import get_action_format
from grepseek_env.errors import TrajectoryError
from grepseek_env.trajectory import Trajectory, Turn
from grepseek_env.types import EvidenceStep, Question

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HERMES = get_action_format("hermes")
BORN = '{"id": "2", "contents": "\\"Ada Bell\\"\\nAda Bell was a pilot born in Saint Orme."}'
SEARCH = "rg -F 'Ada Bell' corpus.jsonl"
CLEAN = Trajectory(
    question_id="q",
    question="Where was Ada Bell born?",
    golden_answers=("Saint Orme",),
    action_format="hermes",
    system_prompt="",
    prompt="Query: Where was Ada Bell born?",
    turns=(
        Turn(
            HERMES.render_action("I look for Ada Bell.", command=SEARCH),
            "tool_call",
            HERMES.render_observation(BORN),
            SEARCH,
            exit_code=0,
        ),
        Turn(HERMES.render_action("Ada Bell was born in Saint Orme.", answer="Saint Orme"), "final_answer"),
    ),
    finish_reason="answer",
    answer="Saint Orme",
    reward=1.1,
    reward_valid=True,
    metadata={"chain": [{"question": "Where?", "answer": "Saint Orme", "aliases": ["Gastosht"], "alternates": []}]},
)


def search(command: str) -> Trajectory:
    """Returns the clean one with another command in its first turn."""
    text = HERMES.render_action("I look for Ada Bell.", command=command)
    return replace(CLEAN, turns=(replace(CLEAN.turns[0], text=text, command=command), CLEAN.turns[1]))


def written(path: Path, record: object) -> Path:
    path.write_text(json.dumps(json.loads(CLEAN.to_json())) + "\n" + json.dumps(record) + "\n", encoding="utf-8")
    return path


def changed(at: tuple[str | int, ...], value: object) -> dict[str, Any]:
    """Returns the clean one as JSON with one value replaced."""
    made = json.loads(CLEAN.to_json())
    holder = made
    for key in at[:-1]:
        holder = holder[key]
    holder[at[-1]] = copy.deepcopy(value)
    return made  # type: ignore[no-any-return]


@pytest.mark.parametrize("chain", [CLEAN.metadata["chain"], []], ids=["chain", "nothing"])
def test_without_golden_answers_the_chain_alone_is_guarded(chain: list[Any]) -> None:
    bare = replace(CLEAN, golden_answers=(), metadata={"chain": chain})
    assert check_trajectory(bare) == ()
    planted = replace(search("rg 'Ada Bell.*Gastosht' corpus.jsonl"), golden_answers=(), metadata={"chain": chain})
    assert {f.rule for f in check_trajectory(planted)} == (
        {Rule.BRIDGE_IN_COMMAND, Rule.UNSEEN_IN_COMMAND} if chain else {Rule.UNSEEN_IN_COMMAND}
    )
    other = replace(bare, answer="Zelmuk")
    assert Rule.WRONG not in {f.rule for f in check_trajectory(other)}
    assert Rule.UNSUPPORTED in {f.rule for f in check_trajectory(other)}


STEP = CLEAN.metadata["chain"][0]


@pytest.mark.parametrize(
    ("chain", "field"),
    [
        ("Ada", "metadata.chain is 'Ada'; it must be a list of steps"),
        ("", "metadata.chain is ''"),
        (5, "metadata.chain is 5"),
        (0, "metadata.chain is 0"),
        (False, "metadata.chain is False"),
        ({"answer": "Ada"}, "metadata.chain is {'answer': 'Ada'}"),
        ([1], "metadata.chain[0] is 1; it must be an object"),
        ([STEP, None], "metadata.chain[1] is None"),
        ([["Ada"]], "metadata.chain[0] is ['Ada']"),
        (["Ada"], "metadata.chain[0] is 'Ada'"),
        ([{**STEP, "answer": 1951}], "metadata.chain[0].answer is 1951; it must be text"),
        ([{**STEP, "answer": ["Ada"]}], "metadata.chain[0].answer is ['Ada']"),
        ([{**STEP, "aliases": 5}], "metadata.chain[0].aliases is 5; it must be a list of texts"),
        ([{**STEP, "aliases": "Gastosht"}], "metadata.chain[0].aliases is 'Gastosht'"),
        ([{**STEP, "aliases": {"Gastosht": 1}}], "metadata.chain[0].aliases is {'Gastosht': 1}"),
        ([STEP, {**STEP, "alternates": [None]}], "metadata.chain[1].alternates is [None]"),
        ([{**STEP, "alternates": True}], "metadata.chain[0].alternates is True"),
    ],
)
def test_a_chain_that_is_none_is_told_with_file_line_and_field(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], chain: object, field: str
) -> None:
    path = written(tmp_path / "odd.jsonl", changed(("metadata", "chain"), chain))
    with pytest.raises(TrajectoryError) as told:
        check_file(path)
    assert str(told.value).startswith(f"{path}, line 2: {field}")
    assert main(["check", str(path), "--quiet"]) == 1
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    # The question's evidence does not stand in for a chain that cannot be read.
    known = {
        "q": Question(
            "q", CLEAN.question, CLEAN.golden_answers, (EvidenceStep("Where?", "Saint Orme", "2", "Ada Bell"),)
        )
    }
    with pytest.raises(TrajectoryError):
        check_file(path, questions=known)


@pytest.mark.parametrize("step", [{}, {"answer": None}, {"answer": None, "aliases": None}, {"answer": ""}])
def test_an_answer_that_a_chain_does_not_know_is_no_form(step: dict[str, Any]) -> None:
    said = search("rg 'Ada Bell' corpus.jsonl | rg None")
    for t in (CLEAN, replace(said, question="Where was Ada Bell of None born?")):
        assert check_trajectory(replace(t, metadata={"chain": [step, STEP]})) == ()
    assert check_trajectory(replace(CLEAN, metadata={"chain": None})) == ()


def test_an_unknown_action_format_is_told_with_file_and_line(tmp_path: Path) -> None:
    path = written(tmp_path / "odd.jsonl", changed(("action_format",), "hermess"))
    with pytest.raises(TrajectoryError, match=r"odd\.jsonl, line 2: action_format is 'hermess' \(did you mean"):
        check_file(path)


@pytest.mark.parametrize(
    ("at", "value", "told"),
    [
        (("turns",), "x", "turns is 'x'"),
        (("turns",), {"a": 1}, "turns is {'a': 1}"),
        (("turns", 0), "x", "a turn is 'x'"),
        (("turns", 1), ["text"], "a turn is ['text']"),
        (("golden_answers",), "Ada", "golden_answers is 'Ada'"),
        (("golden_answers",), "", "golden_answers is ''"),
        (("golden_answers",), {"Ada": 1}, "golden_answers is {'Ada': 1}"),
    ],
)
def test_what_is_no_list_is_not_read_as_one(
    tmp_path: Path, at: tuple[str | int, ...], value: object, told: str
) -> None:
    path = written(tmp_path / "odd.jsonl", changed(at, value))
    with pytest.raises(TrajectoryError) as error:
        check_file(path)
    assert str(error.value).startswith(f"{path}, line 2: fields do not fit schema")
    assert str(error.value).endswith(told)


HALF = "Saint \ud800"  # half of a surrogate pair: JSON can escape it, and no terminal takes it
ODD = (
    *(None, True, 0, -1, 1.5, float("inf"), "", " ", HALF, "\0", "(" * 500, "[a" * 99),
    *([], [1], [None], [[]], [""], [HALF], {}, {"a": 1}),
)


def places(value: object, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if at:
        yield at
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*at, key))


@pytest.mark.parametrize("at", list(places(json.loads(CLEAN.to_json()))), ids=lambda at: ".".join(map(str, at)))
def test_an_odd_value_anywhere_is_judged_or_told_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, at: tuple[str | int, ...]
) -> None:
    for value in ODD:
        path = written(tmp_path / "odd.jsonl", changed(at, value))
        with (tmp_path / "said").open("w", encoding="utf-8") as out, monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", out)
            assert main(["check", str(path), "--quiet"]) in {0, 1}
        error = capsys.readouterr().err
        said = (tmp_path / "said").read_text(encoding="utf-8")
        assert "of 2 trajectories are clean" in said or (error.count("\n") == 1 and "odd.jsonl, line 2: " in error)
