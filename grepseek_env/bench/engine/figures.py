"""From timings to figures: ratios within a round, their median and spread, shares of the ceiling."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from grepseek_env.bench.engine.contestants import BASH, CEILING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from grepseek_env.bench.engine.measure import PipelineRuns, Timing
    from grepseek_env.bench.engine.memory import Peak

__all__ = ["Figure", "Ratio", "figures", "geometric_mean"]


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times faster than another a contestant is, paired within rounds.

    Attributes:
        median: the median over the draws of each draw's median.
        low: lower quartile of all rounds of all draws.
        high: upper quartile.
    """

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Figure:
    """One contestant at one pipeline.

    Attributes:
        milliseconds: the median over the draws of each draw's median; as measured on this machine at this time.
        against_bash: bash's time over this one's.
        of_ceiling: the ceiling's time over this one's: 1 is all that the cores can give; None where there is none.
        timeouts: runs that ran out of time; they count as having taken just the time-out, so with any the ratios are
            upper bounds.
        runs: timed runs.
        memory: peak of an untimed run; None if it was not made.
    """

    milliseconds: float
    against_bash: Ratio | None
    of_ceiling: Ratio | None
    timeouts: int
    runs: int
    memory: Peak | None


def figures(runs: PipelineRuns) -> dict[str, Figure]:
    """Returns contestant -> figure, in the order of its first run; empty when no round is complete."""
    draws = [rounds for rounds in runs.rounds if rounds]
    if not draws:
        return {}
    result = {}
    for name in runs.memory:
        timings = [[timings[name] for timings in rounds] for rounds in draws]
        every = [timing for rounds in timings for timing in rounds]
        result[name] = Figure(
            milliseconds=1e3 * statistics.median(statistics.median(t.seconds for t in rounds) for rounds in timings),
            against_bash=_ratio(draws, BASH, name),
            of_ceiling=_ratio(draws, CEILING, name) if CEILING in runs.memory and name != CEILING else None,
            timeouts=sum(timing.timed_out for timing in every),
            runs=len(every),
            memory=runs.memory.get(name),
        )
    return result


def _ratio(draws: Sequence[Sequence[Mapping[str, Timing]]], base: str, name: str) -> Ratio | None:
    """Returns how much faster `name` is than `base`, None if that ran out of time in every round."""
    by_draw = [
        [timings[base].seconds / timings[name].seconds for timings in rounds if not timings[base].timed_out]
        for rounds in draws
    ]
    by_draw = [ratios for ratios in by_draw if ratios]
    if not by_draw:
        return None
    low, high = _quartiles([ratio for ratios in by_draw for ratio in ratios])
    return Ratio(statistics.median(map(statistics.median, by_draw)), low, high)


def _quartiles(values: Sequence[float]) -> tuple[float, float]:
    if len(values) == 1:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def geometric_mean(values: Iterable[float | None]) -> float | None:
    """Returns the geometric mean of positive numbers, None if there are none or one is missing."""
    known = list(values)
    if not known or None in known:
        return None
    return statistics.geometric_mean([value for value in known if value is not None])
