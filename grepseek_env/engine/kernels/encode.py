"""Lays filters out for the kernels, which read them by address; numpy only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["LITERAL_WORDS", "USUAL", "Needle", "Program", "Rule", "drivers", "encode"]

# Words of a literal's record.
TEXT, LENGTH, PLACE1, PLACE2, BYTE1, BYTE2, MASK1, MASK2, FOLD, SPECIALS = range(10)
LITERAL_WORDS = 10
# Words of a filter's record; FIRST and LAST number its literals.
FIRST, LAST, INVERT, WORD, WHOLE = range(5)
FILTER_WORDS = 5
# Words of a program's record, before its filters and its literals.
FILTERS, DRIVER, DRIVERS, LITERALS = range(4)
"""How many filters; the filter that finds lines, FILTERS if all lines are looked at; how many literals it searches
for (its own, then characters that stand for letters of them); the address of the first literal's record."""
PROGRAM_WORDS = 4

WORDS = {"none": 0, "ascii": 1, "unicode": 2}
SPECIAL_BITS = {b"\xe2\x84\xaa": 1, b"\xc5\xbf": 2, b"\xc4\xb1": 4, b"\xc4\xb0": 8}
"""Characters that -i takes for k, s, i and i, with their bits in SPECIALS."""


@dataclass(frozen=True, slots=True)
class Needle:
    """A literal to find.

    Attributes:
        text: one byte or more, no newline.
        fold: ASCII letters match in both cases; `text` is in lower case then.
        specials: keys of SPECIAL_BITS that stand for a letter of it; with `fold` only.
    """

    text: bytes
    fold: bool = False
    specials: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """A filter: a line passes if it holds any of the needles.

    Attributes:
        needles: at least one.
        invert: a line passes if it holds none.
        word: an occurrence counts only if no part of a word stands before or after it: "none" for any occurrence,
            "ascii" for words of letters, digits and _, "unicode" where other characters may be parts of words.
        whole: an occurrence counts only if it is the line.
    """

    needles: tuple[Needle, ...]
    invert: bool = False
    word: str = "none"
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Program:
    """Filters as the kernels read them.

    Attributes:
        address: of the record.
        keep: what must live as long as the address is used.
    """

    address: int
    keep: tuple[NDArray[np.uint8] | NDArray[np.uint64], ...]


def _usual_frequencies() -> tuple[int, ...]:
    table = [20] * 256
    for rank, byte in enumerate(b' etaoinsrhldcumfpgwyb,.v"k\\:0123456789'):
        table[byte] = 250 - 5 * rank
    for byte in b"ETAOINSRHLDCUMFPGWYBVK":
        table[byte] = 45
    for byte in range(128, 256):
        table[byte] = 60
    return tuple(table)


USUAL = _usual_frequencies()
"""How common each byte is in English text and JSON, from 20 to 250."""


def encode(rules: Sequence[Rule], frequencies: Sequence[int] = USUAL) -> Program:
    """Returns filters, of which a line must pass all, as one record.

    Args:
        rules: at least one; those that are not inverted find lines, the one with the rarest needles first.
        frequencies: how common each byte is in the corpus, by any measure.
    """
    choices = [number for number, rule in enumerate(rules) if not rule.invert]
    driver = min(choices, key=lambda number: _commonness(rules[number]), default=len(rules))
    ordered = list(rules)
    extra: tuple[Needle, ...] = ()
    if driver < len(rules):
        ordered.insert(0, ordered.pop(driver))  # its literals are then the first ones
        driver = 0
        extra = tuple(map(Needle, _specials(ordered[0])))
    own = ordered[0].needles
    needles = [*own, *extra, *(needle for rule in ordered[1:] for needle in rule.needles)]
    text = np.frombuffer(b"".join(needle.text for needle in needles) + b"\0" * 8, np.uint8)
    size = PROGRAM_WORDS + FILTER_WORDS * len(ordered) + LITERAL_WORDS * len(needles)
    record = np.zeros(size, np.uint64)
    literals = PROGRAM_WORDS + FILTER_WORDS * len(ordered)
    base = record.ctypes.data
    record[:PROGRAM_WORDS] = len(ordered), driver, len(own) + len(extra), base + 8 * literals
    first = 0
    for number, rule in enumerate(ordered):
        last = first + len(rule.needles)
        at = PROGRAM_WORDS + FILTER_WORDS * number
        record[at : at + FILTER_WORDS] = first, last, rule.invert, WORDS[rule.word], rule.whole
        first = last + (len(extra) if number == 0 else 0)
    place = text.ctypes.data
    for number, needle in enumerate(needles):
        at = literals + LITERAL_WORDS * number
        record[at : at + LITERAL_WORDS] = _literal(needle, place, frequencies)
        place += len(needle.text)
    return Program(base, (record, text))


def drivers(rule: Rule) -> int:
    """Returns how many literals are looked for where a rule finds lines: its own, and letters that stand for others."""
    return len(rule.needles) + len(_specials(rule))


def _specials(rule: Rule) -> tuple[bytes, ...]:
    return tuple(sorted({each for needle in rule.needles for each in needle.specials}))


def _literal(needle: Needle, place: int, frequencies: Sequence[int]) -> tuple[int, ...]:
    text = needle.text
    order = sorted(range(len(text)), key=lambda index: (_frequency(needle, index, frequencies), index))
    one, two = order[0], order[min(1, len(order) - 1)]
    masks = [0x20 if needle.fold and 97 <= text[index] <= 122 else 0 for index in (one, two)]
    specials = sum({SPECIAL_BITS[each] for each in needle.specials})
    return place, len(text), one, two, text[one], text[two], *masks, needle.fold, specials


def _frequency(needle: Needle, index: int, frequencies: Sequence[int]) -> int:
    byte = needle.text[index]
    if needle.fold and 97 <= byte <= 122:
        return frequencies[byte] + frequencies[byte - 32]
    return frequencies[byte]


def _commonness(rule: Rule) -> tuple[int, int]:
    """Orders filters by how many lines they are likely to pass: the shortest needle of each decides."""
    return -min(len(needle.text) for needle in rule.needles), len(rule.needles)
