"""An open index as kernels see it: an array of 64-bit numbers, most of them addresses; bytes are checked before use."""

from __future__ import annotations

from grepseek_env.engine.index.codes import DAMAGED, count_of, sum_bytes
from grepseek_env.engine.index.layout import BUCKET, HEADER_BYTES, PAGE_BYTES
from grepseek_env.engine.kernels.compiler import U64, inline, kernel
from grepseek_env.engine.kernels.simd import load8, load32, load64, store8, store64

__all__ = [
    "BROKEN",
    "HUGE",
    "NOTHING_PROVEN",
    "WORDS",
    "blocks_of",
    "check_pages",
    "checked",
    "list_of",
    "spans",
    "start_of",
    "word",
]

NOTHING_PROVEN = 1 << 63
BROKEN = (1 << 63) + 1
HUGE = 1 << 40
"""What `blocks_of` returns of a list that says nothing."""

WORDS = (
    "file", "pages", "checked", "sums", "file_end", "blocks", "buckets", "first", "texts_at", "lists_at", "sizes",
    "texts", "texts_bytes", "lists", "grams", "row_bytes", "groups", "starts", "within", "extra", "cost",
)  # fmt: skip
FILE, PAGES, CHECKED, SUMS, FILE_END, BLOCKS, BUCKETS, FIRST, TEXTS_AT, LISTS_AT, SIZES = map(U64, range(11))
TEXTS, TEXTS_BYTES, LISTS, GRAMS, ROW_BYTES, GROUPS, STARTS, WITHIN, EXTRA, COST = map(U64, range(11, 21))

_U0, _U1, _U4, _U8 = U64(0), U64(1), U64(4), U64(8)
_M64 = U64(0xFFFFFFFFFFFFFFFF)
_BROKEN, _HUGE, _DAMAGED = U64(BROKEN), U64(HUGE), U64(DAMAGED)
_B = U64(BUCKET)
_HEADER, _PAGE = U64(HEADER_BYTES), U64(PAGE_BYTES)
_PAGE_SHIFT = U64(PAGE_BYTES.bit_length() - 1)


@inline
def word(words: int, number: int) -> int:
    """One of `WORDS`."""
    return load64(words + number * _U8)


@inline
def checked(words: int, at: int, count: int) -> bool:
    """Whether the bytes at an address are those that were written; each page is summed once."""
    if count == _U0:
        return True
    base = word(words, FILE) + _HEADER
    end = word(words, FILE_END)
    if at < base or at + count > end:
        return False
    flags = word(words, CHECKED)
    for page in range((at - base) >> _PAGE_SHIFT, ((at + count - _U1 - base) >> _PAGE_SHIFT) + _U1):
        if load8(flags + page) == _U0:
            begin = base + (page << _PAGE_SHIFT)
            size = min(_PAGE, end - begin)
            if sum_bytes(begin, size) != load64(word(words, SUMS) + page * _U8):
                return False
            store8(flags + page, _U1)
    return True


@kernel("uint64(uint64,uint64,uint64)")
def check_pages(words: int, first: int, end: int) -> int:
    """Sums pages `first` to `end`; returns the number of the first that is damaged, `end` if none is."""
    for page in range(first, end):
        at = word(words, FILE) + _HEADER + (page << _PAGE_SHIFT)
        size = min(_PAGE, word(words, FILE_END) - at)
        if not checked(words, at, size):
            return page
    return end


@inline
def list_of(words: int, number: int) -> tuple[int, int]:
    """Where the list of a token, or behind all tokens of an extra one, begins and ends; (0, 0) if damaged."""
    lists = word(words, LISTS)
    tokens = word(words, BUCKETS) * _B
    if number >= tokens:
        row = word(words, EXTRA) + (number - tokens) * U64(24)
        at = lists + load64(row)
        end = at + load64(row + _U8)
    else:
        bucket = number // _B
        at = lists + load64(word(words, LISTS_AT) + bucket * _U8)
        last = lists + load64(word(words, LISTS_AT) + bucket * _U8 + _U8)
        sizes = word(words, SIZES) + bucket * _B
        end = at
        for i in range(number - bucket * _B + _U1):
            at = end
            size = load8(sizes + i)
            if size == U64(255):
                if not checked(words, at, _U4):
                    return _U0, _U0
                end = at + load32(at)
                at += _U4
            else:
                end = at + size
        if end > last or at > end:
            return _U0, _U0
    if not checked(words, at, end - at):
        return _U0, _U0
    return at, end


@inline
def blocks_of(words: int, number: int) -> int:
    """How many blocks a list has; a large number if it says nothing, `BROKEN` if damaged."""
    at, end = list_of(words, number)
    if at == _U0:
        return _BROKEN
    count = count_of(at, end)[0]
    if count == _DAMAGED:
        return _BROKEN
    return _HUGE if count + count > word(words, BLOCKS) else count


@inline
def start_of(words: int, block: int) -> int:
    """Where a block begins in the corpus."""
    return load64(word(words, STARTS) + (block >> U64(6)) * _U8) + load32(word(words, WITHIN) + block * _U4)


@kernel("uint64(uint64,uint64,uint64,uint64)")
def spans(words: int, listed: int, count: int, out: int) -> int:
    """Writes where blocks begin and end, neighbours as one; returns how many pairs of 64-bit numbers."""
    pairs = _U0
    last = _M64
    for i in range(count):
        b = load32(listed + i * _U4)
        if b == last and i > _U0:
            store64(out + (pairs - _U1) * U64(16) + _U8, start_of(words, b + _U1))
        else:
            store64(out + pairs * U64(16), start_of(words, b))
            store64(out + pairs * U64(16) + _U8, start_of(words, b + _U1))
            pairs += _U1
        last = b + _U1
    return pairs
