"""The statistics of an evaluation: resampling, best of k, a paired test. Pure, and the same for the same seed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["Interval", "Paired", "best_of", "interval", "paired", "percentile", "resampled_means", "sign_flip_p"]

_CHUNK = 1 << 20  # random numbers drawn at once: bounds the memory, not the result
_EXACT = 14  # up to so many differences every pattern of signs is tried
_SLACK = 1e-12  # sums of the same numbers in another order must count as equal


@dataclass(frozen=True, slots=True)
class Interval:
    """A percentile interval with its ends."""

    low: float
    high: float


def resampled_means(values: Floats, *, resamples: int, seed: int) -> Floats:
    """Returns means over questions drawn with replacement.

    Args:
        values: shape (questions, metrics); a question's metrics are drawn together.
        resamples: number of draws.
        seed: of the draws.

    Returns:
        Shape (resamples, metrics).
    """
    count, metrics = values.shape
    rng = np.random.default_rng(seed)
    out = np.empty((resamples, metrics))
    rows = max(1, _CHUNK // max(1, count * metrics))
    for start in range(0, resamples, rows):
        drawn = rng.integers(0, count, size=(min(rows, resamples - start), count))
        out[start : start + len(drawn)] = values[drawn].mean(axis=1)
    return out


def interval(draws: Floats, *, level: float = 0.95) -> Interval:
    """Returns the percentile interval of resampled values, shape (resamples,)."""
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


def percentile(values: Sequence[float], q: float) -> float:
    """Returns the q-th percentile (0 to 100), interpolated linearly; 0.0 of nothing."""
    return float(np.percentile(np.asarray(values), q)) if len(values) else 0.0


def best_of(values: Sequence[float], k: int) -> float:
    """Returns the expected maximum of k of the values, drawn without replacement.

    For values of 0 and 1 this is the unbiased pass@k, 1 - C(n - c, k) / C(n, k).
    """
    n = len(values)
    if not 1 <= k <= n:
        raise ValueError(f"k is {k}; it must be from 1 to the number of values, {n}")
    return sum(v * math.comb(i, k - 1) for i, v in enumerate(sorted(values))) / math.comb(n, k)


@dataclass(frozen=True, slots=True)
class Paired:
    """Two runs on the same questions.

    Attributes:
        mean_a: weighted mean of the first run.
        mean_b: of the second.
        difference: second minus first.
        interval: its 95 % interval: bootstrap over questions, within each set.
        p: two-sided, of a sign-flip permutation test.
        effect: the mean difference over the standard deviation of differences (Cohen's d of paired samples); 0 where
            there is no difference, infinite where all differences are equal and not 0.
        wins: questions on which the second run is better.
        losses: on which the first is.
        ties: on which they are equal.
    """

    mean_a: float
    mean_b: float
    difference: float
    interval: Interval
    p: float
    effect: float
    wins: int
    losses: int
    ties: int


def paired(groups: Sequence[tuple[Floats, Floats]], *, macro: bool, resamples: int, seed: int) -> Paired:
    """Compares two runs on the questions they share.

    Args:
        groups: a pair of arrays a set, one value a question each, in the same order.
        macro: every set weighs the same; else every question does.
        resamples: draws of the interval and of the test.
        seed: of the draws.
    """
    total = sum(len(a) for a, _ in groups)
    shares = [1 / len(groups) if macro else len(a) / total for a, _ in groups]
    differences = [b - a for a, b in groups]
    draws: Any = sum(
        share * resampled_means(d[:, None], resamples=resamples, seed=seed + i)[:, 0]
        for i, (share, d) in enumerate(zip(shares, differences, strict=True))
    )
    every = np.concatenate(differences)
    weighted = np.concatenate([d * (share / len(d)) for share, d in zip(shares, differences, strict=True)])
    mean_a, mean_b = (
        float(sum(share * pair[side].mean() for share, pair in zip(shares, groups, strict=True))) for side in (0, 1)
    )
    return Paired(
        mean_a=mean_a,
        mean_b=mean_b,
        difference=float(weighted.sum()),
        interval=interval(draws),
        p=sign_flip_p(weighted, resamples=resamples, seed=seed),
        effect=_effect(every, float(weighted.sum())),
        wins=int((every > _SLACK).sum()),
        losses=int((every < -_SLACK).sum()),
        ties=int((np.abs(every) <= _SLACK).sum()),
    )


def _effect(differences: Floats, mean: float) -> float:
    spread = float(differences.std(ddof=1)) if len(differences) > 1 else 0.0
    if spread > _SLACK:
        return mean / spread
    return 0.0 if abs(mean) <= _SLACK else math.copysign(math.inf, mean)


def sign_flip_p(differences: Floats, *, resamples: int, seed: int) -> float:
    """Returns the two-sided p value of the sum of differences, were the sign of each a coin's throw.

    Exact for few differences; else by `resamples` random patterns, the observed one counted in, so that it is never 0.
    """
    d = differences[np.abs(differences) > _SLACK * 1e-3]
    observed = abs(float(d.sum()))
    limit = observed - max(_SLACK, observed * 1e-9)
    if len(d) <= _EXACT:
        patterns = np.arange(1 << len(d))[:, None] >> np.arange(len(d))[None, :] & 1
        return float((np.abs((1 - 2 * patterns) @ d) >= limit).mean())
    rng = np.random.default_rng(seed)
    rows = max(1, _CHUNK // len(d))
    hits = 0
    for start in range(0, resamples, rows):
        flips = rng.integers(0, 2, size=(min(rows, resamples - start), len(d)), dtype=np.int8)
        hits += int((np.abs((1 - 2 * flips.astype(np.float64)) @ d) >= limit).sum())
    return (hits + 1) / (resamples + 1)
