"""The reward of an episode, with the parts it is made of."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from numbers import Real
from typing import TYPE_CHECKING, Protocol

from grepseek_env.config import RewardConfig
from grepseek_env.errors import ConfigError
from grepseek_env.reward.scores import exact_match, f1_score

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["RewardBreakdown", "RewardFunction", "compute_reward"]


class RewardFunction(Protocol):
    """A reward of one's own, used in place of a `RewardConfig`; f1 and em are still logged beside it."""

    def __call__(self, answer: str | None, golden_answers: Sequence[str], format_valid: bool, /) -> float:  # noqa: FBT001 - a positional contract, so that a plain function fits
        """Returns the reward, a finite number; `answer` is None for an episode that ended without an answer."""


@dataclass(frozen=True, slots=True)
class RewardBreakdown:
    """A reward and its parts.

    Attributes:
        reward: what the policy is trained on.
        f1: token F1 against the best golden answer; 0 without an answer.
        em: exact match likewise.
        format_valid: the transcript keeps to the format from first turn to answer.
        format_bonus: the share of `reward` that was paid for the format.
        answered: the episode ended with an answer (which may be empty).
    """

    reward: float
    f1: float
    em: float
    format_valid: bool
    format_bonus: float
    answered: bool

    def as_info(self) -> dict[str, float | bool]:
        """Returns a new dict with one entry an attribute, for `info` and logs."""
        return asdict(self)


def compute_reward(
    config: RewardConfig | RewardFunction, *, answer: str | None, golden_answers: Sequence[str], format_valid: bool
) -> RewardBreakdown:
    """Scores a finished episode.

    Args:
        config: how to score, or a function of one's own.
        answer: the final answer as the parser read it; None when the episode ended without one, which scores 0 plus
            nothing under a `RewardConfig`. A function of one's own is called in that case too.
        golden_answers: accepted answers, at least one.
        format_valid: whether the transcript keeps to the format; it counts only with an answer.

    Raises:
        ConfigError: the golden answers cannot be used, or the function returned no finite number.
    """
    rule = isinstance(config, RewardConfig) and config.yes_no_rule
    answered = answer is not None
    # Scored even without an answer, so that unusable golden answers are reported by the first episode, not by the
    # first one that happens to finish; an empty text scores 0.
    f1 = f1_score(answer or "", golden_answers, yes_no_rule=rule)
    em = exact_match(answer or "", golden_answers, yes_no_rule=rule)
    valid = format_valid and answered
    if isinstance(config, RewardConfig):
        reward, bonus = _configured(config, f1 if config.metric == "f1" else em, valid=valid)
    else:
        reward, bonus = _finite(config(answer, tuple(golden_answers), valid), config), 0.0
    return RewardBreakdown(reward=reward, f1=f1, em=em, format_valid=valid, format_bonus=bonus, answered=answered)


def _configured(config: RewardConfig, score: float, *, valid: bool) -> tuple[float, float]:
    """Returns the reward and the share of it that is the format bonus."""
    match config.format:
        case "bonus":
            bonus = config.format_weight if valid else 0.0
            return score + bonus, bonus
        case "gate":
            return score if valid else 0.0, 0.0
        case "off":
            return score, 0.0


def _finite(value: object, function: RewardFunction) -> float:
    name = getattr(function, "__qualname__", type(function).__qualname__)
    if not isinstance(value, Real):
        raise ConfigError(f"reward function {name} returned {value!r}; it must return a number: wrap it in float(...)")
    if not math.isfinite(value):
        raise ConfigError(f"reward function {name} returned {value!r}; a reward must be finite")
    return float(value)
