"""The study of the examples runs from end to end, and what it writes is whole. Which arm is best is no test."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from algos.training import checkpoints, read_metrics

SCRIPT = Path(__file__).parents[2] / "examples" / "08_ablation_cpu.py"
ARMS = ["base", "grpo", "barely", "barely+grpo", "plain", "plain+grpo", "strong", "strong+grpo"]

pytestmark = pytest.mark.slow


def study(out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), "--quick", "--out", str(out), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study") / "quick"
    done = study(folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def results(out: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((out / "results.json").read_bytes())
    return values


def rows(out: Path, arm: str) -> list[dict[str, Any]]:
    return list(read_metrics(out / "world-1" / "seed-1" / arm / "metrics.jsonl"))


def newest(out: Path, arm: str) -> Path:
    return checkpoints(out / "world-1" / "seed-1" / arm)[-1][1]


def test_every_arm_has_all_its_scores(results: dict[str, Any]) -> None:
    assert [o["arm"] for o in results["outcomes"]] == ARMS
    for outcome in results["outcomes"]:
        for way in ("greedy", "sampled"):
            scores = outcome[way]
            assert scores["all"]["n"] == scores["1-hop"]["n"] + scores["2-hop"]["n"] == 20
            assert all(math.isfinite(v) for hop in scores.values() for v in hop.values())
            assert all(0 <= hop["em"] <= hop["f1"] <= 1 for hop in scores.values())


def test_table_picture_and_manifest(out: Path) -> None:
    text = (out / "table.md").read_text(encoding="utf-8")
    assert all(f"| {arm} | 1 |" in text and f"| 1 | 1 | {arm} |" in text for arm in ARMS)
    assert (out / "curves.png").read_bytes().startswith(b"\x89PNG")
    manifest = json.loads((out / "manifest.json").read_bytes())
    assert manifest["settings"]["seeds"] == [1]
    assert {"torch", "transformers"} <= manifest["packages"].keys()
    assert manifest["seconds"] > 0
    assert set(manifest["demonstrations"]) == {"world-1/plain", "world-1/strong"}


@pytest.mark.parametrize("arm", ["plain", "strong"])
def test_fine_tuning_learns(out: Path, arm: str) -> None:
    losses = [row["loss"] for row in rows(out, arm) if "loss" in row]
    held = [row["eval_loss"] for row in rows(out, arm) if "eval_loss" in row]
    assert len(losses) == 60
    assert sum(losses[-5:]) / 5 < 0.5 * losses[0]
    assert held[-1] < held[0]


@pytest.mark.parametrize(("arm", "before"), [("plain+grpo", "plain"), ("strong+grpo", "strong")])
def test_reinforcement_changes_the_weights(out: Path, arm: str, before: str) -> None:
    new, old = (load_file(newest(out, name) / "model.safetensors") for name in (arm, before))
    changed = sum(row["updates"] for row in rows(out, arm)) > 0
    assert all(torch.isfinite(weight).all() for weight in new.values())
    assert any(not torch.equal(new[name], old[name]) for name in new) == changed


@pytest.mark.parametrize("arm", [arm for arm in ARMS if arm.endswith("grpo")])
def test_rewards_are_numbers_and_add_up(out: Path, results: dict[str, Any], arm: str) -> None:
    steps = rows(out, arm)
    assert steps
    for row in steps:
        assert row["reward_mean"] == pytest.approx(row["f1"] + row["format_bonus"])
    assert results["training"][f"1/1/{arm}"]["turns"]


def test_the_checkpoint_is_one_of_transformers(out: Path) -> None:
    path = newest(out, "plain+grpo")
    tokenizer: Any = AutoTokenizer.from_pretrained(str(path))
    model: Any = AutoModelForCausalLM.from_pretrained(str(path), dtype=torch.float32)
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Query: Who?"}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    made = model.generate(**prompt, max_new_tokens=8, do_sample=False)
    assert made.shape[1] > prompt["input_ids"].shape[1]


def test_a_second_run_does_nothing_again(out: Path) -> None:
    arm = out / "world-1" / "seed-1" / "plain.json"
    before = arm.stat().st_mtime_ns
    done = study(out)
    assert done.returncode == 0, done.stderr
    assert arm.stat().st_mtime_ns == before


def test_other_settings_in_the_same_folder_are_refused(out: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--out", str(out)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    assert "other settings" in done.stderr


def test_an_interrupted_study_goes_on(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--quick", "--arms", "base", "--out", str(tmp_path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        while not list(tmp_path.glob("world-1/*/journal.jsonl")):
            assert running.poll() is None
            time.sleep(0.1)
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=60)
    assert running.returncode == 130, said
    assert "the same command goes on" in said
    done = study(tmp_path, "--arms", "base")
    assert done.returncode == 0, done.stderr
    assert "| base | 1 |" in (tmp_path / "table.md").read_text(encoding="utf-8")


def test_an_unknown_arm_is_named(tmp_path: Path) -> None:
    done = study(tmp_path, "--arms", "plane")
    assert done.returncode == 2
    assert "plane" in done.stderr
