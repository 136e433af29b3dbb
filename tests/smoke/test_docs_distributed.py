"""The Python of docs/distributed.md runs as it stands; what imports Ray does so with `make test-ray`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.test_docs import blocks

PAGE = Path(__file__).parents[2] / "docs/distributed.md"
BLOCKS = blocks(PAGE, "python")


@pytest.mark.parametrize(
    "code",
    [pytest.param(code, marks=pytest.mark.ray if "import ray\n" in code else ()) for code in BLOCKS],
    ids=range(len(BLOCKS)),
)
def test_block_runs(code: str) -> None:
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert out.returncode == 0, out.stderr
    assert out.stdout
