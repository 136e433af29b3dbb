"""Leaks planted into any trajectory that has a chain, each with the rules one of which has to catch it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from algos.tutor_planner import Rule
from algos.tutor_planner.forms import is_generic
from algos.tutor_planner.leaks import Known
from algos.tutor_planner.records import chain_from_metadata
from grepseek_env.actions import get_action_format
from tests.support.escapes import json_escaped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from grepseek_env.trajectory import Trajectory

HERMES = get_action_format("hermes")
_ACCENTS = str.maketrans("aeiouAEIOU", "áéíóúÁÉÍÓÚ")
_IN_COMMAND = {Rule.ANSWER_IN_COMMAND}


def with_command(t: Trajectory, number: int, command: str) -> Trajectory:
    """Replaces a turn's command and keeps its reasoning."""
    old = t.turns[number]
    new = replace(old, text=HERMES.render_action(HERMES.thought(old.text), command=command), command=command)
    return replace(t, turns=(*t.turns[:number], new, *t.turns[number + 1 :]))


def with_thought(t: Trajectory, number: int, thought: str) -> Trajectory:
    """Replaces a turn's reasoning and keeps its action."""
    old = t.turns[number]
    action = {"answer": t.answer} if old.command is None else {"command": old.command}
    new = replace(old, text=HERMES.render_action(thought, **action))
    return replace(t, turns=(*t.turns[:number], new, *t.turns[number + 1 :]))


def _narrowed(t: Trajectory, pattern: str) -> Trajectory:
    return with_command(t, 0, f'{t.turns[0].command} | rg -i "{pattern}"')


def _thinking(t: Trajectory, sentence: str) -> Trajectory:
    return with_thought(t, 0, f"{HERMES.thought(t.turns[0].text)} {sentence}")


def plant(t: Trajectory) -> Iterator[tuple[str, set[Rule], Trajectory]]:
    """Yields name, rules and trajectory of every kind of leak that this trajectory can have."""
    chain = chain_from_metadata(t.metadata)
    asked = Known()
    asked.add(t.question)
    last = len(t.turns) - 1
    golden = t.golden_answers[0]
    if not is_generic(golden) and not asked.says(chain[-1]) and golden not in t.question:
        joined = re.sub(r"[\s,]+", "-", golden)
        yield "answer in a command", _IN_COMMAND, _narrowed(t, golden)
        yield "answer in other case", _IN_COMMAND, _narrowed(t, golden.upper())
        yield "answer with accents", _IN_COMMAND, _narrowed(t, golden.translate(_ACCENTS))
        yield "answer joined by hyphens", _IN_COMMAND, _narrowed(t, joined)
        escaped = json_escaped(golden.translate(_ACCENTS)).replace("\\", "\\\\")
        yield "answer as JSON escapes", _IN_COMMAND, _narrowed(t, escaped)
        dotted = re.sub("[aeiou]", ".", golden)
        yield (
            "answer with wildcards",
            {Rule.DISGUISED_ANSWER, Rule.UNSEEN_IN_COMMAND, *_IN_COMMAND},
            _narrowed(t, dotted),
        )
        yield "answer in reasoning", {Rule.ANSWER_IN_REASONING}, _thinking(t, f"It may well be {golden}.")
    for number, forms in enumerate(chain):
        if asked.says(forms) or not forms.concrete:
            continue
        rules = {Rule.BRIDGE_IN_COMMAND, Rule.ANSWER_IN_COMMAND}
        yield "bridge named early", rules, _narrowed(t, forms.answer.lower())
        thinking = {Rule.BRIDGE_IN_REASONING, Rule.ANSWER_IN_REASONING}
        yield "bridge in reasoning", thinking, _thinking(t, f"I recall {forms.answer.upper()}.")
        links = [dict(link) for link in t.metadata["chain"]]
        links[number]["aliases"] = [*links[number]["aliases"], "Zelmuk Hos"]
        aliased = replace(t, metadata={**t.metadata, "chain": links})
        yield "alias in a command", rules, _narrowed(aliased, "zelmuk hos")
    yield "a name that nothing told", {Rule.UNSEEN_IN_COMMAND}, _narrowed(t, "Zelmuk")
    yield "a year that nothing told", {Rule.UNSEEN_IN_REASONING}, _thinking(t, "That was in 2931.")
    silenced = tuple(
        replace(x, observation=x.observation and HERMES.render_observation("[no output]")) for x in t.turns
    )
    yield "an answer that no output supports", {Rule.UNSUPPORTED}, replace(t, turns=silenced)
    yield "reasoning about something else", {Rule.CONTRADICTION}, with_thought(t, 0, "I look at the weather first.")
    claim = _thinking(t, "I can answer now.")
    yield "claims an answer and searches", {Rule.CONTRADICTION}, claim
    other = with_thought(t, last, "So the answer is weather.")
    yield "another answer than the reasoning", {Rule.CONTRADICTION}, other
    yield "a wrong answer", {Rule.WRONG}, replace(t, answer="weather")
