"""What tr's sets allow on slices: whether line breaks are left alone, whether odd bytes may come out."""

from __future__ import annotations

import re
import string

from grepseek_env.commands.spec import Effect
from grepseek_env.commands.syntax import ScriptFacts

__all__ = ["expand_set", "tr_facts"]

NEWLINE = 0x0A
ESCAPES = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11, "\\": 92}
CLASSES: dict[str, str] = {
    "alnum": string.ascii_letters + string.digits,
    "alpha": string.ascii_letters,
    "blank": " \t",
    "cntrl": "".join(map(chr, (*range(32), 127))),
    "digit": string.digits,
    "graph": "".join(map(chr, range(33, 127))),
    "lower": string.ascii_lowercase,
    "print": "".join(map(chr, range(32, 127))),
    "punct": string.punctuation,
    "space": " \t\n\v\f\r",
    "upper": string.ascii_uppercase,
    "xdigit": string.hexdigits,
}
"""Members in the C locale; tr is byte-wise, and C.UTF-8 gives single bytes the same classes."""
UNIT = re.compile(r"\\([0-7]{1,3}|.)|(.)", re.DOTALL)
CLASS = re.compile(r"\[:([a-z]+):\]")
REPEAT = re.compile(r"\[(\\[0-7]{1,3}|\\.|[^\\])\*([0-9]*)\]", re.DOTALL)


def expand_set(text: str) -> frozenset[int] | None:
    """Returns the bytes that a set names, or None where that is not certain."""
    if not text.isascii():
        return None
    members: set[int] = set()
    at = 0
    while at < len(text):
        if found := CLASS.match(text, at):
            if found.group(1) not in CLASSES:
                return None
            members.update(map(ord, CLASSES[found.group(1)]))
            at = found.end()
        elif text.startswith("[=", at):
            return None
        elif found := REPEAT.match(text, at):
            byte, _ = _unit(found.group(1), 0)
            if byte is None:
                return None
            members.add(byte)
            at = found.end()
        else:
            low, at = _unit(text, at)
            high = low
            if text.startswith("-", at) and at + 1 < len(text):
                high, at = _unit(text, at + 1)
            if low is None or high is None or high < low:
                return None
            members.update(range(low, high + 1))
    return frozenset(members)


def _unit(text: str, at: int) -> tuple[int | None, int]:
    found = UNIT.match(text, at)
    if found is None:
        return None, len(text)
    escaped, plain = found.groups()
    if plain is not None:
        return (None if plain == "\\" else ord(plain)), found.end()
    if escaped[0] in "01234567":
        value = int(escaped, 8)
        return (value if value < 256 else None), found.end()
    return ESCAPES.get(escaped), found.end()


def tr_facts(sets: tuple[str, ...], flags: frozenset[str]) -> ScriptFacts:
    """Says what slices allow.

    Args:
        sets: SET1 and, where given, SET2.
        flags: the first spellings of the flags given: -d, -s, -c, -t.
    """
    expanded = [expand_set(text) for text in sets]
    if any(members is None for members in expanded) or len(sets) not in {1, 2}:
        return ScriptFacts(Effect.OPAQUE, odd_bytes=True, why="what the sets name is not certain")
    first = expanded[0] or frozenset()
    second = (expanded[1] or frozenset()) if len(sets) == 2 else frozenset()
    affected = frozenset(range(256)) - first if "-c" in flags else first
    squeezed = (second if len(sets) == 2 else affected) if "-s" in flags else frozenset()
    if NEWLINE in affected or NEWLINE in squeezed:
        return ScriptFacts(Effect.OPAQUE, odd_bytes=True, why="it changes line breaks")
    touched = affected | (second if len(sets) == 2 else frozenset())
    odd = any(byte == 0 or byte > 127 for byte in touched)
    return ScriptFacts(Effect.MAP, odd_bytes=odd)
