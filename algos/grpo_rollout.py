"""Groups of episodes played in step: all that are under way write a turn together, then their commands run together.

What is sampled depends on weights, questions and seed alone, never on which command came back first, so that a resumed
run repeats an uninterrupted one. (`algos.rollout.rollout_groups` lets every episode go at its own pace, which suits
slow commands and large models better.)
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from algos.rollout import Group, episode_seed
from algos.rollout_commands import run_command
from grepseek_env.engine.local import LocalBackend
from grepseek_env.episode import Episode, Pending
from grepseek_env.errors import ConfigError, GrepSeekError
from grepseek_env.tokens import TokenContext
from policies.base import PolicyStop
from policies.budgets import Budget
from policies.chat import ModelError
from policies.chat_policy import turn_seed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grepseek_env.episode import Result, Rules
    from grepseek_env.tokens import ChatTokens
    from grepseek_env.trajectory import Trajectory
    from grepseek_env.types import Question, SearchBackend
    from policies.chat import ChatModel, Completion, Message, Sampling

__all__ = ["play_groups"]


def play_groups(
    rules: Rules,
    backend: SearchBackend,
    model: ChatModel,
    questions: Sequence[Question],
    group_size: int,
    sampling: Sampling,
    *,
    seed: int = 0,
    budget: Budget | None = None,
) -> list[Group]:
    """Plays every question `group_size` times.

    Args:
        rules: of the episodes.
        backend: where commands run.
        model: takes token ids as prompts.
        questions: what is asked; every one once.
        group_size: rollouts a question.
        sampling: of a turn; its seed is mixed into every turn's.
        seed: of the whole call.
        budget: tokens of an episode. The model's own context limits it too.

    Returns:
        A group a question, in order. Records hold token ids, log-probabilities where `sampling` asks for them, and
        seconds a turn under "timing" in their metadata.

    Raises:
        ConfigError: the model takes no token ids, or `group_size` is below 1.
        ModelError: every completion of a turn failed.
    """
    if group_size < 1:
        raise ConfigError(f"group_size is {group_size}; it must be at least 1")
    tokens = model.renderer
    if tokens is None:
        raise ConfigError(f"{model.name} takes messages alone; playing in step needs a model that takes token ids")
    budget = budget or Budget()
    limits = [n for n in (budget.context_tokens, model.context_tokens) if n is not None]
    budget = replace(budget, context_tokens=min(limits, default=None))
    rows = [
        _Row(rules, model.name, tokens, question, sample, episode_seed(seed, question.id, sample))
        for question in questions
        for sample in range(group_size)
    ]
    while live := [row for row in rows if not row.episode.done]:
        _turn(live, backend, model, sampling, budget)
    records = [row.trajectory() for row in rows]
    return [
        Group(question, tuple(records[i * group_size : (i + 1) * group_size])) for i, question in enumerate(questions)
    ]


class _Row:
    """An episode under way with its tokens."""

    def __init__(self, rules: Rules, name: str, tokens: ChatTokens, question: Question, sample: int, seed: int) -> None:
        self.episode = Episode(rules, question)
        self.seed = seed
        self.sampled = 0
        self.pending: Pending | None = None
        self.completions: list[Completion] = []
        self.model_seconds: list[float] = []
        self.tool_seconds: list[float] = []
        self._name = name
        self._sample = sample
        self.messages: list[Message] = [
            {"role": "system", "content": rules.system_prompt},
            {"role": "user", "content": self.episode.prompt},
        ]
        self.context = TokenContext(tokens, role=rules.action_format.tool_role)
        self.context.start(self.messages)

    def asks(self, sampling: Sampling, budget: Budget) -> Sampling | None:
        """Returns how its next turn is sampled; ends the episode and returns None where too few tokens are left."""
        try:
            allowed = budget.of_turn(sampling.max_tokens, sampled=self.sampled, context=len(self.context))
        except PolicyStop:
            self.episode.stop()
            return None
        stop = sampling.stop or self.episode.rules.action_format.stop_strings
        seed = turn_seed(self.seed + (sampling.seed or 0), len(self.completions))
        return replace(sampling, max_tokens=allowed, stop=stop, seed=seed)

    def takes(self, completion: Completion, seconds: float) -> None:
        """Takes the turn; its command, if it has one, is `pending` then."""
        match completion.finish_reason:
            case "error":
                self.episode.stop(ModelError(completion.error or f"{self._name} failed"))
                return
            case "context":
                self.episode.stop()
                return
            case "stop" | "length":
                pass
        if completion.token_ids is None:
            raise ModelError(f"{self._name} takes token ids and returned none; that is a fault of the model")
        self.sampled += len(completion.token_ids)
        self.context.sampled(completion.token_ids, completion.logprobs)
        self.completions.append(completion)
        self.model_seconds.append(seconds)
        self.tool_seconds.append(0.0)
        outcome = self.episode.submit(completion.text)
        if isinstance(outcome, Pending):
            self.pending = outcome
        elif not self.episode.done:
            self.context.observed(outcome.observation)

    def ran(self, result: Result, seconds: float) -> None:
        """Takes the command's result."""
        self.pending = None
        self.tool_seconds[-1] = seconds
        outcome = self.episode.resume(result)
        if not self.episode.done:
            self.context.observed(outcome.observation)

    def trajectory(self) -> Trajectory:
        """Returns the record."""
        metadata: dict[str, Any] = {
            "policy": self._name,
            "sample": self._sample,
            "seed": self.seed,
            "timing": {"model": self.model_seconds, "tool": self.tool_seconds},
        }
        record = self.episode.trajectory(metadata)
        turns = (
            replace(turn, token_ids=c.token_ids, logprobs=c.logprobs, finish_reason=c.finish_reason)
            for turn, c in zip(record.turns, self.completions, strict=True)
        )
        return replace(record, turns=tuple(turns))


def _turn(live: list[_Row], backend: SearchBackend, model: ChatModel, sampling: Sampling, budget: Budget) -> None:
    asking = [(row, own) for row in live if (own := row.asks(sampling, budget)) is not None]
    if not asking:
        return
    start = time.perf_counter()
    completions = model.complete(
        [row.messages for row, _ in asking],
        [own for _, own in asking],
        prompt_ids=[row.context.ids for row, _ in asking],
    )
    seconds = (time.perf_counter() - start) / len(asking)
    for (row, _), completion in zip(asking, completions, strict=True):
        row.takes(completion, seconds)
    waiting = [(row, row.pending) for row in live if row.pending is not None]
    if not waiting:
        return
    start = time.perf_counter()
    results = _results(backend, [pending for _, pending in waiting])
    seconds = (time.perf_counter() - start) / len(waiting)
    for (row, _), result in zip(waiting, results, strict=True):
        row.ran(result, seconds)


def _results(backend: SearchBackend, waiting: Sequence[Pending]) -> list[Result]:
    """Runs commands together where the backend can; all episodes have the same rules, so bounds are equal."""
    if not isinstance(backend, LocalBackend):
        return [run_command(backend, pending) for pending in waiting]
    try:
        return backend.run_many(
            [pending.command for pending in waiting],
            timeout=waiting[0].timeout,
            max_output_bytes=waiting[0].max_output_bytes,
        )
    except GrepSeekError as error:
        return [error] * len(waiting)
