"""Losses and advantages against numbers worked out by hand, and against autograd."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from algos.losses import (
    ADVANTAGES,
    group_advantages,
    kl_to_reference,
    logprobs_and_entropy,
    policy_terms,
    sequence_weights,
)
from grepseek_env.errors import ConfigError


def close(values: object, wanted: object) -> bool:
    return torch.allclose(torch.as_tensor(values), torch.as_tensor(wanted), atol=1e-6)


# Rewards 1, 0, 0, 0, 1: mean 0.4, squared deviations .36 .16 .16 .16 .36 = 1.2, over n - 1 = 4: .3, std .547722558.
GROUP = [1.0, 0.0, 0.0, 0.0, 1.0]
BY_HAND = {
    "grpo": [1.0954451, -0.7302967, -0.7302967, -0.7302967, 1.0954451],
    "dr_grpo": [0.6, -0.4, -0.4, -0.4, 0.6],
    # Mean of the four others: .25 for a 1, .5 for a 0.
    "rloo": [0.75, -0.5, -0.5, -0.5, 0.75],
}


@pytest.mark.parametrize(("kind", "wanted"), BY_HAND.items())
def test_advantages_of_one_group_by_hand(kind: str, wanted: list[float]) -> None:
    got = group_advantages([GROUP], kind)
    assert close(got.values[0], wanted)
    assert got.flat == (False,)
    assert got.spread[0] == pytest.approx(math.sqrt(0.3))


def test_reinforce_baseline_scales_over_the_tokens_of_the_whole_batch() -> None:
    # Centred: (.5, -.5) and (0, 0). Token mean of (3 x .5, 1 x -.5, 2 x 0, 2 x 0): 1/8. Mean of squares: 1/8.
    got = group_advantages([[1.0, 0.0], [2.0, 2.0]], "reinforce_baseline", lengths=[[3, 1], [2, 2]])
    std = math.sqrt(1 / 8 - 1 / 64)
    wanted = [[(0.5 - 0.125) / std, (-0.5 - 0.125) / std], [-0.125 / std, -0.125 / std]]
    assert close(got.values, wanted)
    assert got.flat == (False, True)


def test_reinforce_baseline_counts_every_rollout_once_without_lengths() -> None:
    got = group_advantages([[1.0, 0.0]], "reinforce_baseline")
    assert close(got.values[0], [1.0, -1.0])


@pytest.mark.parametrize("kind", ADVANTAGES)
@pytest.mark.parametrize("row", [[], [0.7], [0.1 + 0.2, 0.3, 0.3], [0.0] * 5, [1.1] * 5])
def test_groups_without_spread_teach_nothing_and_are_counted(kind: str, row: list[float]) -> None:
    got = group_advantages([row], kind)
    assert got.values == (tuple(0.0 for _ in row),)
    assert got.flat == (True,)


@pytest.mark.parametrize("kind", ["grpo", "dr_grpo", "rloo"])
@given(st.lists(st.integers(0, 11), min_size=2, max_size=8))
def test_advantages_sum_to_zero_and_keep_the_order(kind: str, tenths: list[int]) -> None:
    row = [t / 10 for t in tenths]
    [values] = group_advantages([row], kind).values
    assert math.fsum(values) == pytest.approx(0, abs=1e-9)
    assert all((a > b) == (x > y) for a, x in zip(values, row, strict=True) for b, y in zip(values, row, strict=True))


def test_advantages_name_what_is_wrong() -> None:
    with pytest.raises(ConfigError, match="advantage is 'grop'"):
        group_advantages([GROUP], "grop")
    with pytest.raises(ConfigError, match="finite"):
        group_advantages([[1.0, math.nan]])
    with pytest.raises(ConfigError, match="lengths"):
        group_advantages([[1.0, 0.0]], "reinforce_baseline", lengths=[[1]])


def test_sequence_weights_by_hand() -> None:
    assert sequence_weights([3, 1, 0]) == [0.25, 0.25, 0.0]
    assert sequence_weights([3, 1, 0], "sequence") == [pytest.approx(1 / 6), 0.5, 0.0]
    assert sequence_weights([3, 1], "constant", most_tokens=10) == [0.05, 0.05]
    with pytest.raises(ConfigError, match="most_tokens"):
        sequence_weights([3], "constant")
    with pytest.raises(ConfigError, match="aggregation is 'tokens'"):
        sequence_weights([3], "tokens")


def test_logprobs_and_entropy_by_hand() -> None:
    # Probabilities 1/2, 1/4, 1/4: entropy 1.5 bits.
    logits = torch.log(torch.tensor([[2.0, 1.0, 1.0]]))
    logprobs, entropy = logprobs_and_entropy(logits, torch.tensor([1]))
    assert close(logprobs, [math.log(0.25)])
    assert close(entropy, [1.5 * math.log(2)])


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope", "clipped"),
    [
        (1.0, 2.0, -2.0, -2.0, False),
        (1.5, 2.0, -2.4, 0.0, True),  # raised far enough: 1.2 x 2
        (0.5, 2.0, -1.0, -1.0, False),  # a good token that has become unlikely is still pulled up
        (0.5, -1.0, 0.8, 0.0, True),  # lowered far enough: 0.8 x 1
        (1.5, -1.0, 1.5, 1.5, False),
    ],
)
def test_clipped_objective_and_its_gradient_by_hand(
    ratio: float, advantage: float, loss: float, slope: float, *, clipped: bool
) -> None:
    """d loss / d logprob is -ratio x advantage where nothing is clipped, else 0."""
    old = torch.tensor([-1.0])
    new = (old + math.log(ratio)).requires_grad_()
    terms = policy_terms(new, old, torch.tensor([advantage]))
    terms.loss.sum().backward()
    assert close(terms.loss.detach(), [loss])
    assert close(terms.ratio, [ratio])
    assert terms.clipped.tolist() == [clipped]
    assert new.grad is not None
    assert close(new.grad, [slope])


def test_clip_higher_lets_good_tokens_grow_further() -> None:
    old, new = torch.tensor([-1.0]), torch.tensor([-1.0 + math.log(1.25)])
    one = torch.ones(1)
    assert close(policy_terms(new, old, one).loss, [-1.2])
    assert close(policy_terms(new, old, one, clip_high=0.28).loss, [-1.25])


def test_kl_estimate_by_hand() -> None:
    policy = torch.log(torch.tensor([0.5, 0.25, 0.25]))
    reference = torch.log(torch.tensor([0.25, 0.25, 0.5]))
    # ratio - ln ratio - 1 of 1/2, 1 and 2.
    wanted = [0.5 + math.log(2) - 1, 0.0, 2 - math.log(2) - 1]
    terms = kl_to_reference(policy, reference)
    assert close(terms, wanted)
    # Its mean under the policy is the divergence itself: .5 ln 2 + 0 - .25 ln 2.
    assert close((policy.exp() * terms).sum(), 0.25 * math.log(2))
