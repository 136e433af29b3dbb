"""The world implementation: what it makes is true, varied and repeatable."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from algos.tutor_planner import Settings, WorldStyle, check_trajectory, make_record, world_roles
from algos.tutor_planner.check import replay_difference
from algos.tutor_planner.keyword import keyword_roles
from algos.tutor_planner.patterns import command_shape
from algos.tutor_planner.shapes import quoted
from grepseek_env.commands import parse
from grepseek_env.env import make_rules
from grepseek_env.errors import ConfigError
from grepseek_env.tasks import load_question_set
from grepseek_env.trajectory import Trajectory
from grepseek_env.types import Question
from tests.support.tutoring import demonstrations, ground

BRIEF = WorldStyle(quality="plain", prose="brief", heads=(1,))
STUDY = "world:study?passages=1500"
ACCENTS = "world:tiny?accents=0.3&aliases=0.3"


def test_demonstrations_are_right_varied_and_repeat_byte_for_byte() -> None:
    records = demonstrations(60)
    kept = [record.trajectory for record in records if record.trajectory]
    assert len(kept) == 60
    base = ground()
    for trajectory in kept[:30]:
        assert trajectory.breakdown["f1"] == 1.0
        assert replay_difference(trajectory, base.rules, base.backend) is None
    shapes = Counter(command_shape(turn.command) for t in kept for turn in t.turns if turn.command)
    assert len(shapes) >= 8
    assert any("[no output]" in turn.observation for t in kept for turn in t.turns)
    thoughts = [turn.text.partition("</think>")[0] for t in kept for turn in t.turns]
    assert len(set(thoughts)) > 0.9 * len(thoughts)


def test_a_planner_that_has_read_everything_is_led_to_look_once_more() -> None:
    early = [record for record in demonstrations(60) if record.early_answers]
    assert early
    for record in early:
        assert record.trajectory
        searching = [turn.text for turn in record.trajectory.turns[:-1]]
        assert any("first. " in text or "as well. " in text for text in searching)
        assert not any("answers the question" in text or "what was asked" in text for text in searching)


def test_the_same_seed_gives_the_same_and_another_one_another() -> None:
    asked = load_question_set("world:tiny")[:8]
    first, second, third = (
        [make_record(q, world_roles(), ground(), seed=seed).as_json() for q in asked] for seed in (0, 0, 1)
    )
    assert first == second
    assert first != third


def test_plain_demonstrations_are_one_try_each() -> None:
    records = demonstrations(80, STUDY, BRIEF)
    kept = [record.trajectory for record in records if record.trajectory]
    assert 10 < len(kept) < 70
    assert {record.reason for record in records if not record.kept} == {"refinement-exhausted"}
    assert all(len(step) == 1 for record in records for step in record.attempts)
    assert max(len(turn.text) for t in kept for turn in t.turns) < 240
    named = sum(
        "' corpus" in (turn.command or "") and " was " not in (turn.command or "") for t in kept for turn in t.turns
    )
    assert named > len(kept) / 2


@pytest.mark.slow
def test_names_with_accents_and_aliases_are_searched_as_they_were_read() -> None:
    records = demonstrations(80, ACCENTS)
    kept = [record.trajectory for record in records if record.trajectory]
    assert len(kept) > 70
    assert all(check_trajectory(trajectory) == () for trajectory in kept)


def test_the_plain_format_has_no_reasoning_to_judge() -> None:
    base = replace(ground(), rules=make_rules(action_format="plain"))
    for question in load_question_set("world:tiny")[:20]:
        record = make_record(question, world_roles(), base, seed=0)
        assert record.trajectory, record.detail
        assert record.trajectory.turns[0].text == record.trajectory.turns[0].command
        assert Trajectory.from_json(record.trajectory.to_json()) == record.trajectory


def test_a_question_without_evidence_is_unsuitable() -> None:
    record = make_record(Question("q", "Why?", ("because",)), world_roles(), ground(), seed=0)
    assert (record.reason, record.stage) == ("unsuitable", "decompose")


def test_the_keyword_implementation_keeps_to_the_rules_too() -> None:
    base = replace(ground(), settings=Settings(refinements=6))
    asked = [q for q in load_question_set("world:tiny")[:120] if len(q.evidence) == 1]
    records = [make_record(question, keyword_roles(), base, seed=0) for question in asked]
    kept = [record.trajectory for record in records if record.trajectory]
    assert len(kept) >= 5
    assert all(check_trajectory(trajectory) == () for trajectory in kept)
    assert {record.reason for record in records} <= {None, "refinement-exhausted", "wrong-answer"}


@pytest.mark.parametrize("name", ["Ada Bell", "O'Hekud", "Stornem & Sons", 'A "b" c', "it's $x", "café"])
def test_names_are_quoted_so_that_a_program_gets_them_as_they_are(name: str) -> None:
    assert parse(f"rg -F {quoted(name)} corpus.jsonl").argv[0][2] == name


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"quality": "fine"}, "quality is 'fine'"),
        ({"prose": "long"}, "prose is 'long'"),
        ({"shapes": ("singel",)}, "did you mean 'single'"),
        ({"heads": ()}, "heads is ()"),
        ({"heads": (0,)}, "heads is (0,)"),
    ],
)
def test_styles_that_cannot_work_are_told(options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError) as told:
        WorldStyle(**options)  # type: ignore[arg-type]
    assert words in str(told.value)


@pytest.mark.slow
def test_two_thousand_of_a_small_world() -> None:
    records = demonstrations(2_000, "world:small")
    base = ground("world:small", refinements=6)
    shapes: Counter[str] = Counter()
    for record in records:
        assert record.trajectory, record
        assert record.trajectory.breakdown["f1"] == 1.0
        assert check_trajectory(record.trajectory) == ()
        assert replay_difference(record.trajectory, base.rules, base.backend) is None
        shapes.update(command_shape(turn.command) for turn in record.trajectory.turns if turn.command)
    assert len(shapes) >= 8
