"""Reasoning in words: what the template Planner drafts and what the oracle Tutor makes of it.

All words besides names, values and search strings are common ones, which the leak checks know.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from algos.tutor_planner.records import Move

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

__all__ = ["Prose", "checking", "final", "needed", "opening", "search_sentence", "stalled"]

Prose = Literal["full", "brief"]

# What a relation tells, as a noun phrase.
_NEEDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "capital": ("the capital of {s}",),
        "currency": ("the currency of {s}",),
        "independence": ("the date of independence of {s}",),
        "inhabitants": ("the population of {s}",),
        "country": ("the country of {s}", "the country in which {s} lies"),
        "river": ("the river of {s}", "the river on which {s} lies"),
        "settled": ("the year in which {s} was founded",),
        "residents": ("the population of {s}",),
        "birthplace": ("the birthplace of {s}", "the city where {s} was born"),
        "employer": ("the employer of {s}", "the company that employed {s}"),
        "school": ("the school of {s}", "the school that {s} attended"),
        "spouse": ("the spouse of {s}",),
        "birth": ("the date of birth of {s}",),
        "occupation": ("the occupation of {s}",),
        "founder": ("the founder of {s}", "the person who founded {s}"),
        "headquarters": ("the seat of {s}", "the city where {s} is based"),
        "founded": ("the founding date of {s}",),
        "employees": ("the number of employees of {s}",),
        "industry": ("the industry of {s}",),
        "creator": ("the person who made {s}", "the name of the person behind {s}"),
        "publisher": ("the company behind {s}", "the company that brought out {s}"),
        "release": ("the release date of {s}",),
        "length": ("the length of {s}",),
        "genre": ("the genre of {s}",),
        "campus": ("the city of {s}", "the city where {s} is located"),
        "opened": ("the founding year of {s}",),
        "students": ("the number of students of {s}",),
    }
)

_ONLY = (
    "The question asks for {need}.",
    "All that is needed is {need}.",
    "One fact answers this: {need}.",
)
_FIRST = (
    "To answer this I first need {need}.",
    "The question starts from {entity}, so the first thing to find is {need}.",
    "This takes several steps. The first is {need}.",
    "Before anything else I have to know {need}.",
)
_NEXT = (
    "The output says that {known} is {value}. Next I need {need}.",
    "So {known} is {value}. What is missing now is {need}.",
    "A passage gives {value} as {known}. The next thing to find is {need}.",
    "Now I know {known}: {value}. That leads to {need}.",
)
_COUNTED = (
    "The count is {count}, so the string is known and a cap will do. I still need {need}.",
    "That gives {count}, which tells how far to narrow. I am still looking for {need}.",
)
_MISSED = (
    "Nothing came back, so the passage is worded otherwise. I still need {need}.",
    "No line matches that. I should broaden the search for {need}.",
)

_SINGLE = (
    "I search for lines that contain {s}.",
    "A search for {s} should find the passage, and a few lines are enough.",
    "I will look up {s} directly and cap the output.",
)
_NARROWED = (
    "I search for {s} and keep lines that mention {w}.",
    "Lines about {s} can be narrowed with {w}.",
    "I look for {s} together with {w}, so that other passages drop out.",
)
_LOOSE = (
    "I search for {s} in any case.",
    "Ignoring case, {s} should be found in the passage about it.",
)
_CHECKS = (
    "The outputs may settle it already, but I want to be sure about {s} first.",
    "Before I answer I look at {s} itself as well.",
)
_BY_MOVE = {
    Move.COUNT: (
        "I count the lines with {s} first.",
        "First I check how many lines mention {s}.",
    ),
}
_ANSWERED = (
    "The output says that {known} is {value}, which answers the question.",
    "A passage gives {value} as {known}. That is what was asked.",
    "So {known} is {value}, and nothing else is needed.",
)
_COMPARED = (
    "The outputs say that {known} is {value}, and {known2} is {value2}. Comparing both gives {answer}.",
    "So {known} is {value} and {known2} is {value2}. From this the answer is {answer}.",
)


def needed(relation: str, entity: str, draw: random.Random) -> str:
    """Returns a noun phrase for what a relation tells about an entity."""
    return draw.choice(_NEEDS[relation]).format(s=entity)


def opening(
    need: str, entity: str, draw: random.Random, *, prose: Prose, hops: int, known: str = "", value: str = ""
) -> str:
    """Returns the beginning of a turn that looks for something new."""
    if prose == "brief":
        return f"Find {need}."
    table = _NEXT if value else _FIRST if hops > 1 else _ONLY
    return draw.choice(table).format(need=need, entity=entity, known=known, value=value)


def stalled(need: str, draw: random.Random, *, prose: Prose, count: str = "") -> str:
    """Returns the beginning of a turn after a count or an empty output."""
    if prose == "brief":
        return f"Find {need}."
    return draw.choice(_COUNTED if count else _MISSED).format(need=need, count=count)


def search_sentence(
    move: Move, subject: str, words: str, draw: random.Random, *, prose: Prose, loose: bool = False
) -> str:
    """Returns the sentence that leads to a command; empty in brief prose.

    Args:
        move: what the command is for.
        subject: the entity, as the command writes it.
        words: by which the command narrows; empty where it does not.
        draw: the source of choices.
        prose: how wordy.
        loose: the entity is searched in any case.
    """
    if prose == "brief":
        return ""
    table = _BY_MOVE.get(move) or (_NARROWED if words else _LOOSE if loose else _SINGLE)
    return draw.choice(table).format(s=subject, w=words)


def checking(subject: str, draw: random.Random, *, prose: Prose) -> str:
    """Returns the beginning of a turn that looks once more, where the outputs already say everything."""
    if prose == "brief":
        return f"Check {subject}."
    return draw.choice(_CHECKS).format(s=subject)


def final(facts: list[tuple[str, str]], answer: str, draw: random.Random, *, prose: Prose) -> str:
    """Returns the reasoning of the last turn.

    Args:
        facts: what was needed and its value: the last one, or both of a comparison.
        answer: the answer.
        draw: the source of choices.
        prose: how wordy.
    """
    if prose == "brief":
        return "Found."
    if len(facts) == 1:
        [(known, value)] = facts
        return draw.choice(_ANSWERED).format(known=known, value=value)
    (known, value), (known2, value2) = facts
    return draw.choice(_COMPARED).format(known=known, value=value, known2=known2, value2=value2, answer=answer)
