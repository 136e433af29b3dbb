"""Scans parts of a file for the lines that pass filters: reads, finds, counts and copies without Python."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from grepseek_env.engine.kernels.compiler import U64, emitted, inline, kernel
from grepseek_env.engine.kernels.encode import (
    DRIVER,
    DRIVERS,
    FILTER_WORDS,
    FILTERS,
    LAST,
    LENGTH,
    LITERAL_WORDS,
    LITERALS,
    PROGRAM_WORDS,
)
from grepseek_env.engine.kernels.find import NOWHERE, accepts, field, find, passes
from grepseek_env.engine.kernels.simd import copy, load8, next_newline, previous_newline, store8, store64
from grepseek_env.engine.kernels.state import (
    AT,
    BYTES,
    DONE,
    DOUBT,
    EMIT,
    END,
    FULL,
    LEFT,
    LIMIT,
    LINES,
    LONG,
    NEED,
    NEXT,
    OFFSET,
    OUT,
    OUT_END,
    PAUSED,
    SHORT,
    SPAN,
    WORK,
)

__all__ = ["scan_lines", "scan_spans"]


@emitted(U64, U64, U64, U64, U64)
def _pread(builder: Any, file: Any, place: Any, count: Any, offset: Any) -> Any:
    """Reads from a file; the bytes read, or all ones."""
    small, large = ir.IntType(32), ir.IntType(64)
    pointer = ir.IntType(8).as_pointer()
    known = builder.module.globals.get("pread")
    kinds = [small, pointer, large, large]
    function = known if known is not None else ir.Function(builder.module, ir.FunctionType(large, kinds), "pread")
    return builder.call(function, [builder.trunc(file, small), builder.inttoptr(place, pointer), count, offset])


@inline
def _set(state: int, number: int, value: int) -> None:
    store64(state + (U64(number) << U64(3)), value)


@inline
def _passes_others(start: int, end: int, program: int, skipped: int) -> int:
    """Returns whether all filters but one let a line pass: 0, 1, or 2 if that is left to the programs."""
    doubt = U64(0)
    literals = field(program, LITERALS)
    number = U64(0)
    while number < field(program, FILTERS):
        if number != skipped:
            rule = program + U64(8 * PROGRAM_WORDS) + number * U64(8 * FILTER_WORDS)
            passed = passes(start, end, literals, rule)
            if passed == U64(0):
                return U64(0)
            doubt |= passed & U64(2)
        number += U64(1)
    return U64(2) if doubt != U64(0) else U64(1)


@inline
def _nearest(state: int, drivers: int) -> int:
    """Returns which driver's next occurrence comes first."""
    best, number = U64(0), U64(1)
    while number < drivers:
        if field(state, NEXT + number) < field(state, NEXT + best):
            best = number
        number += U64(1)
    return best


@inline
def _seek(at: int, end: int, program: int, state: int) -> None:
    """Moves every driver's next occurrence to one at `at` or later."""
    literals = field(program, LITERALS)
    number = U64(0)
    while number < field(program, DRIVERS):
        if field(state, NEXT + number) < at:
            _set(state, NEXT + number, find(at, end, literals + number * U64(8 * LITERAL_WORDS)))
        number += U64(1)


@inline
def _keep(start: int, after: int, state: int) -> bool:
    """Counts a line and copies it where lines are copied; false if there is no room."""
    size = after - start
    if field(state, EMIT) != U64(0):
        out = field(state, OUT)
        if out + size > field(state, OUT_END):
            _set(state, NEED, size)
            return False
        copy(out, start, size)
        _set(state, OUT, out + size)
    _set(state, LINES, field(state, LINES) + U64(1))
    _set(state, BYTES, field(state, BYTES) + size)
    _set(state, LEFT, field(state, LEFT) - U64(1))
    return True


@inline
def _scan(program: int, state: int) -> int:
    """Looks at the lines between AT and END; returns DONE, FULL, LIMIT or DOUBT and moves AT."""
    at, end = field(state, AT), field(state, END)
    filters, driver, drivers = field(program, FILTERS), field(program, DRIVER), field(program, DRIVERS)
    rule = program + U64(8 * PROGRAM_WORDS)
    own, literals = field(rule, LAST), field(program, LITERALS)
    every = driver == filters
    if not every:
        number = U64(0)
        while number < drivers:
            _set(state, NEXT + number, U64(0))
            number += U64(1)
    while at < end:
        if field(state, LEFT) == U64(0):
            _set(state, AT, at)
            return U64(LIMIT)
        start, found, skipped = at, at, filters
        if not every:
            _seek(at, end, program, state)
            nearest = _nearest(state, drivers)
            found = field(state, NEXT + nearest)
            if found == U64(NOWHERE):
                break
            start = previous_newline(found, at)
            if nearest < own:
                length = field(literals + nearest * U64(8 * LITERAL_WORDS), LENGTH)
                if accepts(rule, found, found + length) == U64(1):
                    skipped = driver  # else another occurrence in this line may do
        after = next_newline(found, end)
        passed = _passes_others(start, after - U64(1), program, skipped)
        if passed == U64(2):
            _set(state, AT, start)
            return U64(DOUBT)
        if passed == U64(1) and not _keep(start, after, state):
            _set(state, AT, start)
            return U64(FULL)
        at = after
    _set(state, AT, end)
    return U64(LIMIT) if field(state, LEFT) == U64(0) else U64(DONE)


@inline
def _read(file: int, place: int, count: int, offset: int) -> int:
    """Reads `count` bytes; returns fewer only where the file ends or cannot be read."""
    total = U64(0)
    while total < count:
        got = _pread(file, place + total, count - total, offset + total)
        if got == U64(0) or got > count:
            return total
        total += got
    return total


@kernel("uint64(uint64, uint64)")
def scan_lines(program: int, state: int) -> int:
    """Scans a buffer that is there already: from AT to END, whole lines.

    Args:
        program: address of the filters' record.
        state: address of the words of `state`.

    Returns:
        DONE, FULL, LIMIT or DOUBT; called again, it goes on.
    """
    return _scan(program, state)


@kernel("uint64(uint64, uint64, uint64, uint64, uint64, uint64, uint64)")
def scan_spans(program: int, state: int, file: int, spans: int, count: int, buffer: int, size: int) -> int:
    """Scans parts of a file.

    Args:
        program: address of the filters' record.
        state: address of the words of `state`.
        file: its descriptor.
        spans: address of the parts: start and end of each, in order; all but a last one end after a newline.
        count: how many parts.
        buffer: address of a buffer, a newline before it and 72 more bytes after it.
        size: its bytes.

    Returns:
        why it stopped, a word of `state`; called again, it goes on.
    """
    while True:
        if field(state, AT) < field(state, END):
            why = _scan(program, state)
            if why != U64(DONE):
                return why
        span, offset = field(state, SPAN), field(state, OFFSET)
        while span < count and offset >= field(spans, U64(2) * span + U64(1)):
            span += U64(1)
            if span < count:
                offset = field(spans, U64(2) * span)
        _set(state, SPAN, span)
        _set(state, OFFSET, offset)
        if span == count:
            return U64(DONE)
        if field(state, WORK) == U64(0):
            return U64(PAUSED)
        left = field(spans, U64(2) * span + U64(1)) - offset
        wanted = min(left, size)
        got = _read(file, buffer, wanted, offset)
        if got < wanted:
            return U64(SHORT)
        _set(state, WORK, field(state, WORK) - min(field(state, WORK), wanted))
        end = buffer + got
        if got < left:
            end = previous_newline(end, buffer)
            if end == buffer:
                _set(state, NEED, size + size)
                return U64(LONG)
        elif load8(end - U64(1)) != U64(10):  # the corpus's last line is open; programs print it closed
            store8(end, U64(10))
            end += U64(1)
        _set(state, OFFSET, offset + min(end - buffer, got))
        _set(state, AT, buffer)
        _set(state, END, end)
