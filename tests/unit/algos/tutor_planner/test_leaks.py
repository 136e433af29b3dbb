"""Planted leaks are caught, each by its own rule, and nothing clean is refused."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from algos.tutor_planner import Rule, check_trajectory
from algos.tutor_planner.patterns import command_shape, searches, spells
from grepseek_env.actions import get_action_format
from grepseek_env.trajectory import Trajectory, Turn
from tests.support.planted import plant
from tests.support.tutoring import demonstrations

if TYPE_CHECKING:
    from collections.abc import Callable

HERMES = get_action_format("hermes")


def turn(thought: str, command: str, observation: str, **more: object) -> Turn:
    text = HERMES.render_action(thought, command=command)
    return Turn(text, "tool_call", HERMES.render_observation(observation), command, exit_code=0, **more)  # type: ignore[arg-type]


def finish(thought: str, answer: str) -> Turn:
    return Turn(HERMES.render_action(thought, answer=answer), "final_answer")


BOOK = (
    '{"id": "1", "contents": "\\"The Last Ferry of Korm\\"\\nThe Last Ferry of Korm is a novel written by Ada Bell."}'
)
BELL = '{"id": "2", "contents": "\\"Ada Bell\\"\\nAda Bell was a pilot born on 2 June 1928 in Saint Orm\u00e9."}'
CLEAN = Trajectory(
    question_id="q",
    question="Where was the author of The Last Ferry of Korm born?",
    golden_answers=("Saint Orm\u00e9", "Saint Orme", "Gastosht"),
    action_format="hermes",
    system_prompt="",
    prompt="Query: Where was the author of The Last Ferry of Korm born?",
    turns=(
        turn(
            "First I need the author of The Last Ferry of Korm.", "rg -F 'Ferry of Korm' corpus.jsonl | head -n 3", BOOK
        ),
        turn(
            "Ada Bell wrote it. I look for the birthplace of Ada Bell.", "rg -F 'Ada Bell' corpus.jsonl | rg born", BELL
        ),
        finish("Ada Bell was born in Saint Orm\u00e9.", "Saint Orm\u00e9"),
    ),
    finish_reason="answer",
    answer="Saint Orm\u00e9",
    reward=1.1,
    reward_valid=True,
    metadata={
        "chain": [
            {"question": "Who wrote it?", "answer": "Ada Bell", "aliases": ["Mrs Mallo"], "alternates": []},
            {"question": "Where was she born?", "answer": "Saint Orm\u00e9", "aliases": ["Gastosht"], "alternates": []},
        ]
    },
)


def command(number: int, text: str) -> Callable[[Trajectory], Trajectory]:
    """Replaces a turn's command and keeps its reasoning."""

    def change(t: Trajectory) -> Trajectory:
        old = t.turns[number]
        new = replace(old, text=HERMES.render_action(HERMES.thought(old.text), command=text), command=text)
        return replace(t, turns=(*t.turns[:number], new, *t.turns[number + 1 :]))

    return change


def thought(number: int, text: str) -> Callable[[Trajectory], Trajectory]:
    """Replaces a turn's reasoning and keeps its action."""

    def change(t: Trajectory) -> Trajectory:
        old = t.turns[number]
        answer = {"answer": t.answer} if old.command is None else {"command": old.command}
        new = replace(old, text=HERMES.render_action(text, **answer))
        return replace(t, turns=(*t.turns[:number], new, *t.turns[number + 1 :]))

    return change


def answer(text: str) -> Callable[[Trajectory], Trajectory]:
    def change(t: Trajectory) -> Trajectory:
        return replace(t, answer=text, turns=(*t.turns[:-1], finish("Ada Bell was born there.", text)))

    return change


def without(number: int) -> Callable[[Trajectory], Trajectory]:
    return lambda t: replace(t, turns=t.turns[:number] + t.turns[number + 1 :])


def chained(name: str) -> Callable[[Trajectory], Trajectory]:
    """Adds an entity to the chain that no output names."""
    return lambda t: replace(t, metadata={"chain": [*t.metadata["chain"], {"question": "Who?", "answer": name}]})


def silent(number: int) -> Callable[[Trajectory], Trajectory]:
    def change(t: Trajectory) -> Trajectory:
        new = replace(t.turns[number], observation=HERMES.render_observation("[no output]"))
        return replace(t, turns=(*t.turns[:number], new, *t.turns[number + 1 :]))

    return change


PLANTED: dict[str, tuple[Rule, Callable[[Trajectory], Trajectory]]] = {
    "answer in a command": (Rule.ANSWER_IN_COMMAND, command(0, "rg -F 'Saint Orm\u00e9' corpus.jsonl | rg Korm")),
    "answer in other case": (Rule.ANSWER_IN_COMMAND, command(0, "rg -i 'ferry of korm.*SAINT ORM\u00c9' corpus.jsonl")),
    "answer without its accent": (Rule.ANSWER_IN_COMMAND, command(1, "rg 'Ada Bell' corpus.jsonl | rg 'Saint Orme'")),
    "answer joined by a hyphen": (Rule.ANSWER_IN_COMMAND, command(1, "rg 'Ada Bell' corpus.jsonl | rg saint-orme")),
    "answer as a JSON escape": (Rule.ANSWER_IN_COMMAND, command(1, r"rg -F 'Saint Orm\u00e9' corpus.jsonl")),
    "answer with wildcards": (Rule.DISGUISED_ANSWER, command(1, "rg 'Ada Bell.*born' corpus.jsonl | rg 'S.int Orm.'")),
    "answer after an escape": (Rule.ANSWER_IN_COMMAND, command(1, r"rg 'Bell' corpus.jsonl | rg '\sgastosht'")),
    "answer in hexadecimal": (Rule.ANSWER_IN_COMMAND, command(1, r"rg 'Bell' corpus.jsonl | rg 'Saint Orm\x{e9}'")),
    "answer in a character class": (Rule.ANSWER_IN_COMMAND, command(1, "rg 'Bell' corpus.jsonl | rg '[Gg]astosht'")),
    "a name of gaps": (Rule.UNSEEN_IN_COMMAND, command(1, "rg 'Bell' corpus.jsonl | rg 'Z.l.m.k'")),
    "alias in a command": (Rule.ANSWER_IN_COMMAND, command(0, "rg 'Ferry of Korm|Gastosht' corpus.jsonl")),
    "half of the answer": (Rule.UNSEEN_IN_COMMAND, command(1, "rg 'Ada Bell' corpus.jsonl | rg -i orme")),
    "bridge named early": (Rule.BRIDGE_IN_COMMAND, command(0, "rg 'Ferry of Korm' corpus.jsonl | rg 'Ada Bell'")),
    "alias of the bridge named early": (Rule.BRIDGE_IN_COMMAND, command(0, "rg 'Korm.*Mrs Mallo' corpus.jsonl")),
    "answer in reasoning": (
        Rule.ANSWER_IN_REASONING,
        thought(0, "Korm is by someone from Saint Orm\u00e9. I search Korm."),
    ),
    "alias in reasoning": (Rule.ANSWER_IN_REASONING, thought(1, "Ada Bell was born in gastosht, I think.")),
    "bridge in reasoning": (Rule.BRIDGE_IN_REASONING, thought(0, "Korm is by Ada Bell, I recall. I look for Korm.")),
    "a year that nothing told": (Rule.UNSEEN_IN_REASONING, thought(0, "The Last Ferry of Korm came out in 1951.")),
    "a name that nothing told": (Rule.UNSEEN_IN_REASONING, thought(1, "Ada Bell grew up near Zelmuk.")),
    "answer that no output says": (Rule.UNSUPPORTED, silent(1)),
    "bridge never observed": (Rule.UNSUPPORTED, chained("Zelmuk Hos")),
    "a turn taken out": (Rule.BRIDGE_IN_COMMAND, without(0)),
    "another answer than the reasoning": (Rule.CONTRADICTION, thought(2, "So the answer is Korm.")),
    "reasoning about something else": (Rule.CONTRADICTION, thought(1, "I look for the novel again.")),
    "claims an answer and searches": (Rule.CONTRADICTION, thought(1, "I can answer: Ada Bell was born in a city.")),
    "wrong answer": (Rule.WRONG, answer("Korm")),
}


def test_the_clean_one_is_clean() -> None:
    assert check_trajectory(CLEAN) == ()


@pytest.mark.parametrize("name", PLANTED)
def test_planted_leaks_are_caught(name: str) -> None:
    rule, plant = PLANTED[name]
    assert rule in {finding.rule for finding in check_trajectory(plant(CLEAN))}


def test_without_a_chain_an_early_bridge_is_still_a_word_that_nobody_read() -> None:
    planted = replace(PLANTED["bridge named early"][1](CLEAN), metadata={})
    assert Rule.UNSEEN_IN_COMMAND in {finding.rule for finding in check_trajectory(planted)}


@pytest.mark.parametrize(
    "change",
    [
        command(1, "rg -F 'ada bell' corpus.jsonl | rg born"),
        command(1, "rg -w 'Bell' corpus.jsonl | wc -l"),
        command(1, "awk '/Ada Bell/ && /born/ {print $0}' corpus.jsonl | head -n 3"),
        command(1, "rg 'Ada B.ll' corpus.jsonl | head -n 3"),
        command(1, "rg -F 'A. B. Bell' corpus.jsonl | head -n 3"),
        command(1, "rg '[A-Z][a-z]+ Bell was.*[0-9]{4}' corpus.jsonl"),
        thought(1, "Bell's birthplace is missing. I count lines with Ada Bell first, at most 8."),
        thought(2, "The answer is Saint Orm\u00e9: born on 2 June 1928."),
        answer("saint orme"),
    ],
)
def test_what_a_careful_searcher_may_do_is_clean(change: Callable[[Trajectory], Trajectory]) -> None:
    assert check_trajectory(change(CLEAN)) == ()


def test_generic_answers_need_no_literal_support_but_an_output() -> None:
    yes = replace(CLEAN, golden_answers=("yes",), answer="yes", turns=(*CLEAN.turns[:-1], finish("It does.", "yes")))
    assert check_trajectory(replace(yes, metadata={})) == ()
    empty = silent(0)(silent(1)(replace(yes, metadata={})))
    assert Rule.UNSUPPORTED in {finding.rule for finding in check_trajectory(empty)}


def test_a_name_of_the_question_is_known_even_if_it_is_the_answer() -> None:
    compared = replace(CLEAN, question="Who was born first, Ada Bell or Ida Korm?", golden_answers=("Ada Bell",))
    compared = replace(
        compared, answer="Ada Bell", metadata={}, turns=(CLEAN.turns[1], finish("Ada Bell.", "Ada Bell"))
    )
    found = check_trajectory(replace(compared, turns=(replace(CLEAN.turns[1]), compared.turns[-1])))
    assert {finding.rule for finding in found} <= {Rule.UNSEEN_IN_REASONING}
    assert not [f for f in found if "answer" in f.rule.value]


def test_a_refused_command_teaches_nothing() -> None:
    refused = turn(
        "I look for Korm.", "rg Zelmuk corpus.jsonl > x", "refused: rg Zelmuk corpus.jsonl > x", refused="redirect"
    )
    changed = replace(CLEAN, turns=(refused, *CLEAN.turns))
    rules = {(finding.rule, finding.turn) for finding in check_trajectory(changed)}
    assert {(Rule.FAILED_COMMAND, 0), (Rule.UNSEEN_IN_COMMAND, 0)} <= rules
    echoed = thought(1, "Korm and Zelmuk.")(changed)
    assert (Rule.UNSEEN_IN_REASONING, 1) in {(finding.rule, finding.turn) for finding in check_trajectory(echoed)}


def test_unfinished_and_malformed_ones_are_told() -> None:
    assert check_trajectory(replace(CLEAN, answer=None, finish_reason="turn_limit"))[0].rule is Rule.UNFINISHED
    broken = replace(CLEAN, turns=(Turn("hello", "malformed", "x"), *CLEAN.turns))
    assert {Rule.MALFORMED} <= {finding.rule for finding in check_trajectory(broken)}


@pytest.mark.parametrize(
    ("corpus", "count"), [("world:tiny", 25), pytest.param("world:small", 2_000, marks=pytest.mark.slow)]
)
def test_leaks_planted_into_generated_demonstrations_are_all_caught(corpus: str, count: int) -> None:
    kinds: Counter[str] = Counter()
    for record in demonstrations(count, corpus):
        assert record.trajectory, record
        assert check_trajectory(record.trajectory) == ()
        for kind, rules, planted in plant(record.trajectory):
            kinds[kind] += 1
            found = {finding.rule for finding in check_trajectory(planted)}
            assert found & rules, (kind, record.question_id, planted.turns[0].text)
    assert len(kinds) >= 10
    assert min(kinds.values()) >= count // 3


def test_searches_are_found_in_every_program() -> None:
    text = "rg -i -e 'A b' -eC corpus.jsonl | grep -F 'D.e' | awk '/f/' | sed -n '/g/p' | tr a b | head -n 3"
    assert [search.text for search in searches(text)] == ["A b", "C", "D.e", "/f/", "/g/p"]
    assert searches("rm -rf corpus.jsonl")[0].text == "rm -rf corpus.jsonl"


def test_general_patterns_spell_nothing() -> None:
    [pattern] = searches("rg '[A-Z][a-z]+ [A-Z].*' corpus.jsonl")
    assert not spells(pattern, "Saint Orm\u00e9")
    [year] = searches(r"rg '\d{4}' corpus.jsonl")
    assert not spells(year, "1815")


def test_shape_of_a_command() -> None:
    assert command_shape("rg -i -F 'x' corpus.jsonl | head -n 3") == "rg -F -i | head -n"
    assert command_shape("ls > x") == "refused"
