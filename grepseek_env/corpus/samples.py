"""Parses a sample of lines as JSON: the first ones and others evenly spread, since parsing all is slow."""

from __future__ import annotations

import json
import os

__all__ = ["is_json_object", "look_at_samples"]

_FIRST_LINES = 1000
_SPREAD_LINES = 1000
_WINDOW = 1 << 13
_BLOCK = 1 << 20
_SKIP = 1 << 20  # a place inside a longer line than this is passed over
_BUDGET = 64 << 20  # bytes parsed in all: enormous lines must not cost minutes
_BOM = b"\xef\xbb\xbf"


def is_json_object(line: bytes) -> bool:
    """Tells whether a line holds one JSON object; broken UTF-8 inside strings does not count against it."""
    try:
        return isinstance(json.loads(line.decode("utf-8", "replace")), dict)
    except (ValueError, RecursionError):
        return False


def look_at_samples(handle: int, size: int) -> tuple[int, int | None]:
    """Parses sample lines of the open file of `size` bytes.

    Returns:
        how many non-blank lines were parsed, and the number (from 1) of the first that is no JSON object, or None.
    """
    looked_at, offset, budget = 0, 0, _BUDGET
    for number in range(1, _FIRST_LINES + 1):
        line = _line_at(handle, offset, min(size, offset + budget))
        offset += len(line)
        budget -= len(line)
        if budget <= 0 or not line:
            break
        text = line.removeprefix(_BOM) if number == 1 else line
        if text.strip():
            looked_at += 1
            if not is_json_object(text):
                return looked_at, number
    last = offset - 1
    for step in range(_SPREAD_LINES):
        place = offset + (size - offset) * step // _SPREAD_LINES
        skipped = _line_at(handle, place, min(size, place + _SKIP))
        start = place + len(skipped)
        if not skipped.endswith(b"\n") or start <= last:
            continue
        last = start
        line = _line_at(handle, start, min(size, start + budget))
        budget -= len(line)
        if budget <= 0:
            break
        if line.strip():
            looked_at += 1
            if not is_json_object(line):
                return looked_at, _count_newlines(handle, start) + 1
    return looked_at, None


def _line_at(handle: int, offset: int, end: int) -> bytes:
    """Returns the bytes from `offset` to the next newline, that included, or to `end`."""
    parts: list[bytes] = []
    while offset < end:
        part = os.pread(handle, min(_WINDOW, end - offset), offset)
        cut = part.find(b"\n") + 1
        parts.append(part[:cut] if cut else part)
        if cut or not part:
            break
        offset += len(part)
    return b"".join(parts)


def _count_newlines(handle: int, end: int) -> int:
    count = 0
    for offset in range(0, end, _BLOCK):
        count += os.pread(handle, min(_BLOCK, end - offset), offset).count(b"\n")
    return count
