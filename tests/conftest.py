from __future__ import annotations

import pytest

from tests.support.golden import Golden


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write what the code does now into the files of tests/golden; read the diff before you commit it",
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Checks rows of tests/golden against the code; see tests.support.golden."""
    return Golden(update=request.config.getoption("--update-golden"))
