"""What a daemon counts."""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Metrics"]

_RECENT = 4096  # commands that the percentiles speak of


def _percentiles(seconds: deque[float]) -> dict[str, float | None]:
    """Returns p50 and p95 in milliseconds, each the smallest value that so many per cent do not exceed."""
    ordered = sorted(seconds)
    count = len(ordered)
    return {
        f"p{percent}_ms": round(1000 * ordered[-(-count * percent // 100) - 1], 3) if ordered else None
        for percent in (50, 95)
    }


@dataclass(slots=True)
class Metrics:
    """Counters of one daemon, used from its event loop only.

    Attributes:
        outcomes: finished commands: "ok", "cut", "timed_out", "cancelled" or the name of an exception.
        events: connections and what became of them.
        waits: seconds that the latest commands waited for a thread.
        runs: seconds from there to their result.
        started: when the daemon started, in the time of `time.monotonic`.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    waits: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    runs: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    started: float = field(default_factory=time.monotonic)

    def finished(self, outcome: str, wait: float, run: float) -> None:
        """Counts a command; `wait` and `run` are seconds."""
        self.outcomes[outcome] += 1
        self.waits.append(wait)
        self.runs.append(run)

    def values(self) -> dict[str, Any]:
        """Returns the counters as JSON values."""
        return {
            "uptime_seconds": round(time.monotonic() - self.started, 3),
            "commands": {"total": self.outcomes.total(), **self.outcomes},
            "connections": dict(self.events),
            "run": _percentiles(self.runs),
            "wait": _percentiles(self.waits),
        }
