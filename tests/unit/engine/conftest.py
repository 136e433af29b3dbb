from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from grepseek_env.engine.programs import open_programs
from grepseek_env.engine.sandbox import Sandbox
from tests.support.odd_corpora import ordinary

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    view = tmp_path / "view"
    view.mkdir()
    (view / "corpus.jsonl").write_bytes(ordinary(300))
    return Sandbox(open_programs(), view)


@pytest.fixture
def unconfined(sandbox: Sandbox) -> Sandbox:
    """Starts programs without a launcher: what they may do to one another is then up to them."""
    return replace(sandbox, confine="off")
