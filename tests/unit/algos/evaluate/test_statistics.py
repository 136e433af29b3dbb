from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algos.evaluate.statistics import best_of, interval, paired, percentile, resampled_means, sign_flip_p

VALUES = st.lists(st.sampled_from([0.0, 0.25, 0.5, 2 / 3, 1.0]), min_size=1, max_size=7)


@settings(max_examples=60)
@given(VALUES, st.data())
def test_best_of_is_the_mean_over_all_subsets(values: list[float], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(values)))
    subsets = [max(subset) for subset in itertools.combinations(values, k)]
    assert best_of(values, k) == pytest.approx(sum(subsets) / len(subsets))


def test_best_of_is_pass_at_k() -> None:
    # 10 samples, 3 right: 1 - C(7, 5) / C(10, 5) = 1 - 21 / 252.
    assert best_of([1.0] * 3 + [0.0] * 7, 5) == pytest.approx(1 - 21 / 252)
    with pytest.raises(ValueError, match="from 1 to the number of values, 2"):
        best_of([0.0, 1.0], 3)


@settings(max_examples=60)
@given(st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.25, 1.0]), min_size=1, max_size=7))
def test_few_differences_are_tested_exactly(differences: list[float]) -> None:
    nonzero = [d for d in differences if d]
    sums = [abs(sum(s * d for s, d in zip(signs, nonzero, strict=True))) for signs in _signs(len(nonzero))]
    expected = sum(s >= abs(sum(nonzero)) - 1e-9 for s in sums) / len(sums)
    assert sign_flip_p(np.array(differences), resamples=100, seed=0) == pytest.approx(expected)


def _signs(count: int) -> list[tuple[int, ...]]:
    return list(itertools.product((1, -1), repeat=count))


def test_the_random_test_agrees_with_the_binomial_one() -> None:
    # 20 better, 8 worse, each by the same amount: twice the binomial tail.
    d = np.array([1.0] * 20 + [-1.0] * 8 + [0.0] * 30)
    tail = 2 * sum(math.comb(28, i) for i in range(20, 29)) / 2**28
    p = sign_flip_p(d, resamples=20_000, seed=3)
    assert abs(p - tail) < 4 * math.sqrt(tail / 20_000)
    assert p == sign_flip_p(d, resamples=20_000, seed=3)
    assert sign_flip_p(np.array([1.0] * 200), resamples=1000, seed=0) == 1 / 1001


def test_intervals_repeat_and_are_where_theory_puts_them() -> None:
    values = np.repeat([[0.0], [1.0]], 200, axis=0)
    draws = resampled_means(values, resamples=4000, seed=1)
    assert np.array_equal(draws, resampled_means(values, resamples=4000, seed=1))
    ends = interval(draws[:, 0])
    half = 1.96 * 0.5 / math.sqrt(400)
    assert abs(ends.low - (0.5 - half)) < 0.006
    assert abs(ends.high - (0.5 + half)) < 0.006


def test_chunks_do_not_change_the_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).random((50, 2))
    whole = resampled_means(values, resamples=300, seed=5)
    monkeypatch.setattr("algos.evaluate.statistics._CHUNK", 700)
    assert np.array_equal(whole, resampled_means(values, resamples=300, seed=5))


def test_paired_by_hand() -> None:
    a, b = np.array([0.0, 0.5, 1.0, 0.0]), np.array([1.0, 0.5, 0.5, 1.0])
    found = paired([(a, b)], macro=False, resamples=500, seed=0)
    assert (found.mean_a, found.mean_b, found.difference) == (0.375, 0.75, 0.375)
    assert (found.wins, found.losses, found.ties) == (2, 1, 1)
    assert found.effect == pytest.approx(0.375 / np.std([1, 0, -0.5, 1], ddof=1))
    # Of 8 patterns of signs of (1, -0.5, 1) those with a sum of at least 1.5 are +1 -.5 +1, +1 +.5 +1 and opposites.
    assert found.p == 0.5
    back = paired([(b, a)], macro=False, resamples=500, seed=0)
    assert back.difference == -found.difference
    assert back.p == found.p
    assert back.interval.low == pytest.approx(-found.interval.high)


def test_macro_weighs_sets_alike() -> None:
    small, large = np.array([0.0, 0.0]), np.zeros(8)
    groups = [(small, small + 1.0), (large, large)]
    assert paired(groups, macro=False, resamples=200, seed=0).difference == pytest.approx(0.2)
    assert paired(groups, macro=True, resamples=200, seed=0).difference == pytest.approx(0.5)


def test_equal_runs_differ_in_nothing() -> None:
    a = np.array([0.3, 0.7])
    found = paired([(a, a)], macro=False, resamples=200, seed=0)
    assert (found.difference, found.p, found.effect) == (0.0, 1.0, 0.0)
    assert paired([(a, a + 0.5)], macro=False, resamples=200, seed=0).effect == math.inf


def test_percentiles_interpolate() -> None:
    assert percentile([1.0, 2.0, 3.0, 4.0], 50) == 2.5
    assert percentile([], 95) == 0.0
