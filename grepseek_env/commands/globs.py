"""What bash makes of unquoted * ? [ and { in a folder that holds one file, `corpus.jsonl`.

Each answer is either certain or `Unsure`, which is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from grepseek_env.commands.syntax import Word

__all__ = ["CORPUS", "Literal", "Match", "Outcome", "Unsure", "bare", "brace", "expand"]

CORPUS = "corpus.jsonl"
"""The one name in the folder that commands run in."""

SIMPLE_SET = re.compile(r"[!^]?(?:[A-Z]-[A-Z]|[a-z]-[a-z]|[0-9]-[0-9]|[A-Za-z0-9_.,:;=+@% ])+")
"""Bracket contents whose meaning does not depend on locale, quoting or the version of bash."""
STAR = "*"
RANGE = re.compile(r"([A-Za-z0-9])-([A-Za-z0-9])")


@dataclass(frozen=True, slots=True)
class Literal:
    """No file matches: the word stays as it is."""


@dataclass(frozen=True, slots=True)
class Match:
    """The word becomes this name."""

    name: str


@dataclass(frozen=True, slots=True)
class Unsure:
    """What bash does depends on more than the one file."""


Outcome: TypeAlias = Literal | Match | Unsure


def bare(word: Word) -> list[bool]:
    """Returns for each character of the value whether it is unquoted."""
    ends = [piece.at for piece in word.pieces[1:]] + [len(word.value)]
    return [not piece.quoted for piece, end in zip(word.pieces, ends, strict=True) for _ in range(piece.at, end)]


def brace(word: Word) -> tuple[int, int] | None:
    """Returns the start and end of what may be a brace expansion, or None."""
    value = word.value
    if "{" not in value or "}" not in value:
        return None
    mask = bare(word)
    opening = next((i for i, c in enumerate(value) if c == "{" and mask[i]), None)
    closing = next((i for i in range(len(value) - 1, -1, -1) if value[i] == "}" and mask[i]), -1)
    if opening is None or closing < opening:
        return None
    inside = value[opening:closing]
    return (opening, closing + 1) if "," in inside or ".." in inside else None


def expand(word: Word) -> Outcome:
    """Returns what pathname expansion makes of a word."""
    value, mask = word.value, bare(word)
    marks = [i for i, c in enumerate(value) if mask[i] and c in "*?[]"]
    if not any(value[i] in "*?" for i in marks) and not _has_bracket(value, marks):
        return Literal()
    if "/" in value:
        if value[0] == "/":
            return Unsure()
        if value[0] != ".":
            return Literal()  # a first folder would have to match, and there is none
        if not value.startswith("./") or "/" in value[2:]:
            return Unsure()
    prefix = "./" if value.startswith("./") else ""
    marks = [i for i in marks if i >= len(prefix)]
    # What stands before the first and after the last special character must be there literally.
    rest = range(len(prefix), len(value))
    head, tail = value[rest.start : marks[0]], value[marks[-1] + 1 :]
    if value[rest.start : rest.start + 1] == ".":
        return _dotted(value[rest.start :])
    if not (CORPUS.startswith(head) and CORPUS.endswith(tail)):
        return Literal()
    atoms = _atoms(value[rest.start :], mask[rest.start :])
    if atoms is None:
        return Unsure()
    return Match(prefix + CORPUS) if _matches(atoms) else Literal()


def _matches(atoms: list[str]) -> bool:
    """Whether a translated glob matches the one name.

    All places that the atoms read so far can reach are kept at once: as one regular expression, a pattern of many
    stars would be tried in more ways than can be counted.
    """
    places = {0}
    for atom in atoms:
        if atom == STAR:
            places = set(range(min(places), len(CORPUS) + 1))
        else:
            places = {at + 1 for at in places if at < len(CORPUS) and re.fullmatch(atom, CORPUS[at])}
        if not places:
            return False
    return len(CORPUS) in places


def _has_bracket(value: str, marks: list[int]) -> bool:
    opening = next((i for i in marks if value[i] == "["), None)
    return opening is not None and any(value[i] == "]" for i in marks if i > opening)


def _dotted(value: str) -> Outcome:
    """A pattern with a leading dot: no file, but older versions of bash match `.` and `..`."""
    return Unsure() if len(value) == 1 or value[1] in ".*?[" else Literal()


def _atoms(value: str, mask: list[bool]) -> list[str] | None:
    """Translates a glob to STARs and expressions of one character; None where its meaning is not certain."""
    parts: list[str] = []
    index = 0
    while index < len(value):
        char = value[index]
        index += 1
        if not mask[index - 1]:
            parts.append(re.escape(char))
        elif char == "*":
            parts.append(STAR)
        elif char == "?":
            parts.append(".")
        elif char == "[" and "]" in value[index:]:
            closing = value.find("]", index + 1 + (value[index] in "!^"))
            if closing < 0 or not all(mask[index : closing + 1]) or not SIMPLE_SET.fullmatch(value[index:closing]):
                return None
            if (members := _set(value[index:closing])) is None:
                return None
            parts.append(members)
            index = closing + 1
        else:
            parts.append(re.escape(char))
    return parts


def _set(inside: str) -> str | None:
    negated = inside[0] in "!^"
    body = inside[negated:]
    if any(low > high for low, high in RANGE.findall(body)):
        return None
    return f"[{'^' if negated else ''}{body}]"
