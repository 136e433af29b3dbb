"""What goes wrong while a command runs on slices: killed programs, time-outs, signals, forks, lack of anything."""

from __future__ import annotations

import gc
import itertools
import os
import random
import resource
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from grepseek_env.commands import parse
from grepseek_env.engine import executor, modes, sliced, started, worker
from grepseek_env.engine.executor import Cancellation
from grepseek_env.engine.feed import Feed, Part, no_fork
from grepseek_env.engine.plan import Sliced
from grepseek_env.engine.planner import plan
from grepseek_env.engine.scheduler import Scheduler
from grepseek_env.errors import BackendClosed, EngineFault, SpawnFailed
from tests.support.odd_corpora import odd, ordinary
from tests.support.oracle import DEADLINE
from tests.support.processes import children, descriptors, linux_only, running
from tests.support.slicing import FEEDINGS, Sliceable, even_cuts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from grepseek_env.engine.modes import Feeding
    from grepseek_env.types import CommandResult

pytestmark = [linux_only, pytest.mark.slow]

LINES = b"".join(b"%d Einstein T%d\n" % (number, number % 7) for number in range(60))
SPINS = "awk '/^%s/{for(;;);} {print}' corpus.jsonl"  # on the line that starts with a number, for ever
SHAPES = (
    "cat corpus.jsonl | tr a-z A-Z | sed 1d",
    "grep -c T3 corpus.jsonl",
    "sort corpus.jsonl | head -n 3",
    "sort -u corpus.jsonl",
    "cut -d' ' -f2 corpus.jsonl | uniq -c",
    "rg Einstein corpus.jsonl | head -n 2",
    "rg NOSUCH corpus.jsonl",
    "grep 'bad\\(' corpus.jsonl",
    "wc corpus.jsonl",
)


@pytest.fixture
def corpus(tmp_path: Path) -> Sliceable:
    return Sliceable(tmp_path, LINES)


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    gc.collect()  # descriptors go with their owners
    before, threads = descriptors(), set(threading.enumerate())  # models' loop, once it is there, stays
    yield
    assert children() == set()
    gc.collect()
    assert descriptors() == before
    assert not [t for t in threading.enumerate() if t not in threads and t.name.startswith("grepseek")]


def command(corpus: Sliceable, text: str, slices: int = 3, feeding: Feeding = "pipe", **bounds: float) -> CommandResult:
    pipeline = parse(text)
    assert isinstance(plan(pipeline, corpus.facts), Sliced), text
    return corpus.runner(even_cuts(corpus.data, slices), feeding).run(pipeline, **{"timeout": DEADLINE, **bounds})


def program_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()
    except FileNotFoundError:
        return ""


def kill_all(name: str, done: threading.Event) -> None:
    """Kills children of this name as soon as there are any."""
    while not done.wait(0.01):
        for pid in children():
            if program_of(pid) == name:
                os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("feeding", FEEDINGS)
@pytest.mark.parametrize("tail", ["", " | head -n 50", " | sort", " | sed -n '$p'", " | grep -c T"])
def test_a_slice_killed_from_outside_is_a_fault(corpus: Sliceable, tail: str, feeding: Feeding) -> None:
    done = threading.Event()
    killer = threading.Thread(target=kill_all, args=("awk", done))
    killer.start()
    try:
        with pytest.raises(EngineFault, match="awk was killed from outside"):
            command(corpus, SPINS % 5 + tail, feeding=feeding)
    finally:
        done.set()
        killer.join()


def test_a_killed_last_program_is_a_fault(corpus: Sliceable) -> None:
    done = threading.Event()
    killer = threading.Thread(target=kill_all, args=("sed", done))
    killer.start()
    try:
        with pytest.raises(EngineFault, match="sed was killed from outside"):
            command(corpus, SPINS % 5 + " | sed 1d")
    finally:
        done.set()
        killer.join()


@pytest.mark.parametrize("feeding", FEEDINGS)
@pytest.mark.parametrize("tail", ["", " | sort", " | sed 1d", " | wc -l", " | tail -n 1"])
@pytest.mark.parametrize("line", [1, 55])
def test_one_slice_out_of_time_is_the_command_out_of_time(
    corpus: Sliceable, tail: str, line: int, feeding: Feeding
) -> None:
    result = command(corpus, SPINS % line + tail, feeding=feeding, timeout=0.3)
    assert (result.timed_out, result.exit_code, result.output_truncated) == (True, None, False)


@pytest.mark.parametrize("feeding", FEEDINGS)
def test_later_slices_are_cancelled_when_an_earlier_one_decides(corpus: Sliceable, feeding: Feeding) -> None:
    for tail in (" | head -n 2", " | head -c 9", " | grep -q T1"):
        result = command(corpus, SPINS % "[2345][0-9]" + tail, feeding=feeding)  # only the first slice ends
        assert result.exit_code == 0
        assert children() == set()


def test_no_more_slices_run_than_there_are_cores(corpus: Sliceable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modes, "SCHEDULER", Scheduler(2))
    stop = Cancellation()
    runner = corpus.runner(even_cuts(corpus.data, 7))
    caught: list[BaseException] = []

    def use() -> None:
        try:
            runner.run(parse(SPINS % ""), timeout=DEADLINE, cancels=(stop,))
        except BackendClosed as error:
            caught.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    seen: set[int] = set()
    for _ in range(60):
        time.sleep(0.01)
        seen.add(sum(program_of(pid) == "awk" for pid in children()))
    stop.set()
    thread.join()
    assert max(seen) == 2
    assert len(caught) == 1


@pytest.mark.parametrize("repeat", [7, pytest.param(56, marks=pytest.mark.slow)])
def test_many_commands_leave_no_descriptor(corpus: Sliceable, repeat: int) -> None:
    before = descriptors()
    for number in range(repeat):
        for text in SHAPES:
            command(corpus, text, feeding=FEEDINGS[number % 2], **({"max_output_bytes": 5} if number % 3 == 2 else {}))
            assert descriptors() == before


@pytest.mark.parametrize("program", ["grep", "rg"])
@pytest.mark.parametrize("tail", ["", " | head -n 30", " | wc -l", " | sort", " | tail -n 2", " | sed 1d"])
def test_a_fatal_error_midway_discards_what_comes_later(tmp_path: Path, program: str, tail: str) -> None:
    lines = LINES.splitlines(keepends=True)
    lines[25] = b"x" * 400 + b"\n"  # beyond the backtracking limit, in the second of three slices
    corpus = Sliceable(tmp_path, b"".join(lines))
    for feeding in FEEDINGS:
        found = corpus.differences(
            [f"{program} -P '(x+x+)+y|Einstein' corpus.jsonl{tail}"],
            corpus.runner(even_cuts(corpus.data, 3), feeding),
        )
        assert not found, found[0]


class Alarm(BaseException):
    pass


def test_an_exception_from_a_signal_at_any_moment_leaves_nothing(corpus: Sliceable) -> None:
    def ring(_number: int, _frame: object) -> None:
        raise Alarm

    rng, rang = random.Random(5), 0
    runners = [corpus.runner(even_cuts(corpus.data, 3), feeding) for feeding in FEEDINGS]
    before = descriptors()
    previous = signal.signal(signal.SIGALRM, ring)
    try:
        for number in range(120):
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-6, 15e-3))
                runners[number % 2].run(parse(SHAPES[number % len(SHAPES)]), timeout=DEADLINE)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Alarm:
                rang += 1
            assert children() == set()
            assert descriptors() == before
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert rang > 10


def limit_for(spare: int, taken: set[str]) -> int:
    """Returns the limit under which so many descriptors are free."""
    free = (number for number in itertools.count() if str(number) not in taken)
    return next(itertools.islice(free, spare, None))


@pytest.mark.parametrize("text", ["cat corpus.jsonl | tr a-z A-Z | sed 1d", "sort corpus.jsonl | sed 1d"])
def test_running_out_of_descriptors_at_any_point_is_a_fault(corpus: Sliceable, text: str) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    runner, pipeline = corpus.runner(even_cuts(corpus.data, 2)), parse(text)
    right = runner.run(pipeline, timeout=DEADLINE)
    outcomes: list[bool] = []
    before = descriptors()
    try:
        for spare in range(1, 40):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit_for(spare, before), hard))
            try:
                assert runner.run(pipeline, timeout=DEADLINE) == right
                outcomes.append(True)
            except SpawnFailed:
                outcomes.append(False)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            assert children() == set()
            assert descriptors() == before
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not any(outcomes[:5])  # how many are needed also depends on which slice ends first
    assert all(outcomes[-5:])


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_fork_meanwhile_keeps_no_slice_waiting(tmp_path: Path) -> None:
    corpus = Sliceable(tmp_path, odd()["huge_line"])
    forked: list[int] = []
    done = threading.Event()

    def use() -> None:
        try:
            for _ in range(5):
                assert command(corpus, "cat corpus.jsonl | tr a-z A-Z | sed 1d").exit_code == 0
        finally:
            done.set()

    thread = threading.Thread(target=use)
    thread.start()
    try:
        while not done.wait(0.003):
            if len(forked) < 60:
                if (child := os.fork()) == 0:
                    time.sleep(DEADLINE)
                    os._exit(0)
                forked.append(child)
    finally:
        thread.join(DEADLINE / 2)
        alive = thread.is_alive()
        for child in forked:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    assert forked
    assert not alive


def test_a_corpus_that_ends_early_is_a_fault(tmp_path: Path) -> None:
    file = tmp_path / "corpus.jsonl"
    file.write_bytes(b"Einstein\n" * 3)
    handle = os.open(file, os.O_RDONLY)
    try:
        with no_fork():
            feed = Feed(Part(0, 9, 900), file, handle, 1000)
        feed.begin()
        got = b""
        while data := os.read(feed.source, 100):
            got += data
        feed.end()
        assert got == b"Einstein\n" * 2
        assert feed.fault is not None
        assert "shorter" in feed.fault
        os.close(feed.source)
    finally:
        os.close(handle)


def test_memory_stays_bounded_and_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_MOST_HELD", 1 << 20)
    monkeypatch.setattr(sliced, "_MOST_HELD", 3 << 20)
    most = 0
    take = worker.Worker.take

    def watched(self: worker.Worker) -> bytes | None:
        nonlocal most
        most = max(most, self.held)
        return take(self)

    monkeypatch.setattr(worker.Worker, "take", watched)
    corpus = Sliceable(tmp_path, LINES * 6000)
    for tail in ("tr a-z A-Z", "tr a-z A-Z | sort -r | tail -n 3", "tr a-z A-Z | sed 1d"):
        text = f"cat corpus.jsonl | {tail}"
        assert not corpus.differences([text], corpus.runner(even_cuts(corpus.data, 4)))
    assert 0 < most <= (1 << 20) + executor.LARGE_READ


@pytest.mark.parametrize("look", [True, False])
def test_where_ends_cannot_be_waited_for_it_works_all_the_same(
    corpus: Sliceable, monkeypatch: pytest.MonkeyPatch, look: bool
) -> None:
    monkeypatch.setattr(started, "_HAS_PIDFD", False)
    monkeypatch.setattr(started, "_HAS_WAITID", look)
    corpus.sandbox = replace(corpus.sandbox, confine="off")  # a launcher always hands out something to wait for
    wrong = corpus.differences(SHAPES, corpus.runner(even_cuts(corpus.data, 3)))
    assert not wrong, "\n".join(wrong)
    assert command(corpus, SPINS % 5, timeout=0.1).timed_out


def test_cancelling_ends_slices(corpus: Sliceable) -> None:
    stop = Cancellation()
    timer = threading.Timer(0.1, stop.set)
    timer.start()
    with pytest.raises(BackendClosed):
        corpus.runner(even_cuts(corpus.data, 3)).run(parse(SPINS % 5), timeout=DEADLINE, cancels=(stop,))
    timer.join()


def crowd(corpus: Sliceable, goes_on: Callable[[int], bool]) -> int:
    """Runs commands from 64 threads, as long as `goes_on`, and returns how many were right."""
    runners = [corpus.runner(even_cuts(corpus.data, slices), feed) for slices in (1, 2, 5) for feed in FEEDINGS]
    wanted = {text: corpus.wanted(text) for text in SHAPES}

    def use(thread: int) -> int:
        rng, done = random.Random(thread), 0
        while goes_on(done):
            text = rng.choice(SHAPES)
            ours = rng.choice(runners).run(parse(text), timeout=DEADLINE)
            assert (ours.stdout, ours.exit_code) == wanted[text][:2], text
            done += 1
        return done

    with ThreadPoolExecutor(64) as pool:
        return sum(pool.map(use, range(64)))


def test_sixty_four_threads_at_once(tmp_path: Path) -> None:
    corpus = Sliceable(tmp_path, ordinary(60))
    assert crowd(corpus, lambda done: done < 3) == 64 * 3


@pytest.mark.slow
def test_sixty_four_threads_for_two_minutes(tmp_path: Path) -> None:
    corpus = Sliceable(tmp_path, ordinary(60))
    end = time.monotonic() + 120
    assert crowd(corpus, lambda _done: time.monotonic() < end) > 64
    assert not list(running(str(tmp_path)))
