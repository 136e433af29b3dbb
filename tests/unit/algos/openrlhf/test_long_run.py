"""The figures that the page on OpenRLHF shows of its longer run are those of the run's record, which can be drawn."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
CURVE = ROOT / "docs" / "openrlhf" / "curve.json"


def test_the_page_shows_the_record() -> None:
    record = json.loads(CURVE.read_text(encoding="utf-8"))
    steps = record["steps"]
    assert [step["step"] for step in steps] == list(range(1, record["settings"]["steps"] + 1))
    assert len(steps) >= 20
    assert {step["fault"] for step in steps} == {0.0}
    assert all(step["actor_grad_norm"] > 0 and step["rollout/reward_std"] > 0 for step in steps)
    assert max(abs(step["vllm_kl"]) for step in steps) <= 0.0002
    part = len(steps) // 5
    rewards = [step["rollout/reward_mean"] for step in steps]
    means = [sum(rewards[:part]) / part, sum(rewards[-part:]) / part]
    assert means == pytest.approx(record["reward_of_first_and_last_fifth"], abs=1e-4)
    page = (ROOT / "docs" / "openrlhf.md").read_text(encoding="utf-8")
    pairs = (means, *([record[when][score] for when in ("start", "end")] for score in ("reward", "f1")))
    for before, after in pairs:
        assert f"| {before:.3f} | {after:.3f} |" in page
    assert f"the {record['start']['demonstrations']} trajectories" in page


@pytest.mark.slow
def test_the_record_can_be_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("torch")
    copy = tmp_path / "curve.json"
    shutil.copy(CURVE, copy)
    path = os.pathsep.join((str(ROOT / "tests" / "openrlhf"), str(ROOT)))
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "openrlhf" / "long_run.py"), "--draw", str(copy)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
