"""What a policy is: it sees the start of an episode, then answers each observation with a turn of text."""

from __future__ import annotations

import asyncio
import copy
import inspect
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from grepseek_env.config import closest
from grepseek_env.errors import ConfigError, GrepSeekError

if TYPE_CHECKING:
    from grepseek_env.actions.formats import ActionFormat
    from grepseek_env.types import Question
    from policies.chat import Completion

__all__ = ["ENTRY_POINT_GROUP", "EpisodeStart", "Policy", "PolicyStop", "make_policy", "policy_names"]

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


class PolicyStop(GrepSeekError):
    """The policy cannot write another turn: its token budget or its model's context is used up.

    The driver ends the episode as truncated, with `Episode.stop()`: reward 0, and valid.
    """


class Policy(ABC):
    """Drives one episode at a time; `fork` gives a driver for another one at the same time.

    Attributes:
        name: shown in tables and written to manifests.
        privileged: the policy is given golden answers and evidence (oracles only).
        completion: what a model returned for the newest turn (token ids, log-probabilities, why it stopped); None for
            a policy without a model.
    """

    name: str
    privileged: bool = False
    completion: Completion | None = None

    def start(self, start: EpisodeStart) -> None:
        """Begins an episode."""
        self.begin(start if self.privileged else replace(start, question=blinded(start.question)))

    @abstractmethod
    def begin(self, start: EpisodeStart) -> None:
        """Prepares for an episode; what a policy implements in place of `start`."""

    @abstractmethod
    def act(self, observation: str) -> str:
        """Returns the next turn for the newest observation (the first call gets the first observation).

        Raises:
            PolicyStop: the policy cannot go on; the driver ends the episode as truncated.
            EngineFault: its model failed; the episode does not count.
        """

    async def aact(self, observation: str) -> str:
        """Does what `act` does, for drivers with many episodes; by default in a thread."""
        return await asyncio.to_thread(self.act, observation)

    def fork(self) -> Policy:
        """Returns a driver for another episode at the same time; it shares what is costly, such as a model.

        The default is a shallow copy: right for every policy whose `begin` sets what an episode changes.
        """
        return copy.copy(self)

    def describe(self) -> dict[str, Any]:
        """Returns what decides the policy's turns, as JSON values for a run's manifest."""
        return {"policy": self.name}

    def close(self) -> None:  # noqa: B027 - most policies have nothing to free
        """Frees what the policy and its forks share; calling it again does nothing."""


def policy_names() -> list[str]:
    """Returns the names under which policies are installed (entry-point group `grepseek_env.policies`)."""
    return sorted(e.name for e in entry_points(group=ENTRY_POINT_GROUP))


def make_policy(name: str, **options: Any) -> Policy:
    """Builds an installed policy.

    Args:
        name: an entry point of the group `grepseek_env.policies`: a `Policy` class, or a function that returns one.
        options: its keywords.

    Raises:
        ConfigError: no policy has this name, or it has no such option, or needs one; lists those that there are.
    """
    found = {e.name: e for e in entry_points(group=ENTRY_POINT_GROUP)}
    if name not in found:
        names = sorted(found)
        raise ConfigError(f"no policy is named {name!r}{closest(name, names)}; installed: {', '.join(names)}")
    make = found[name].load()
    _check_options(name, make, options)
    policy = make(**options)
    if not isinstance(policy, Policy):
        raise ConfigError(f"entry point {name!r} gives a {type(policy).__name__}; it must be a policies.base.Policy")
    return policy


def _check_options(name: str, make: Any, options: dict[str, Any]) -> None:
    kinds = inspect.Parameter
    parameters = inspect.signature(make).parameters.values()
    named = [p for p in parameters if p.kind not in {kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD}]
    known = [p.name for p in named]
    if not any(p.kind is kinds.VAR_KEYWORD for p in parameters):  # else the function itself knows its options
        for option in options:
            if option not in known:
                near, there = closest(option, known), ", ".join(known) or "none"
                raise ConfigError(f"policy {name!r} has no option {option!r}{near}; there are: {there}")
    for p in named:
        if p.default is kinds.empty and p.name not in options:
            raise ConfigError(f"policy {name!r} needs the option {p.name}; give it as --policy-option {p.name}=VALUE")
