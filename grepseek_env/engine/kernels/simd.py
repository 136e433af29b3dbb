"""Primitives of kernels: memory by address, 64 bytes at a time.

All addresses and numbers are unsigned 64-bit; mixing them with signed ones gives floats in numba, so constants are
written `U64(1)`. Nothing here checks bounds: `*64` primitives read 64 bytes from the address on, and whoever calls
them knows that there are as many.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from grepseek_env.engine.kernels.compiler import U64, emitted, inline

__all__ = [
    "byte_mask",
    "clz",
    "copy",
    "ctz",
    "equal",
    "equal64",
    "load8",
    "load16",
    "load32",
    "load64",
    "load_vector",
    "next_newline",
    "pair64",
    "pair64_fold",
    "popcount",
    "prefetch",
    "previous_newline",
    "splat",
    "store8",
    "store16",
    "store32",
    "store64",
    "store_vector",
]

LANES = 64
I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
VECTOR = ir.VectorType(I8, LANES)
"""64 bytes; LLVM makes of it as many registers as the processor needs."""


# What follows emits instructions; other modules use it for primitives of their own (`compiler.emitted`).


def _pointer(builder: Any, address: Any, kind: Any) -> Any:
    return builder.inttoptr(address, kind.as_pointer())


def _load(builder: Any, address: Any, kind: Any) -> Any:
    return builder.load(_pointer(builder, address, kind), align=1)


def load_vector(builder: Any, address: Any) -> Any:
    """Emits the load of 64 bytes."""
    return _load(builder, address, VECTOR)


def store_vector(builder: Any, address: Any, value: Any) -> None:
    """Emits the store of 64 bytes."""
    builder.store(value, _pointer(builder, address, VECTOR), align=1)


def splat(builder: Any, value: Any) -> Any:
    """Emits a vector of one byte, the low one of a 64-bit value, 64 times."""
    undefined = ir.Constant(VECTOR, ir.Undefined)
    one = builder.insert_element(undefined, builder.trunc(value, I8), ir.Constant(I32, 0))
    return builder.shuffle_vector(one, undefined, ir.Constant(ir.VectorType(I32, LANES), [0] * LANES))


def byte_mask(builder: Any, lanes: Any) -> Any:
    """Emits a 64-bit number of a vector of 64 comparisons: bit i is the one of byte i."""
    return builder.bitcast(lanes, I64)


def _call(builder: Any, name: str, result: Any, kinds: list[Any], values: list[Any]) -> Any:
    known = builder.module.globals.get(name)
    function = known if known is not None else ir.Function(builder.module, ir.FunctionType(result, kinds), name)
    return builder.call(function, values)


@emitted(U64, U64)
def load8(builder: Any, address: Any) -> Any:
    """The byte at an address."""
    return builder.zext(_load(builder, address, I8), I64)


@emitted(U64, U64)
def load16(builder: Any, address: Any) -> Any:
    """The two bytes at an address, in the processor's order."""
    return builder.zext(_load(builder, address, I16), I64)


@emitted(U64, U64)
def load32(builder: Any, address: Any) -> Any:
    """The four bytes at an address, in the processor's order."""
    return builder.zext(_load(builder, address, I32), I64)


@emitted(U64, U64)
def load64(builder: Any, address: Any) -> Any:
    """The eight bytes at an address, in the processor's order."""
    return _load(builder, address, I64)


def _store(builder: Any, address: Any, value: Any, kind: Any) -> Any:
    low = value if kind is I64 else builder.trunc(value, kind)
    builder.store(low, _pointer(builder, address, kind), align=1)
    return value


@emitted(U64, U64, U64)
def store8(builder: Any, address: Any, value: Any) -> Any:
    """Writes the low byte of a value; returns the value."""
    return _store(builder, address, value, I8)


@emitted(U64, U64, U64)
def store16(builder: Any, address: Any, value: Any) -> Any:
    """Writes the low two bytes of a value."""
    return _store(builder, address, value, I16)


@emitted(U64, U64, U64)
def store32(builder: Any, address: Any, value: Any) -> Any:
    """Writes the low four bytes of a value."""
    return _store(builder, address, value, I32)


@emitted(U64, U64, U64)
def store64(builder: Any, address: Any, value: Any) -> Any:
    """Writes the eight bytes of a value."""
    return _store(builder, address, value, I64)


@emitted(U64, U64)
def ctz(builder: Any, value: Any) -> Any:
    """How many low bits are 0; 64 for 0."""
    return _call(builder, "llvm.cttz.i64", I64, [I64, I1], [value, ir.Constant(I1, 0)])


@emitted(U64, U64)
def clz(builder: Any, value: Any) -> Any:
    """How many high bits are 0; 64 for 0."""
    return _call(builder, "llvm.ctlz.i64", I64, [I64, I1], [value, ir.Constant(I1, 0)])


@emitted(U64, U64)
def popcount(builder: Any, value: Any) -> Any:
    """How many bits are 1."""
    return _call(builder, "llvm.ctpop.i64", I64, [I64], [value])


@emitted(U64, U64)
def prefetch(builder: Any, address: Any) -> Any:
    """Asks for the cache line of an address, which need not be a good one."""
    place = _pointer(builder, address, I8)
    flags = [ir.Constant(I32, flag) for flag in (0, 3, 1)]  # to read, to be kept, data
    _call(builder, "llvm.prefetch.p0", ir.VoidType(), [place.type, I32, I32, I32], [place, *flags])
    return address


@emitted(U64, U64, U64, U64)
def copy(builder: Any, target: Any, source: Any, count: Any) -> Any:
    """Copies bytes between places that do not overlap; returns how many."""
    places = [_pointer(builder, target, I8), _pointer(builder, source, I8)]
    _call(builder, "memcpy", places[0].type, [places[0].type, places[1].type, I64], [*places, count])
    return count


@emitted(U64, U64, U64)
def equal64(builder: Any, address: Any, byte: Any) -> Any:
    """Bit i: the byte at address + i is this one."""
    return byte_mask(builder, builder.icmp_unsigned("==", load_vector(builder, address), splat(builder, byte)))


@emitted(U64, U64, U64, U64, U64)
def pair64(builder: Any, first: Any, byte: Any, second: Any, other: Any) -> Any:
    """Bit i: the byte at first + i is `byte`, and the one at second + i is `other`."""
    one = builder.icmp_unsigned("==", load_vector(builder, first), splat(builder, byte))
    two = builder.icmp_unsigned("==", load_vector(builder, second), splat(builder, other))
    return byte_mask(builder, builder.and_(one, two))


@emitted(U64, U64, U64, U64, U64, U64, U64)
def pair64_fold(builder: Any, first: Any, byte: Any, bits: Any, second: Any, other: Any, more: Any) -> Any:
    """`pair64` with bits set in every byte before it is compared: 0x20 folds ASCII letters, 0 nothing."""
    left = builder.or_(load_vector(builder, first), splat(builder, bits))
    right = builder.or_(load_vector(builder, second), splat(builder, more))
    one = builder.icmp_unsigned("==", left, splat(builder, byte))
    two = builder.icmp_unsigned("==", right, splat(builder, other))
    return byte_mask(builder, builder.and_(one, two))


@inline
def next_newline(at: int, end: int) -> int:
    """Returns the address after the first newline in [at, end), or `end`."""
    while at + U64(64) <= end:
        mask = equal64(at, U64(10))
        if mask != U64(0):
            return at + ctz(mask) + U64(1)
        at += U64(64)
    while at < end:
        if load8(at) == U64(10):
            return at + U64(1)
        at += U64(1)
    return end


@inline
def previous_newline(at: int, start: int) -> int:
    """Returns the address after the last newline in [start, at), or `start`."""
    while at >= start + U64(64):
        mask = equal64(at - U64(64), U64(10))
        if mask != U64(0):
            return at - clz(mask)
        at -= U64(64)
    while at > start:
        at -= U64(1)
        if load8(at) == U64(10):
            return at + U64(1)
    return start


@inline
def equal(left: int, right: int, count: int) -> bool:
    """Returns whether two places hold the same bytes."""
    while count >= U64(8):
        if load64(left) != load64(right):
            return False
        left += U64(8)
        right += U64(8)
        count -= U64(8)
    while count > U64(0):
        if load8(left) != load8(right):
            return False
        left += U64(1)
        right += U64(1)
        count -= U64(1)
    return True
