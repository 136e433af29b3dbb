"""Interrupts, forks and closed pipes while lines are searched in this process."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from grepseek_env.commands import parse
from grepseek_env.corpus.store import CorpusStore
from grepseek_env.engine import fastpath, narrowed, scanning
from grepseek_env.engine.kernels import load
from grepseek_env.engine.local import LocalBackend
from grepseek_env.engine.piped import Clock
from grepseek_env.engine.scheduler import SCHEDULER
from tests.support.processes import children

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.queues import SimpleQueue

pytestmark = pytest.mark.skipif(not load.are_possible(), reason="numba cannot be imported here")

LINES = 3000
COUNT = "rg -F needle corpus.jsonl | wc -l"
COMMANDS = [COUNT, "rg -F needle corpus.jsonl", "rg -F needle corpus.jsonl | sort -u", "rg 'nee[a-d]le' corpus.jsonl"]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CorpusStore]:
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(b"".join(b"needle %d\n" % number for number in range(LINES)))
    with CorpusStore.open(path) as opened:
        yield opened


@pytest.fixture(params=["one thread", "threads"])
def small_steps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is looked at every few lines; with threads, pieces are small too."""
    monkeypatch.setattr(scanning, "_STEP", 1)
    monkeypatch.setattr(scanning, "_BUFFER", 100)
    monkeypatch.setattr(scanning, "_LARGEST_KEPT", 0)
    monkeypatch.setattr(scanning, "_FREE", scanning._Free())
    if request.param == "threads":
        monkeypatch.setattr(fastpath, "_ALONE", 0)
        for name in ("FIRST_BYTES", "_FIRST_PIECE", "_WRITTEN_PIECE", "_COUNTED_PIECE"):
            monkeypatch.setattr(fastpath, name, 1000)


def interrupt_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sends one interrupt to the main thread when some thread looks at the clock."""
    check, sent = Clock.check, threading.Event()

    def interrupted(clock: Clock) -> None:
        if not sent.is_set():
            sent.set()
            os.kill(os.getpid(), signal.SIGINT)
        check(clock)

    monkeypatch.setattr(Clock, "check", interrupted)


def descriptors() -> int:
    """Returns how many there are, where that can be seen; those of objects that nobody has any more aside."""
    gc.collect()
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.is_dir() else 0


@pytest.mark.slow
@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("command", COMMANDS)
def test_an_interrupt_leaves_no_program_no_core_and_no_descriptor(
    store: CorpusStore, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    with LocalBackend(store, mode="narrowed", cache_bytes=0) as backend:
        backend.run(command)  # whatever is made once is there
        before, idle = descriptors(), children()
        with monkeypatch.context() as patch:
            interrupt_soon(patch)
            with pytest.raises(KeyboardInterrupt):
                backend.run(command)
        assert descriptors() == before
        assert children() == idle
        assert SCHEDULER.free == SCHEDULER.cores
        assert backend.run(COUNT).stdout == b"%d\n" % LINES


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("quick", [0, 8 << 20])
def test_an_interrupt_ends_a_batch(store: CorpusStore, monkeypatch: pytest.MonkeyPatch, quick: int) -> None:
    monkeypatch.setattr(narrowed, "QUICK_BYTES", quick)
    with LocalBackend(store, mode="narrowed", cache_bytes=0) as backend:
        backend.run_many(COMMANDS)
        idle = children()
        with monkeypatch.context() as patch:
            interrupt_soon(patch)
            with pytest.raises(KeyboardInterrupt):
                backend.run_many([*COMMANDS[:2], *(f"rg -F 'needle {number}' corpus.jsonl" for number in range(8))])
        assert children() == idle
        assert SCHEDULER.free == SCHEDULER.cores
        assert backend.run(COUNT).stdout == b"%d\n" % LINES


def count_in_child(backend: LocalBackend, answers: SimpleQueue[bytes]) -> None:
    answers.put(backend.run(COUNT).stdout)


@pytest.mark.usefixtures("small_steps")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # 3.12 on: a fork beside threads, on purpose
def test_a_forked_child_searches_with_threads_of_its_own(store: CorpusStore) -> None:
    with LocalBackend(store, mode="narrowed", cache_bytes=0) as backend:
        assert backend.run(COUNT).stdout == b"%d\n" % LINES
        context = multiprocessing.get_context("fork")
        answers = context.SimpleQueue()
        child = context.Process(target=count_in_child, args=(backend, answers))
        child.start()
        assert answers.get() == b"%d\n" % LINES
        child.join()
        answers.close()
        child.close()


@pytest.mark.usefixtures("small_steps")
def test_programs_that_stop_reading_end_the_search(store: CorpusStore) -> None:
    with LocalBackend(store, mode="narrowed", cache_bytes=0) as backend:
        runner = backend._runner
        assert isinstance(runner, narrowed.NarrowedRunner)
        command = "rg -F needle corpus.jsonl | sed 2q"
        assert runner._prepare(parse(command)).fed == (("sed", "2q"),)
        result = backend.run(command)
    assert (result.stdout, result.exit_code) == (b"needle 0\nneedle 1\n", 0)
