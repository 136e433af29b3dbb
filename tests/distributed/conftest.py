from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GREPSEEK_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A local cluster of four logical cores; returns the module `ray`."""
    ray = importlib.import_module("ray")
    cache = tmp_path_factory.mktemp("cache")
    os.environ["GREPSEEK_CACHE"] = str(cache)
    ray.init(
        num_cpus=4,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=128 << 20,
        runtime_env={"env_vars": {"GREPSEEK_CACHE": str(cache), "GREPSEEK_DAEMON": "off"}},
    )
    yield ray
    ray.shutdown()
    del os.environ["GREPSEEK_CACHE"]
