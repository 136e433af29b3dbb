"""The questions, the environment and the sampler of a GRPO run."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

from algos.grpo_metrics import mean, tool_share
from algos.grpo_rollout import play_groups
from grepseek_env.env import GrepSeekEnv
from grepseek_env.errors import ConfigError
from grepseek_env.tasks import load_question_set, training_questions
from policies.budgets import Budget
from policies.chat import Sampling
from policies.chat_policy import turn_seed
from policies.tiny_sampler import LiveModel

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from typing_extensions import Self

    from algos.grpo import Args
    from algos.rollout import Group
    from grepseek_env.types import Question

__all__ = ["World"]


class World:
    """Draws questions and has them played by the model as it stands.

    Args:
        args: of the run.
        model: that is trained.
        tokenizer: of the model.
        cursor: batches of questions drawn so far.

    Attributes:
        cursor: the same, as it grows: with the run's seed it decides which questions come next and how they are
            sampled.

    Raises:
        ConfigError: there are fewer questions than a step needs.
    """

    def __init__(self, args: Args, model: Any, tokenizer: Any, *, cursor: int = 0) -> None:
        self.cursor = cursor
        self._args = args
        self._model = LiveModel(model, tokenizer, name=args.model)
        self._env = GrepSeekEnv(
            corpus=args.corpus,
            questions=None if args.questions is None else training_questions(args.questions),
            split="train",
            action_format=args.action_format,
            max_turns=args.max_turns,
            max_observation_tokens=args.max_observation_tokens,
            tokenizer=tokenizer,
            reward=args.reward,
            system_prompt=args.system_prompt,
            shuffle=False,
            sandbox=args.sandbox,
        )
        count = len(self._env.question_set)
        if count < args.questions_per_step:
            self._env.close()
            raise ConfigError(
                f"questions_per_step is {args.questions_per_step}, and there are {count} questions; give fewer a step"
            )
        self._sampling = Sampling(temperature=args.temperature, max_tokens=args.turn_tokens, logprobs=True)
        self._budget = Budget(context_tokens=args.context_tokens)
        self._pass: tuple[int, list[int]] = (-1, [])

    def _questions(self) -> list[Question]:
        """Returns the next batch: passes are shuffled, and what does not fill a batch waits for another pass."""
        size = self._args.questions_per_step
        number, place = divmod(self.cursor, len(self._env.question_set) // size)
        if self._pass[0] != number:
            order = list(range(len(self._env.question_set)))
            random.Random(f"{self._args.seed}/{number}").shuffle(order)  # noqa: S311 - a reproducible order
            self._pass = (number, order)
        return [self._env.question_set[i] for i in self._pass[1][place * size : (place + 1) * size]]

    def sample(self) -> tuple[list[Group], dict[str, float]]:
        """Returns the groups of a step, and how fast they were sampled.

        With `filter_flat` and `refills` further batches of questions are drawn until there are enough groups that are
        not flat; of those, no more than a step's are kept. Flat ones stay in the list, for the updater to count.
        """
        args = self._args
        start = time.perf_counter()
        groups: list[Group] = []
        useful = 0
        for _ in range(1 + args.refills):
            seed = turn_seed(args.seed, self.cursor)
            drawn = self._play(self._questions(), args.group_size, self._sampling, seed)
            self.cursor += 1
            for group in drawn:
                lively = max(group.rewards, default=0.0) > min(group.rewards, default=0.0)
                if lively and useful == args.questions_per_step:
                    continue
                useful += lively
                groups.append(group)
            if useful == args.questions_per_step:
                break
        seconds = time.perf_counter() - start
        records = [t for group in groups for t in group.trajectories]
        tokens = sum(len(turn.token_ids or ()) for t in records for turn in t.turns)
        return groups, {
            "question_batches": self.cursor,
            "tokens_per_second": tokens / seconds,
            "tool_time_share": tool_share(records),
        }

    def evaluate(self) -> dict[str, float]:
        """Plays held-out questions once each, always with the most likely token."""
        args = self._args
        held = load_question_set(args.questions, corpus=args.corpus, split="test")[: args.eval_questions]
        greedy = Sampling(temperature=0.0, max_tokens=args.turn_tokens)
        valid = [t for group in self._play(held, 1, greedy, 0) for t in group.valid]
        return {
            "eval_f1": mean(t.breakdown["f1"] for t in valid),
            "eval_em": mean(t.breakdown["em"] for t in valid),
            "eval_format_rate": mean(float(t.breakdown["format_valid"]) for t in valid),
        }

    def _play(self, questions: Sequence[Question], size: int, sampling: Sampling, seed: int) -> list[Group]:
        return play_groups(
            self._env.rules,
            self._env.backend,
            self._model,
            questions,
            size,
            sampling,
            seed=seed,
            budget=self._budget,
        )

    def close(self) -> None:
        """Closes the environment."""
        self._env.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
