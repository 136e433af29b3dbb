"""Kernels that make tokens of text, group them and count the blocks that hold each.

A token is a maximal run of word bytes, [0-9A-Za-z] or 0x80 and more, with ASCII letters in lower case; a byte of 0xE2
or more (typographic signs, CJK, emoji) always begins a new one. Where a token begins and ends depends on the byte at
the place and its two neighbours alone, so text and query are cut alike wherever the query begins.

Very long tokens are known by their beginning and a byte 1, which is no word byte: digits by 5, others by 24.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from grepseek_env.engine.kernels.compiler import U64, emitted, inline, kernel
from grepseek_env.engine.kernels.simd import (
    VECTOR,
    byte_mask,
    copy,
    ctz,
    equal,
    load8,
    load32,
    load64,
    load_vector,
    next_newline,
    prefetch,
    previous_newline,
    store8,
    store16,
    store32,
    store64,
    store_vector,
)

__all__ = [
    "CUT",
    "DIGITS_KEPT",
    "LONG_KEPT",
    "MOST_BYTES",
    "block_starts",
    "fold64",
    "group",
    "hash_cut_digits",
    "hash_cut_long",
    "hash_token",
    "kept",
    "scatter",
    "starts64",
    "tokenise",
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


@kernel("uint64(uint64,uint64,uint64,uint64,uint64,uint64,uint64)")
def block_starts(text: int, size: int, origin: int, least: int, unit: int, most: int, starts: int) -> int:
    """Cuts lines into blocks of at least `least` bytes; a block also ends at the first line end after each `unit`.

    Args:
        text: address of whole lines.
        size: bytes of them.
        origin: where they begin in the corpus: units are counted from its beginning.
        least: bytes of a block.
        unit: see above; so blocks do not depend on where runs are cut.
        most: a line that goes on for more bytes than this after the end of a unit has a block of its own.
        starts: address of room for size // least + 2 * size // unit + 4 numbers of 32 bits: where blocks start, and
            `size`.

    Returns:
        how many blocks.
    """
    count = _U0
    at = _U0
    while at < size:
        store32(starts + count * U64(4), at)
        count += _U1
        border = ((origin + at) // unit + _U1) * unit - origin
        wanted = min(at + least, border)
        if wanted >= size:
            break
        to = next_newline(text + wanted - _U1, text + size) - text
        if to > border + most:
            before = previous_newline(text + border, text + at) - text
            if before > at:
                to = before
        elif to > border:  # the first line end after the unit's is nearer
            to = next_newline(text + border - _U1, text + size) - text
        at = to
    store32(starts + count * U64(4), size)
    return count


@kernel("uint64(uint64,uint64,uint64,uint64,uint64,uint64,uint64,uint64)")
def tokenise(text: int, starts: int, blocks: int, most: int, seen: int, slots: int, hashes: int, places: int) -> int:
    """Folds text in place and lists its tokens, most of a block's repetitions left out.

    Args:
        text: address; 64 bytes after it are room too.
        starts: address of the blocks' starts and the end, 32 bits each.
        blocks: how many.
        most: a block longer than this is left out.
        seen: address of room for `slots` times 16 bytes.
        slots: a power of 2.
        hashes: address of room for a number of 64 bits per token.
        places: address of room for a number of 32 bits per token: where it begins.

    Returns:
        how many tokens.
    """
    count = _U0
    mask = slots - _U1
    for i in range(slots):
        store64(seen + (i << U64(4)), _U0)
        store64(seen + (i << U64(4)) + _U8, _U0)
    for b in range(blocks):
        low = load32(starts + b * U64(4))
        size = load32(starts + b * U64(4) + U64(4)) - low
        if size > most:
            continue
        base = text + low
        carry = _U0
        begin = _U0
        words = (size + U64(63)) >> U64(6)
        for w in range(words + _U1):
            offset = w << U64(6)
            if w < words:
                split = starts64(base + offset)
                word = fold64(base + offset)
                if offset + _U64 > size:
                    word &= (_U1 << (size - offset)) - _U1
            else:
                split = _U0
                word = _U0
            before = (word << _U1) | carry
            first = word & (~before | split)
            last = before & (~word | split)
            if carry == _U0:
                begin = offset + ctz(first)
                first &= first - _U1
            carry = word >> U64(63)
            while last != _U0:
                at = base + begin
                place = low + begin
                g = hash_token(at, offset + ctz(last) - begin)
                slot = seen + (((g >> U64(9)) & mask) << U64(4))
                # a place is kept one too high: 0 is none; those of earlier blocks do not count
                known = load64(slot) == g and load64(slot + _U8) > low
                if known and (g & _U1):
                    known = same_text(at, text + load64(slot + _U8) - _U1)
                store64(hashes + count * _U8, g)
                store32(places + count * U64(4), place)
                count += _U0 if known else _U1
                store64(slot, g)
                store64(slot + _U8, place + _U1)
                begin = offset + ctz(first)
                first &= first - _U1
                last &= last - _U1
    return count


@kernel("uint64(uint64,uint64,uint64,uint64,uint64,uint64)")
def scatter(hashes: int, places: int, count: int, hashes_to: int, places_to: int, parts: int) -> int:
    """Sorts tokens by the high byte of their hash, keeping their order.

    Args:
        hashes: address of `count` numbers of 64 bits.
        places: address of as many of 32.
        count: how many.
        hashes_to: address of room for the hashes.
        places_to: address of room for the places.
        parts: address of room for 257 numbers of 64 bits: where each part begins, and the end.
    """
    for p in range(U64(257)):
        store64(parts + p * _U8, _U0)
    for i in range(count):
        slot = parts + ((load64(hashes + i * _U8) >> U64(56)) + _U1) * _U8
        store64(slot, load64(slot) + _U1)
    for p in range(U64(256)):
        store64(parts + p * _U8 + _U8, load64(parts + p * _U8 + _U8) + load64(parts + p * _U8))
    for i in range(count):
        g = load64(hashes + i * _U8)
        slot = parts + (g >> U64(56)) * _U8
        to = load64(slot)
        store64(slot, to + _U1)
        store64(hashes_to + to * _U8, g)
        store32(places_to + to * U64(4), load32(places + i * U64(4)))
    for p in range(U64(256)):  # each start has become its end
        q = U64(255) - p
        store64(parts + q * _U8 + _U8, load64(parts + q * _U8))
    store64(parts, _U0)
    return count


@kernel("uint64(uint64,uint64,uint64,uint64,uint64,uint64,uint64,uint64,uint64,uint64)")
def group(
    text: int,
    hashes: int,
    places: int,
    parts: int,
    granules: int,
    shift: int,
    starts: int,
    work: int,
    table: int,
    out: int,
) -> int:
    """Writes, part by part, each token once with the blocks that hold it.

    A part is: hashes (64 bits each), counts of blocks (32), lengths of texts (8), texts, blocks (16), each of the
    lists padded to 8 bytes.

    Args:
        text: address of the folded text.
        hashes: address of the tokens' hashes, sorted into parts.
        places: address of where they begin; used up.
        parts: address of the parts' 257 borders.
        granules: address of the number of the block, 32 bits, at each multiple of 2**shift bytes.
        shift: see there.
        starts: address of the blocks' starts.
        work: address of room for 24 bytes per token of the largest part.
        table: address of room for 4 bytes times the power of 2 that is twice that number at least.
        out: address of room for the result; begins with 256 rows of (offset, tokens, bytes of text, blocks), 64 bits.

    Returns:
        bytes written.
    """
    end = U64(256 * 32)
    for p in range(U64(256)):
        a = load64(parts + p * _U8)
        n = load64(parts + p * _U8 + _U8) - a
        row = out + (p << U64(5))
        store64(row, end)
        slots = U64(16)
        while slots < n + n:
            slots += slots
        mask = slots - _U1
        for i in range(slots):
            store32(table + i * U64(4), _U0)
        distinct = _U0
        posts = _U0
        letters = _U0
        for i in range(n):
            if i + _AHEAD < n:
                prefetch(text + load32(places + (a + i + _AHEAD) * U64(4)))
            g = load64(hashes + (a + i) * _U8)
            place = load32(places + (a + i) * U64(4))
            b = load32(granules + (place >> shift) * U64(4))
            while load32(starts + (b + _U1) * U64(4)) <= place:
                b += _U1
            q = (g >> U64(20)) & mask
            t = load32(table + q * U64(4))
            while t != _U0:
                entry = work + (t - _U1) * U64(24)
                if load64(entry) == g and ((g & _U1) == _U0 or same_text(text + place, text + load32(entry + U64(8)))):
                    break
                q = (q + _U1) & mask
                t = load32(table + q * U64(4))
            if t == _U0:
                entry = work + distinct * U64(24)
                distinct += _U1
                store32(table + q * U64(4), distinct)
                store64(entry, g)
                store32(entry + U64(8), place)
                store32(entry + U64(12), _U1)
                store32(entry + U64(16), b)
                posts += _U1
                store32(places + (a + i) * U64(4), distinct)
                store64(hashes + (a + i) * _U8, b)
            else:
                entry = work + (t - _U1) * U64(24)
                if load32(entry + U64(16)) == b:
                    store32(places + (a + i) * U64(4), _U0)
                else:
                    store32(entry + U64(16), b)
                    store32(entry + U64(12), load32(entry + U64(12)) + _U1)
                    posts += _U1
                    store32(places + (a + i) * U64(4), t)
                    store64(hashes + (a + i) * _U8, b)
        counts = out + end + distinct * _U8
        lengths = counts + ((distinct * U64(4) + _U7) & ~_U7)
        texts = lengths + ((distinct + _U7) & ~_U7)
        to = texts
        at = _U0
        for t in range(distinct):
            entry = work + t * U64(24)
            store64(out + end + t * _U8, load64(entry))
            store32(counts + t * U64(4), load32(entry + U64(12)))
            place = text + load32(entry + U64(8))
            keep = kept(place, token_length(place))
            size = keep & U64(255)
            copy(to, place, size)
            if keep > U64(255):
                store8(to + size, _CUT)
                size += _U1
            store8(lengths + t, size)
            to += size
            store32(entry + U64(16), at)  # from here on: where its blocks go
            at += load32(entry + U64(12))
        letters = to - texts
        blocks = texts + ((letters + _U7) & ~_U7)
        for i in range(n):
            t = load32(places + (a + i) * U64(4))
            if t != _U0:
                entry = work + (t - _U1) * U64(24)
                at = load32(entry + U64(16))
                store16(blocks + at * U64(2), load64(hashes + (a + i) * _U8))
                store32(entry + U64(16), at + _U1)
        store64(row + U64(8), distinct)
        store64(row + U64(16), letters)
        store64(row + U64(24), posts)
        end = blocks - out + ((posts * U64(2) + _U7) & ~_U7)
    return end
