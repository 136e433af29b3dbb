from __future__ import annotations

import pytest
from hypothesis import settings

from tests.support.golden import Golden

# A slow machine is no failure: no test asserts on time, so Hypothesis must not either.
settings.register_profile("grepseek", deadline=None)
settings.load_profile("grepseek")


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
