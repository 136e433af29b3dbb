"""The words that a scan keeps between calls, and the reasons why one stops."""

from __future__ import annotations

# Words of the state.
SPAN, OFFSET, AT, END, OUT, OUT_END, LINES, BYTES, LEFT, WORK, EMIT, NEED, NEXT = range(13)
"""The part that is read and the offset in the file from which on it is not read yet; the lines in the buffer that are
not looked at yet; the place for the next line and the end of the room for lines; lines and bytes that passed; lines
that may still pass; bytes that may be read before a pause; whether lines are copied; room that is needed; then one
word a driver: its next occurrence."""
MOST_DRIVERS = 64

# Why a scan stopped.
DONE, PAUSED, FULL, LIMIT, DOUBT, SHORT, LONG = range(7)
"""All is scanned; WORK is used up; no room for a line (NEED says how much it takes); LEFT is 0; whether a line passes
is left to the programs; the file ends before a part does; a line is longer than the buffer."""
