"""What every match of a piece of a pattern must hold, computed from what its parts must hold."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "ANYTHING",
    "EMPTY",
    "POSITION",
    "Choice",
    "Fold",
    "Matches",
    "NotUnderstood",
    "any_of",
    "best",
    "character",
    "plain",
]

_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]+")
_MOST_TEXTS = 16  # alternatives that are kept apart, in a run of text or in an OR
_MOST_BRANCHES = 64  # the same where the user wrote each of them
_LONGEST = 256  # bytes of a run of text; a longer one is cut in two
_MOST_COPIES = 64  # of a repeated piece


class NotUnderstood(Exception):
    """Nothing is known of a pattern: it is wrong, or of a kind that is not read here."""


class Fold(IntEnum):
    """Which letters count as equal; a greater one holds all that a lesser one does."""

    NO = 0
    ASCII = 1
    """ASCII letters of both cases."""
    UNICODE = 2
    """All that the program knows of Unicode."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Texts of which a match holds at least one.

    Attributes:
        texts: none is empty; in lower case with `fold`.
        fold: which letters count as equal.
    """

    texts: tuple[bytes, ...]
    fold: Fold


@dataclass(frozen=True, slots=True)
class Matches:
    """What the matches of a piece of a pattern are like.

    Attributes:
        texts: every match is one of these; None where they are not known, or too many.
        fold: which letters count as equal in `texts`.
        precise: with `texts`, each of them is a match too, wherever it stands.
        must: with `texts` None, every match holds a text of each choice.
    """

    texts: tuple[bytes, ...] | None
    fold: Fold = Fold.NO
    precise: bool = True
    must: tuple[Choice, ...] = ()

    def choices(self) -> tuple[Choice, ...]:
        """Returns what every match holds."""
        if self.texts is None:
            return self.must
        return () if b"" in self.texts else (Choice(_shortest(self.texts), self.fold),)

    def then(self, *others: Matches) -> Matches:
        """Returns what the pieces match, one after the other."""
        must: list[Choice] = []
        run, broken = self, self.texts is None
        if broken:
            must, run = [*self.must], EMPTY
        for other in others:
            if other.texts is None:
                must += [*run.choices(), *other.must]
                run, broken = EMPTY, True
            elif (joined := _joined(run, other)) is not None:
                run = joined
            else:
                must += run.choices()
                run, broken = other, True
        return Matches(None, must=(*must, *run.choices())) if broken else run

    def times(self, least: int, most: int | None) -> tuple[Matches, ...]:
        """Returns what the piece matches, repeated that often (None: any number of times), as pieces in a row."""
        if most == 0:
            return (POSITION,)
        if self.texts is None:
            return (self if least else ANYTHING,)
        if least == 0 and most == 1:
            return (any_of((self, EMPTY)),)
        copies = min(least, _MOST_COPIES)
        return (*[self] * copies, *[ANYTHING] * (most is None or most > copies))


EMPTY = Matches((b"",))
"""Matches nothing but the empty text."""
POSITION = Matches((b"",), precise=False)
"""Matches the empty text, in some places only."""
ANYTHING = Matches(None)
"""May match anything."""


def plain(text: str, fold: Fold, encoding: str = "utf-8") -> Matches:
    """Returns what a text matches that stands for itself.

    Args:
        text: no newline in it.
        fold: how letters are compared; with Unicode's folding a character beyond ASCII may match others.
        encoding: turns characters into bytes.
    """
    if fold is Fold.UNICODE and not text.isascii():
        runs = _BEYOND_ASCII.split(text)
        between = [part for run in runs[1:] for part in (ANYTHING, _ascii(run, fold))]
        return _ascii(runs[0], fold).then(*between)
    return _exactly(text.encode(encoding), fold)


character = plain
"""Returns what a single character matches that stands for itself."""


def _ascii(text: str, fold: Fold) -> Matches:
    return _exactly(text.encode("ascii"), fold)


def _exactly(encoded: bytes, fold: Fold) -> Matches:
    folded = encoded.lower()
    if folded == encoded.upper():  # no letters
        return Matches((encoded,))
    return Matches((folded if fold else encoded,), fold)


def any_of(branches: Iterable[Matches]) -> Matches:
    """Returns what alternatives match."""
    branches = tuple(branches)
    if len(branches) == 1:
        return branches[0]
    found = [branch.texts for branch in branches if branch.texts is not None]
    fold = max(branch.fold for branch in branches)
    if len(found) == len(branches) and (united := _united(zip(found, (b.fold for b in branches), strict=True), fold)):
        precise = all(branch.precise and _like(branch, fold) for branch in branches)
        return Matches(united, fold, precise=precise)
    chosen = [best(branch.choices()) for branch in branches]
    needed = [choice for choice in chosen if choice is not None]
    if len(needed) < len(chosen):
        return ANYTHING
    fold = max(choice.fold for choice in needed)
    texts = _united(((choice.texts, choice.fold) for choice in needed), fold)
    return Matches(None, must=(Choice(texts, fold),)) if texts else ANYTHING


def best(choices: Sequence[Choice]) -> Choice | None:
    """Returns the choice that is likely to hold for the fewest lines."""
    return max(choices, key=lambda c: (min(map(len, c.texts)), -len(c.texts)), default=None)


def _shortest(texts: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Returns the texts without those that hold another one: a line that holds them holds that one too."""
    if len(texts) > _MOST_TEXTS:
        return texts
    return tuple(text for text in texts if not any(other != text and other in text for other in texts))


def _like(matches: Matches, fold: Fold) -> bool:
    """Returns whether another folding changes nothing."""
    return matches.fold is fold or not any(text.lower() != text.upper() for text in matches.texts or ())


def _united(groups: Iterable[tuple[Sequence[bytes], Fold]], fold: Fold) -> tuple[bytes, ...]:
    """Returns all texts with one folding; none if they are too many or the folding does not suit one of them."""
    found = [text for texts, _ in groups for text in texts]
    if fold is Fold.UNICODE and not all(text.isascii() for text in found):
        return ()
    united = tuple(dict.fromkeys(text.lower() if fold else text for text in found))
    return united if len(united) <= _MOST_BRANCHES else ()


def _joined(left: Matches, right: Matches) -> Matches | None:
    """Returns what two pieces with known texts match side by side; None if that is too much, or cannot be told."""
    if left.texts is None or right.texts is None:
        return None
    if left.texts == (b"",) or right.texts == (b"",):
        other = left if right.texts == (b"",) else right
        return Matches(other.texts, other.fold, precise=left.precise and right.precise)
    if len(left.texts) * len(right.texts) > max(_MOST_TEXTS, len(left.texts), len(right.texts)):
        return None
    fold = max(left.fold, right.fold)
    pairs = [a + b for a in left.texts for b in right.texts]
    united = _united([(pairs, fold)], fold)
    if not united or max(map(len, united)) > _LONGEST:
        return None
    precise = left.precise and right.precise and _like(left, fold) and _like(right, fold)
    return Matches(united, fold, precise=precise)
