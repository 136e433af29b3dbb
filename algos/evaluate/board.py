"""TensorBoard: an evaluation's numbers as scalars over training steps, its table as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from grepseek_env.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from algos.evaluate.runner import Evaluation

__all__ = ["log_evaluation", "scalars"]

_COUNTED = ("turns", "commands", "malformed", "policy_tokens", "observation_tokens")


def scalars(evaluation: Evaluation) -> dict[str, float]:
    """Returns the values that are logged, by tag."""
    summary = evaluation.summary
    out: dict[str, float] = {}
    rows = {name: s for name, s in summary["sets"].items() if s["episodes"]}
    if len(rows) > 1:
        rows |= {"micro": summary["micro"], "macro": summary["macro"]}
    for name, row in rows.items():
        for metric in ("f1", "em", "reward"):
            out[f"{metric}/{name}"] = row[metric]["mean"]
        for k, best in row.get("best_of", {}).items():
            out[f"pass@{k}/{name}"] = best["pass"]
    every: dict[str, Any] = summary.get("all", {})
    if every:
        out |= {f"episode/{name}": every["per_episode"][name] for name in _COUNTED if name in every["per_episode"]}
        out |= {f"commands/{name}": share for name, share in every["share_of_commands"].items()}
        out |= {f"end/{reason}": n / every["episodes"] for reason, n in every["finish_reasons"].items()}
        out["episode/format_valid"] = every["format_valid"]
        out["episode/answered"] = every["answered"]
    out["episode/faults"] = evaluation.faults
    times = evaluation.latency["all"]
    if times["episodes"]:
        for part in ("model_turn", "tool_call", "episode"):
            out |= {f"seconds/{part}_{q}": times[part][q] for q in ("p50", "p95")}
    return out


def log_evaluation(evaluation: Evaluation, folder: Path, *, step: int = 0) -> None:
    """Adds an evaluation to a TensorBoard folder.

    Args:
        evaluation: what to log.
        folder: log folder; evaluations of one training run share it.
        step: the training step the policy is of.

    Raises:
        ConfigError: torch or tensorboard is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - optional, and slow to import
    except ImportError as e:
        raise ConfigError(
            f"TensorBoard logging needs torch and tensorboard ({e}); pip install 'grepseek-env[torch]', or leave out "
            "--tensorboard"
        ) from e
    with SummaryWriter(str(folder)) as writer:
        for tag, value in scalars(evaluation).items():
            writer.add_scalar(tag, value, step)
        if evaluation.episodes:
            writer.add_histogram("f1", np.array([e.f1 for e in evaluation.episodes]), step)
        writer.add_text("table", "\n".join(f"    {line}" for line in evaluation.table.splitlines()), step)
