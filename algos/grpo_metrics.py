"""What GRPO logs a step, and what each number means."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from algos.losses import GroupAdvantages
    from algos.rollout import Group
    from grepseek_env.trajectory import Trajectory

__all__ = ["METRICS", "group_metrics", "mean"]

METRICS: Mapping[str, str] = {
    "reward_mean": "mean reward of the step's rollouts that count",
    "reward_std": "their standard deviation over all groups together",
    "f1": "mean token F1",
    "em": "mean exact match",
    "format_rate": "share of transcripts that keep to the format",
    "format_bonus": "mean part of the reward that was paid for the format alone",
    "answered": "share of episodes that ended with an answer",
    "empty_answers": "share of episodes that ended with an answer without a word",
    "answer_words": "mean words of an answer; grows where answers copy candidates",
    "group_spread": "mean standard deviation of the rewards within a group",
    "flat_groups": "share of groups whose rewards are all equal: they teach nothing",
    "faults": "rollouts left out because the infrastructure failed (`reward_valid` is false)",
    "turns": "mean policy turns",
    "commands": "mean commands that were run",
    "empty_commands": "share of commands that ran and found nothing",
    "failed_commands": "share of commands that were refused, ran out of time or ended with an exit code above 1",
    "clipped_outputs": "share of commands whose output was cut",
    "policy_tokens": "mean sampled tokens of an episode",
    "episode_tokens": "mean tokens of an episode, prompt and observations included",
    "truncated": "share of episodes that ended without an answer: by the turn limit or the token budget",
    "long_turns": "share of turns that were cut off at the turn's token limit",
    "entropy": "mean entropy of the policy at sampled tokens, in nats",
    "kl": "mean estimated divergence from the reference model a token; only where `kl` is above 0",
    "ratio": "mean probability ratio of new and old policy",
    "clip_fraction": "share of tokens whose gradient clipping took away",
    "sampler_mismatch": "mean absolute difference of the log-probabilities of sampler and trainer, before any update",
    "loss": "mean of the objective over the step's updates",
    "gradient_norm": "mean norm before clipping, over the step's updates",
    "learning_rate": "of the step",
    "updates": "optimiser steps taken; 0 where every group is flat",
    "question_batches": "batches of questions drawn so far; more than steps where flat groups are filled up",
    "tokens_per_second": "sampled tokens a second of sampling, tools included",
    "tool_time_share": "share of the time of sampling that commands took",
    "seconds": "wall time of the step",
    "eval_f1": "greedy F1 on held-out questions, every `eval_every` steps",
    "eval_em": "greedy exact match likewise",
    "eval_format_rate": "greedy format rate likewise",
}


def mean(values: Iterable[float]) -> float:
    """Returns the mean; 0 of nothing."""
    items = list(values)
    return math.fsum(items) / len(items) if items else 0.0


def group_metrics(groups: Sequence[Group], advantages: GroupAdvantages) -> dict[str, float]:
    """Returns what rollouts alone tell, before any update."""
    valid = [t for group in groups for t in group.valid]
    rewards = [t.reward for t in valid]
    centre = mean(rewards)
    turns = [turn for t in valid for turn in t.turns]
    ran = [turn for turn in turns if turn.command is not None and (turn.exit_code is not None or turn.timed_out)]
    tried = [turn for turn in turns if turn.command is not None]
    answers = [t.answer for t in valid if t.answer is not None]
    return {
        "reward_mean": centre,
        "reward_std": math.sqrt(mean((r - centre) ** 2 for r in rewards)),
        "f1": mean(t.breakdown["f1"] for t in valid),
        "em": mean(t.breakdown["em"] for t in valid),
        "format_rate": mean(float(t.breakdown["format_valid"]) for t in valid),
        "format_bonus": mean(t.breakdown["format_bonus"] for t in valid),
        "answered": mean(float(t.answer is not None) for t in valid),
        "empty_answers": mean(float(t.answer is not None and not t.answer.split()) for t in valid),
        "answer_words": mean(len(answer.split()) for answer in answers),
        "group_spread": mean(advantages.spread),
        "flat_groups": mean(map(float, advantages.flat)),
        "faults": sum(len(g.trajectories) - len(g.valid) for g in groups),
        "turns": mean(len(t.turns) for t in valid),
        "commands": mean(sum(turn.kind == "tool_call" for turn in t.turns) for t in valid),
        "empty_commands": mean(float(turn.exit_code == 1) for turn in ran),
        "failed_commands": mean(
            float(turn.refused is not None or turn.timed_out or (turn.exit_code or 0) > 1) for turn in tried
        ),
        "clipped_outputs": mean(float(turn.output_truncated) for turn in ran),
        "policy_tokens": mean(sum(len(turn.token_ids or ()) for turn in t.turns) for t in valid),
        "truncated": mean(float(t.answer is None) for t in valid),
        "long_turns": mean(float(turn.finish_reason == "length") for turn in turns),
    }


def tool_share(trajectories: Iterable[Trajectory]) -> float:
    """Returns which share of the time of model and tools the tools took."""
    timings: list[Any] = [t.metadata["timing"] for t in trajectories]
    model, tool = (math.fsum(s for timing in timings for s in timing[key]) for key in ("model", "tool"))
    return tool / (model + tool) if model + tool else 0.0
