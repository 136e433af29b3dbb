"""One episode from its first turn to its record, driven by plain calls or by asyncio.

Both drivers do the same: ask the policy, hand its turn to the episode, run the command if there is one. A failure of
the infrastructure (a model's server, an engine) ends that episode alone, with `reward_valid=False`.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from grepseek_env.episode import Episode, Pending
from grepseek_env.errors import EngineFault
from policies.base import EpisodeStart, PolicyStop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from grepseek_env.episode import Result, Rules
    from grepseek_env.trajectory import Trajectory, Turn
    from grepseek_env.types import Question
    from policies.base import Policy
    from policies.chat import Completion

__all__ = ["Job", "aplay", "episode_seed", "failed", "play"]


def episode_seed(seed: int, question_id: str, sample: int) -> int:
    """Returns the policy's seed of one episode: a hash of run seed, question and sample, so order does not matter."""
    digest = hashlib.sha256(f"{seed}/{question_id}/{sample}".encode()).digest()
    return int.from_bytes(digest[:4], "big")


@dataclass(frozen=True, slots=True)
class Job:
    """An episode that is to be played.

    Attributes:
        question: what is asked.
        sample: which of the question's episodes this is, from 0.
        seed: the run's.
    """

    question: Question
    sample: int = 0
    seed: int = 0

    @property
    def key(self) -> tuple[str, int]:
        """Tells the episodes of a run apart."""
        return self.question.id, self.sample


class _Play:
    """An episode on its way, with what is recorded beside it."""

    def __init__(self, rules: Rules, policy: Policy, job: Job) -> None:
        self.episode = Episode(rules, job.question)
        self.policy = policy
        self.observation = self.episode.prompt
        self._metadata = {
            "policy": policy.name,
            "sample": job.sample,
            "seed": episode_seed(job.seed, job.question.id, job.sample),
        }
        self._sampled: list[Completion | None] = []
        self._model_seconds: list[float] = []
        self._tool_seconds: list[float] = []

    def begin(self) -> None:
        """Tells the policy about the episode."""
        rules = self.episode.rules
        self.policy.start(
            EpisodeStart(
                question=self.episode.question,
                observation=self.observation,
                system_prompt=rules.system_prompt,
                action_format=rules.action_format,
                max_turns=rules.config.max_turns,
                seed=self._metadata["seed"],
            )
        )

    def turn(self, text: str, seconds: float) -> Pending | None:
        """Takes the policy's turn; returns the command that has to be run for it."""
        outcome = self.episode.submit(text)
        self._sampled.append(self.policy.completion)
        self._model_seconds.append(seconds)
        self._tool_seconds.append(0.0)
        if isinstance(outcome, Pending):
            return outcome
        self.observation = outcome.observation
        return None

    def ran(self, result: Result, seconds: float) -> None:
        """Takes the command's result."""
        self._tool_seconds[-1] = seconds
        self.observation = self.episode.resume(result).observation

    def trajectory(self, *, timing: bool) -> Trajectory:
        """Returns the record."""
        metadata: dict[str, Any] = dict(self._metadata)
        if timing:
            metadata["timing"] = {"model": self._model_seconds, "tool": self._tool_seconds}
        record = self.episode.trajectory(metadata)
        return replace(record, turns=tuple(map(_with_sample, record.turns, self._sampled)))


def _with_sample(turn: Turn, completion: Completion | None) -> Turn:
    if completion is None:
        return turn
    return replace(
        turn,
        token_ids=completion.token_ids,
        logprobs=completion.logprobs,
        finish_reason=completion.finish_reason,
    )


def play(
    rules: Rules, policy: Policy, job: Job, run: Callable[[Pending], Result], *, timing: bool = False
) -> Trajectory:
    """Plays an episode in this thread.

    Args:
        rules: of the episode.
        policy: who plays; it is told about the episode first.
        job: which episode.
        run: runs a command; returns the `GrepSeekError` that took the result's place.
        timing: put ``{"model": [...], "tool": [...]}``, seconds a turn, into the record's metadata as "timing".

    Raises:
        GrepSeekError: an error that is neither the policy's mistake nor a failure of the infrastructure.
    """
    episode = _Play(rules, policy, job)
    try:
        episode.begin()
        while not episode.episode.done:
            start = time.perf_counter()
            text = policy.act(episode.observation)
            pending = episode.turn(text, time.perf_counter() - start)
            if pending is not None:
                start = time.perf_counter()
                result = run(pending)
                episode.ran(result, time.perf_counter() - start)
    except PolicyStop:
        episode.episode.stop()
    except EngineFault as error:
        episode.episode.stop(error)
    return episode.trajectory(timing=timing)


async def aplay(
    rules: Rules, policy: Policy, job: Job, run: Callable[[Pending], Awaitable[Result]], *, timing: bool = False
) -> Trajectory:
    """Does what `play` does, and lets other episodes go on while this one waits for its policy or its command."""
    episode = _Play(rules, policy, job)
    try:
        episode.begin()
        while not episode.episode.done:
            start = time.perf_counter()
            text = await policy.aact(episode.observation)
            pending = episode.turn(text, time.perf_counter() - start)
            if pending is not None:
                start = time.perf_counter()
                result = await run(pending)
                episode.ran(result, time.perf_counter() - start)
    except PolicyStop:
        episode.episode.stop()
    except EngineFault as error:
        episode.episode.stop(error)
    return episode.trajectory(timing=timing)


def failed(rules: Rules, policy: Policy, job: Job, error: EngineFault) -> Trajectory:
    """Returns the record of an episode of which nothing has come back."""
    episode = _Play(rules, policy, job)
    episode.episode.stop(error)
    return episode.trajectory(timing=False)
