"""Kernels that cut lines into blocks, list the tokens of blocks, and group them: each with the blocks that hold it."""

from __future__ import annotations

from grepseek_env.engine.index.texts import CUT, fold64, hash_token, kept, same_text, starts64, token_length
from grepseek_env.engine.kernels.compiler import U64, kernel
from grepseek_env.engine.kernels.simd import (
    copy,
    ctz,
    load32,
    load64,
    next_newline,
    prefetch,
    previous_newline,
    store8,
    store16,
    store32,
    store64,
)

__all__ = ["block_starts", "group", "scatter", "tokenise"]

_U0, _U1, _U7, _U8, _U64 = U64(0), U64(1), U64(7), U64(8), U64(64)
_CUT = U64(CUT)
_AHEAD = U64(12)


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
