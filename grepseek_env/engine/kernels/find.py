"""Finds literals in lines of a buffer.

A literal is a record of eleven 64-bit words and a filter one of five, laid out by `encode`; both are passed by
address. Buffers have a newline before their first byte and 64 readable bytes after their last, which is a newline.
"""

from __future__ import annotations

from grepseek_env.engine.kernels.compiler import U64, inline
from grepseek_env.engine.kernels.encode import (
    BYTE1,
    BYTE2,
    FILTER_WORDS,
    FIRST,
    FOLD,
    INVERT,
    LAST,
    LENGTH,
    LITERAL_WORDS,
    MASK1,
    MASK2,
    PLACE1,
    PLACE2,
    SPECIALS,
    TEXT,
    WHOLE,
    WORD,
)
from grepseek_env.engine.kernels.simd import ctz, equal, load8, load64, pair64, pair64_fold

__all__ = ["NOWHERE", "accepts", "field", "find", "passes"]

NOWHERE = 0xFFFF_FFFF_FFFF_FFFF


@inline
def field(record: int, number: int) -> int:
    """Returns a word of a record."""
    return load64(record + (U64(number) << U64(3)))


@inline
def _folded(byte: int) -> int:
    return byte | U64(32) if byte - U64(65) < U64(26) else byte


@inline
def _equal_folded(at: int, text: int, length: int) -> bool:
    index = U64(0)
    while index < length:
        if _folded(load8(at + index)) != load8(text + index):
            return False
        index += U64(1)
    return True


@inline
def find(at: int, end: int, literal: int) -> int:
    """Returns the address of a literal's first occurrence in [at, end), or NOWHERE; letters with specials aside."""
    length = field(literal, LENGTH)
    if at + length > end:
        return U64(NOWHERE)
    text = field(literal, TEXT)
    place1, place2 = field(literal, PLACE1), field(literal, PLACE2)
    byte1, byte2 = field(literal, BYTE1), field(literal, BYTE2)
    last = end - length
    if field(literal, FOLD) != U64(0):
        mask1, mask2 = field(literal, MASK1), field(literal, MASK2)
        while at <= last:
            hits = pair64_fold(at + place1, byte1, mask1, at + place2, byte2, mask2)
            while hits != U64(0):
                found = at + ctz(hits)
                if found > last:
                    return U64(NOWHERE)
                if _equal_folded(found, text, length):
                    return found
                hits &= hits - U64(1)
            at += U64(64)
        return U64(NOWHERE)
    while at <= last:
        hits = pair64(at + place1, byte1, at + place2, byte2)
        while hits != U64(0):
            found = at + ctz(hits)
            if found > last:
                return U64(NOWHERE)
            if equal(found, text, length):
                return found
            hits &= hits - U64(1)
        at += U64(64)
    return U64(NOWHERE)


@inline
def _ascii_word(byte: int) -> bool:
    return _folded(byte) - U64(97) < U64(26) or byte - U64(48) < U64(10) or byte == U64(95)


@inline
def _pair_word(lead: int, follow: int) -> int:
    """Returns whether a character of two bytes is part of a word: 0, 1, or 2 where this table does not say."""
    if follow & U64(0xC0) != U64(0x80):
        return U64(2)
    if lead == U64(0xC3):  # Latin letters, but for the signs of multiplication and division
        return U64(0) if follow == U64(0x97) or follow == U64(0xB7) else U64(1)
    latin = lead >= U64(0xC4) and (lead <= U64(0xC9) or (lead == U64(0xCA) and follow < U64(0xB0)))
    cyrillic = lead == U64(0xD0) or (lead == U64(0xD1) and follow < U64(0xBF))
    return U64(1) if latin or cyrillic else U64(2)


@inline
def _punctuation(first: int, second: int, third: int) -> int:
    """Returns 0 for dashes and quotation marks (U+2010 to U+203E), else 2."""
    common = first == U64(0xE2) and second == U64(0x80) and third >= U64(0x90) and third <= U64(0xBE)
    return U64(0) if common else U64(2)


@inline
def _word_before(at: int, kind: int) -> int:
    """Returns whether a part of a word ends before an address: 0, 1, or 2 if that is left to the program."""
    byte = load8(at - U64(1))
    if byte < U64(128) or kind == U64(1):
        return U64(1) if _ascii_word(byte) else U64(0)
    lead = load8(at - U64(2))
    if lead >= U64(0xC0):
        return _pair_word(lead, byte)
    return _punctuation(load8(at - U64(3)), lead, byte)


@inline
def _word_after(at: int, kind: int) -> int:
    """Returns whether a part of a word starts at an address: 0, 1, or 2 if that is left to the program."""
    byte = load8(at)
    if byte < U64(128) or kind == U64(1):
        return U64(1) if _ascii_word(byte) else U64(0)
    if byte < U64(0xE0):
        return _pair_word(byte, load8(at + U64(1)))
    return _punctuation(byte, load8(at + U64(1)), load8(at + U64(2)))


@inline
def accepts(rule: int, start: int, end: int) -> int:
    """Returns whether a filter takes an occurrence: 0, 1, or 2 if that is left to the program."""
    if field(rule, WHOLE) != U64(0):
        return U64(1) if load8(start - U64(1)) == U64(10) and load8(end) == U64(10) else U64(0)
    kind = field(rule, WORD)
    if kind == U64(0):
        return U64(1)
    before = _word_before(start, kind)
    if before == U64(1):
        return U64(0)
    after = _word_after(end, kind)
    if after == U64(1):
        return U64(0)
    return U64(2) if before + after > U64(0) else U64(1)


@inline
def _special(at: int, letter: int, specials: int) -> int:
    """Returns the bytes of the character at an address if it may stand for a letter that folding does not give, or 0.

    Bits of `specials`: 1 the Kelvin sign for k, 2 the long s for s, 4 the dotless i and 8 the dotted I for i.
    """
    byte = load8(at)
    if letter == U64(0x6B) and specials & U64(1) != U64(0):
        kelvin = byte == U64(0xE2) and load8(at + U64(1)) == U64(0x84) and load8(at + U64(2)) == U64(0xAA)
        return U64(3) if kelvin else U64(0)
    if letter == U64(0x73) and specials & U64(2) != U64(0):
        return U64(2) if byte == U64(0xC5) and load8(at + U64(1)) == U64(0xBF) else U64(0)
    if letter == U64(0x69) and byte == U64(0xC4):
        other = load8(at + U64(1))
        dotless = specials & U64(4) != U64(0) and other == U64(0xB1)
        dotted = specials & U64(8) != U64(0) and other == U64(0xB0)
        return U64(2) if dotless or dotted else U64(0)
    return U64(0)


@inline
def _walk(at: int, literal: int) -> int:
    """Returns the address after an occurrence that starts at `at`, letters with specials included, or 0."""
    text, length, specials = field(literal, TEXT), field(literal, LENGTH), field(literal, SPECIALS)
    index = U64(0)
    while index < length:
        letter = load8(text + index)
        if _folded(load8(at)) == letter:
            at += U64(1)
        else:
            wide = _special(at, letter, specials)
            if wide == U64(0):
                return U64(0)
            at += wide
        index += U64(1)
    return at


@inline
def _has_special(at: int, end: int, specials: int) -> bool:
    while at < end:
        byte = load8(at)
        if byte >= U64(0xC0):
            if _special(at, U64(0x6B), specials) != U64(0) or _special(at, U64(0x73), specials) != U64(0):
                return True
            if _special(at, U64(0x69), specials) != U64(0):
                return True
        at += U64(1)
    return False


@inline
def _contains(start: int, end: int, literal: int, rule: int) -> int:
    """Returns whether a line holds a literal as a filter wants it: 0, 1, or 2 if that is left to the program."""
    doubt = U64(0)
    length = field(literal, LENGTH)
    at = find(start, end, literal)
    while at != U64(NOWHERE):
        accepted = accepts(rule, at, at + length)
        if accepted == U64(1):
            return U64(1)
        doubt |= accepted
        at = find(at + U64(1), end, literal)
    specials = field(literal, SPECIALS)
    if specials != U64(0) and _has_special(start, end, specials):
        at = start
        while at < end:
            after = _walk(at, literal)
            if after != U64(0):
                accepted = accepts(rule, at, after)
                if accepted == U64(1):
                    return U64(1)
                doubt |= accepted
            at += U64(1)
    return doubt


@inline
def passes(start: int, end: int, literals: int, rule: int) -> int:
    """Returns whether a filter lets a line pass: 0, 1, or 2 if that is left to the program.

    Args:
        start: of the line.
        end: of its text, where its newline stands.
        literals: the first literal record.
        rule: the filter's record.
    """
    doubt = U64(0)
    invert = field(rule, INVERT)
    number, last = field(rule, FIRST), field(rule, LAST)
    while number < last:
        found = _contains(start, end, literals + number * U64(8 * LITERAL_WORDS), rule)
        if found == U64(1):
            return U64(1) - invert
        doubt |= found
        number += U64(1)
    return U64(2) if doubt != U64(0) else invert


RULE_BYTES = 8 * FILTER_WORDS
