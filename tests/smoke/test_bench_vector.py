"""`grepseek bench vector`, as a user calls it, on a corpus so small that its figures mean nothing."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "grepseek_env.cli", "bench", "vector", "--size", "1MB"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def living_in_group(group: int) -> list[bytes]:
    """Returns the processes of a group; one that has ended and was not waited for yet by its new parent is none."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            state, _parent, its_group = stat.read_bytes().rpartition(b")")[2].split()[:3]
            if int(its_group) == group and state != b"Z":
                found.append(stat.with_name("cmdline").read_bytes())
    return found


def start(cache: Path, *args: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "GREPSEEK_CACHE": str(cache)},
        start_new_session=True,
    )


ALONE = ("sync:sequential", "vector:sequential", "async:sequential")
USUAL = ("sync:sequential", "vector:auto", "vector:sequential", "async:sequential")


@pytest.mark.parametrize(
    ("names", "chosen", "indexed"),
    [
        pytest.param(ALONE, ("--contestants", ",".join(ALONE)), False, id="sequential", marks=pytest.mark.slow),
        # A cache of its own, so the kernels are compiled first.
        pytest.param(USUAL, (), True, id="usual", marks=pytest.mark.slow),
        pytest.param(USUAL, ("--no-index",), False, id="no-index", marks=pytest.mark.slow),
    ],
)
def test_a_table_a_file_and_a_picture(
    tmp_path: Path, names: tuple[str, ...], chosen: tuple[str, ...], indexed: bool
) -> None:
    options = ("--envs", "1,3", "--seconds", "0.05", "--rounds", "1", "--quiet", *chosen)
    cache = tmp_path / "cache"
    child = start(cache, *options, "--out", tmp_path / "v.json", "--plot", tmp_path / "v.png")
    out, errors = child.communicate(timeout=120)
    assert (child.returncode, errors) == (0, "")
    assert max(map(len, out.splitlines())) <= 110
    values = json.loads((tmp_path / "v.json").read_text(encoding="utf-8"))
    assert values["complete"]
    assert (values["index"] is not None) == indexed
    assert [(f["num_envs"], f["contestant"]) for f in values["figures"]] == [(n, c) for n in (1, 3) for c in names]
    assert all(name in out for name in names)
    assert values["baseline"] == "async:sequential"
    assert values["manifest"]["settings"]["seconds"] == 0.05
    assert (tmp_path / "v.png").stat().st_size > 1000


@pytest.mark.slow
def test_ctrl_c_tells_what_is_complete_and_leaves_no_process(cache: Path, tmp_path: Path) -> None:
    options = (
        "--envs",
        "2",
        "--seconds",
        "0.3",
        "--rounds",
        "1000",
        "--contestants",
        "vector:sequential,async:sequential",
    )
    child = start(cache, *options, "--out", tmp_path / "v.json", "--quiet")
    assert child.stdout is not None
    for _ in range(2):
        child.stdout.readline()
    try:
        child.wait(2)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGINT)
    out, _ = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "stopped early" in out or "nothing was measured" in out
    assert not json.loads((tmp_path / "v.json").read_text(encoding="utf-8"))["complete"]
    assert not living_in_group(child.pid)


def test_a_contestant_that_does_not_exist_is_named(cache: Path) -> None:
    child = start(cache, "--contestants", "vectr:auto")
    out, errors = child.communicate(timeout=60)
    assert (child.returncode, out) == (1, "")
    assert "did you mean 'vector'" in errors
