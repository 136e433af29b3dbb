"""From episodes to the numbers of a table: a row a set, micro and macro averages, intervals, best of k."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from algos.evaluate.measures import COUNTS, TOKEN_COUNTS
from algos.evaluate.statistics import best_of, interval, resampled_means

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from algos.evaluate.measures import Episode

__all__ = ["METRICS", "RESAMPLES", "by_question", "summarize"]

METRICS = ("f1", "em", "reward")
RESAMPLES = 2000


def by_question(episodes: Sequence[Episode]) -> dict[str, list[Episode]]:
    """Returns the episodes of each question, in the order of samples; questions in the order of first appearance."""
    out: dict[str, list[Episode]] = {}
    for episode in episodes:
        out.setdefault(episode.question_id, []).append(episode)
    for samples in out.values():
        samples.sort(key=lambda e: e.sample)
    return out


@dataclass(frozen=True, slots=True)
class _Row:
    """What is kept of a row to make averages over rows."""

    summary: dict[str, Any]
    means: NDArray[np.float64]
    draws: NDArray[np.float64]
    questions: int


def summarize(
    rows: Mapping[str, Sequence[Episode]],
    *,
    faults: Mapping[str, int] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, Any]:
    """Returns the summary of a run: `{"sets": {ROW: ...}, "micro": ..., "macro": ...}`.

    A question counts with the mean over its samples. Micro: every question weighs the same; macro: every row does.
    Intervals are 95 % percentile bootstrap intervals over questions, drawn within each row.

    Args:
        rows: the episodes that count, by row.
        faults: number of episodes left out, by row.
        resamples: draws of the bootstrap.
        seed: of the draws.
    """
    faults = faults or {}
    made = {
        name: _row(episodes, faults.get(name, 0), resamples, seed + i)
        for i, (name, episodes) in enumerate(rows.items())
        if episodes
    }
    every = [e for episodes in rows.values() for e in episodes]
    out: dict[str, Any] = {
        "sets": {name: made[name].summary if name in made else _nothing(faults.get(name, 0)) for name in rows}
    }
    if made:
        count = sum(row.questions for row in made.values())
        weights = {"micro": [row.questions / count for row in made.values()], "macro": [1 / len(made)] * len(made)}
        for name, shares in weights.items():
            out[name] = {
                metric: _value(
                    sum(w * float(row.means[i]) for w, row in zip(shares, made.values(), strict=True)),
                    sum(w * row.draws[:, i] for w, row in zip(shares, made.values(), strict=True)),
                )
                for i, metric in enumerate(METRICS)
            }
        out["all"] = _described(every, sum(faults.values()))
    return out


def _nothing(faults: int) -> dict[str, Any]:
    return {"questions": 0, "episodes": 0, "faults": faults}


def _value(mean: float, draws: Any) -> dict[str, Any]:
    ends = interval(draws)
    return {"mean": mean, "ci95": [ends.low, ends.high]}


def _row(episodes: Sequence[Episode], faults: int, resamples: int, seed: int) -> _Row:
    questions = by_question(episodes)
    values = np.array(
        [[sum(getattr(e, m) for e in samples) / len(samples) for m in METRICS] for samples in questions.values()]
    )
    draws = resampled_means(values, resamples=resamples, seed=seed)
    means = values.mean(axis=0)
    summary = {metric: _value(float(means[i]), draws[:, i]) for i, metric in enumerate(METRICS)}
    most = max(map(len, questions.values()))
    summary = {**_described(episodes, faults), **summary}
    if most > 1:
        summary["best_of"] = _best_of(list(questions.values()), most)
        summary["samples"] = _samples(episodes, most)
    return _Row(summary, means, draws, len(questions))


def _described(episodes: Sequence[Episode], faults: int) -> dict[str, Any]:
    """Returns everything that is a plain count or mean over episodes."""
    count = len(episodes)
    totals = {name: sum(e.counts[name] for e in episodes) for name in COUNTS}
    means: dict[str, float] = {name: totals[name] / count for name in COUNTS}
    for name in TOKEN_COUNTS:
        known = [e.counts[name] for e in episodes if name in e.counts]
        if known:
            means[name] = sum(known) / len(known)
    run = totals["commands"] - totals["not_run"]
    reasons = Counter(e.finish_reason for e in episodes)
    return {
        "questions": len({(e.row, e.question_id) for e in episodes}),
        "episodes": count,
        "faults": faults,
        "answered": sum(e.prediction is not None for e in episodes) / count,
        "format_valid": sum(e.format_valid for e in episodes) / count,
        "finish_reasons": {reason: reasons[reason] for reason in sorted(reasons)},
        "totals": totals,
        "per_episode": means,
        "share_of_commands": {
            name: totals[name] / run if run else 0.0 for name in ("empty", "failed", "refused", "timed_out", "cut")
        },
    }


def _best_of(questions: Sequence[Sequence[Episode]], most: int) -> dict[str, Any]:
    """Returns pass@k (`em`) and the expected best F1 of k, over the questions that have k samples."""
    sizes = [k for k in (1, 2, 4, 8, 16, 32, 64, 128, 256) if k < most] + [most]
    out: dict[str, Any] = {}
    for k in sizes:
        enough = [samples for samples in questions if len(samples) >= k]
        out[str(k)] = {
            "questions": len(enough),
            "pass": sum(best_of([e.em for e in samples], k) for samples in enough) / len(enough),
            "f1": sum(best_of([e.f1 for e in samples], k) for samples in enough) / len(enough),
        }
    return out


def _samples(episodes: Sequence[Episode], most: int) -> dict[str, Any]:
    """Returns how a run of one sample a question varies: the mean of each sample, and their standard deviation."""
    numbers = sorted({e.sample for e in episodes})
    out: dict[str, Any] = {"most": most}
    for metric in ("f1", "em"):
        means = []
        for number in numbers:
            values = [getattr(e, metric) for e in episodes if e.sample == number]
            means.append(sum(values) / len(values))
        out[metric] = {"means": means, "sd": float(np.std(means, ddof=1)) if len(means) > 1 else 0.0}
    return out
