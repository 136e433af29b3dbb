"""The short form of python -m tests.fuzz, which `make fuzz` runs at length."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fuzz.fuzzing import fuzz_commands, fuzz_turns

if TYPE_CHECKING:
    from pathlib import Path


def test_random_commands(tmp_path: Path) -> None:
    view = tmp_path / "view"
    view.mkdir()
    (view / "corpus.jsonl").write_text("{}\n", encoding="ascii")
    report = fuzz_commands(2000, view, seed=1)
    assert report.findings == []
    assert report.outcomes["accepted"] > 50
    assert len(report.outcomes) > 10


def test_random_turns() -> None:
    report = fuzz_turns(2000, seed=1)
    assert report.findings == []
    assert len(report.outcomes) >= 5
