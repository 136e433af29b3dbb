"""What bash makes of a command: the truth that every engine is compared with."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.support.odd_corpora import odd, ordinary

CASES = Path(__file__).parents[1] / "cases" / "commands.txt"
DEADLINE = 120.0  # generous: a slow machine must not change what is true

_BASH = shutil.which("bash") or "/bin/bash"
_HOME = tempfile.TemporaryDirectory(prefix="oracle-home-")


class Outcome(NamedTuple):
    stdout: bytes
    exit_code: int
    stderr: bytes


def oracle(
    command: str, view: Path | str, program_dir: Path | str, *, locale: str = "C", deadline: float = DEADLINE
) -> Outcome:
    """Runs `env -i PATH=<program_dir> LC_ALL=C HOME=<empty> bash --noprofile --norc -c COMMAND </dev/null` in `view`.

    Raises:
        subprocess.TimeoutExpired: the deadline passed; everything it started is killed.
    """
    process = subprocess.Popen(
        [_BASH, "--noprofile", "--norc", "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=view,
        env={"PATH": str(program_dir), "LC_ALL": locale, "HOME": _HOME.name},
        start_new_session=True,
    )
    with process:
        try:
            stdout, stderr = process.communicate(timeout=deadline)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    code = process.returncode
    return Outcome(stdout, code if code >= 0 else 128 - code, stderr)


def write_views(root: Path) -> dict[str, Path]:
    """Writes the ordinary and every odd corpus as `root/<name>/corpus.jsonl`; returns name -> folder."""
    views = {}
    for name, data in {"ordinary": ordinary(), **odd()}.items():
        views[name] = root / name
        views[name].mkdir(parents=True)
        (views[name] / "corpus.jsonl").write_bytes(data)
    return views


def cases() -> list[tuple[str, str]]:
    """Returns the ("must" or "may", command) pairs of tests/cases/commands.txt."""
    lines = CASES.read_text(encoding="utf-8").splitlines()
    return [(kind, command) for kind, _, command in (line.partition("\t") for line in lines if line[:1] != "#")]
