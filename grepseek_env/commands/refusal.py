"""The caret message: what is wrong, where, and what to write instead. Policies are trained on it: golden-tested."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from grepseek_env.errors import CommandRefused

if TYPE_CHECKING:
    from grepseek_env.commands.syntax import Span

__all__ = ["refusal"]

WIDTH = 96
"""Characters of the command that are shown; a longer one is cut around the fault."""
LEAD = 40
"""Characters shown before the fault when the command is cut."""
ELLIPSIS = "..."
STAND_INS = {code: chr(0x2400 + code) for code in range(32)} | {0x0A: "\u23ce", 0x7F: "\u2421"}
"""Control characters would break the caret line; each is shown as one visible character."""


def refusal(text: str, span: Span, what: str, instead: str, reason: str) -> CommandRefused:
    """Returns the error for one fault of a command.

    Args:
        span: the characters at fault; an empty span points between two characters.
        what: what is wrong.
        instead: what to write instead.
        reason: short machine-readable name of the rule.
    """
    start, end = max(0, min(span.start, len(text))), max(0, min(span.end, len(text)))
    shown = ""
    if text.strip():
        line, caret = _underline(text, start, max(start, end))
        shown = f"  {line}\n  {caret}\n"
    return CommandRefused(f"{what}\n{shown}{instead}", reason=reason, start=start, end=end)


def _underline(text: str, start: int, end: int) -> tuple[str, str]:
    first, last = 0, len(text)
    if len(text) > WIDTH:
        first = max(0, min(start - LEAD, len(text) - WIDTH))
        last = first + WIDTH
    left = ELLIPSIS if first else ""
    right = ELLIPSIS if last < len(text) else ""
    before, marked = _show(text[first:start]), _show(text[start : min(end, last)])
    line = left + before + marked + _show(text[max(start, min(end, last)) : last]) + right
    pad = " " * (len(left) + _columns(before))
    return line, pad + "^" * max(1, _columns(marked))


def _show(text: str) -> str:
    """Makes every character visible; lone surrogates and format characters become a replacement character."""
    shown = text.translate(STAND_INS)
    if shown.isprintable():
        return shown
    return "".join(c if c.isprintable() else "\ufffd" for c in shown)


def _columns(text: str) -> int:
    """Terminal columns that a printable text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in {"W", "F"} else 1 for c in text
    )
