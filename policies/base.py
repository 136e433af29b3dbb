"""What a policy is: it sees the start of an episode, then answers each observation with a turn of text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, ClassVar

from grepseek_env.config import closest
from grepseek_env.errors import ConfigError

if TYPE_CHECKING:
    from grepseek_env.actions.formats import ActionFormat
    from grepseek_env.types import Question

__all__ = ["ENTRY_POINT_GROUP", "EpisodeStart", "Policy", "make_policy", "policy_names"]

ENTRY_POINT_GROUP = "grepseek_env.policies"


@dataclass(frozen=True, slots=True)
class EpisodeStart:
    """What a policy is told when an episode starts.

    Attributes:
        question: for a policy that is not `privileged`, golden answers, evidence and metadata are removed.
        observation: the first observation.
        system_prompt: the system message.
        action_format: how turns are written.
        max_turns: policy turns, the answer included.
        seed: for the policy's own random draws; the same seed, the same turns.
    """

    question: Question
    observation: str
    system_prompt: str
    action_format: ActionFormat
    max_turns: int
    seed: int = 0


def blinded(question: Question) -> Question:
    """Returns the question without anything that tells its answer."""
    return replace(question, golden_answers=(), evidence=(), metadata={})


class Policy(ABC):
    """Drives one episode at a time.

    Attributes:
        name: shown in tables and written to manifests.
        privileged: the policy is given golden answers and evidence (oracles only).
    """

    name: ClassVar[str]
    privileged: ClassVar[bool] = False

    def start(self, start: EpisodeStart) -> None:
        """Begins an episode."""
        self.begin(start if self.privileged else replace(start, question=blinded(start.question)))

    @abstractmethod
    def begin(self, start: EpisodeStart) -> None:
        """Prepares for an episode; what a policy implements in place of `start`."""

    @abstractmethod
    def act(self, observation: str) -> str:
        """Returns the next turn for the newest observation (the first call gets the first observation)."""


def policy_names() -> list[str]:
    """Returns the names under which policies are installed (entry-point group `grepseek_env.policies`)."""
    return sorted(e.name for e in entry_points(group=ENTRY_POINT_GROUP))


def make_policy(name: str) -> Policy:
    """Builds an installed policy.

    Raises:
        ConfigError: no policy has this name; lists those that are installed.
    """
    found = {e.name: e for e in entry_points(group=ENTRY_POINT_GROUP)}
    if name not in found:
        names = sorted(found)
        raise ConfigError(f"no policy is named {name!r}{closest(name, names)}; installed: {', '.join(names)}")
    policy = found[name].load()()
    if not isinstance(policy, Policy):
        raise ConfigError(f"entry point {name!r} gives a {type(policy).__name__}; it must be a policies.base.Policy")
    return policy
