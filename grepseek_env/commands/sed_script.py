"""A reader of sed scripts (GNU sed 4.x): finds what a script would read, write or run, and what slices allow.

Anything whose reading differs between releases of sed, or that is not understood for certain, is a problem: a
script passes only if this reader and sed see the same commands.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from grepseek_env.commands.script import ScriptProblem, bracket_open
from grepseek_env.commands.spec import Effect
from grepseek_env.commands.syntax import ScriptFacts

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Address", "AddressKind", "SedCommand", "read_sed", "sed_facts"]

FORBIDDEN: dict[str, tuple[str, str]] = {
    "r": ("reads a file", "only corpus.jsonl can be read"),
    "R": ("reads a file", "only corpus.jsonl can be read"),
    "w": ("writes a file", "p prints instead"),
    "W": ("writes a file", "p prints instead"),
    "e": ("runs a program", "join programs with | instead"),
    "v": ("asks for a version of sed", "leave it out"),
}
BARE = frozenset("=dDFgGhHnNpPxz")
NUMBERED = frozenset("lqQ")
LABEL = re.compile(r"[A-Za-z0-9_.-]+")
NUMBER = re.compile(r"[0-9]+")
SPACES = re.compile(r"[ \t]*")
GAPS = re.compile(r"[ \t\n;]*")
NUMERIC_ESCAPE = re.compile(r"\\[xXodc]")
STATEFUL: dict[str, str] = {
    "=": "= prints line numbers",
    "D": "D keeps text for the next cycle",
    "F": "F prints the file name",
    "g": "g uses text of earlier lines",
    "G": "G uses text of earlier lines",
    "h": "h keeps text for later lines",
    "H": "H keeps text for later lines",
    "x": "x uses text of earlier lines",
    "n": "n reads the next line",
    "N": "N reads the next line",
    "q": "q stops",
    "Q": "Q stops",
    "l": "l depends on the line width",
    "c": "c may replace a range",
}


class AddressKind(Enum):
    """How an address chooses lines."""

    LINE = "line"
    LAST = "last"
    REGEX = "regex"
    STEP = "step"
    AFTER = "after"
    """`,+N` or `,~N`."""


@dataclass(frozen=True, slots=True)
class Address:
    """One address; `text` is the regular expression of a REGEX."""

    kind: AddressKind
    text: str = ""


@dataclass(frozen=True, slots=True)
class SedCommand:
    """One command of a script.

    Attributes:
        name: its letter, or one of `{ } : #`.
        addresses: none, one, or the two of a range.
        regex: of s; the characters to replace of y.
        text: the replacement of s and y, the text of a, i and c, or a label.
        flags: of s.
    """

    name: str
    addresses: tuple[Address, ...] = ()
    regex: str = ""
    text: str = ""
    flags: str = ""


def read_sed(script: str) -> tuple[SedCommand, ...]:
    """Reads a script.

    Raises:
        ScriptProblem: it reads, writes or runs something, or cannot be read for certain.
    """
    return tuple(_Reader(script).commands())


class _Reader:
    def __init__(self, script: str) -> None:
        self.script = script
        self.at = 0

    def _fail(self, start: int, what: str, instead: str = "check the script, or use grep, cut or awk") -> ScriptProblem:
        return ScriptProblem(start, max(start + 1, self.at), what, instead)

    def _peek(self) -> str:
        return self.script[self.at : self.at + 1]

    def _skip(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self.script, self.at)
        if found is None:
            return ""
        self.at = found.end()
        return found.group()

    def commands(self) -> Iterator[SedCommand]:
        depth = 0
        while True:
            self._skip(GAPS)
            if self.at == len(self.script):
                break
            start = self.at
            addresses = self._addresses()
            self._skip(SPACES)
            if self._peek() == "!":
                self.at += 1
                self._skip(SPACES)
            name = self._peek()
            place = self.at
            self.at += 1
            if name in "}:#" and name and addresses:
                raise self._fail(start, f"the sed command {name} takes no address")
            if name == "}" and not depth:
                raise self._fail(place, "this } of the sed script closes nothing")
            depth += {"{": 1, "}": -1}.get(name, 0)
            yield self._command(name, addresses, place)
        if depth:
            raise self._fail(len(self.script) - 1, "a { of the sed script is never closed", "add a }")

    def _command(self, name: str, addresses: tuple[Address, ...], place: int) -> SedCommand:
        match name:
            case "{":
                return SedCommand(name, addresses)
            case "}":
                self._end_of_command()
                return SedCommand(name, addresses)
            case "#":
                end = self.script.find("\n", self.at)
                self.at = len(self.script) if end < 0 else end
                return SedCommand(name)
            case ":" | "b" | "t" | "T":
                return self._branch(name, addresses, place)
            case "a" | "i" | "c":
                return SedCommand(name, addresses, text=self._text(name, place))
            case "s":
                return self._substitute(addresses, place)
            case "y":
                source, target = self._delimited(place, regex=False)
                self._end_of_command()
                return SedCommand(name, addresses, regex=source, text=target)
            case _ if name in BARE:
                self._end_of_command()
                return SedCommand(name, addresses)
            case _ if name in NUMBERED:
                self._skip(SPACES)
                self._skip(NUMBER)
                self._end_of_command()
                return SedCommand(name, addresses)
            case "":
                raise self._fail(place - 1, "a command is missing at the end of the sed script")
            case _ if name in FORBIDDEN:
                why, instead = FORBIDDEN[name]
                raise self._fail(place, f"the sed command {name} is not available: it {why}", instead)
            case _:
                raise self._fail(place, f"sed has no command {name!r}")

    def _addresses(self) -> tuple[Address, ...]:
        first = self._address()
        if first is None:
            return ()
        self._skip(SPACES)
        if self._peek() != ",":
            return (first,)
        start = self.at
        self.at += 1
        self._skip(SPACES)
        if self._peek() in {"+", "~"}:
            self.at += 1
            if not self._skip(NUMBER):
                raise self._fail(start, "a number is missing in this address of the sed script")
            return (first, Address(AddressKind.AFTER))
        second = self._address()
        if second is None:
            raise self._fail(start, "the second address is missing in the sed script")
        return (first, second)

    def _address(self) -> Address | None:
        match self._peek():
            case "$":
                self.at += 1
                return Address(AddressKind.LAST)
            case "/":
                regex = self._until(self.at, "/")
            case "\\":
                self.at += 1
                regex = self._until(self.at - 1, self._delimiter(self.at - 1))
            case char if char.isascii() and char.isdigit():
                self._skip(NUMBER)
                self._skip(SPACES)
                if self._peek() != "~":
                    return Address(AddressKind.LINE)
                self.at += 1
                self._skip(SPACES)
                self._skip(NUMBER)
                return Address(AddressKind.STEP)
            case _:
                return None
        while self._peek() in {"I", "M"}:
            self.at += 1
        return Address(AddressKind.REGEX, regex)

    def _delimiter(self, start: int) -> str:
        char = self._peek()
        if not char or char in "\n\\" or not char.isascii() or not char.isprintable():
            raise self._fail(start, "this delimiter of the sed script is not available", "use / or | or #")
        return char

    def _until(self, start: int, delimiter: str) -> str:
        """Reads a regular expression up to its closing delimiter; `at` stands on the opening one."""
        self.at += 1
        begin = self.at
        while (char := self._peek()) != delimiter:
            if char in {"", "\n"}:
                raise self._fail(start, "an expression of the sed script is never closed", f"close it with {delimiter}")
            if char == "\\":
                self.at += 1
                if self._peek() in {"", "\n"}:
                    raise self._fail(
                        start, "an expression of the sed script is never closed", f"close it with {delimiter}"
                    )
            self.at += 1
        regex = self.script[begin : self.at]
        self.at += 1
        if bracket_open(regex):
            # Releases of sed disagree whether this delimiter ends the expression.
            raise self._fail(
                start,
                f"a {delimiter} between [ and ] of the sed script is not available",
                "use a delimiter that the expression does not hold, as in s|[/]|x|",
            )
        return regex

    def _delimited(self, place: int, *, regex: bool) -> tuple[str, str]:
        delimiter = self._delimiter(place)
        if regex:
            source = self._until(place, delimiter)
        else:
            self.at += 1
            source = self._replacement(place, delimiter)
        return source, self._replacement(place, delimiter)

    def _replacement(self, place: int, delimiter: str) -> str:
        begin = self.at
        while (char := self._peek()) != delimiter:
            if char in {"", "\n"}:
                raise self._fail(place, "a command of the sed script is never closed", f"close it with {delimiter}")
            self.at += 1 + (char == "\\")
            self.at = min(self.at, len(self.script))
        text = self.script[begin : self.at]
        self.at += 1
        return text

    def _substitute(self, addresses: tuple[Address, ...], place: int) -> SedCommand:
        regex, text = self._delimited(place, regex=True)
        flags = self._skip(re.compile(r"[gpiImM0-9]*"))
        match self._peek():
            case "w":
                self.at += 1
                raise self._fail(
                    self.at - 1, "the flag w of s is not available: it writes a file", "use the flag p to print"
                )
            case "e":
                self.at += 1
                raise self._fail(
                    self.at - 1, "the flag e of s is not available: it runs a program", "join programs with | instead"
                )
            case _:
                self._end_of_command()
        return SedCommand("s", addresses, regex, text, flags)

    def _branch(self, name: str, addresses: tuple[Address, ...], place: int) -> SedCommand:
        self._skip(SPACES)
        label = self._skip(LABEL)
        self._skip(SPACES)
        following = self._peek()
        closes = name != ":" and following == "}"
        if (name == ":" and not label) or not (closes or following in {"", ";", "\n"}):
            raise self._fail(
                place, "this label of the sed script is not available", "use letters and digits, then ; or a line break"
            )
        return SedCommand(name, addresses, text=label)

    def _text(self, name: str, place: int) -> str:
        self._skip(SPACES)
        if self._peek() == "\\":
            self.at += 1
            self._skip(SPACES)
            if self._peek() == "\n":
                self.at += 1
                self._skip(SPACES)
        begin = self.at
        if self._peek() in {"", "\n", "\\"}:
            # Releases of sed disagree about where a text ends that starts empty or with a backslash.
            raise self._fail(place, f"the text of the sed command {name} is missing", f"write it as: {name} TEXT")
        while self._peek() not in {"", "\n"}:
            self.at = min(len(self.script), self.at + 1 + (self._peek() == "\\"))
        return self.script[begin : self.at]

    def _end_of_command(self) -> None:
        self._skip(SPACES)
        if self._peek() not in {"", ";", "\n", "}", "#"}:
            self.at += 1
            raise self._fail(
                self.at - 1, "this follows a complete command of the sed script", "separate commands with ;"
            )


def sed_facts(commands: tuple[SedCommand, ...], *, quiet: bool) -> ScriptFacts:
    """Says what slices allow: OPAQUE unless every cycle depends on its own line alone.

    Args:
        quiet: whether -n is given.
    """
    why = next((reason for command in commands if (reason := _stateful(command))), "")
    if why:
        return ScriptFacts(Effect.OPAQUE, why=why)
    odd = any(NUMERIC_ESCAPE.search(command.text) or NUMERIC_ESCAPE.search(command.regex) for command in commands)
    names = {command.name for command in commands}
    prints = "p" in names
    selects = names <= {"d", "{", "}", "#"} and not quiet
    picks = names <= {"p", "d", "{", "}", "#"} and quiet and sum(c.name == "p" for c in commands) <= 1
    if selects or (picks and prints):
        return ScriptFacts(Effect.FILTER)
    return ScriptFacts(Effect.MAP, odd_bytes=odd)


def _stateful(command: SedCommand) -> str:
    if len(command.addresses) > 1:
        return "a range carries over lines"
    for address in command.addresses:
        if address.kind is not AddressKind.REGEX:
            return "a line number or $ counts lines"
        if not address.text:
            return "an empty expression stands for the last one used"
    if command.name == "s" and not command.regex:
        return "an empty expression stands for the last one used"
    if command.name in {"a", "i"}:
        return f"{command.name} adds lines"
    return STATEFUL.get(command.name, "")
