"""What a command searches for, in words, whatever program it uses and however the pattern is spelled."""

from __future__ import annotations

import re
from dataclasses import dataclass

from algos.tutor_planner.forms import words
from grepseek_env.commands import OperandKind, ValueKind, parse
from grepseek_env.errors import CommandRefused

__all__ = ["Search", "command_shape", "searches", "spells"]

_SEARCHED = {OperandKind.PATTERN, OperandKind.SCRIPT, OperandKind.EXPRESSION}
_VALUES = {ValueKind.PATTERN, ValueKind.SCRIPT}
_QUANTIFIER = re.compile(r"\{\d*,?\d*\}")
_TWO_CASES = re.compile(r"\[([^\W\d_])([^\W\d_])\]")
_CLASS = re.compile(r"\[\^?\]?[^\]]*\]")
_CLASS_ESCAPE = re.compile(r"\\[AbBdDsSwWzZ<>]")
# Patterns that a backtracking matcher may need ages for: a repeated group, or many repetitions side by side.
_REPEATED_GROUP = re.compile(r"\)[*+{]")
_REPETITION = re.compile(r"[*+{]")
_MOST_REPETITIONS = 4
_MOST_OPTIONAL = 10
_ENOUGH_SPELLED = 0.4
_ENOUGH_MATCHED = 0.8


@dataclass(frozen=True, slots=True)
class Search:
    """One pattern or script of a command.

    Attributes:
        text: as its program receives it.
        literal: the part that stands for itself; what matches anything has become a space.
    """

    text: str
    literal: str

    @property
    def terms(self) -> tuple[str, ...]:
        """The words of it, folded."""
        return tuple(words(self.literal))


def _literal(pattern: str) -> str:
    pattern = _QUANTIFIER.sub(" ", pattern)
    pattern = _TWO_CASES.sub(lambda m: m[1] if m[1].lower() == m[2].lower() else " ", pattern)
    return re.sub(r"[.*+?^$|()]", " ", _CLASS_ESCAPE.sub(" ", _CLASS.sub(" ", pattern)))


def searches(command: str) -> tuple[Search, ...]:
    """Returns what a command searches for; a refused command counts as one search for its whole text."""
    try:
        pipeline = parse(command)
    except CommandRefused:
        return (Search(command, command),)
    found = []
    for stage in pipeline.stages:
        texts = [o.value for o in stage.options if o.value is not None and o.spec.kind in _VALUES]
        texts += [o.value for o in stage.operands if o.kind in _SEARCHED]
        fixed = bool(stage.given("-F", "--fixed-strings"))
        found += [Search(text, text if fixed else _literal(text)) for text in texts]
    return tuple(found)


def spells(search: Search, form: str) -> bool:
    """Tells whether a pattern spells a form with wildcards in place of some letters, such as ``Th.k.t M.lls``."""
    literal = "".join(search.terms)
    wanted = "".join(words(form))
    if not wanted or len(literal) < _ENOUGH_SPELLED * len(wanted):
        return False
    text = search.text
    if (
        _REPEATED_GROUP.search(text)
        or len(_REPETITION.findall(text)) > _MOST_REPETITIONS
        or text.count("?") > _MOST_OPTIONAL
    ):
        left = iter(wanted)
        return all(letter in left for letter in literal)  # its letters in their order, whatever is between them
    try:
        match = re.search(search.text, form, re.IGNORECASE)
    except (re.error, OverflowError, RecursionError):
        return False
    return match is not None and len(match.group()) >= _ENOUGH_MATCHED * len(form)


def command_shape(command: str) -> str:
    """Returns a command's programs and flags without what it searches for, such as ``rg -F | rg -i | head -n``."""
    try:
        pipeline = parse(command)
    except CommandRefused:
        return "refused"
    return " | ".join(" ".join((s.program, *sorted({o.name for o in s.options}))) for s in pipeline.stages)
