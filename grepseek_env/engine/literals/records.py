"""What is known about the lines that the leading searches of a pipeline print."""

from __future__ import annotations

import typing
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from grepseek_env.engine.literals.words import word_after, word_before

if TYPE_CHECKING:
    from grepseek_env.engine.plan import Argv

__all__ = [
    "SPECIAL_LETTERS",
    "Clause",
    "CountBytes",
    "CountLines",
    "Everything",
    "ExactFilter",
    "Exists",
    "GrepCount",
    "HeadLines",
    "Literal",
    "Narrowing",
    "Rest",
    "Sink",
    "Word",
]

Word: TypeAlias = typing.Literal["none", "ascii", "unicode"]

SPECIAL_LETTERS: dict[bytes, bytes] = {
    "\u212a".encode(): b"k",  # the Kelvin sign
    "\u017f".encode(): b"s",  # the long s
    "\u0131".encode(): b"i",  # the dotless i
}
"""UTF-8 of a code point outside ASCII that a search ignoring case may take for an ASCII letter -> that letter."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A piece of text that a line holds.

    Attributes:
        text: the bytes, without a newline; ASCII letters in lower case where `fold`.
        fold: ASCII letters of both cases count as equal.
        specials: with `fold`, the keys of SPECIAL_LETTERS that stand for their letter too. `text` is ASCII then.
            A block of the corpus that holds one of them may hold the literal without holding `text`.
    """

    text: bytes
    fold: bool = False
    specials: tuple[bytes, ...] = ()

    def within(self, line: bytes) -> bool:
        """Returns whether a line holds the literal; exact, and slow."""
        return self.text in self.folded(line)

    def folded(self, line: bytes) -> bytes:
        """Returns the line in the form in which `text` is to be looked for."""
        if not self.fold:
            return line
        for special in self.specials:
            line = line.replace(special, SPECIAL_LETTERS[special])
        return line.lower()


Clause: TypeAlias = tuple[Literal, ...]
"""A line satisfies it if it holds any of the literals."""


@dataclass(frozen=True, slots=True)
class ExactFilter:
    r"""A search that is exactly a search for literals: it prints the lines that pass, in order, and nothing else.

    A line is what stands between newlines; a carriage return is part of it. The last line of the corpus may lack its
    newline; printed, it has one.

    Attributes:
        literals: a line passes if it holds any of them; none is empty.
        invert: a line passes if it does not.
        word: an occurrence counts only where neither the character before it nor the one after it is part of a word:
            in "ascii" `[0-9A-Za-z_]`, in "unicode" what Rust's ``\w`` matches; bytes that are no character cannot
            stand on either side.
        whole_line: the line is the literal.
    """

    literals: Clause
    invert: bool = False
    word: Word = "none"
    whole_line: bool = False

    def passes(self, line: bytes) -> bool:
        """Returns whether a line, its newline not included, passes; exact, and slow."""
        return any(self._selects(literal, line) for literal in self.literals) is not self.invert

    def _selects(self, literal: Literal, line: bytes) -> bool:
        if self.whole_line:
            return literal.folded(line) == literal.text
        if self.word == "none":
            return literal.within(line)
        # Folding keeps what words are made of, since all letters stay letters.
        folded = literal.folded(line)
        at = folded.find(literal.text)
        while at >= 0:
            end = at + len(literal.text)
            if not word_before(folded, at, self.word) and not word_after(folded, end, self.word):
                return True
            at = folded.find(literal.text, at + 1)
        return False


@dataclass(frozen=True, slots=True)
class Everything:
    """All lines are printed; the exit code is 0 if there is one, else 1."""


@dataclass(frozen=True, slots=True)
class HeadLines:
    """The first lines are printed.

    Attributes:
        lines: how many, 0 included.
        search: the exit code is 1 where there is no line (`-m` of the last filter); else it is 0 (`head`).
    """

    lines: int
    search: bool = False


@dataclass(frozen=True, slots=True)
class CountLines:
    """Their number and a newline are printed (`wc -l`); the exit code is 0."""


@dataclass(frozen=True, slots=True)
class CountBytes:
    """The sum of their lengths, newlines included, and a newline are printed (`wc -c`); the exit code is 0."""


@dataclass(frozen=True, slots=True)
class GrepCount:
    """Their number and a newline are printed (`-c` of the last filter); the exit code is 0 if it is not 0, else 1.

    Attributes:
        zero: 0 is printed too (grep); else nothing is (rg).
    """

    zero: bool


@dataclass(frozen=True, slots=True)
class Exists:
    """Nothing is printed (`-q` of the last filter); the exit code is 0 if there is a line, else 1."""


@dataclass(frozen=True, slots=True)
class Rest:
    """They are what a program reads from its pipe.

    Attributes:
        first_stage: the number of its stage; the stages after it follow.
    """

    first_stage: int


Sink: TypeAlias = Everything | HeadLines | CountLines | CountBytes | GrepCount | Exists | Rest


@dataclass(frozen=True, slots=True)
class Narrowing:
    """What is proven about the lines that the leading stages of a pipeline select.

    The promise: `replay`, given on stdin only those lines of the corpus that satisfy all clauses, and any others
    besides, in their order, prints what the pipeline prints and ends with its exit code. With no line at all it still
    has to be run, since it may complain about a pattern.

    Attributes:
        clauses: every line that the first `covered` stages select satisfies all of them; empty where nothing is known.
        covered: how many leading stages the clauses speak of, a leading `cat` included.
        filters: what the leading stages do, exactly, `cat` left out; may be more or fewer stages than `covered`.
        sink: what becomes of the lines that pass all filters; `Rest(0)` where there are no filters.
        replay: the whole pipeline, reading lines on stdin; None where the file's name shows, or nothing is known.
        reason: in words, how far the clauses go and why no farther.
    """

    clauses: tuple[Clause, ...]
    covered: int
    filters: tuple[ExactFilter, ...]
    sink: Sink
    replay: tuple[Argv, ...] | None
    reason: str
