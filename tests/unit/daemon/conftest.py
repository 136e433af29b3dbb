from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from grepseek_env.corpus.store import CorpusStore
from grepseek_env.daemon.client import DaemonClient
from tests.support.daemons import Served, serving, write_corpus

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _no_daemon_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.delenv("GREPSEEK_DAEMON", raising=False)
    monkeypatch.delenv("GREPSEEK_DAEMON_TOKEN", raising=False)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CorpusStore]:
    with CorpusStore.open(write_corpus(tmp_path)) as opened:
        yield opened


@pytest.fixture
def served(store: CorpusStore) -> Iterator[Served]:
    with serving(store) as daemon:
        yield daemon


@pytest.fixture
def client(served: Served) -> Iterator[DaemonClient]:
    with DaemonClient(served.address) as opened:
        yield opened
