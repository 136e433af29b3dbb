"""Command text -> words: quotes and pipes, read exactly as bash reads them, and nothing else.

Where bash would expand, redirect or chain, the text is refused: nothing here is ever expanded, except that an
unquoted glob stands for the one file it can match.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NoReturn, Protocol

from grepseek_env.commands import globs
from grepseek_env.commands.refusal import refusal
from grepseek_env.commands.syntax import Piece, Span, Word

if TYPE_CHECKING:
    from grepseek_env.errors import CommandRefused

__all__ = ["MAX_BYTES", "split"]

MAX_BYTES = 8192
"""Size of a command in UTF-8."""

PLAIN = re.compile(r"""[^\s'"\\$`|&;()<>#]+""")
BLANK = re.compile(r"[ \t]+")
SINGLE = re.compile(r"[^']*")
DOUBLE = re.compile(r"""[^"\\$`]+""")
ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\[.*\])?\+?=", re.DOTALL)
NAME_START = re.compile(r"[A-Za-z_0-9?$!#@*({\[-]")
SPACE = " \t\n"
SPECIAL = frozenset("*?[{~!")
SINGLE_QUOTES = "put it in single quotes: '...'"

OPERATORS: dict[str, tuple[str, str]] = {
    ";": ("a second command after ; is not available", "send one pipeline; to pass on a plain ; quote it: ';'"),
    "&": ("& and && are not available", "send one pipeline; to pass on a plain & quote it: '&'"),
    "|&": ("|& is not available", "join programs with | alone"),
    "||": ("|| is not available", "join programs with |, and for alternatives in a pattern quote it: 'a|b'"),
    ">": ("redirection is not available", "leave it out (output is returned); to pass on a plain > quote it: '>'"),
    "<": ("redirection is not available", "name corpus.jsonl as an argument; to pass on a plain < quote it: '<'"),
    "(": ("parentheses outside quotes are not available", "quote the pattern: '(...)'"),
    ")": ("parentheses outside quotes are not available", "quote the pattern: '(...)'"),
    "\n": ("a line break outside quotes is not available", "write the whole pipeline on one line"),
}


def split(text: str) -> list[tuple[list[Word], Span]]:
    """Splits a command into stages of words.

    Returns:
        For each stage its words (at least one) and its place in the text.

    Raises:
        CommandRefused: the text is outside the language.
    """
    _check_text(text)
    return _Lexer(text).stages()


def _check_text(text: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        span = Span(error.start, error.start + 1)
        raise refusal(
            text, span, "this character is half of a surrogate pair", "write the whole character", "surrogate"
        ) from None
    if size > MAX_BYTES:
        raise refusal(
            text,
            Span(len(text) - 1, len(text)),
            f"the command has {size} bytes; at most {MAX_BYTES} are read",
            "write a shorter command",
            "too-long",
        )
    for bad in ("\0", "\1", "\x7f"):  # bash marks quoted text with the last two, so they would not arrive unchanged
        if (at := text.find(bad)) >= 0:
            raise refusal(
                text,
                Span(at, at + 1),
                f"the control character 0x{ord(bad):02X} cannot be part of a command",
                "leave it out",
                "control-character",
            )


class _Lexer:
    """One pass over a text; every method that reads moves `at` behind what it has read."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.end = len(text)
        while self.end and text[self.end - 1] in SPACE and not self._escaped(self.end - 1):
            self.end -= 1

    def _escaped(self, index: int) -> bool:
        backslashes = 0
        while index - backslashes and self.text[index - backslashes - 1] == "\\":
            backslashes += 1
        return backslashes % 2 == 1

    def _refuse(self, span: tuple[int, int], what: str, instead: str, reason: str) -> CommandRefused:
        return refusal(self.text, Span(*span), what, instead, reason)

    def stages(self) -> list[tuple[list[Word], Span]]:
        text = self.text
        while self.at < self.end and text[self.at] in SPACE:
            self.at += 1
        stages: list[tuple[list[Word], Span]] = []
        words: list[Word] = []
        start = self.at
        while True:
            self._skip_blanks()
            char = text[self.at] if self.at < self.end else ""
            match char:
                case "" | "|":
                    self._check_pipe(char)
                    if not words:
                        self._empty_stage(char, first=not stages)
                    stages.append((words, Span(start, words[-1].span.end)))
                    if not char:
                        return stages
                    self.at += 1
                    self._skip_blanks()
                    words, start = [], self.at
                case "&" | ";" | "<" | ">" | "(" | ")" | "\n":
                    self._operator(char)
                case "#":
                    raise self._refuse(
                        (self.at, self.end),
                        "a comment is not available",
                        "quote a # that starts a word: '#'",
                        "comment",
                    )
                case _:
                    words.append(self._word(first=not words))

    def _skip_blanks(self) -> None:
        while True:
            if found := BLANK.match(self.text, self.at, self.end):
                self.at = found.end()
            elif self.text.startswith("\\\n", self.at, self.end):
                self.at += 2
            else:
                return

    def _check_pipe(self, char: str) -> None:
        pair = self.text[self.at : self.at + 2]
        if char and pair in OPERATORS:
            raise self._refuse((self.at, self.at + 2), *OPERATORS[pair], "operator")

    def _empty_stage(self, char: str, *, first: bool) -> NoReturn:
        if first and not char:
            raise self._refuse(
                (0, 0), "the command is empty", "write one pipeline such as: rg -F 'word' corpus.jsonl", "empty"
            )
        pipe = self.at if char else self.text.rindex("|", 0, self.end)
        raise self._refuse(
            (pipe, pipe + 1), "a program is missing beside this |", "write a program there", "empty-stage"
        )

    def _operator(self, char: str) -> NoReturn:
        width = 2 if self.text[self.at : self.at + 2] in {"&&", ">>", "<<", ";;", "&>", ">&", "<&"} else 1
        raise self._refuse((self.at, self.at + width), *OPERATORS[char], "operator")

    def _word(self, *, first: bool) -> Word:
        text, begin = self.text, self.at
        parts: list[str] = []
        pieces: list[Piece] = []
        length = 0
        special = False

        def add(part: str, origin: int, *, quoted: bool) -> None:
            nonlocal length
            if part:
                parts.append(part)
                pieces.append(Piece(length, origin, quoted))
                length += len(part)

        while self.at < self.end:
            if found := PLAIN.match(text, self.at, self.end):
                special = special or not SPECIAL.isdisjoint(found.group())
                add(found.group(), self.at, quoted=False)
                self.at = found.end()
                continue
            match text[self.at]:
                case "'":
                    inside = SINGLE.match(text, self.at + 1)
                    assert inside is not None  # noqa: S101 - the pattern matches the empty text
                    if inside.end() >= len(text):
                        self._unclosed("'")
                    add(inside.group(), self.at + 1, quoted=True)
                    self.at = inside.end() + 1
                case '"':
                    self._double(add)
                case "\\":
                    if self.at + 1 >= len(text):
                        raise self._refuse(
                            (self.at, self.at + 1),
                            "a lone backslash ends the command",
                            "write \\\\ or '\\'",
                            "backslash",
                        )
                    if text[self.at + 1] != "\n":
                        add(text[self.at + 1], self.at + 1, quoted=True)
                    self.at += 2
                case "$":
                    self._dollar(quoted=False)
                    add("$", self.at, quoted=False)
                    self.at += 1
                case "`":
                    self._substitution()
                case " " | "\t" | "\n" | "|" | "&" | ";" | "<" | ">" | "(" | ")":
                    break
                case other:  # a # inside a word, or white space that is no separator to bash
                    add(other, self.at, quoted=False)
                    self.at += 1
        word = Word("".join(parts), Span(begin, self.at), tuple(pieces))
        self._check_assignments(word, first=first)
        return self._expand(word, first=first) if special else word

    def _double(self, add: _Add) -> None:
        """Reads "...": a backslash quotes only $ ` " and itself there, and removes a line break."""
        text, opening = self.text, self.at
        self.at += 1
        while True:
            if found := DOUBLE.match(text, self.at):
                add(found.group(), self.at, quoted=True)
                self.at = found.end()
            if self.at >= len(text):
                self.at = opening
                self._unclosed('"')
            match text[self.at]:
                case '"':
                    self.at += 1
                    return
                case "\\":
                    following = text[self.at + 1 : self.at + 2]
                    if following == "\n":
                        self.at += 2
                    elif following and following in '$`"\\':
                        add(following, self.at + 1, quoted=True)
                        self.at += 2
                    else:
                        add("\\", self.at, quoted=True)
                        self.at += 1
                case "$":
                    self._dollar(quoted=True)
                    add("$", self.at, quoted=True)
                    self.at += 1
                case _:
                    self._substitution()

    def _unclosed(self, quote: str) -> NoReturn:
        name = "single" if quote == "'" else "double"
        other = '"' if quote == "'" else "'"
        raise self._refuse(
            (self.at, self.at + 1),
            f"this {name} quote is never closed",
            f"close it, or quote a plain {quote} with the other kind: {other}{quote}{other}",
            "unclosed-quote",
        )

    def _substitution(self) -> NoReturn:
        raise self._refuse(
            (self.at, self.at + 1),
            "command substitution is not available",
            f"for a plain ` {SINGLE_QUOTES}",
            "expansion",
        )

    def _dollar(self, *, quoted: bool) -> None:
        """Refuses a $ at which bash would expand; any other $ is plain."""
        text, following = self.text, self.text[self.at + 1 : self.at + 2]
        if following == "(":
            what, width = "command substitution and arithmetic are not available", 2
        elif NAME_START.match(following):
            what = "variables are not available: bash would replace this"
            name = re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*|.)", re.DOTALL).match(text, self.at)
            width = len(name.group()) if name else 2
        elif following in {"'", '"'} and following and not quoted:
            what, width = f"${following}...{following} is not available", 2
        elif following == "\\" and text.startswith("\n", self.at + 2):
            what, width = "a line break after $ is not available", 3
        else:
            return
        raise self._refuse((self.at, self.at + width), what, f"for a plain $ {SINGLE_QUOTES}", "expansion")

    def _check_assignments(self, word: Word, *, first: bool) -> None:
        found = ASSIGNMENT.match(word.value)
        if found is None:
            return
        mask = globs.bare(word)
        if first and all(mask[: found.end()]):
            raise self._refuse(
                (word.span.start, word.origin(found.end() - 1) + 1),
                "variables cannot be set",
                "start with a program, such as: rg -F 'word' corpus.jsonl",
                "assignment",
            )
        for index in range(found.end(), len(word.value)):
            if word.value[index] == "~" and mask[index] and word.value[index - 1] in "=:":
                self._tilde(word, index)

    def _tilde(self, word: Word, index: int) -> NoReturn:
        raise self._refuse(
            word.part(index, index + 1),
            "~ is not available: bash would replace it",
            "quote a plain ~: '~'",
            "expansion",
        )

    def _expand(self, word: Word, *, first: bool) -> Word:
        """Handles what bash does with a word that holds unquoted special characters."""
        if word.value[0] == "~" and word.pieces[0].origin == word.span.start and not word.pieces[0].quoted:
            self._tilde(word, 0)
        if first and word.value == "!":
            raise self._refuse(
                word.span, "! is not available", "use grep -v or rg -v to select what does not match", "operator"
            )
        if (brace := globs.brace(word)) is not None:
            raise self._refuse(
                word.part(*brace),
                "{a,b} is not available: bash would expand it",
                f"for plain braces {SINGLE_QUOTES}",
                "expansion",
            )
        match globs.expand(word):
            case globs.Literal():
                return word
            case globs.Match(name) if not first:
                return Word(name, word.span)
            case _:
                raise self._refuse(
                    word.span,
                    "bash would expand this pattern of file names",
                    f"for a plain *, ? or [ {SINGLE_QUOTES}; the corpus is corpus.jsonl",
                    "glob",
                )


class _Add(Protocol):
    """Adds a run of characters to a word."""

    def __call__(self, part: str, origin: int, *, quoted: bool) -> None: ...
