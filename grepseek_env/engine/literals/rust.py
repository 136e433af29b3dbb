"""rg's regular expressions, read only as far as what their matches must hold.

Whatever is not understood ends the reading: then nothing is known of the whole pattern. What rg itself rejects may be
read as anything, since nothing is printed then.
"""

from __future__ import annotations

import re

from grepseek_env.engine.literals.required import (
    ANYTHING,
    EMPTY,
    POSITION,
    Fold,
    Matches,
    NotUnderstood,
    any_of,
    character,
    plain,
)

__all__ = ["is_plain", "read_rust"]

_DEEPEST = 60  # groups within groups
_META = frozenset("\\.+*?()|[]{}^$")
_RUN = re.compile(r"[^\\.+*?()|\[\]{}^$\n]+(?![*+?{])")
_INTERVAL = re.compile(r"\{([0-9]{1,4})(,([0-9]{0,4}))?\}")  # not {,2}: releases differ about it
_NAME = re.compile(r"\?P?<[A-Za-z_][A-Za-z0-9_.\[\]]*>")
_FLAGS = re.compile(r"\?([imsU]*)(?:-([imsU]+))?([:)])")
_SMALL_CLASS = re.compile(r"\[([^\]\[\\^&~\-\n]{1,4})\]")
_HEX = re.compile(r"x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|[xuU]\{([0-9A-Fa-f]{1,8})\}")
_PROPERTY = re.compile(r"[pP](?:\{[^{}\\\]]*\}|[A-Za-z])")
_BOUNDARY = re.compile(r"b(?:\{(?:start|end|start-half|end-half)\}|(?!\{))|[BAz<>]")
_CONTROLS = {"a": "\a", "f": "\f", "t": "\t", "r": "\r", "v": "\v"}
_POSIX_NAME = re.compile(r"\[:\^?[a-z]+:\]")


def read_rust(pattern: str, fold: Fold) -> Matches:
    """Reads one pattern.

    Args:
        pattern: as given to rg.
        fold: how letters are compared where no flag in the pattern says otherwise.

    Raises:
        NotUnderstood: nothing is known of its matches.
    """
    if is_plain(pattern):
        return plain(pattern, fold)
    reader = _Reader(pattern)
    found = reader.alternatives(fold, 0)
    if reader.at < len(pattern):
        raise NotUnderstood("a ) without its (")
    return found


def is_plain(pattern: str) -> bool:
    """Returns whether a pattern stands for itself, character by character."""
    return _META.isdisjoint(pattern)


class _Reader:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0

    def alternatives(self, fold: Fold, depth: int) -> Matches:
        """Reads up to the end of the group. A flag holds from where it stands to there, over every `|`."""
        if depth > _DEEPEST:
            raise NotUnderstood("too many groups within groups")
        branches: list[Matches] = []
        parts: list[Matches] = []
        while (sign := self.pattern[self.at : self.at + 1]) not in {"", ")"}:
            if sign == "|":
                branches.append(EMPTY.then(*parts))
                parts = []
                self.at += 1
            elif sign == "(" and (flags := _FLAGS.match(self.pattern, self.at + 1)) and flags[3] == ")":
                fold = _folding(flags, fold)
                self.at = flags.end()
            else:
                parts += self.repeated(self.piece(fold, depth))
        branches.append(EMPTY.then(*parts))
        return any_of(branches)

    def repeated(self, piece: Matches) -> tuple[Matches, ...]:
        """Reads the signs of repetition that follow a piece; returns pieces in a row."""
        pieces: tuple[Matches, ...] = (piece,)
        while (sign := self.pattern[self.at : self.at + 1]) in {"*", "+", "?", "{"}:
            self.at += 1
            match sign:
                case "*":
                    least, most = 0, None
                case "+":
                    least, most = 1, None
                case "?":
                    least, most = 0, 1
                case _:
                    least, most = self.interval()
            if self.pattern[self.at : self.at + 1] == "?":
                self.at += 1
            pieces = EMPTY.then(*pieces).times(least, most)
        return pieces

    def interval(self) -> tuple[int, int | None]:
        found = _INTERVAL.match(self.pattern, self.at - 1)
        if found is None:
            raise NotUnderstood("a { that counts nothing")
        self.at = found.end()
        least, comma, most = found.groups()
        if most and int(most) < int(least):
            raise NotUnderstood("an interval that ends before it begins")
        return int(least), (int(most) if most else None) if comma else int(least)

    def piece(self, fold: Fold, depth: int) -> Matches:
        """Reads one piece, to which a sign of repetition may apply."""
        sign = self.pattern[self.at]
        if run := _RUN.match(self.pattern, self.at):  # what repeats is left to its own piece
            self.at = run.end()
            return plain(run[0], fold)
        self.at += 1
        match sign:
            case ".":
                return ANYTHING
            case "^" | "$":
                return POSITION
            case "\\":
                return self.escape(fold)
            case "[":
                return self.klass(fold)
            case "(":
                return self.group(fold, depth)
            case "*" | "+" | "?" | "{" | "\n":
                raise NotUnderstood("a sign of repetition that follows nothing")
            case _:
                return character(sign, fold)

    def group(self, fold: Fold, depth: int) -> Matches:
        end = EMPTY
        if flags := _FLAGS.match(self.pattern, self.at):
            fold = _folding(flags, fold)
            self.at = flags.end()
        elif name := _NAME.match(self.pattern, self.at):
            self.at = name.end()
            end = POSITION  # a name given twice is rejected, so that not every text is a match for certain
        elif self.pattern.startswith("?", self.at):
            raise NotUnderstood("a group with other flags")
        found = self.alternatives(fold, depth + 1)
        if not self.pattern.startswith(")", self.at):
            raise NotUnderstood("a ( without its )")
        self.at += 1
        return found.then(end)

    def escape(self, fold: Fold) -> Matches:
        if boundary := _BOUNDARY.match(self.pattern, self.at):
            self.at = boundary.end()
            return POSITION
        if prop := _PROPERTY.match(self.pattern, self.at):
            self.at = prop.end()
            return ANYTHING
        if number := _HEX.match(self.pattern, self.at):
            self.at = number.end()
            return character(_code_point(next(filter(None, number.groups()))), fold)
        sign = self.pattern[self.at : self.at + 1]
        self.at += 1
        if sign and sign in "dDsSwW":
            return ANYTHING
        if sign in _CONTROLS:
            return character(_CONTROLS[sign], fold)
        if not sign or sign.isalnum() or not sign.isascii() or sign == "\n":
            raise NotUnderstood("an escape that is not known")
        return character(sign, fold)

    def klass(self, fold: Fold) -> Matches:
        """Reads a class, whose [ is behind."""
        if small := _SMALL_CLASS.match(self.pattern, self.at - 1):
            self.at = small.end()
            return any_of(character(member, fold) for member in small[1])
        self._open()
        depth = 1
        while depth:
            sign = self.pattern[self.at : self.at + 1]
            self.at += 1
            match sign:
                case "":
                    raise NotUnderstood("a [ without its ]")
                case "\\":
                    self.at += 1
                case "]":
                    depth -= 1
                case "[":
                    if name := _POSIX_NAME.match(self.pattern, self.at - 1):
                        self.at = name.end()
                    else:
                        depth += 1
                        self._open()
                case _:
                    pass
        return ANYTHING

    def _open(self) -> None:
        """Passes a ] that stands for itself, right after the [ or after [^."""
        self.at += self.pattern.startswith("^", self.at)
        self.at += self.pattern.startswith("]", self.at)


def _folding(flags: re.Match[str], fold: Fold) -> Fold:
    given = flags[1] + (flags[2] or "")
    if len(set(given)) < len(given) or flags[0] == "?)":
        raise NotUnderstood("a flag given twice, or none")
    if "i" in flags[1]:
        return Fold.UNICODE
    return Fold.NO if flags[2] and "i" in flags[2] else fold


def _code_point(digits: str) -> str:
    number = int(digits, 16)
    if number > 0x10FFFF or 0xD800 <= number < 0xE000 or number in {0, 10}:  # rg rejects these two
        raise NotUnderstood("a number of no character, of NUL or of a line's end")
    return chr(number)
