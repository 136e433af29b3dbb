"""How lists of blocks are coded, decoded within bounds, and summed.

A coded list is the number of its blocks, seven bits a byte, then, unless more than half of all blocks are in it and
it says nothing, each gap in Rice's code: `k` low bits, the rest in unary (zeros and a one), lowest bits first; `k`
follows from the number of blocks in the list and in the corpus.
"""

from __future__ import annotations

from grepseek_env.engine.kernels.compiler import U64, inline, kernel
from grepseek_env.engine.kernels.simd import ctz, load8, load32, load64, store8, store32, store64

__all__ = [
    "ALWAYS",
    "DAMAGED",
    "checksum",
    "code_bits",
    "count_of",
    "decode",
    "gram_row",
    "read_count",
    "read_list",
    "sum_bytes",
    "write_list",
]

ALWAYS = 1 << 62  # what `decode` returns of a list that says nothing
DAMAGED = (1 << 62) + 1

_U0, _U1, _U4, _U7, _U8 = U64(0), U64(1), U64(4), U64(7), U64(8)
_ALWAYS, _DAMAGED = U64(ALWAYS), U64(DAMAGED)
_P1, _P2, _P3 = U64(0x9E3779B185EBCA87), U64(0xC2B2AE3D27D4EB4F), U64(0x165667B19E3779F9)


@inline
def sum_bytes(at: int, count: int) -> int:
    """A 64-bit sum that any accidental change of the bytes changes, but for one chance in 2**64 or so."""
    a, b, c, d = _P1 ^ count, _P2, _P3, count * _P3
    end = at + count
    while at + U64(32) <= end:
        a = (a ^ load64(at)) * _P1
        b = (b ^ load64(at + U64(8))) * _P2
        c = (c ^ load64(at + U64(16))) * _P3
        d = (d ^ load64(at + U64(24))) * _P1
        a ^= a >> U64(29)
        b ^= b >> U64(31)
        c ^= c >> U64(30)
        d ^= d >> U64(28)
        at += U64(32)
    while at < end:
        a = (a ^ load8(at)) * _P2
        a ^= a >> U64(32)
        at += _U1
    for lane in (b, c, d):
        a = (a ^ lane) * _P3
        a ^= a >> U64(32)
    return a


@kernel("uint64(uint64,uint64)")
def checksum(at: int, count: int) -> int:
    """The sum of `count` bytes at an address."""
    return sum_bytes(at, count)


@inline
def rice_bits(count: int, blocks: int) -> int:
    """How many low bits of each gap are stored as they are, in a list of `count` of `blocks` blocks."""
    mean = (blocks * U64(69)) // (count * U64(100))
    k = _U0
    while (U64(2) << k) <= mean:
        k += _U1
    return k


@inline
def write_list(to: int, numbers: int, count: int, blocks: int) -> int:
    """Codes a list of ascending 32-bit numbers; returns the address after it. Writes up to 8 bytes further."""
    v = count
    while v >= U64(128):
        store8(to, (v & U64(127)) | U64(128))
        v >>= U64(7)
        to += _U1
    store8(to, v)
    to += _U1
    if count + count > blocks or count == _U0:
        return to
    k = rice_bits(count, blocks)
    low = (_U1 << k) - _U1
    bits = _U0
    used = _U0
    next_one = _U0
    for z in range(count):
        number = load32(numbers + z * _U4)
        gap = number - next_one
        next_one = number + _U1
        q = gap >> k
        bits |= (gap & low) << used
        used += k
        if used + q > U64(62):
            store64(to, bits)
            whole = used >> U64(3)
            to += whole
            bits >>= whole << U64(3)
            used &= _U7
            while q > U64(40):
                used += U64(40)
                q -= U64(40)
                store64(to, bits)
                to += U64(5)
                bits = _U0
                used -= U64(40)
        bits |= _U1 << (used + q)
        used += q + _U1
        store64(to, bits)
        whole = used >> U64(3)
        to += whole
        bits = bits >> (whole << U64(3)) if whole < _U8 else _U0
        used &= _U7
    if used > _U0:
        store64(to, bits)
        to += _U1
    return to


@kernel("uint64(uint64,uint64,uint64,uint64)")
def code_bits(numbers: int, count: int, blocks: int, to: int) -> int:
    """Codes one list (see `write_list`); returns its bytes."""
    return write_list(to, numbers, count, blocks) - to


@inline
def count_of(at: int, end: int) -> tuple[int, int]:
    """The number of blocks in the list at an address, and the address after that number; `DAMAGED` if it has no end."""
    value = _U0
    shift = _U0
    while at < end and shift < U64(42):
        byte = load8(at)
        at += _U1
        value |= (byte & U64(127)) << shift
        if byte < U64(128):
            return value, at
        shift += U64(7)
    return _DAMAGED, at


@inline
def read_list(at: int, end: int, blocks: int, out: int) -> int:
    """Decodes the list in [at, end) into 32-bit numbers, all below `blocks`; returns how many, or a code."""
    count, at = count_of(at, end)
    if count == _DAMAGED:
        return _DAMAGED
    if count + count > blocks:
        return _ALWAYS
    if count == _U0:
        return _U0
    k = rice_bits(count, blocks)
    low = (_U1 << k) - _U1
    bit = _U0
    most = (end - at) << U64(3)
    number = _U0
    have = _U0  # bits of `word` that are sure to be those of the list
    word = _U0
    for i in range(count):
        zeros = ctz(word >> k)
        if k + zeros >= have:
            if bit >= most:
                return _DAMAGED
            word = load64(at + (bit >> U64(3))) >> (bit & _U7)
            have = U64(56)
            zeros = ctz(word >> k)
        if k + zeros < have:
            number += (zeros << k) | (word & low)
            used = k + zeros + _U1
            word >>= used
            have -= used
        else:  # a long row of zeros
            zeros = _U0
            place = bit + k
            while True:
                if place >= most:
                    return _DAMAGED
                more = ctz(load64(at + (place >> U64(3))) >> (place & _U7))
                if more <= U64(56):
                    zeros += more
                    break
                zeros += U64(56)
                place += U64(56)
            number += (zeros << k) | (word & low)
            used = k + zeros + _U1
            have = _U0
        bit += used
        store32(out + i * _U4, number)
        number += _U1
    if number > blocks or bit > most:
        return _DAMAGED
    return count


@kernel("uint64(uint64,uint64,uint64,uint64)")
def decode(at: int, end: int, blocks: int, out: int) -> int:
    """Decodes one list (see `read_list`)."""
    return read_list(at, end, blocks, out)


@kernel("uint64(uint64,uint64)")
def read_count(at: int, end: int) -> int:
    """Reads how many blocks a list has."""
    return count_of(at, end)[0]


@inline
def gram_row(gram: int) -> int:
    """The row of three bytes, given as a number."""
    return ((gram * U64(0x9E3779B1)) & U64(0xFFFFFFFF)) >> U64(21)
