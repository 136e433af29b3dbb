"""How many tokens a policy may still sample: of a turn, of an episode, of its model's context."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral

from grepseek_env.errors import ConfigError
from policies.base import PolicyStop

__all__ = ["Budget"]


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of one episode; None is no limit.

    Attributes:
        episode_tokens: sampled in all turns together.
        context_tokens: prompt, turns and observations together.
        least_tokens: a turn is not begun with fewer tokens left: an action would not fit.
    """

    episode_tokens: int | None = None
    context_tokens: int | None = None
    least_tokens: int = 16

    def __post_init__(self) -> None:
        for name in ("episode_tokens", "context_tokens", "least_tokens"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, Integral) or value < 1):
                raise ConfigError(
                    f"Budget.{name} is {value!r}; it must be a whole number of at least 1, or None for no limit"
                )

    def of_turn(self, wanted: int, *, sampled: int, context: int) -> int:
        """Returns how many tokens the next turn may have.

        Args:
            wanted: what a turn may have where nothing else limits it.
            sampled: tokens sampled in the episode so far.
            context: tokens that the next turn is sampled after, as far as they are known.

        Raises:
            PolicyStop: too few tokens are left to begin another turn.
        """
        limits = [("its episode_tokens", self.episode_tokens, sampled), ("the context", self.context_tokens, context)]
        allowed = wanted
        for name, limit, used in limits:
            if limit is None:
                continue
            if limit - used < min(self.least_tokens, wanted):
                raise PolicyStop(f"{used} of {limit} tokens of {name} are used; too few are left for another turn")
            allowed = min(allowed, limit - used)
        return allowed
