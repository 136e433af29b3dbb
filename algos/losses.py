"""The arithmetic of supervised and group-relative training, apart from models, files and environments.

Tensors hold one value a token in one flat row: padding never enters. A loss is a sum of per-token losses, each times
the weight of its sequence (`sequence_weights`), so that micro-batches add up to exactly what one big batch gives.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from grepseek_env.config import closest
from grepseek_env.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

__all__ = [
    "ADVANTAGES",
    "AGGREGATIONS",
    "Advantage",
    "Aggregation",
    "GroupAdvantages",
    "PolicyTerms",
    "group_advantages",
    "kl_to_reference",
    "logprobs_and_entropy",
    "policy_terms",
    "sequence_weights",
]

Advantage = Literal["grpo", "dr_grpo", "rloo", "reinforce_baseline"]
Aggregation = Literal["token", "sequence", "constant"]
ADVANTAGES: tuple[str, ...] = get_args(Advantage)
AGGREGATIONS: tuple[str, ...] = get_args(Aggregation)

# Rewards closer together than this are equal: a spread of rounding errors must not be blown up to advantages of 1.
_FLAT = 1e-8


@dataclass(frozen=True, slots=True)
class GroupAdvantages:
    """Advantages of a batch of groups.

    Attributes:
        values: one a rollout, in the groups' own layout.
        flat: whether a group's rewards are all equal, so that it has nothing to compare; its advantages are 0 (but not
            always under "reinforce_baseline", which centres the whole batch).
        spread: sample standard deviation of each group's rewards; 0 for groups of fewer than two.
    """

    values: tuple[tuple[float, ...], ...]
    flat: tuple[bool, ...]
    spread: tuple[float, ...]


def group_advantages(
    rewards: Sequence[Sequence[float]], kind: str = "grpo", *, lengths: Sequence[Sequence[int]] | None = None
) -> GroupAdvantages:
    """Compares the rollouts of each question with one another.

    Args:
        rewards: one row a question, of any lengths: rollouts that do not count are left out before.
        kind: "grpo": (r - mean) / std, with the sample standard deviation (n - 1); "dr_grpo": r - mean; "rloo": r minus
            the mean of the others; "reinforce_baseline": r - mean of the group, then centred and scaled by the standard
            deviation over all tokens of the batch (REINFORCE++ with a group baseline).
        lengths: policy tokens of every rollout, which "reinforce_baseline" weighs by; default 1 each.

    Raises:
        ConfigError: the kind is unknown, a reward is not finite, or `lengths` does not fit.
    """
    if kind not in ADVANTAGES:
        raise ConfigError(
            f"advantage is {kind!r}{closest(kind, ADVANTAGES)}; it must be one of {', '.join(ADVANTAGES)}"
        )
    for row in rewards:
        if not all(map(math.isfinite, row)):
            raise ConfigError(f"rewards are {list(row)}; every one must be a finite number")
    means = [math.fsum(row) / len(row) if row else 0.0 for row in rewards]
    spread = tuple(_sample_std(row, mean) for row, mean in zip(rewards, means, strict=True))
    flat = tuple(max(row, default=0.0) - min(row, default=0.0) <= _FLAT for row in rewards)
    centred = [[0.0 if same else r - mean for r in row] for row, mean, same in zip(rewards, means, flat, strict=True)]
    match kind:
        case "grpo":
            values = [[a / s if s else 0.0 for a in row] for row, s in zip(centred, spread, strict=True)]
        case "rloo":  # r - mean of the others = (r - mean) * n / (n - 1)
            values = [[a * len(row) / (len(row) - 1) if a else 0.0 for a in row] for row in centred]
        case "reinforce_baseline":
            values = _batch_scaled(centred, lengths or [[1] * len(row) for row in centred])
        case _:
            values = centred
    return GroupAdvantages(tuple(map(tuple, values)), flat, spread)


def _sample_std(row: Sequence[float], mean: float) -> float:
    return math.sqrt(math.fsum((r - mean) ** 2 for r in row) / (len(row) - 1)) if len(row) > 1 else 0.0


def _batch_scaled(centred: list[list[float]], lengths: Sequence[Sequence[int]]) -> list[list[float]]:
    if [len(row) for row in centred] != [len(row) for row in lengths]:
        raise ConfigError("lengths does not have one number for every reward")
    pairs = [(a, n) for row, counts in zip(centred, lengths, strict=True) for a, n in zip(row, counts, strict=True)]
    tokens = sum(n for _, n in pairs)
    if not tokens:
        return centred
    mean = math.fsum(a * n for a, n in pairs) / tokens
    std = math.sqrt(math.fsum(n * (a - mean) ** 2 for a, n in pairs) / tokens)
    return [[(a - mean) / std if std > _FLAT else 0.0 for a in row] for row in centred]


def sequence_weights(lengths: Sequence[int], aggregation: str = "token", *, most_tokens: int = 0) -> list[float]:
    """Returns what a token of each sequence counts in the loss of a mini-batch.

    Args:
        lengths: policy tokens of each sequence.
        aggregation: "token": the mean over all tokens; "sequence": the mean over sequences of their token means;
            "constant": the sum of tokens over (sequences x `most_tokens`), as Dr.GRPO has it: no sequence counts less
            for being long.
        most_tokens: tokens that a sequence may have, for "constant".

    Raises:
        ConfigError: the aggregation is unknown, or "constant" lacks `most_tokens`.
    """
    if aggregation not in AGGREGATIONS:
        near = closest(aggregation, AGGREGATIONS)
        raise ConfigError(f"aggregation is {aggregation!r}{near}; it must be one of {', '.join(AGGREGATIONS)}")
    if aggregation == "constant" and most_tokens < 1:
        raise ConfigError(f"most_tokens is {most_tokens}; aggregation 'constant' divides by it: give at least 1")
    tokens, count = sum(lengths), sum(n > 0 for n in lengths)
    match aggregation:
        case "token":
            return [1.0 / tokens if n else 0.0 for n in lengths]
        case "sequence":
            return [1.0 / (n * count) if n else 0.0 for n in lengths]
        case _:
            return [1.0 / (len(lengths) * most_tokens)] * len(lengths)


def logprobs_and_entropy(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the log-probability of each target and the entropy of each distribution, in float32.

    Args:
        logits: [tokens, vocabulary].
        targets: [tokens], ids.

    Returns:
        Two tensors [tokens], in nats.
    """
    logprobs = logits.float().log_softmax(-1)
    return logprobs.gather(-1, targets.unsqueeze(-1)).squeeze(-1), -(logprobs.exp() * logprobs).sum(-1)


@dataclass(frozen=True, slots=True)
class PolicyTerms:
    """Per-token parts of the clipped objective.

    Attributes:
        loss: [tokens], to be minimised.
        ratio: [tokens], new over old probability, without gradient.
        clipped: [tokens], whether clipping took the gradient away.
    """

    loss: Tensor
    ratio: Tensor
    clipped: Tensor


def policy_terms(
    logprobs: Tensor, old: Tensor, advantages: Tensor, *, clip_low: float = 0.2, clip_high: float = 0.2
) -> PolicyTerms:
    """Returns the token-level clipped objective: -min(ratio A, clip(ratio, 1 - clip_low, 1 + clip_high) A).

    All tensors are [tokens]. With `clip_high` above `clip_low` unlikely tokens can grow faster ("clip-higher").
    """
    ratio = (logprobs - old).exp()
    free, bounded = ratio * advantages, ratio.clamp(1 - clip_low, 1 + clip_high) * advantages
    return PolicyTerms(-free.minimum(bounded), ratio.detach(), (bounded < free).detach())


def kl_to_reference(logprobs: Tensor, reference: Tensor) -> Tensor:
    """Returns an unbiased, never negative estimate of the KL divergence from the reference: e^d - d - 1 a token.

    d is reference minus policy log-probability; all tensors are [tokens].
    """
    d = reference - logprobs
    return d.exp() - d - 1
