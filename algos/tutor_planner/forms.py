r"""Surface forms: whether a text says a name, whatever its case, accents, punctuation or JSON escapes.

Forms are compared as runs of letters and digits: `Thikit-Mills`, `THIKIT MILLS` and ``Th\u00edkit Mills`` all say
"Thikit Mills", and `440148` says "440,148". A form must begin and end where words do, so "rose" is not in "prosecutor".
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Folded", "Forms", "fold", "is_generic", "words"]

# Letters that Unicode does not decompose, as people write them without.
_PLAIN = str.maketrans({
    "ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "ð": "d", "Ð": "D", "ß": "ss", "æ": "ae", "Æ": "Ae",
    "œ": "oe", "Œ": "Oe", "þ": "th", "Þ": "Th", "\N{LATIN SMALL LETTER DOTLESS I}": "i", "ħ": "h",
})  # fmt: skip
# Also with its backslash escaped once more, and as the hexadecimal escapes of patterns.
_ESCAPE = re.compile(r"\\+(u[0-9a-fA-F]{4}|x\{[0-9a-fA-F]{1,5}\}|x[0-9a-fA-F]{2}|[nrtbf\"/\\])")
_SEPARATED = re.compile(r"(?<=\d)[,  ](?=\d{3}(?!\d))")
_WORD = re.compile(r"[^\W_]+")
_APOSTROPHES = dict.fromkeys(map(ord, "'’`\u2018\u02bc\u00b4"))

GENERIC = frozenset({
    "yes", "no", "both", "neither", "none", "either", "true", "false", "one", "two", "three", "four", "five", "six",
    "seven", "eight", "nine", "ten", "eleven", "twelve", "first", "second", "third", "once", "twice",
})  # fmt: skip


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] in "ux":
        return chr(int(code[1:].strip("{}"), 16))
    return {"n": "\n", "r": "\n", "t": "\t", '"': '"'}.get(code, " ")


def fold(text: str) -> str:
    """Returns the text in lower case without accents, JSON escapes, apostrophes and digit separators."""
    text = _ESCAPE.sub(_unescaped, text) if "\\" in text else text
    if not text.isascii():
        text = unicodedata.normalize("NFKD", text.translate(_PLAIN))
        text = "".join(letter for letter in text if not unicodedata.combining(letter))
    return _SEPARATED.sub("", text.translate(_APOSTROPHES)).casefold()


def words(text: str) -> list[str]:
    """Returns the words of a text, folded."""
    return _WORD.findall(fold(text))


@dataclass(frozen=True, slots=True)
class Folded:
    """A text prepared for the question whether it says a form.

    Attributes:
        text: the original.
        tokens: its folded words.
    """

    text: str
    tokens: tuple[str, ...] = field(init=False)
    _run: str = field(init=False, repr=False)
    _starts: frozenset[int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        tokens = tuple(words(self.text))
        starts, at = set(), 0
        for token in tokens:
            starts.add(at)
            at += len(token)
        starts.add(at)
        object.__setattr__(self, "tokens", tokens)
        object.__setattr__(self, "_run", "".join(tokens))
        object.__setattr__(self, "_starts", frozenset(starts))

    def says(self, form: str) -> bool:
        """Tells whether the text says this form; a form without letters and digits is never said."""
        wanted = _run(form)
        at = self._run.find(wanted) if wanted else -1
        while at >= 0:
            if at in self._starts and at + len(wanted) in self._starts:
                return True
            at = self._run.find(wanted, at + 1)
        return False

    def says_any(self, forms: Iterable[str]) -> bool:
        """Tells whether the text says at least one of these forms."""
        return any(self.says(form) for form in forms)


@lru_cache(maxsize=1 << 14)
def _run(form: str) -> str:
    return "".join(words(form))


@lru_cache(maxsize=1 << 14)
def is_generic(form: str) -> bool:
    """Tells whether an answer is too common to be guarded: yes, no, both, a number word, a number below 100."""
    tokens = words(form)
    return not tokens or all(token in GENERIC or (token.isdigit() and len(token) <= 2) for token in tokens)


@dataclass(frozen=True, slots=True)
class Forms:
    """Everything that counts as one answer: all of it is accepted by a judge and forbidden in a command.

    Attributes:
        answer: the expected answer; empty where it is not known beforehand.
        aliases: other names of the same thing.
        alternates: other answers that would be right as well.
    """

    answer: str = ""
    aliases: tuple[str, ...] = ()
    alternates: tuple[str, ...] = ()

    @property
    def accepted(self) -> tuple[str, ...]:
        """All forms, the expected answer first, each once."""
        return tuple(dict.fromkeys(form for form in (self.answer, *self.aliases, *self.alternates) if form.strip()))

    @property
    def concrete(self) -> tuple[str, ...]:
        """The accepted forms that are no generic words: those that can give something away."""
        return tuple(form for form in self.accepted if not is_generic(form))

    def said_in(self, *texts: Folded) -> bool:
        """Tells whether one of the texts says one of the concrete forms."""
        return any(text.says_any(self.concrete) for text in texts)
