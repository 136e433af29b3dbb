"""The example of an algorithm of one's own learns."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples/04_own_algorithm.py"


@pytest.mark.slow
def test_reinforce_learns_on_the_bundled_world() -> None:
    out = subprocess.run(
        [sys.executable, str(EXAMPLE), "800"], capture_output=True, text=True, timeout=120, check=True
    ).stdout
    test = [float(value) for value in re.findall(r"test (\d\.\d+)", out)]
    train = [float(value) for value in re.findall(r"train (\d\.\d+)", out)]
    assert len(train) == 10
    assert test[0] < 0.1
    assert test[-1] > 0.3
    assert train[-1] > train[0] + 0.3


def test_it_is_short() -> None:
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) < 150
