"""What goes wrong around a running environment: nothing is lost, nothing is wrong, nothing stays behind."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from grepseek_env.corpus.store import CorpusStore
from grepseek_env.engine.confine.client import LAUNCHERS
from grepseek_env.engine.executor import Cancellation
from grepseek_env.engine.local import MODES, LocalBackend
from grepseek_env.env import GrepSeekEnv
from grepseek_env.errors import CorpusChanged, CorpusError, GrepSeekError
from tests.support.daemons import write_corpus
from tests.support.processes import children, launchers, linux_only

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = linux_only

SLOW = "awk '{for(i=0;i<60000;i++)x=x+i} END{print NR}' corpus.jsonl"
QUESTIONS = [{"id": "q", "question": "?", "golden_answers": ["alpha"]}]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_corpus(tmp_path)


def call(env: GrepSeekEnv, command: str) -> str:
    return env.rules.action_format.render_action("t", command=command)


def soon(act: Callable[[], object]) -> threading.Thread:
    """Does something as soon as a program runs."""

    def wait() -> None:
        for _ in range(2000):
            if children():
                break
            time.sleep(0.005)
        time.sleep(0.02)
        act()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def kill(pids: set[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("how", ["truncated", "replaced", "removed", "rewritten"])
def test_a_corpus_that_changes_under_a_command_is_a_fault(corpus: Path, mode: str, how: str) -> None:
    with CorpusStore.open(corpus) as store, LocalBackend(store, mode=mode, cache_bytes=0) as backend:
        assert backend.run("rg -c alpha corpus.jsonl").stdout == b"300\n"
        file = store.corpus_file

        def change() -> None:
            match how:
                case "truncated":
                    os.truncate(file, 100)
                case "replaced":
                    other = file.with_name("other")
                    other.write_bytes(file.read_bytes())
                    other.replace(file)
                case "removed":
                    file.unlink()
                case _:
                    file.write_bytes(file.read_bytes()[::-1])

        thread = soon(change)
        with pytest.raises(CorpusChanged):
            backend.run(SLOW)
        thread.join()
        for command in ("rg -c alpha corpus.jsonl", "wc -l corpus.jsonl", "rg -F absent corpus.jsonl"):
            with pytest.raises(CorpusChanged):
                backend.run(command)


def test_an_episode_ends_as_a_fault_and_the_trajectory_is_there(corpus: Path) -> None:
    with GrepSeekEnv(corpus=corpus, questions=QUESTIONS, mode="sequential") as env:
        env.reset(seed=0)
        env.step(call(env, "rg -c alpha corpus.jsonl"))
        thread = soon(lambda: os.truncate(env.backend._store.corpus_file, 100))  # type: ignore[attr-defined]
        observation, reward, terminated, truncated, info = env.step(call(env, SLOW))
        thread.join()
        assert (reward, terminated, truncated, info["reward_valid"]) == (0.0, False, True, False)
        assert info["finish_reason"] == "fault"
        assert "CorpusChanged" in info["error"]
        assert "CorpusChanged" not in observation
        assert len(env.trajectory().turns) == 2


def test_a_killed_launcher_costs_no_episode(corpus: Path) -> None:
    with GrepSeekEnv(corpus=corpus, questions=QUESTIONS, mode="sequential") as env:
        env.reset(seed=0)
        thread = soon(lambda: kill(launchers()))
        observation, *_, info = env.step(call(env, SLOW))
        thread.join()
        assert "300" in observation
        assert info["reward_valid"]


def test_a_killed_program_ends_the_episode_as_a_fault(corpus: Path) -> None:
    with GrepSeekEnv(corpus=corpus, questions=QUESTIONS, mode="sequential") as env:
        env.reset(seed=0)
        thread = soon(lambda: kill(children()))
        *_, info = env.step(call(env, SLOW))
        thread.join()
        assert (info["reward_valid"], info["finish_reason"]) == (False, "fault")
        assert "killed from outside" in info["error"]
        env.reset(seed=1)
        observation, *_ = env.step(call(env, "rg -c alpha corpus.jsonl"))
        assert "300" in observation


def test_the_clock_may_jump(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jumps = iter(range(10**9, -(10**9), -(10**8)))
    monkeypatch.setattr(time, "time", lambda: float(next(jumps, -(10**9))))
    with CorpusStore.open(corpus) as store, LocalBackend(store, cache_bytes=0) as backend:
        for _ in range(5):
            result = backend.run("awk '{print}' corpus.jsonl | tail -n 1 | cut -c 1-4", timeout=30)
            assert (result.exit_code, result.timed_out) == (0, False)


def test_an_unreadable_corpus_is_told(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path)
    corpus.chmod(0)
    if os.access(corpus, os.R_OK):  # root reads everything
        corpus.unlink()
        corpus.mkdir()
    with pytest.raises((CorpusError, OSError)):
        CorpusStore.open(corpus).close()


@pytest.mark.slow
def test_closing_while_launchers_start_leaves_nothing(corpus: Path) -> None:
    for _ in range(5):
        LAUNCHERS.close()
        with CorpusStore.open(corpus) as store:
            backend = LocalBackend(store, mode="sequential", cache_bytes=0)
            threads = [threading.Thread(target=_attempt, args=(backend,)) for _ in range(6)]
            for thread in threads:
                thread.start()
            time.sleep(0.01)
            backend.close()
            for thread in threads:
                thread.join(30)
            assert not any(thread.is_alive() for thread in threads)
    assert children() == set()


def _attempt(backend: LocalBackend) -> None:
    with contextlib.suppress(GrepSeekError):
        backend.run("awk 'BEGIN{while(1);}'", timeout=20)


def test_a_command_that_is_cancelled_leaves_nothing(corpus: Path) -> None:
    with CorpusStore.open(corpus) as store, LocalBackend(store, mode="sequential", cache_bytes=0) as backend:
        cancel = Cancellation()
        thread = soon(cancel.set)
        with pytest.raises(GrepSeekError):
            backend.run("awk 'BEGIN{while(1);}'", timeout=20, cancel=cancel)
        thread.join()
    assert children() == set()


@pytest.mark.slow
def test_an_index_that_is_truncated_is_not_believed(tmp_path: Path) -> None:
    index = pytest.importorskip("grepseek_env.engine.index")
    rng = np.random.default_rng(3)
    words = rng.integers(0, 5000, (20_000, 12))
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(" ".join(f"w{word}" for word in row) + "\n" for row in words))
    with CorpusStore.open(corpus) as store:
        index.build_index(store)
        commands = [f"grep -F 'w{number} ' corpus.jsonl | wc -l" for number in range(40)]
        with (
            LocalBackend(store, mode="sequential") as plain,
            LocalBackend(store, mode="narrowed", cache_bytes=0) as backend,
        ):
            wanted = [plain.run(command) for command in commands]
            assert [backend.run(command) for command in commands[:20]] == wanted[:20]
            file = store.sidecar / "index" / "tokens"
            os.truncate(file, file.stat().st_size // 3)
            with pytest.warns(UserWarning, match="is damaged and is not used any more"):
                assert [backend.run(command) for command in commands] == wanted
