from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.soak import soak
from tests.support.processes import linux_only

if TYPE_CHECKING:
    from pathlib import Path


@linux_only
@pytest.mark.slow
def test_the_short_form_of_the_soak(tmp_path: Path) -> None:
    figures = soak(4000, clients=24, pause=0.1, folder=tmp_path)
    assert figures.wrong == []
    assert figures.left == []
    assert figures.answers > 3000
    assert {"program", "launcher", "client"} <= figures.injected.keys()
    assert figures.descriptors[1] <= figures.descriptors[0]
    assert figures.descriptors[2] <= figures.descriptors[0]
    assert figures.memory[2] < figures.memory[0] + (32 << 20)
