"""Every example runs as it stands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("[0-9]*.py"))
# An example that takes long says so in its first line, and has a test of its own.
SHORT = [path for path in EXAMPLES if "minutes" not in path.read_text(encoding="utf-8").partition("\n")[0]]


@pytest.mark.slow
@pytest.mark.parametrize("path", SHORT, ids=lambda p: p.name)
def test_example_runs(path: Path, tmp_path: Path) -> None:
    out = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False
    )
    assert out.returncode == 0, out.stderr
    assert out.stdout.strip()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name)
def test_example_says_first_what_it_is(path: Path) -> None:
    assert path.read_text(encoding="utf-8").startswith('"""')
