from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from grepseek_env.cli import main
from tests.support.arena import needs
from tests.support.processes import linux_only

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
@linux_only
def test_both_sides_are_measured(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    needs()
    out = tmp_path / "figures.json"
    assert main(["bench", "sandbox", "--count", "4", "--out", str(out)]) == 0
    told = capsys.readouterr().out
    figures = json.loads(out.read_text())
    assert {"one program", "three programs"} <= figures["ms"].keys()
    assert all(row["confined"] > 0 < row["plain"] for row in figures["ms"].values())
    assert figures["layers"]["landlock"] is True
    assert "landlock" in told


def test_a_count_that_cannot_work_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "sandbox", "--count", "0"]) == 1
    assert "at least 1" in capsys.readouterr().err
