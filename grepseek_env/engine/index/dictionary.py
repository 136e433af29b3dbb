"""Kernels that find a literal's pieces in the dictionary of tokens."""

from __future__ import annotations

from grepseek_env.engine.index.codes import gram_row
from grepseek_env.engine.index.layout import BUCKET, GROUP_SHIFT
from grepseek_env.engine.index.room import IDS, MOST_IDS, ROW
from grepseek_env.engine.index.texts import (
    CUT,
    DIGITS_KEPT,
    LONG_KEPT,
    MOST_BYTES,
    hash_cut_digits,
    hash_cut_long,
    hash_token,
    kept,
)
from grepseek_env.engine.index.words import (
    BLOCKS,
    BROKEN,
    BUCKETS,
    COST,
    FIRST,
    GRAMS,
    GROUPS,
    HUGE,
    NOTHING_PROVEN,
    ROW_BYTES,
    TEXTS,
    TEXTS_AT,
    TEXTS_BYTES,
    blocks_of,
    checked,
    word,
)
from grepseek_env.engine.kernels.compiler import U64, inline
from grepseek_env.engine.kernels.simd import (
    copy,
    ctz,
    equal,
    load8,
    load32,
    load64,
    pair64,
    popcount,
    store8,
    store32,
    store64,
)

__all__ = ["piece_ids"]

_U0, _U1, _U2, _U4, _U8 = U64(0), U64(1), U64(2), U64(4), U64(8)
_U64B = U64(64)
_NONE, _BROKEN, _HUGE = U64(NOTHING_PROVEN), U64(BROKEN), U64(HUGE)
_B = U64(BUCKET)
_GS = U64(GROUP_SHIFT)
_DIGITS, _LONG = U64(0), U64(1)
_TEN = U64(10)
_KEPT_DIGITS, _KEPT_LONG, _MOST_TEXT, _CUT = U64(DIGITS_KEPT), U64(LONG_KEPT), U64(MOST_BYTES), U64(CUT)
_MOST_GROUPS = U64(8192)
_MOST_EXPANDED = U64(8192)
_GROUPS_A_BLOCK = U64(8)  # that can be looked through while a block is searched


@inline
def look_up(words: int, text: int, size: int, g: int) -> int:
    """The number of the token with this hash and text; `NOTHING_PROVEN` if there is none, `BROKEN` if damaged."""
    high = g >> U64(32)
    first = word(words, FIRST)
    low, end = _U0, word(words, BUCKETS)
    while low < end:  # the first bucket that begins above
        middle = (low + end) >> _U1
        if load32(first + middle * _U4) <= high:
            low = middle + _U1
        else:
            end = middle
    texts, places = word(words, TEXTS), word(words, TEXTS_AT)
    while low > _U0:
        bucket = low - _U1
        at = texts + load32(places + bucket * _U4)
        end = texts + load32(places + bucket * _U4 + _U4)
        if at > end or not checked(words, at, end - at + _U1):
            return _BROKEN
        i = _U0
        while at + size < end and i < _B:
            if load8(at + _U1 + size) == _TEN and equal(at + _U1, text, size):
                return bucket * _B + i
            at += _U1
            while load8(at) != _TEN:  # the section ends with one
                at += _U1
            i += _U1
        if load32(first + bucket * _U4) != high:
            return _NONE
        low = bucket
    return _NONE


@inline
def token_at(words: int, place: int) -> int:
    """The number of the token whose text holds the byte at this offset; `BROKEN` if damaged."""
    places = word(words, TEXTS_AT)
    low, end = _U0, word(words, BUCKETS)
    while low < end:
        middle = (low + end) >> _U1
        if load32(places + middle * _U4) <= place:
            low = middle + _U1
        else:
            end = middle
    bucket = low - _U1
    number = bucket * _B
    texts = word(words, TEXTS)
    begin = load32(places + bucket * _U4)
    if not checked(words, texts + begin, place - begin):
        return _BROKEN
    for at in range(begin + _U1, place):
        if load8(texts + at) == _TEN:
            number += _U1
    return number


@inline
def find_pair(at: int, end: int, text: int, size: int) -> int:
    """The address of the first `size` bytes like those at `text` in [at, end), 0 if none; 64 bytes may follow."""
    head, tail = load8(text), load8(text + size - _U1)
    while at + size <= end:
        mask = pair64(at, head, at + size - _U1, tail)
        while mask != _U0:
            place = at + ctz(mask)
            mask &= mask - _U1
            if place + size > end:
                return _U0
            if equal(place, text, size):
                return place
        at += _U64B
    return _U0


@inline
def expand(words: int, room: int, text: int, size: int, begin: int, best: int) -> int:
    """Lists the numbers of the tokens whose text, with the newlines around it, holds these bytes.

    Args:
        words: see `words.WORDS`.
        room: a query's room.
        text: address of the bytes.
        size: how many, 3 at least.
        begin: where the ids go.
        best: blocks that another piece of the literal leaves; more work than looking at these is not worth it.

    Returns:
        the end of the ids; `NOTHING_PROVEN` if they are too many to be worth it, `BROKEN` if damaged.
    """
    row, ids = word(room, ROW), word(room, IDS)
    grams, row_bytes = word(words, GRAMS), word(words, ROW_BYTES)
    count = (word(words, GROUPS) + U64(63)) >> U64(6)
    for i in range(size - _U2):
        gram = (load8(text + i) << U64(16)) | (load8(text + i + _U1) << _U8) | load8(text + i + _U2)
        at = grams + gram_row(gram) * row_bytes
        if not checked(words, at, row_bytes):
            return _BROKEN
        if i == _U0:
            copy(row, at, count * _U8)
        else:  # it begins in the group of the first one, or in the next
            for w in range(count):
                have = load64(row + w * _U8)
                if have != _U0:
                    here, after = load64(at + w * _U8), load64(at + w * _U8 + _U8)
                    store64(row + w * _U8, have & (here | (here >> _U1) | (after << U64(63))))
    groups = _U0
    for w in range(count):
        groups += popcount(load64(row + w * _U8))
    if groups > _MOST_GROUPS or groups > best * _GROUPS_A_BLOCK:
        return _NONE
    texts, bytes_ = word(words, TEXTS), word(words, TEXTS_BYTES)
    total = _U0
    last = _NONE
    to = begin
    skip = _U1 if load8(text) == _TEN else _U0
    for w in range(count):
        bits = load64(row + w * _U8)
        while bits != _U0:
            group = (w << U64(6)) + ctz(bits)
            bits &= bits - _U1
            at = group << _GS
            end = min(((group + _U1) << _GS) + size - _U1, bytes_)
            if not checked(words, texts + at, end - at):
                return _BROKEN
            while True:
                place = find_pair(texts + at, texts + end, text, size)
                if place == _U0:
                    break
                number = token_at(words, place - texts + skip)
                if number == _BROKEN:
                    return _BROKEN
                if number != last:
                    if to - begin >= _MOST_EXPANDED or to >= U64(MOST_IDS - 16):
                        return _NONE
                    count_here = blocks_of(words, number)
                    if count_here == _BROKEN:
                        return _BROKEN
                    total += count_here
                    if total + total > word(words, BLOCKS) or total > best * word(words, COST):
                        return _NONE
                    store32(ids + to * _U4, number)
                    to += _U1
                    last = number
                at = place - texts + _U1
    return to


@inline
def piece_ids(words: int, room: int, text: int, size: int, left: int, right: int, begin: int, best: int) -> int:
    """Lists the tokens that a piece of a literal can be, or be a part of.

    Args:
        words: see `WORDS`.
        room: a query's room.
        text: address of the piece; a byte before it and one after it are overwritten.
        size: its bytes.
        left: a token is known to begin where it begins.
        right: a token is known to end where it ends.
        begin: where its ids go.
        best: see `expand`.

    Returns:
        the end of the ids; a code as of `expand`.
    """
    ids = word(room, IDS)
    tokens = word(words, BUCKETS) * _B
    to = begin
    digits = True
    for i in range(size):
        byte = load8(text + i)
        if byte < U64(48) or byte > U64(57):
            digits = False
    if left and right:
        g = hash_token(text, size)
        keep = kept(text, size)
        length = keep & U64(255)
        if keep > U64(255):
            store8(text + length, _CUT)
            length += _U1
        number = look_up(words, text, length, g)
        if number == _BROKEN:
            return _BROKEN
        if number != _NONE:
            store32(ids + to * _U4, number)
            to += _U1
        return to
    if not left:  # it may be in what was cut off a token
        store32(ids + to * _U4, tokens + _LONG)
        to += _U1
        if digits:
            store32(ids + to * _U4, tokens + _DIGITS)
            to += _U1
        for i in range(begin, to):
            known = blocks_of(words, load32(ids + i * _U4))
            if known == _BROKEN:
                return _BROKEN
            if known == _HUGE:
                return _NONE
    else:  # cut tokens that begin like it, where it is longer than what is kept of them
        for turn in range(_U2):
            length = _KEPT_LONG if turn else _KEPT_DIGITS
            if size > length and (turn or digits):
                g = hash_cut_long(text) if turn else hash_cut_digits(text)
                after = load8(text + length)
                store8(text + length, _CUT)
                number = look_up(words, text, length + _U1, g)
                store8(text + length, after)
                if number == _BROKEN:
                    return _BROKEN
                if number != _NONE:
                    store32(ids + to * _U4, number)
                    to += _U1
    if size <= _MOST_TEXT:
        at, length = text, size
        if left:
            at -= _U1
            length += _U1
            store8(at, _TEN)
        if right:
            store8(at + length, _TEN)
            length += _U1
        if length < U64(3):
            return _NONE
        to = expand(words, room, at, length, to, best)
    return to
