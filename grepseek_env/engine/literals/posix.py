"""grep's basic and extended regular expressions, read only as far as what their matches must hold.

Whatever is not understood ends the reading: then nothing is known of the whole pattern. What is read differently by
different releases of grep (a repetition of nothing, a backslash before an ordinary letter) may match anything.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from grepseek_env.engine.literals.required import (
    ANYTHING,
    EMPTY,
    POSITION,
    Fold,
    Matches,
    NotUnderstood,
    any_of,
    plain,
)

__all__ = ["Read", "read_posix"]

_DEEPEST = 60  # groups within groups
_RUN = {
    False: re.compile(r"[^\\.*\[^$\n]+(?!\*|\\[+?{])"),
    True: re.compile(r"[^\\.*\[^$\n+?(){}|]+(?![*+?{])"),
}
_INTERVAL = {
    False: re.compile(r"\\\{(?:([0-9]{1,4})(,([0-9]{0,4}))?|,([0-9]{1,4}))\\\}"),
    True: re.compile(r"\{(?:([0-9]{1,4})(,([0-9]{0,4}))?|,([0-9]{1,4}))\}"),
}
_SMALL_CLASS = re.compile(r"\[([^\]\[\\^.:=\-\n\x80-\U0010ffff]{1,4})\]")
_QUIET_ESCAPES = {False: frozenset(".[*^$\\"), True: frozenset(".[*^$\\+?(){|")}  # grep says nothing of these
_OPERATORS = frozenset("(){}|+?")
_POSITIONS = frozenset("<>bB`'")
_CLASSES = frozenset("wWsS")


class _Sign(Enum):
    OPEN = "("
    CLOSE = ")"
    OR = "|"
    STAR = "*"
    PLUS = "+"
    OPTION = "?"
    INTERVAL = "{"


_TIMES: dict[_Sign, tuple[int, int | None]] = {_Sign.STAR: (0, None), _Sign.PLUS: (1, None), _Sign.OPTION: (0, 1)}
_SIGNS = {sign.value: sign for sign in _Sign if sign is not _Sign.STAR}


@dataclass(frozen=True, slots=True)
class Read:
    """What was read of a pattern.

    Attributes:
        matches: what its matches are like.
        refers_back: it holds a back-reference.
    """

    matches: Matches
    refers_back: bool = False


def read_posix(pattern: str, fold: Fold, *, extended: bool, encoding: str) -> Read:
    """Reads one line of grep's patterns.

    Args:
        pattern: no newline in it; where every byte is a character, each of its characters is a byte.
        fold: how letters are compared.
        extended: its syntax is that of -E.
        encoding: turns its characters into bytes.

    Raises:
        NotUnderstood: nothing is known of its matches.
    """
    reader = _Reader(pattern, fold, extended=extended, encoding=encoding)
    found = reader.alternatives(0)
    if reader.at < len(pattern):
        raise NotUnderstood("a ) without its (")
    return Read(found, reader.refers_back)


class _Reader:
    def __init__(self, pattern: str, fold: Fold, *, extended: bool, encoding: str) -> None:
        self.pattern = pattern
        self.fold = fold
        self.extended = extended
        self.encoding = encoding
        self.at = 0
        self.refers_back = False

    def alternatives(self, depth: int) -> Matches:
        """Reads up to the end of the group."""
        if depth > _DEEPEST:
            raise NotUnderstood("too many groups within groups")
        branches: list[Matches] = []
        parts: list[tuple[Matches, ...]] = []  # each is what one piece became by repetition
        start = True  # nothing to repeat has come yet
        while self.at < len(self.pattern):
            before = self.at
            match sign := self.sign():
                case None:
                    anchor = start and self.pattern[before] == "^"
                    parts.append((POSITION if anchor else self.piece(),))
                    self.at += anchor
                    start = anchor
                case _Sign.CLOSE:
                    self.at = before
                    break
                case _Sign.OR:
                    branches.append(_row(parts))
                    parts, start = [], True
                case _Sign.OPEN:
                    parts.append((self.group(depth),))
                    start = False
                case _ if start:
                    # A sign of its own, or a repetition of nothing.
                    if sign is _Sign.INTERVAL:
                        raise NotUnderstood("an interval that follows nothing")
                    parts.append((ANYTHING,))
                    start = False
                case _:
                    least, most = _TIMES.get(sign) or self.interval(before)
                    parts[-1] = EMPTY.then(*parts[-1]).times(least, most)
        branches.append(_row(parts))
        return any_of(branches)

    def sign(self) -> _Sign | None:
        """Reads an operator; None where there is none."""
        first, second = self.pattern[self.at], self.pattern[self.at + 1 : self.at + 2]
        if first == "*":
            self.at += 1
            return _Sign.STAR
        if self.extended and first in _OPERATORS - {"}"}:
            if first == "{" and second not in {*"0123456789,"}:
                return None  # stands for itself
            self.at += 1
            return _SIGNS[first]
        if not self.extended and first == "\\" and second in _OPERATORS - {"}"} and second:
            self.at += 2
            return _SIGNS[second]
        return None

    def interval(self, at: int) -> tuple[int, int | None]:
        found = _INTERVAL[self.extended].match(self.pattern, at)
        if found is None:
            raise NotUnderstood("an interval that counts nothing")
        self.at = found.end()
        least, comma, most, only_most = found.groups()
        if only_most:
            return 0, int(only_most)
        if most and int(most) < int(least):
            raise NotUnderstood("an interval that ends before it begins")
        return int(least), (int(most) if most else None) if comma else int(least)

    def group(self, depth: int) -> Matches:
        found = self.alternatives(depth + 1)
        if self.at == len(self.pattern) or self.sign() is not _Sign.CLOSE:
            raise NotUnderstood("a ( without its )")
        return found

    def piece(self) -> Matches:
        """Reads one piece, to which a sign of repetition may apply."""
        if run := _RUN[self.extended].match(self.pattern, self.at):  # what repeats is left to its own piece
            self.at = run.end()
            return plain(run[0], self.fold, self.encoding)
        sign = self.pattern[self.at]
        if sign == "[":
            return self.bracket()
        self.at += 1
        match sign:
            case "\\":
                return self.escape()
            case ".":
                return ANYTHING
            case "^":
                return POSITION if self.extended else ANYTHING  # within a basic expression it stands for itself
            case "$":
                return POSITION if self.extended or self.ends() else ANYTHING
            case "{" if self.extended:
                return ANYTHING
            case _:
                return plain(sign, self.fold, self.encoding)

    def ends(self) -> bool:
        """Returns whether a basic expression, or an alternative of it, ends here."""
        return self.at == len(self.pattern) or self.pattern.startswith(("\\)", "\\|"), self.at)

    def escape(self) -> Matches:
        sign = self.pattern[self.at : self.at + 1]
        self.at += 1
        if not sign:
            raise NotUnderstood("a backslash at the end")
        if sign in _POSITIONS:
            return POSITION
        if sign in _QUIET_ESCAPES[self.extended]:
            return plain(sign, self.fold, self.encoding)
        if sign.isascii() and not sign.isalnum() and sign not in _OPERATORS:
            # Stands for itself, with a warning that only grep gives.
            return plain(sign, self.fold, self.encoding).then(POSITION)
        self.refers_back = self.refers_back or sign.isdigit()
        return ANYTHING

    def bracket(self) -> Matches:
        """Reads a bracket expression, in which a backslash stands for itself."""
        if small := _SMALL_CLASS.match(self.pattern, self.at):
            self.at = small.end()
            return any_of(plain(member, self.fold, self.encoding) for member in small[1])
        at = self.at + 1
        at += self.pattern.startswith("^", at)
        at += self.pattern.startswith("]", at)
        while at < len(self.pattern):
            two = self.pattern[at : at + 2]
            if two in {"[:", "[.", "[="}:
                end = self.pattern.find(two[1] + "]", at + 2)
                if end < 0:
                    break
                at = end + 2
            elif two[0] == "]":
                self.at = at + 1
                return ANYTHING
            else:
                at += 1
        raise NotUnderstood("a [ without its ]")


def _row(parts: list[tuple[Matches, ...]]) -> Matches:
    return EMPTY.then(*(piece for part in parts for piece in part))
