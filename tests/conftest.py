from __future__ import annotations

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

from grepseek_env.paths import cache_dir
from tests.support.golden import Golden

# Machine code is compiled once for all tests and workers, whatever cache folder a test sets.
os.environ.setdefault("NUMBA_CACHE_DIR", str(cache_dir() / "kernels"))
# Whatever starts the tests in the background has them ignore Ctrl-C, and all they start too; some tests press it.
signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ["GREPSEEK_DAEMON"] = "off"  # a daemon of whoever runs the tests has nothing to do with them

# A slow machine is no failure: no test asserts on time, so Hypothesis must not either.
settings.register_profile("grepseek", deadline=None)
# `make fuzz`: a property without a count of its own runs this many times.
settings.register_profile("fuzz", deadline=None, max_examples=20_000, suppress_health_check=list(HealthCheck))
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "grepseek"))


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
