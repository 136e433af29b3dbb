"""A batch tells each result when it is there, and can be stopped from outside."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from grepseek_env.corpus.store import CorpusStore
from grepseek_env.engine import local
from grepseek_env.engine.executor import Cancellation
from grepseek_env.engine.local import LocalBackend
from grepseek_env.errors import BackendClosed, CommandRefused, CorpusChanged
from tests.support.odd_corpora import ordinary

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from grepseek_env.errors import GrepSeekError
    from grepseek_env.types import CommandResult

FOREVER = "awk 'BEGIN { while (1); }'"
COMMANDS = [
    "rg -F Einstein corpus.jsonl | wc -l",
    "rg -F the corpus.jsonl | head -n 3",
    "cat corpus.jsonl; ls",
    "rg -F Ulm corpus.jsonl",
    "sort corpus.jsonl | head -n 2",
    "rg -F the corpus.jsonl | head -n 3",
    *(f"rg -c -F {word} corpus.jsonl" for word in ("a", "of", "in", "on", "born", "was")),
]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CorpusStore]:
    (tmp_path / "corpus.jsonl").write_bytes(ordinary(300))
    with CorpusStore.open(tmp_path / "corpus.jsonl") as opened:
        yield opened


@pytest.mark.parametrize("mode", local.MODES)
@pytest.mark.parametrize("cache_bytes", [0, 1 << 20])
def test_every_different_command_is_told_once_with_what_is_returned(
    store: CorpusStore, mode: str, cache_bytes: int
) -> None:
    told: list[tuple[str, CommandResult | GrepSeekError]] = []
    with LocalBackend(store, mode=mode, cache_bytes=cache_bytes) as backend:
        for _ in range(2):  # the second time from the cache, where there is one
            told.clear()
            returned = backend.run_many(COMMANDS, on_result=lambda *each: told.append(each))
            assert sorted(command for command, _ in told) == sorted(set(COMMANDS))
            for command, result in zip(COMMANDS, returned, strict=True):
                assert dict(told)[command] is result
            assert isinstance(returned[2], CommandRefused)


@pytest.mark.parametrize("mode", local.MODES)
def test_faults_are_told_too(store: CorpusStore, mode: str) -> None:
    told: dict[str, CommandResult | GrepSeekError] = {}
    with LocalBackend(store, mode=mode) as backend:
        with store.path.open("ab") as file:
            file.write(b"more\n")
        backend.run_many(COMMANDS, on_result=told.__setitem__)
    assert {type(told[command]) for command in set(COMMANDS) - {COMMANDS[2]}} == {CorpusChanged}


@pytest.mark.parametrize("mode", local.MODES)
def test_a_quick_command_does_not_wait_for_a_slow_one_and_the_slow_one_can_be_stopped(
    store: CorpusStore, mode: str
) -> None:
    quick = threading.Event()
    cancel = Cancellation()
    results: list[CommandResult | GrepSeekError] = []

    def told(command: str, _: object) -> None:
        if command == COMMANDS[0]:
            quick.set()

    with LocalBackend(store, mode=mode) as backend:

        def batch() -> None:
            results.extend(backend.run_many([FOREVER, COMMANDS[0]], cancel=cancel, on_result=told))

        thread = threading.Thread(target=batch)
        thread.start()
        assert quick.wait(30)
        assert not results
        cancel.set()
        thread.join(30)
        assert isinstance(results[0], BackendClosed)
        assert backend.run("wc -l corpus.jsonl").exit_code == 0
