"""Shapes of commands that the oracle Tutor draws from, as a table."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from algos.tutor_planner.records import Move, Proposal

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

__all__ = ["RELATION_WORDS", "SHAPES", "Asked", "Shape", "quoted"]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a command has to find.

    Attributes:
        subject: the entity, as it was read.
        wordings: words by which passages speak of the relation, the plainest first.
        missing: such words that the passage does not use.
        phrase: what follows the subject in a one-fact passage; empty elsewhere.
        heads: numbers of lines to choose from.
        draw: the source of choices.
    """

    subject: str
    wordings: tuple[str, ...]
    missing: tuple[str, ...]
    phrase: str
    heads: tuple[int, ...]
    draw: random.Random

    @property
    def head(self) -> str:
        """The cap of an output."""
        return f"head -n {self.draw.choice(self.heads)}"

    @property
    def word(self) -> str:
        """One wording that may or may not be the passage's."""
        return self.draw.choice(self.wordings)

    @property
    def either(self) -> str:
        """All wordings as one pattern."""
        return "|".join(self.wordings)


@dataclass(frozen=True, slots=True)
class Shape:
    """One way to search.

    Attributes:
        build: from what is asked to a proposal, or None where the shape does not fit.
        weight: how often it is drawn.
    """

    build: Callable[[Asked], Proposal | None]
    weight: int


def quoted(text: str) -> str:
    """Quotes a text for the command language, with double quotes where it has an apostrophe."""
    if "'" in text and not re.search(r'["$`\\!]', text):
        return f'"{text}"'
    return shlex.quote(text) if re.search(r"[^\w]", text) else f"'{text}'"


def _pattern(text: str) -> str:
    return re.sub(r"([.^$*+?()\[\]{}|\\])", r"\\\1", text)


def _single(a: Asked) -> Proposal:
    return Proposal(f"rg -F {quoted(a.subject)} corpus.jsonl | {a.head}")


def _narrowed(a: Asked) -> Proposal:
    return Proposal(f"rg -F {quoted(a.subject)} corpus.jsonl | rg -i {quoted(a.word)} | {a.head}")


def _narrowed_either(a: Asked) -> Proposal:
    return Proposal(f"rg -F {quoted(a.subject)} corpus.jsonl | rg -i {quoted(a.either)} | {a.head}")


def _counted(a: Asked) -> Proposal:
    count = f"rg -c -F {quoted(a.subject)} corpus.jsonl"
    return Proposal(_narrowed_either(a).command, ((Move.COUNT, count),))


def _counted_words(a: Asked) -> Proposal:
    count = f"rg -F {quoted(a.subject)} corpus.jsonl | wc -l"
    return Proposal(_single(a).command, ((Move.COUNT, count),))


def _insensitive(a: Asked) -> Proposal:
    return Proposal(f"rg -i -F {quoted(a.subject.lower())} corpus.jsonl | {a.head}")


def _grep(a: Asked) -> Proposal:
    return Proposal(f"grep -F {quoted(a.subject)} corpus.jsonl | {a.head}")


def _grep_narrowed(a: Asked) -> Proposal:
    return Proposal(f"grep -F {quoted(a.subject)} corpus.jsonl | grep -i -E {quoted(a.either)} | {a.head}")


def _title(a: Asked) -> Proposal:
    return Proposal(f"""rg -F '\\"{a.subject}\\"' corpus.jsonl | {a.head}""") if "'" not in a.subject else _single(a)


def _word(a: Asked) -> Proposal:
    return Proposal(f"rg -w {quoted(_pattern(a.subject))} corpus.jsonl | {a.head}")


def _limit(a: Asked) -> Proposal:
    return Proposal(f"rg -m {a.draw.choice(a.heads)} -F {quoted(a.subject)} corpus.jsonl")


def _excerpt(a: Asked) -> Proposal:
    return Proposal(f"rg -o {quoted(_pattern(a.subject) + '[^.]*[.]')} corpus.jsonl | {a.head}")


def _ordered(a: Asked) -> Proposal:
    return Proposal(f"rg {quoted(f'{_pattern(a.subject)}.*({a.either})')} corpus.jsonl | {a.head}")


def _awk(a: Asked) -> Proposal | None:
    plain = re.fullmatch(r"[\w &-]+", a.subject)
    return Proposal(f"awk '/{a.subject}/' corpus.jsonl | {a.head}") if plain else None


def _sed(a: Asked) -> Proposal | None:
    plain = re.fullmatch(r"[\w -]+", a.subject)
    return Proposal(f"sed -n '/{a.subject}/p' corpus.jsonl | {a.head}") if plain else None


def _missed(a: Asked) -> Proposal | None:
    if not a.missing:
        return None
    miss = f"rg -F {quoted(a.subject)} corpus.jsonl | rg -F {quoted(a.draw.choice(a.missing))} | {a.head}"
    return Proposal(_narrowed_either(a).command, ((Move.MISS, miss),))


def _missed_case(a: Asked) -> Proposal | None:
    if a.subject == a.subject.lower():
        return None
    miss = f"rg -F {quoted(a.subject.lower())} corpus.jsonl | {a.head}"
    return Proposal(_insensitive(a).command, ((Move.MISS, miss),))


def _dotted(a: Asked) -> Proposal | None:
    """Leaves vowels open, for a name that the passage spells with accents."""
    dotted = re.sub(r"[aeiou]", ".", a.subject)
    return Proposal(f"rg {quoted(dotted)} corpus.jsonl | {a.head}") if re.fullmatch(r"[\w .'-]+", a.subject) else None


def _phrase(a: Asked) -> Proposal | None:
    return Proposal(f"rg -F {quoted(f'{a.subject} {a.phrase}')} corpus.jsonl | {a.head}") if a.phrase else None


SHAPES: Mapping[str, Shape] = MappingProxyType(
    {
        "single": Shape(_single, 5),
        "narrowed": Shape(_narrowed, 4),
        "narrowed-either": Shape(_narrowed_either, 4),
        "phrase": Shape(_phrase, 4),
        "counted": Shape(_counted, 3),
        "counted-words": Shape(_counted_words, 1),
        "insensitive": Shape(_insensitive, 3),
        "grep": Shape(_grep, 2),
        "grep-narrowed": Shape(_grep_narrowed, 2),
        "title": Shape(_title, 2),
        "word": Shape(_word, 2),
        "limit": Shape(_limit, 1),
        "excerpt": Shape(_excerpt, 1),
        "ordered": Shape(_ordered, 1),
        "awk": Shape(_awk, 1),
        "sed": Shape(_sed, 1),
        "missed": Shape(_missed, 2),
        "missed-case": Shape(_missed_case, 1),
        "dotted": Shape(_dotted, 0),
    }
)

# How passages speak of a relation; a wording that a passage does not use makes an empty output, and a recovery.
RELATION_WORDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "capital": ("capital", "governed"),
        "currency": ("currency", "prices"),
        "independence": ("independen", "foreign rule"),
        "inhabitants": ("population", "people live", "inhabitants"),
        "country": ("city", "town", "river", "located", "lies"),
        "river": ("river", "lies on", "town"),
        "settled": ("founded", "chartered", "laid it out"),
        "residents": ("population", "people live", "residents"),
        "birthplace": ("born", "comes from", "native"),
        "employer": ("worked for", "works for", "employed", "staff", "job", "years with", "career with"),
        "school": ("studied", "educated", "attended", "degree"),
        "spouse": ("married", "wed", "spouse"),
        "birth": ("born",),
        "occupation": ("born",),
        "founder": ("founded", "set up", "established", "started"),
        "headquarters": ("headquartered", "based", "head office", "run from", "seat"),
        "founded": ("founded on", "founding date", "papers were signed", "opened for business"),
        "employees": ("employees", "employs", "payroll", "staff"),
        "industry": ("industry",),
        "creator": ("written", "directed", "composed", "by"),
        "publisher": ("published", "produced", "issued"),
        "release": ("released", "came out"),
        "length": ("pages", "minutes"),
        "genre": ("novel", "film", "play", "album"),
        "campus": ("school", "located", "learning", "foundation"),
        "opened": ("founded", "opened", "chartered", "endowed"),
        "students": ("students",),
    }
)
