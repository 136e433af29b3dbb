from __future__ import annotations

import gc
import os
import random
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from grepseek_env.config import Limits
from grepseek_env.corpus.store import CorpusStore
from grepseek_env.engine import modes
from grepseek_env.engine.executor import Cancellation
from grepseek_env.engine.interrupts import HeldSignals
from grepseek_env.engine.local import LocalBackend
from grepseek_env.engine.scheduler import Scheduler
from grepseek_env.errors import BackendClosed
from tests.support.processes import descriptors, linux_only

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from grepseek_env.engine.scheduler import Grant

LONG = 30.0


@contextmanager
def admitted(scheduler: Scheduler, *cancels: Cancellation) -> Iterator[Grant]:
    with HeldSignals() as signals, scheduler.admit(signals, cancels) as grant:
        yield grant


def wait_for_line(scheduler: Scheduler, length: int) -> None:
    pause = threading.Event()
    for _ in range(int(LONG / 0.002)):
        if scheduler.waiting == length:
            return
        pause.wait(0.002)
    raise AssertionError(f"{scheduler.waiting} wait, not {length}")


def test_a_lone_command_gets_all_cores_and_gives_them_back() -> None:
    scheduler = Scheduler(4)
    with admitted(scheduler) as grant:
        assert (grant.cores, scheduler.free) == (1, 3)
        assert grant.widen(3) == 3
        assert grant.widen(2) == 3  # never fewer
        assert grant.widen(9) == 4
        assert scheduler.free == 0
    assert scheduler.free == 4


def test_it_gives_all_back_after_an_error_too() -> None:
    scheduler = Scheduler(2)
    with pytest.raises(ZeroDivisionError), admitted(scheduler) as grant:
        print(1 / (grant.widen(2) - 2))
    assert scheduler.free == 2


def test_first_come_first_served() -> None:
    scheduler = Scheduler(1)
    order: list[int] = []

    def command(number: int) -> None:
        with admitted(scheduler):
            order.append(number)

    threads = []
    with admitted(scheduler):
        for number in range(6):
            threads.append(threading.Thread(target=command, args=(number,)))
            threads[-1].start()
            wait_for_line(scheduler, number + 1)
    for thread in threads:
        thread.join()
    assert order == list(range(6))
    assert (scheduler.free, scheduler.waiting) == (1, 0)


def test_who_waits_goes_before_who_widens() -> None:
    scheduler = Scheduler(2)
    with admitted(scheduler) as first:
        assert first.widen(2) == 2
        assert first.yield_extra(1) == 2  # nobody waits: it keeps them
        got = threading.Event()
        release = threading.Event()

        def second() -> None:
            with admitted(scheduler):
                got.set()
                release.wait(LONG)

        thread = threading.Thread(target=second)
        thread.start()
        wait_for_line(scheduler, 1)
        assert first.yield_extra(2) == 2  # both are needed
        assert not got.is_set()
        assert first.yield_extra(1) == 1
        assert got.wait(LONG)
        assert first.yield_extra(0) == 1  # never the last one
        assert first.widen(2) == 1
        release.set()
        thread.join()
        assert first.widen(2) == 2
    assert scheduler.free == 2


def test_a_cancelled_command_leaves_the_line() -> None:
    scheduler = Scheduler(1)
    cancel = Cancellation()
    caught: list[BaseException] = []

    def command() -> None:
        try:
            with admitted(scheduler, cancel):
                caught.append(AssertionError("it got a core"))
        except BackendClosed as error:
            caught.append(error)

    with admitted(scheduler):
        thread = threading.Thread(target=command)
        thread.start()
        wait_for_line(scheduler, 1)
        cancel.set()
        thread.join(LONG)
        assert [type(each) for each in caught] == [BackendClosed]
        assert scheduler.waiting == 0
    assert scheduler.free == 1


class Alarm(BaseException):
    pass


def test_a_signal_ends_the_wait() -> None:
    def ring(_number: int, _frame: object) -> None:
        raise Alarm

    scheduler = Scheduler(1)
    release, holds = threading.Event(), threading.Event()

    def hold() -> None:
        with admitted(scheduler):
            holds.set()
            release.wait(LONG)

    holder = threading.Thread(target=hold)
    holder.start()
    holds.wait(LONG)
    previous = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(Alarm), admitted(scheduler):
            raise AssertionError("it got a core")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
        release.set()
        holder.join()
    assert (scheduler.free, scheduler.waiting) == (1, 0)


@pytest.mark.slow
@linux_only
def test_many_threads_never_hold_more_than_there_is() -> None:
    scheduler = Scheduler(3)
    lock, pause = threading.Lock(), threading.Event()
    held = most = 0
    cancels = [Cancellation() for _ in range(8)]
    gc.collect()  # descriptors of earlier tests go with their owners
    before = descriptors()

    def command(number: int) -> str:
        nonlocal held, most
        rng = random.Random(number)
        try:
            with admitted(scheduler, cancels[number % 8]) as grant:
                mine = 1
                with lock:
                    held += 1
                for _ in range(rng.randint(0, 3)):
                    with lock:  # changes and their count belong together
                        now = grant.widen(3) if rng.random() < 0.6 else grant.yield_extra(1)
                        held += now - mine
                        mine = now
                        most = max(most, held)
                pause.wait(0.0005)  # so that others have to wait
                with lock:
                    held -= mine
                return "ran"
        except BackendClosed:
            return "stopped"

    cancels[3].set()
    with ThreadPoolExecutor(24) as pool:
        outcomes = [pool.submit(command, number) for number in range(600)]
        assert {outcome.result() for outcome in outcomes} == {"ran", "stopped"}
    assert most <= 3
    assert (scheduler.free, scheduler.waiting) == (3, 0)
    assert descriptors() == before


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_after_a_fork_the_child_has_all_cores() -> None:
    scheduler = Scheduler(2)
    with admitted(scheduler) as grant:
        grant.widen(2)
        if (child := os.fork()) == 0:
            scheduler.forget()
            os._exit(0 if (scheduler.free, scheduler.waiting) == (2, 0) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert scheduler.free == 0


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sequential", "sliced"])
def test_time_in_line_is_no_run_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    scheduler = Scheduler(1)
    monkeypatch.setattr(modes, "SCHEDULER", scheduler)
    (tmp_path / "corpus.jsonl").write_bytes(b"Einstein\n")
    timed_out: list[bool] = []
    with CorpusStore.open(tmp_path / "corpus.jsonl") as store, LocalBackend(store, Limits(), mode) as backend:
        with admitted(scheduler):
            thread = threading.Thread(
                target=lambda: timed_out.append(backend.run("wc -l corpus.jsonl", timeout=1).timed_out)
            )
            thread.start()
            wait_for_line(scheduler, 1)
            thread.join(1.3)  # longer than the command's own time
            assert thread.is_alive()
        thread.join()
    assert timed_out == [False]
