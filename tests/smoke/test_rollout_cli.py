"""`grepseek rollout`, stopped and gone on with, as a user does it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

COMMAND = [sys.executable, "-m", "grepseek_env.cli", "rollout", "--policy", "random", "--samples", "8"]


def start(*args: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # The temporary places of runs are told in messages, so they are not cut by a narrow terminal.
        env={**os.environ, "COLUMNS": "200"},
    )


def finish(*args: str | Path) -> tuple[str, str]:
    child = start(*args)
    out, errors = child.communicate(timeout=120)
    assert child.returncode == 0, errors
    return out, errors


@pytest.mark.slow
def test_ctrl_c_says_how_to_go_on_and_the_same_command_does(tmp_path: Path) -> None:
    child = start("--limit", "40", "--parallel", "8", "--out", tmp_path / "a")
    file = tmp_path / "a/trajectories.jsonl"
    assert child.stderr is not None
    while child.poll() is None and not (file.exists() and file.read_bytes().count(b"\n") >= 5):
        child.stderr.read(1)  # the progress bar
    os.kill(child.pid, signal.SIGINT)
    out, errors = child.communicate(timeout=60)
    assert (child.returncode, out) == (130, "")
    kept = file.read_bytes().count(b"\n")
    assert 5 <= kept < 320
    assert f"{kept} episodes are complete in {file}; the same command goes on from there" in errors
    assert "Traceback" not in errors
    out, errors = finish("--limit", "40", "--parallel", "16", "--out", tmp_path / "a")
    assert out.startswith("320 episodes (0 faults): F1 ")
    assert f"{kept}/320" in errors
    assert "commands/s=" in errors
    assert "f1=" in errors
    finish("--limit", "40", "--parallel", "1", "--out", tmp_path / "b", "--quiet")
    assert file.read_bytes() == (tmp_path / "b/trajectories.jsonl").read_bytes()


@pytest.mark.slow
def test_timing_is_written_when_asked_for_and_a_bad_number_is_named(tmp_path: Path) -> None:
    finish("--limit", "2", "--samples", "1", "--timing", "--out", tmp_path / "a", "--quiet")
    for line in (tmp_path / "a/trajectories.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        assert len(record["metadata"]["timing"]["model"]) == len(record["turns"])
    child = start("--limit", "2", "--parallel", "0", "--out", tmp_path / "b")
    _, errors = child.communicate(timeout=60)
    assert (child.returncode, errors) == (1, "grepseek: parallel is 0; it must be at least 1\n")
