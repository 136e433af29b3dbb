"""Kernels that make one dictionary of all runs: each token with the coded list of its blocks."""

from __future__ import annotations

from grepseek_env.engine.index.codes import gram_row, write_list
from grepseek_env.engine.index.layout import BUCKET
from grepseek_env.engine.index.texts import CUT, DIGITS_KEPT
from grepseek_env.engine.kernels.compiler import U64, inline, kernel
from grepseek_env.engine.kernels.simd import copy, ctz, equal, load8, load16, load32, load64, store8, store32, store64

__all__ = ["encode", "mark_grams", "unite"]

_U0, _U1, _U4, _U7, _U8 = U64(0), U64(1), U64(4), U64(7), U64(8)
_ENTRY = U64(40)
_TEN = U64(10)


@kernel("uint64(uint64,uint64,uint64,uint64,uint64,uint64,uint64)")
def unite(segments: int, runs: int, table: int, slots: int, entries: int, owners: int, blocks: int) -> int:
    """Makes one list of blocks for each token of one part of all runs.

    Args:
        segments: address of a row of five 64-bit numbers a run: address of its segment (see `tokens.group`), tokens,
            bytes of text, blocks, and the number of the run's first block.
        runs: how many.
        table: address of room for `slots` numbers of 32 bits.
        slots: a power of 2, more than all tokens.
        entries: address of room for 40 bytes per token: hash, address and length of its text, number of its blocks,
            where in `blocks` they end.
        owners: address of room for a 32-bit number per token and run.
        blocks: address of room for a 32-bit number per block and token.

    Returns:
        how many different tokens.
    """
    mask = slots - _U1
    for i in range(slots):
        store32(table + i * _U4, _U0)
    distinct = _U0
    turn = _U0
    for r in range(runs):
        row = segments + r * U64(40)
        data = load64(row)
        tokens = load64(row + U64(8))
        counts = data + tokens * _U8
        lengths = counts + ((tokens * _U4 + _U7) & ~_U7)
        text = lengths + ((tokens + _U7) & ~_U7)
        for i in range(tokens):
            g = load64(data + i * _U8)
            size = load8(lengths + i)
            q = (g >> U64(20)) & mask
            t = load32(table + q * _U4)
            while t != _U0:
                entry = entries + (t - _U1) * _ENTRY
                if load64(entry) == g and (
                    (g & _U1) == _U0 or (load64(entry + U64(16)) == size and equal(load64(entry + U64(8)), text, size))
                ):
                    break
                q = (q + _U1) & mask
                t = load32(table + q * _U4)
            if t == _U0:
                entry = entries + distinct * _ENTRY
                distinct += _U1
                t = distinct
                store32(table + q * _U4, t)
                store64(entry, g)
                store64(entry + U64(8), text)
                store64(entry + U64(16), size)
                store64(entry + U64(24), _U0)
            else:
                entry = entries + (t - _U1) * _ENTRY
            store64(entry + U64(24), load64(entry + U64(24)) + load32(counts + i * _U4))
            store32(owners + turn * _U4, t - _U1)
            turn += _U1
            text += size
    at = _U0
    for t in range(distinct):
        store64(entries + t * _ENTRY + U64(32), at)
        at += load64(entries + t * _ENTRY + U64(24))
    turn = _U0
    for r in range(runs):
        row = segments + r * U64(40)
        data = load64(row)
        tokens = load64(row + U64(8))
        first = load64(row + U64(32))
        counts = data + tokens * _U8
        lengths = counts + ((tokens * _U4 + _U7) & ~_U7)
        text = lengths + ((tokens + _U7) & ~_U7)
        source = text + ((load64(row + U64(16)) + _U7) & ~_U7)
        for i in range(tokens):
            entry = entries + load32(owners + turn * _U4) * _ENTRY
            turn += _U1
            at = load64(entry + U64(32))
            n = load32(counts + i * _U4)
            for z in range(n):
                store32(blocks + (at + z) * _U4, first + load16(source + z * U64(2)))
            source += n * U64(2)
            store64(entry + U64(32), at + n)
    return distinct


@inline
def special_bits(text: int, size: int) -> int:
    """Bits 2 to 5: it holds U+212A, U+017F, U+0131, U+0130."""
    bits = _U0
    for i in range(size):
        byte = load8(text + i)
        if byte >= U64(0x80) and i + _U1 < size:
            two = (byte << U64(8)) | load8(text + i + _U1)
            if two == U64(0xC5BF):
                bits |= U64(8)
            elif two == U64(0xC4B1):
                bits |= U64(16)
            elif two == U64(0xC4B0):
                bits |= U64(32)
            elif two == U64(0xE284) and i + U64(2) < size and load8(text + i + U64(2)) == U64(0xAA):
                bits |= _U4
    return bits


@inline
def classes(text: int, size: int) -> int:
    """What a token counts for beside itself; bit i: the i-th list of `layout.EXTRA`."""
    if load8(text + size - _U1) == U64(CUT):
        # a long word may begin with digits too: what is kept of it is longer
        return _U1 if size == U64(DIGITS_KEPT + 1) else U64(2) | special_bits(text, size)
    return special_bits(text, size)


@kernel("uint64(uint64,uint64,uint64,uint64,uint64,uint64,uint64,uint64,uint64,uint64,uint64)")
def encode(
    order: int,
    tokens: int,
    entries: int,
    blocks: int,
    all_blocks: int,
    lists: int,
    sizes: int,
    texts: int,
    rows: int,
    maps: int,
    map_bytes: int,
) -> int:
    """Codes the tokens of one part.

    Args:
        order: address of their numbers in order of their hashes, 64 bits each.
        tokens: how many.
        entries: see `unite`.
        blocks: see `unite`.
        all_blocks: how many blocks the corpus has.
        lists: address of room for the coded lists: 32 bytes a token, 8 a block, 64 more.
        sizes: address of room for a byte per token, rounded up to buckets: bytes of its list; 255 where the list
            begins with its length (these 4 bytes counted) as a 32-bit number.
        texts: address of room for the texts, each after a newline.
        rows: address of room for three 64-bit numbers a bucket: high half of the first hash, offset of its texts, of
            its lists; and one row more for the bytes of both.
        maps: address of bit maps of blocks, one for each list of `layout.EXTRA`.
        map_bytes: bytes of one.

    Returns:
        how many buckets.
    """
    to = lists
    text_to = texts
    buckets = _U0
    for i in range(tokens):
        entry = entries + load64(order + i * _U8) * _ENTRY
        if i & U64(BUCKET - 1) == _U0:
            row = rows + buckets * U64(24)
            store64(row, load64(entry) >> U64(32))
            store64(row + U64(8), text_to - texts)
            store64(row + U64(16), to - lists)
            for z in range(U64(BUCKET)):
                store8(sizes + buckets * U64(BUCKET) + z, _U0)
            buckets += _U1
        text = load64(entry + U64(8))
        size = load64(entry + U64(16))
        count = load64(entry + U64(24))
        numbers = blocks + (load64(entry + U64(32)) - count) * _U4
        store8(text_to, _TEN)
        copy(text_to + _U1, text, size)
        text_to += size + _U1
        begin = to
        to = write_list(begin + _U4, numbers, count, all_blocks)
        length = to - begin - _U4
        if length < U64(255):
            # moved over the place of the length, forwards and 8 bytes at a time: source and target overlap
            for z in range((length + _U7) >> U64(3)):
                store64(begin + z * _U8, load64(begin + _U4 + z * _U8))
            to = begin + length
            store8(sizes + i, length)
        else:
            store32(begin, length + _U4)
            store8(sizes + i, U64(255))
        kinds = classes(text, size)
        while kinds != _U0:
            at = maps + ctz(kinds) * map_bytes
            kinds &= kinds - _U1
            for z in range(count):
                b = load32(numbers + z * _U4)
                store8(at + (b >> U64(3)), load8(at + (b >> U64(3))) | (_U1 << (b & _U7)))
    row = rows + buckets * U64(24)
    store64(row + U64(8), text_to - texts)
    store64(row + U64(16), to - lists)
    return buckets


@kernel("uint64(uint64,uint64,uint64,uint64,uint64)")
def mark_grams(texts: int, size: int, shift: int, grams: int, row_bytes: int) -> int:
    """Sets, for each three bytes that follow one another, the bit of the group of 2**shift bytes in which they begin.

    Args:
        texts: address of the dictionary's texts.
        size: bytes of them.
        shift: see above.
        grams: address of 2**11 rows of bits, all 0.
        row_bytes: bytes of a row.
    """
    if size < U64(3):
        return _U0
    for i in range(size - U64(2)):
        x = (load8(texts + i) << U64(16)) | (load8(texts + i + _U1) << _U8) | load8(texts + i + U64(2))
        g = i >> shift
        at = grams + gram_row(x) * row_bytes + (g >> U64(3))
        store8(at, load8(at) | (_U1 << (g & _U7)))
    return size
