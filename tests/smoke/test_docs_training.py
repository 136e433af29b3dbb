"""What docs/training.md says: its commands run in the order of the page, and its tables of metrics are the code's."""

from __future__ import annotations

import dataclasses
import importlib
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from algos import grpo_metrics, sft
from algos.base import parse_args
from algos.study import table
from algos.training import checkpoints, read_metrics
from tests.contract.test_docs import blocks

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/training.md"
TEXT = PAGE.read_text(encoding="utf-8")
COMMANDS = [shlex.split(line.strip()) for line in TEXT.splitlines() if line.strip().startswith("python ")]


def section(title: str) -> dict[str, str]:
    body = TEXT.partition(f"## {title}\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", body, re.MULTILINE))


@pytest.mark.parametrize(("title", "metrics"), [("SFT", sft.METRICS), ("GRPO", grpo_metrics.METRICS)])
def test_every_metric_is_explained(title: str, metrics: dict[str, str]) -> None:
    assert section(f"Metrics of {title}") == dict(metrics)


@pytest.mark.parametrize("command", [c for c in COMMANDS if c[1] == "-m"], ids=" ".join)
def test_commands_have_settings_that_exist(command: list[str]) -> None:
    kind: Any = importlib.import_module(command[2]).Args
    assert dataclasses.is_dataclass(parse_args(kind, command[3:], prog=command[2]))


@pytest.mark.parametrize("command", [c for c in COMMANDS if c[1] != "-m"], ids=" ".join)
def test_scripts_have_options_that_exist(command: list[str]) -> None:
    script = ROOT / command[1]
    spec = importlib.util.spec_from_file_location("study_script", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    assert module.arguments(command[2:]).out


def test_variants_have_settings_that_exist() -> None:
    names = {field.name for field in dataclasses.fields(importlib.import_module("algos.grpo").Args)}
    said = re.findall(r"`--([a-z-]+)", TEXT.partition("## What GRPO does")[2].partition("## The study")[0])
    assert {name.replace("-", "_") for name in said} <= names


def test_the_tables_of_the_study_are_those_of_its_results() -> None:
    folder = ROOT / "docs/study"
    results = json.loads((folder / "results.json").read_bytes())
    made = table(results["outcomes"], results["hacks"])
    assert (folder / "table.md").read_text(encoding="utf-8") == made
    shown = [line for line in TEXT.partition("## The study")[2].splitlines() if line.startswith(("| base", "| plain"))]
    assert shown
    assert all(line in made.splitlines() for line in shown)


@pytest.mark.slow
def test_the_page_runs_from_top_to_bottom(tmp_path: Path) -> None:
    languages = re.findall(r"^```(bash|python)$", TEXT, re.MULTILINE)
    left = {name: iter(blocks(PAGE, name)) for name in ("bash", "python")}
    for language in languages:
        block = next(left[language])
        lines = [["-c", block]] if language == "python" else [shlex.split(line) for line in block.splitlines()]
        for line in lines:
            run = {"grepseek": ["-m", "grepseek_env.cli"], "python": []}.get(line[0])
            command = line if run is None else [*run, *line[1:]]
            done = subprocess.run(
                [sys.executable, *command], capture_output=True, text=True, cwd=tmp_path, timeout=300, check=False
            )
            assert done.returncode == 0, done.stderr
    losses = [row["loss"] for row in read_metrics(tmp_path / "runs/sft/metrics.jsonl") if "loss" in row]
    assert losses[-1] < losses[0]
    assert [step for step, _ in checkpoints(tmp_path / "runs/grpo")] == [2]
