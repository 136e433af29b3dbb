"""Tests of the recipes against a real OpenRLHF, in an environment of its own: `make test-openrlhf`."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
SHIM = HERE / "shim"
ENVIRONMENT = {
    "GREPSEEK_OPENRLHF_SHIM": "1",
    "DS_ACCELERATOR": "cpu",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    "TOKENIZERS_PARALLELISM": "false",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if HERE in item.path.parents]
    for item in here:
        item.add_marker(pytest.mark.openrlhf)
        item.add_marker(pytest.mark.filterwarnings("ignore"))  # of what OpenRLHF and vLLM bring along
        if importlib.util.find_spec("openrlhf") is None:
            item.add_marker(
                pytest.mark.skip(reason="OpenRLHF is not installed: make test-openrlhf builds a place for it")
            )


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """Returns the variables of a process that trains here."""
    path = os.pathsep.join((str(SHIM), str(HERE), str(HERE.parents[1])))
    return {**os.environ, **ENVIRONMENT, "PYTHONPATH": path}


@pytest.fixture(scope="session", autouse=True)
def _paths() -> Iterator[None]:
    """Puts the stand-in for flash-attention where OpenRLHF's modules find it, and the helpers of these tests."""
    added = [str(SHIM), str(HERE)]
    sys.path[:0] = added
    yield
    for path in added:
        sys.path.remove(path)


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with models and the episodes they come from.

    `half` is half taught and speaks the recipes' template. `study` is the policy of the ablation, random, and
    `half-study` the same half taught; both bring a template of their own.
    """
    import torch
    from tiny import SYSTEM, easy_questions, half_taught_model, oracle_episodes, study_policy, untrained_model

    from grepseek_env.tasks import write_questions
    from grepseek_env.trajectory import TrajectoryWriter

    torch.set_num_threads(2)
    folder = tmp_path_factory.mktemp("checkpoints")
    questions = easy_questions(8)
    records = oracle_episodes(questions)
    with TrajectoryWriter(folder / "trajectories.jsonl") as writer:
        for record in records:
            writer.write(record)
    write_questions(folder / "questions.jsonl", questions[:4])
    (folder / "system.txt").write_text(SYSTEM, encoding="utf-8")
    untrained_model(folder / "tiny", records)
    half_taught_model(folder / "tiny", folder / "half", records[:4], loss_below=0.03)
    study_policy(folder / "study", records)
    half_taught_model(folder / "study", folder / "half-study", records[:4], loss_below=0.03, rate=2e-3)
    return folder
