"""The kernel that turns clauses of literals into candidate blocks."""

from __future__ import annotations

from grepseek_env.engine.index.codes import ALWAYS, DAMAGED, read_list
from grepseek_env.engine.index.dictionary import piece_ids
from grepseek_env.engine.index.layout import BUCKET
from grepseek_env.engine.index.room import (
    BYTES,
    CLAUSES,
    DECODED,
    IDS,
    LISTED,
    LISTED2,
    MARKS,
    MARKS2,
    PIECE_BYTES,
    PIECES,
    TABLE,
    TEXT,
)
from grepseek_env.engine.index.words import (
    BLOCKS,
    BROKEN,
    BUCKETS,
    COST,
    HUGE,
    NOTHING_PROVEN,
    blocks_of,
    list_of,
    start_of,
    word,
)
from grepseek_env.engine.kernels.compiler import U64, inline, kernel
from grepseek_env.engine.kernels.simd import copy, ctz, equal64, load8, load32, load64, store8, store32, store64

__all__ = ["candidate_blocks"]

_U0, _U1, _U2, _U4, _U8 = U64(0), U64(1), U64(2), U64(4), U64(8)
_M64 = U64(0xFFFFFFFFFFFFFFFF)
_NONE, _BROKEN, _HUGE = U64(NOTHING_PROVEN), U64(BROKEN), U64(HUGE)
_ALWAYS, _DAMAGED = U64(ALWAYS), U64(DAMAGED)
_B, _PIECE_BYTES = U64(BUCKET), U64(PIECE_BYTES)
_FIRST_SPECIAL, _BIG = U64(2), U64(6)
_SPLIT = U64(0xE2)
_ENOUGH = U64(48)  # a piece with so few blocks makes the open ones, which cost more to look up, not worth it


@inline
def is_word(byte: int) -> bool:
    """Whether a folded byte is one of a token."""
    return byte >= U64(128) or (byte >= U64(97) and byte <= U64(122)) or (byte >= U64(48) and byte <= U64(57))


@inline
def piece(
    words: int, room: int, text: int, size: int, left: int, right: int, specials: int, row: int, best: int
) -> int:
    """Fills in a row of the table of pieces.

    Args:
        words: see `WORDS`.
        room: a query's room.
        text: address of the piece.
        size: its bytes.
        left: a token is known to begin there.
        right: a token is known to end there.
        specials: bit i: blocks with `layout.SPECIALS`[i] may hold it too.
        row: address of the row: clause, literal, first id, end of ids, blocks; the first three are filled in.
        best: blocks that another piece of the literal leaves.

    Returns:
        blocks; `NOTHING_PROVEN` if it says nothing, `BROKEN` if damaged.
    """
    own = word(room, TEXT) + U64(64)
    copy(own, text, size)
    for i in range(_U8):
        store8(own + size + i, _U0)
    begin = load64(row + U64(16))
    end = piece_ids(words, room, own, size, left, right, begin, best)
    if end >= _NONE:
        return end
    ids = word(room, IDS)
    tokens = word(words, BUCKETS) * _B
    while specials != _U0:
        store32(ids + end * _U4, tokens + _FIRST_SPECIAL + ctz(specials))
        specials &= specials - _U1
        end += _U1
    total = _U0
    for i in range(begin, end):
        count = blocks_of(words, load32(ids + i * _U4))
        if count == _BROKEN:
            return _BROKEN
        total += count
    if total >= _HUGE:
        return _NONE
    store64(row + U64(24), end)
    store64(row + U64(32), total)
    return total


@inline
def add_piece(
    words: int, room: int, text: int, begin: int, end: int, size: int, specials: int, at: int, best: int
) -> int:
    """Adds the piece [begin, end) of a literal of `size` bytes to the table, as its row `at`; see `piece`."""
    row = word(room, TABLE) + at * _PIECE_BYTES
    left = begin > _U0 or load8(text) >= _SPLIT
    return piece(words, room, text + begin, end - begin, left, end < size, specials, row, best)


@inline
def add_literal(words: int, room: int, text: int, size: int, specials: int, clause: int, literal: int, at: int) -> int:
    """Adds what a literal requires to the table of pieces, from row `at` on; returns the end of its rows, or a code."""
    table = word(room, TABLE)
    best = _HUGE
    open_ones = _U0  # begin and end of up to two pieces at the literal's ends
    first, second = _U0, _U0
    first_end, second_end = _U0, _U0
    begin = _U0
    inside = False
    for i in range(size + _U1):
        byte = load8(text + i) if i < size else _U0
        ends = inside and (not is_word(byte) or byte >= _SPLIT)
        if ends:
            left = begin > _U0 or load8(text) >= _SPLIT
            if left and i < size:
                if at < U64(PIECES):
                    row = table + at * _PIECE_BYTES
                    store64(row, clause)
                    store64(row + _U8, literal)
                    store64(row + U64(16), load64(row - U64(24)))
                    found = add_piece(words, room, text, begin, i, size, specials, at, best)
                    if found == _BROKEN:
                        return _BROKEN
                    if found != _NONE:
                        best = min(best, found)
                        at += _U1
            elif open_ones == _U0:
                first, first_end, open_ones = begin, i, _U1
            else:
                second, second_end, open_ones = begin, i, _U2
        if i < size and is_word(byte) and (ends or not inside):
            begin = i
        inside = i < size and is_word(byte)
    if open_ones == _U2 and second_end - second > first_end - first:
        first, second = second, first
        first_end, second_end = second_end, first_end
    for turn in range(open_ones):
        if best <= _ENOUGH or at >= U64(PIECES):
            break
        row = table + at * _PIECE_BYTES
        store64(row, clause)
        store64(row + _U8, literal)
        store64(row + U64(16), load64(row - U64(24)))
        begin, end = (second, second_end) if turn else (first, first_end)
        found = add_piece(words, room, text, begin, end, size, specials, at, best)
        if found == _BROKEN:
            return _BROKEN
        if found != _NONE:
            best = min(best, found)
            at += _U1
    return at


@inline
def apply(marks: int, listed: int, count: int, numbers: int, more: int, level: int) -> int:
    """Marks the blocks of `numbers`: all at level 0, which lists them too; only those marked `level` later."""
    for i in range(more):
        b = load32(numbers + i * _U4)
        if load8(marks + b) == level:
            store8(marks + b, level + _U1)
            if level == _U0:
                store32(listed + count * _U4, b)
                count += _U1
    return count


@inline
def keep_marked(marks: int, listed: int, count: int, level: int) -> int:
    """Keeps of the listed blocks those marked `level`, and unmarks the others."""
    kept_ones = _U0
    for i in range(count):
        b = load32(listed + i * _U4)
        if load8(marks + b) == level:
            store32(listed + kept_ones * _U4, b)
            kept_ones += _U1
        else:
            store8(marks + b, _U0)
    return kept_ones


@inline
def narrow_by(words: int, room: int, marks: int, listed: int, count: int, row: int, level: int) -> int:
    """Narrows the listed blocks by one piece: level 0 begins with it. Returns how many are left, or `BROKEN`."""
    ids, decoded = word(room, IDS), word(room, DECODED)
    if level == _U0 and load64(row + U64(24)) - load64(row + U64(16)) == _U1:
        at, end = list_of(words, load32(ids + load64(row + U64(16)) * _U4))
        count = read_list(at, end, word(words, BLOCKS), listed) if at != _U0 else _BROKEN
        if count >= _ALWAYS:
            return _BROKEN
        for i in range(count):
            store8(marks + load32(listed + i * _U4), _U1)
        return count
    for i in range(load64(row + U64(16)), load64(row + U64(24))):
        at, end = list_of(words, load32(ids + i * _U4))
        if at == _U0:
            return _BROKEN
        more = read_list(at, end, word(words, BLOCKS), decoded)
        if more >= _ALWAYS:
            return _BROKEN
        count = apply(marks, listed, count, decoded, more, level)
    return count if level == _U0 else keep_marked(marks, listed, count, level + _U1)


@inline
def next_piece(table: int, first: int, end: int, above: int, after: int) -> int:
    """The row of [first, end) that comes next in order of (blocks, row) after (above, after); `end` if none does."""
    best, blocks = end, _M64
    for at in range(first, end):
        here = load64(table + at * _PIECE_BYTES + U64(32))
        later = here > above or (here == above and at > after)
        if later and here < blocks:
            best, blocks = at, here
    return best


@inline
def all_of(words: int, room: int, marks: int, listed: int, count: int, first: int, end: int, level: int) -> int:
    """Narrows by the pieces [first, end), rarest first; returns (level << 40) | blocks left, or `BROKEN`.

    At level 0 it begins with the first of them; it stops where looking at the blocks is cheaper than decoding.
    """
    table = word(room, TABLE)
    turn = next_piece(table, first, end, _U0, _U0)
    if load64(table + first * _PIECE_BYTES + U64(32)) == _U0:
        turn = first
    while turn < end:
        row = table + turn * _PIECE_BYTES
        blocks = load64(row + U64(32))
        if level > _U0 and (count == _U0 or blocks > count * word(words, COST)):
            break
        count = narrow_by(words, room, marks, listed, count, row, level)
        if count == _BROKEN:
            return _BROKEN
        level += _U1
        turn = next_piece(table, first, end, blocks, turn)
    return (level << U64(40)) | count


@inline
def one_of(words: int, room: int, count: int, first: int, end: int, level: int) -> int:
    """Narrows by a clause of several literals, whose pieces are [first, end); returns as `all_of`, one level up."""
    marks, listed = word(room, MARKS), word(room, LISTED)
    marks2, listed2 = word(room, MARKS2), word(room, LISTED2)
    table = word(room, TABLE)
    at = first
    while at < end:
        literal = load64(table + at * _PIECE_BYTES + _U8)
        stop = at
        while stop < end and load64(table + stop * _PIECE_BYTES + _U8) == literal:
            stop += _U1
        found = all_of(words, room, marks2, listed2, _U0, at, stop, _U0)
        if found == _BROKEN:
            return _BROKEN
        found &= U64((1 << 40) - 1)
        for i in range(found):
            store8(marks2 + load32(listed2 + i * _U4), _U0)
        count = apply(marks, listed, count, listed2, found, level)
        at = stop
    if level > _U0:
        count = keep_marked(marks, listed, count, level + _U1)
    return ((level + _U1) << U64(40)) | count


@inline
def sort_marked(words: int, marks: int, listed: int) -> int:
    """Lists all marked blocks in order; returns how many."""
    count = _U0
    for w in range((word(words, BLOCKS) + U64(63)) >> U64(6)):
        bits = ~equal64(marks + (w << U64(6)), _U0)
        while bits != _U0:
            store32(listed + count * _U4, (w << U64(6)) + ctz(bits))
            count += _U1
            bits &= bits - _U1
    return count


@inline
def all_clauses(words: int, room: int, query: int, texts: int) -> int:
    """Narrows by all clauses; returns the number of blocks listed, in no order and still marked, or a code."""
    table, ranges = word(room, TABLE), word(room, CLAUSES)
    store64(table - U64(24), _U0)  # the ids of the first row begin at 0
    clauses = load32(query)
    query += _U4
    at = _U0
    used = _U0
    literal = _U0
    for clause in range(clauses):
        literals = load32(query)
        query += _U4
        first = at
        proven = True
        blocks = _U0
        for _ in range(literals):
            text, size = texts + load32(query), load32(query + _U4)
            specials, unknown = load32(query + _U8), load32(query + U64(12))
            query += U64(16)
            literal += _U1
            if not proven:
                continue
            end = at if unknown else add_literal(words, room, text, size, specials, clause, literal, at)
            if end == _BROKEN:
                return _BROKEN
            if end == at:
                proven = False
                continue
            least = _M64
            for row in range(at, end):
                least = min(least, load64(table + row * _PIECE_BYTES + U64(32)))
            blocks += least
            at = end
        if not proven or literals == _U0:
            at = first
            continue
        store64(ranges + used * U64(32), first)
        store64(ranges + used * U64(32) + _U8, at)
        store64(ranges + used * U64(32) + U64(16), literals)
        store64(ranges + used * U64(32) + U64(24), blocks)
        used += _U1
    if used == _U0:
        return _NONE
    marks, listed = word(room, MARKS), word(room, LISTED)
    level = _U0
    count = _U0
    for _ in range(used):  # the rarest first
        best, best_blocks = _U0, _M64
        for i in range(used):
            here = load64(ranges + i * U64(32) + U64(24))
            if here < best_blocks:
                best, best_blocks = i, here
        row = ranges + best * U64(32)
        store64(row + U64(24), _M64)
        if level > _U0 and (count == _U0 or best_blocks > count * word(words, COST)):
            break
        first, end = load64(row), load64(row + _U8)
        if load64(row + U64(16)) == _U1:
            found = all_of(words, room, marks, listed, count, first, end, level)
        else:
            found = one_of(words, room, count, first, end, level)
        if found == _BROKEN:
            return _BROKEN
        level = found >> U64(40)
        count = found & U64((1 << 40) - 1)
    return count


@kernel("uint64(uint64,uint64,uint64,uint64,uint64)")
def candidate_blocks(words: int, room: int, query: int, texts: int, most: int) -> int:
    """Lists the blocks that may hold what clauses require.

    Args:
        words: address of `WORDS`.
        room: address of the addresses of a query's room, which one call at a time may use; marks are 0 in between.
        query: address of 32-bit numbers: how many clauses, and for each: how many literals, and for each: offset and
            length of its text, bits of `layout.SPECIALS` that may stand in it, 1 if nothing can be said of it.
        texts: address of the literals' texts, in lower case; 64 bytes behind them are readable.
        most: if the candidates have more bytes than this, they are not worth it.

    Returns:
        how many blocks; their numbers are in order in `listed`, their bytes in the last word of `ROOM`.
        `NOTHING_PROVEN` if every block may be one, `BROKEN` if the index is damaged; the room is then to be made anew.
    """
    count = all_clauses(words, room, query, texts)
    if count >= _NONE:
        return count
    marks, listed = word(room, MARKS), word(room, LISTED)
    at, end = list_of(words, word(words, BUCKETS) * _B + _BIG)
    if at == _U0:
        return _BROKEN
    decoded = word(room, DECODED)
    more = read_list(at, end, word(words, BLOCKS), decoded)
    if more == _DAMAGED:
        return _BROKEN
    result = _NONE
    bytes_ = _U0
    if more != _ALWAYS:
        for i in range(more):
            b = load32(decoded + i * _U4)
            if load8(marks + b) == _U0:
                store8(marks + b, _U1)
                store32(listed + count * _U4, b)
                count += _U1
        ordered = True
        last = _U0
        for i in range(count):
            b = load32(listed + i * _U4)
            ordered = ordered and b >= last
            last = b
            bytes_ += start_of(words, b + _U1) - start_of(words, b)
        if not ordered:
            count = sort_marked(words, marks, listed)
        if bytes_ <= most:
            result = count
    for i in range(count):
        store8(marks + load32(listed + i * _U4), _U0)
    store64(room + BYTES * _U8, bytes_)
    return result
