from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING

import pytest

from grepseek_env.corpus.store import CorpusStore
from grepseek_env.engine.cache import ResultCache
from grepseek_env.engine.executor import Cancellation
from grepseek_env.engine.local import LocalBackend
from grepseek_env.errors import BackendClosed, ConfigError, CorpusChanged, EngineFault
from grepseek_env.types import CommandResult
from tests.support.odd_corpora import ordinary
from tests.support.processes import descriptors, linux_only

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

A = (("rg", "a", "corpus.jsonl"),)
B = (("rg", "b", "corpus.jsonl"),)
FULL = CommandResult(b"0123456789", b"", 0)


def ask(
    cache: ResultCache,
    compute: Callable[[], CommandResult] = lambda: FULL,
    argvs: tuple[tuple[str, ...], ...] = A,
    *,
    timeout: float = 60,
    most: int | None = None,
    cancels: tuple[Cancellation, ...] = (),
) -> CommandResult:
    return cache.run(argvs, compute, timeout=timeout, max_output_bytes=most, cancels=cancels)


def never() -> CommandResult:
    raise AssertionError("it was to come from the cache")


@pytest.fixture
def cache() -> ResultCache:
    return ResultCache(1 << 20)


def test_a_result_is_kept(cache: ResultCache) -> None:
    assert ask(cache) is ask(cache, never)
    other = ask(cache, lambda: CommandResult(b"b", b"", 1), B)
    assert ask(cache, never, B) == other
    stats = cache.stats()
    assert (stats.hits, stats.misses, stats.entries) == (2, 2, 2)


@pytest.mark.parametrize("most", [0, 1, 9, 10, 11, None])
def test_a_whole_result_serves_every_budget_as_the_engine_would(cache: ResultCache, most: int | None) -> None:
    ask(cache)
    cut = most is not None and most < 10
    expected = CommandResult(b"0123456789"[:most], b"", None, output_truncated=True) if cut else FULL
    assert ask(cache, never, most=most) == expected


def test_a_cut_result_serves_smaller_budgets_only(cache: ResultCache) -> None:
    five = CommandResult(b"01234", b"", None, output_truncated=True)
    ask(cache, lambda: five, most=5)
    assert ask(cache, never, most=5) == five
    assert ask(cache, never, most=2) == CommandResult(b"01", b"", None, output_truncated=True)
    assert ask(cache, most=7).stdout == b"0123456789"  # `compute` cuts, not the cache
    assert ask(cache, never) == FULL  # the longer one is kept
    ask(cache, never, most=5)


@pytest.mark.parametrize(
    "result",
    [
        CommandResult(b"", b"", None, timed_out=True),
        CommandResult(b"", b"sort: write failed: No space left on device\n", 2),
        CommandResult(b"", b"", 137),
        CommandResult(b"01", b"rg: broken\n", None, output_truncated=True),
    ],
    ids=["time-out", "message", "signal", "cut with a message"],
)
def test_what_may_not_come_again_is_not_kept(cache: ResultCache, result: CommandResult) -> None:
    assert ask(cache, lambda: result) == result
    assert ask(cache) == FULL


def test_memory_is_bounded_and_the_least_used_goes_first() -> None:
    cache = ResultCache(10_000)

    def keep(number: int) -> None:
        ask(cache, lambda: CommandResult(b"x" * 1000, b"", 0), (("rg", str(number)),))

    for number in range(4):
        keep(number)
    ask(cache, never, (("rg", "0"),))
    keep(4)
    ask(cache, never, (("rg", "0"),))
    assert ask(cache, lambda: FULL, (("rg", "1"),)) == FULL  # gone
    for number in range(10, 200):
        keep(number)
        assert cache.stats().bytes <= 10_000
    assert cache.stats().entries >= 3


def test_one_result_cannot_empty_the_cache() -> None:
    cache = ResultCache(100_000)
    ask(cache)
    ask(cache, lambda: CommandResult(b"x" * 90_000, b"", 0), B)
    ask(cache, never)
    assert ask(cache, lambda: FULL, B) == FULL


class Slow:
    """A computation that waits until it is told what to give."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.go = threading.Event()
        self.gives: CommandResult | Exception = FULL
        self.calls = 0

    def __call__(self) -> CommandResult:
        self.calls += 1
        self.started.set()
        assert self.go.wait(30)
        if isinstance(self.gives, Exception):
            raise self.gives
        return self.gives


class Asker(threading.Thread):
    """Asks in a thread and keeps what comes."""

    def __init__(self, act: Callable[[], CommandResult]) -> None:
        super().__init__()
        self.act = act
        self.got: CommandResult | Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            self.got = self.act()
        except EngineFault as error:
            self.got = error


def waits(cache: ResultCache, act: Callable[[], CommandResult]) -> Asker:
    """Starts an asker and returns when it waits for the flight."""
    asker = Asker(act)
    while cache._flights[A].done is None:
        asker.join(0.001)
    asker.join(0.01)
    assert asker.is_alive()
    return asker


def test_equal_commands_run_once(cache: ResultCache) -> None:
    slow = Slow()
    leader = Asker(lambda: ask(cache, slow))
    assert slow.started.wait(30)
    followers = [waits(cache, lambda: ask(cache, never)) for _ in range(5)]
    followers.append(waits(cache, lambda: ask(cache, never, most=3, timeout=100)))
    slow.go.set()
    for each in (leader, *followers):
        each.join()
    assert [each.got for each in (leader, *followers[:5])] == [FULL] * 6
    assert followers[5].got == CommandResult(b"012", b"", None, output_truncated=True)
    assert slow.calls == 1
    assert cache.stats().shared == 6


@pytest.mark.parametrize("bounds", [{"most": 6}, {"most": None}, {"most": 4, "timeout": 59}])
def test_a_command_does_not_wait_for_one_that_gives_less_or_takes_longer(
    cache: ResultCache, bounds: dict[str, float | None]
) -> None:
    slow = Slow()
    slow.gives = CommandResult(b"01234", b"", None, output_truncated=True)
    leader = Asker(lambda: ask(cache, slow, most=5))
    assert slow.started.wait(30)
    own = CommandResult(b"own", b"", 0)
    assert ask(cache, lambda: own, **bounds) is own  # type: ignore[arg-type]
    slow.go.set()
    leader.join()
    assert leader.got == slow.gives


def test_after_a_fault_one_of_those_who_wait_takes_over(cache: ResultCache) -> None:
    slow = Slow()
    slow.gives = EngineFault("lost")
    leader = Asker(lambda: ask(cache, slow))
    assert slow.started.wait(30)
    calls = []

    def second() -> CommandResult:
        calls.append(1)
        return FULL

    followers = [waits(cache, lambda: ask(cache, second)) for _ in range(4)]
    slow.go.set()
    for each in (leader, *followers):
        each.join()
    assert str(leader.got) == "lost"
    assert [each.got for each in followers] == [FULL] * 4
    assert calls == [1]


def test_a_time_out_is_shared_by_equal_bounds_only(cache: ResultCache) -> None:
    slow = Slow()
    slow.gives = CommandResult(b"0", b"", None, timed_out=True)
    leader = Asker(lambda: ask(cache, slow, timeout=1))
    assert slow.started.wait(30)
    same = waits(cache, lambda: ask(cache, never, timeout=1))
    longer = waits(cache, lambda: ask(cache, timeout=2))
    slow.go.set()
    for each in (leader, same, longer):
        each.join()
    assert same.got == slow.gives
    assert longer.got == FULL


def test_whoever_waits_can_be_stopped(cache: ResultCache) -> None:
    slow, cancel = Slow(), Cancellation()
    leader = Asker(lambda: ask(cache, slow))
    assert slow.started.wait(30)
    follower = waits(cache, lambda: ask(cache, never, cancels=(cancel,)))
    cancel.set()
    follower.join()
    assert isinstance(follower.got, BackendClosed)
    assert leader.is_alive()
    slow.go.set()
    leader.join()
    assert leader.got == FULL


@pytest.mark.slow
@linux_only
def test_no_descriptor_is_left() -> None:
    gc.collect()
    before = descriptors()
    for _ in range(3):
        test_equal_commands_run_once(ResultCache(1 << 20))
    gc.collect()
    assert descriptors() == before


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CorpusStore]:
    (tmp_path / "corpus.jsonl").write_bytes(ordinary(300))
    with CorpusStore.open(tmp_path / "corpus.jsonl") as opened:
        yield opened


COMMANDS = [
    "rg -F Einstein corpus.jsonl",
    "rg -F absent corpus.jsonl",
    "cat corpus.jsonl",
    "rg -c e corpus.jsonl",
    "rg '(' corpus.jsonl",
    "head -n 3 corpus.jsonl | cut -c 1-5",
]


def test_a_backend_with_and_without_gives_the_same(store: CorpusStore) -> None:
    with LocalBackend(store, cache_bytes=0) as plain, LocalBackend(store) as cached:
        for budget in (None, 1000, 5, 0):
            for command in COMMANDS * 2:
                expected = plain.run(command, max_output_bytes=budget)
                got = cached.run(command, max_output_bytes=budget)
                assert (got.stdout, got.exit_code, got.output_truncated) == (
                    expected.stdout, expected.exit_code, expected.output_truncated)  # fmt: skip
        stats = cached.cache_stats()
        assert stats is not None
        assert stats.hits > stats.misses
        assert plain.cache_stats() is None


def test_equal_pipelines_are_one_whatever_their_quotes(store: CorpusStore) -> None:
    with LocalBackend(store) as backend:
        backend.run("rg -F 'Einstein' corpus.jsonl|wc -l")
        backend.run('rg   -F "Einstein" corpus.jsonl | wc -l')
        stats = backend.cache_stats()
    assert stats is not None
    assert (stats.hits, stats.misses) == (1, 1)


def test_a_kept_result_does_not_hide_a_changed_corpus(store: CorpusStore) -> None:
    with LocalBackend(store) as backend:
        backend.run("ls")
        with store.corpus_file.open("ab") as file:
            file.write(b"more\n")
        with pytest.raises(CorpusChanged):
            backend.run("ls")


def test_a_negative_size_is_refused(store: CorpusStore) -> None:
    with pytest.raises(ConfigError, match="cache_bytes"):
        LocalBackend(store, cache_bytes=-1)
