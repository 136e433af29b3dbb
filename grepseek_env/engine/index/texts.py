"""What a token is, to kernels: where it begins and ends, by what text and by what hash it is known.

A token is a maximal run of word bytes, [0-9A-Za-z] or 0x80 and more, with ASCII letters in lower case; a byte of 0xE2
or more (typographic signs, CJK, emoji) always begins a new one. Where a token begins and ends depends on the byte at
the place and its two neighbours alone, so text and query are cut alike wherever the query begins.

Very long tokens are known by their beginning and a byte 1, which is no word byte: digits by 5, others by 24.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from grepseek_env.engine.kernels.compiler import U64, emitted, inline
from grepseek_env.engine.kernels.simd import VECTOR, byte_mask, equal, load8, load64, load_vector, store_vector

__all__ = [
    "CUT",
    "DIGITS_KEPT",
    "LONG_KEPT",
    "MOST_BYTES",
    "fold64",
    "hash_cut_digits",
    "hash_cut_long",
    "hash_token",
    "kept",
    "same_text",
    "starts64",
    "token_length",
]

MOST_BYTES = 48  # a longer token is cut
LONG_KEPT = 24
DIGITS_KEPT = 5  # digits alone are cut when longer: numbers would fill the dictionary
CUT = 1  # the byte that ends a cut token's text

_M63 = U64(0x7FFFFFFFFFFFFFFF)
_ALL = U64(0xFFFFFFFFFFFFFFFF)
_NO_DIGIT = U64(0xC0C0C0C0C0C0C0C0)  # letters have 0x40, bytes beyond ASCII 0x80, digits neither
_C1 = U64(0x9E3779B97F4A7C15)
_C2 = U64(0xD6E8FEB86659FD93)
_CUT_MIX = U64(0xA0761D6478BD642F)
_U0, _U1, _U5, _U7, _U8 = U64(0), U64(1), U64(DIGITS_KEPT), U64(7), U64(8)
_U24, _U48, _U64 = U64(LONG_KEPT), U64(MOST_BYTES), U64(64)
_CUT = U64(CUT)
_SPLIT = U64(0xE2)
_AHEAD = U64(12)


def _constant(value: int) -> Any:
    return ir.Constant(VECTOR, [value] * VECTOR.count)


@emitted(U64, U64)
def fold64(builder: Any, address: Any) -> Any:
    """Folds 64 bytes in place (A-Z to a-z, bytes that are no word bytes to 0); bit i: byte i is a word byte."""
    raw = load_vector(builder, address)
    upper = builder.icmp_unsigned("<", builder.sub(raw, _constant(65)), _constant(26))
    low = builder.select(upper, builder.or_(raw, _constant(32)), raw)
    letter = builder.icmp_unsigned("<", builder.sub(low, _constant(97)), _constant(26))
    digit = builder.icmp_unsigned("<", builder.sub(raw, _constant(48)), _constant(10))
    high = builder.icmp_unsigned(">=", raw, _constant(128))
    word = builder.or_(builder.or_(letter, digit), high)
    store_vector(builder, address, builder.select(word, low, _constant(0)))
    return byte_mask(builder, word)


@emitted(U64, U64)
def starts64(builder: Any, address: Any) -> Any:
    """Bit i: the byte at address + i always begins a token."""
    return byte_mask(builder, builder.icmp_unsigned(">=", load_vector(builder, address), _constant(0xE2)))


@inline
def mix(x: int) -> int:
    """Mixes a number below 2**63; different ones stay different."""
    x = (x * _C1) & _M63
    x ^= x >> U64(32)
    x = (x * _C2) & _M63
    return x ^ (x >> U64(29))


@inline
def short_hash(x: int) -> int:
    """The hash of a token of up to 7 bytes, given as a number: even, and no other token's."""
    return mix(x) << _U1


@inline
def long_hash(at: int, count: int, extra: int) -> int:
    """The hash of a token of 8 bytes and more: odd; two tokens may share it."""
    h = (count * _C2) ^ extra
    i = _U0
    while i + _U8 <= count:
        h = (h ^ load64(at + i)) * _C1
        h ^= h >> U64(32)
        i += _U8
    h = (h ^ load64(at + count - _U8)) * _C1
    h ^= h >> U64(32)
    return (mix(h & _M63) << _U1) | _U1


@inline
def kept(at: int, count: int) -> int:
    """How many bytes of a folded token are in its text; with bit 8 set if it is cut. 8 bytes after it are readable."""
    if count <= _U5:
        return count
    if count <= _U8:
        x = load64(at) & (_ALL >> (_U64 - (count << U64(3))))
        return count if (x & _NO_DIGIT) != _U0 else U64(256) | _U5
    letters = load64(at + count - _U8)
    i = _U0
    while i + _U8 <= count:
        letters |= load64(at + i)
        i += _U8
    if (letters & _NO_DIGIT) == _U0:
        return U64(256) | _U5
    return count if count <= _U48 else U64(256) | _U24


@inline
def hash_cut_digits(at: int) -> int:
    """The hash of the cut token that begins with the five digits at an address; 8 bytes are readable."""
    return short_hash((load64(at) & U64(0xFFFFFFFFFF)) | U64(CUT << 40))


@inline
def hash_cut_long(at: int) -> int:
    """The hash of the cut token that begins with the 24 bytes at an address."""
    return long_hash(at, _U24, _CUT_MIX)


@inline
def hash_token(at: int, count: int) -> int:
    """The hash of the folded token at an address; 8 bytes after it are readable."""
    if count <= _U7:
        x = load64(at) & (_ALL >> (_U64 - (count << U64(3))))
        return hash_cut_digits(at) if count > _U5 and (x & _NO_DIGIT) == _U0 else short_hash(x)
    keep = kept(at, count)
    if keep == (U64(256) | _U5):
        return hash_cut_digits(at)
    if keep > U64(255):
        return hash_cut_long(at)
    return long_hash(at, count, _U0)


@inline
def token_length(at: int) -> int:
    """Counts the bytes of the folded token that begins at an address; a byte 0 is known to come."""
    n = _U1
    while True:
        byte = load8(at + n)
        if byte == _U0 or byte >= _SPLIT:
            return n
        n += _U1


@inline
def same_text(one: int, other: int) -> bool:
    """Whether two folded tokens of 8 bytes and more have one text."""
    if load64(one) != load64(other):
        return False
    keep = kept(one, token_length(one))
    if keep != kept(other, token_length(other)):
        return False
    return equal(one, other, keep & U64(255))
