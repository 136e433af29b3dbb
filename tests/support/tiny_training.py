"""A tiny model, demonstrations of a tiny world and what two runs are compared by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file

from algos.training import checkpoints, read_metrics
from algos.tutor_planner import Ground, Settings, WorldStyle, make_record, world_roles
from grepseek_env import open_backend
from grepseek_env.env import make_rules
from grepseek_env.tasks import load_question_set
from grepseek_env.trajectory import TrajectoryWriter
from policies.tiny_model import make_tiny_model

if TYPE_CHECKING:
    from pathlib import Path

# More threads only wait for one another on matrices of this size.
torch.set_num_threads(1)

# Metrics that depend on the clock.
CLOCK = ("tokens_per_second", "tool_time_share", "seconds")
PROMPT = "Search."


def demonstrations(folder: Path, count: int = 10) -> Path:
    """Writes demonstrations of `world:tiny` in brief prose."""
    style = WorldStyle(prose="brief", heads=(1,))
    questions = load_question_set("world:tiny")[:count]
    folder.mkdir()
    with open_backend("world:tiny") as backend, TrajectoryWriter(folder / "trajectories.jsonl") as writer:
        ground = Ground(backend, make_rules(system_prompt=PROMPT), Settings(max_steps=5))
        for question in questions:
            record = make_record(question, world_roles(style), ground, seed=0)
            if record.trajectory is not None:
                writer.write(record.trajectory)
    return folder


def model(folder: Path) -> Path:
    """Saves a model with random weights."""
    return make_tiny_model(folder, ["Query: Where was Ann born? rg -F corpus.jsonl"], vocab=300, hidden=32, head_dim=16)


def weights(out: Path) -> dict[str, torch.Tensor]:
    """Returns the weights of a run's newest checkpoint."""
    return load_file(checkpoints(out)[-1][1] / "model.safetensors")


def same_weights(one: Path, other: Path) -> bool:
    """Tells whether two runs' newest checkpoints are equal bit for bit."""
    a, b = weights(one), weights(other)
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def metrics(out: Path) -> list[dict[str, Any]]:
    """Returns a run's metrics without those that depend on the clock."""
    return [{k: v for k, v in row.items() if k not in CLOCK} for row in read_metrics(out / "metrics.jsonl")]
