"""The transcript as text for a terminal."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from grepseek_env.trajectory import Trajectory, Turn

__all__ = ["render_trajectory", "use_color"]

_RESET = "\x1b[0m"
_STYLES = {
    "question": "\x1b[1m",
    "policy": "\x1b[36m",
    "environment": "\x1b[2m",
    "end": "\x1b[1;32m",
    "fault": "\x1b[1;31m",
}


def use_color(stream: TextIO | None = None) -> bool:
    """Tells whether a stream wants colour: a terminal, unless NO_COLOR is set (no-color.org)."""
    stream = stream or sys.stdout
    return stream.isatty() and "NO_COLOR" not in os.environ


def _visible(text: str) -> str:
    # A corpus may hold terminal escapes; they are shown, not obeyed.
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)


def _paint(text: str, style: str, *, color: bool) -> str:
    return f"{_STYLES[style]}{text}{_RESET}" if color else text


def _turn(number: int, turn: Turn, *, color: bool) -> str:
    parts = [_paint(f"[turn {number}] {_visible(turn.text)}", "policy", color=color)]
    if turn.observation:
        parts.append(_paint(_visible(turn.observation), "environment", color=color))
    return "\n".join(parts) + "\n"


def render_trajectory(trajectory: Trajectory, *, color: bool = False) -> str:
    """Returns the transcript: question, turns with their observations, and the score once the episode is over."""
    out = [_paint(_visible(trajectory.prompt), "question", color=color) + "\n"]
    out += [_turn(i, turn, color=color) for i, turn in enumerate(trajectory.turns, 1)]
    match trajectory.finish_reason:
        case "abandoned":
            pass
        case "fault":
            out.append(_paint(f"[fault] {_visible(trajectory.error or '')}", "fault", color=color) + "\n")
        case reason:
            b = trajectory.breakdown
            score = (
                f"[{reason}] reward {trajectory.reward:.3f} (F1 {b['f1']:.3f}, EM {b['em']:.0f}, "
                f"format {'valid' if b['format_valid'] else 'invalid'}); "
                f"golden: {' | '.join(trajectory.golden_answers)}"
            )
            out.append(_paint(_visible(score), "end", color=color) + "\n")
    return "".join(out)
