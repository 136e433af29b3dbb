from __future__ import annotations

import copy
import gc
import multiprocessing
import os
import pickle
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest

from grepseek_env.config import Limits
from grepseek_env.corpus.store import CorpusStore
from grepseek_env.engine import local
from grepseek_env.engine.local import LocalBackend
from grepseek_env.engine.programs import PROGRAMS
from grepseek_env.errors import BackendClosed, CommandRefused, ConfigError, CorpusChanged, EngineFault, GrepSeekError
from grepseek_env.types import CommandResult, SearchBackend
from tests.support.odd_corpora import ordinary
from tests.support.processes import children, descriptors, linux_only, wait_for_children

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from grepseek_env.commands import Pipeline

FOREVER = "awk 'BEGIN { while (1); }'"
REFUSED = "cat corpus.jsonl; cat corpus.jsonl"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CorpusStore]:
    (tmp_path / "corpus.jsonl").write_bytes(ordinary(300))
    with CorpusStore.open(tmp_path / "corpus.jsonl") as opened:
        yield opened


@pytest.fixture
def backend(store: CorpusStore) -> Iterator[LocalBackend]:
    with LocalBackend(store) as opened:
        yield opened


def test_it_is_a_search_backend(backend: LocalBackend, store: CorpusStore) -> None:
    assert isinstance(backend, SearchBackend)
    assert backend.corpus_digest == store.digest
    assert {entry.name for entry in backend.program_dir.iterdir()} == set(PROGRAMS)
    assert backend.run("wc -l corpus.jsonl") == CommandResult(b"300 corpus.jsonl\n", b"", 0)


@pytest.mark.parametrize("mode", local.MODES)
def test_every_mode_runs_and_explains_itself(store: CorpusStore, mode: str) -> None:
    with LocalBackend(store, mode=mode) as backend:
        assert backend.mode == mode
        assert backend.run("rg -F Einstein corpus.jsonl | wc -l").stdout.strip().isdigit()
        text = backend.explain("rg -F Einstein corpus.jsonl | wc -l")
    assert "['rg', '-F', 'Einstein', 'corpus.jsonl']" in text
    assert "['wc', '-l']" in text
    assert "ripgrep" in text


def test_an_unknown_mode_lists_the_known(store: CorpusStore) -> None:
    with pytest.raises(ConfigError, match=r"'sequentail' \(did you mean 'sequential'\?\); modes are 'auto', 'seq"):
        LocalBackend(store, mode="sequentail")


@pytest.mark.parametrize(
    "bounds", [{"timeout": 0}, {"timeout": -1}, {"timeout": float("nan")}, {"max_output_bytes": -1}]
)
def test_bounds_that_cannot_work_are_refused(backend: LocalBackend, bounds: dict[str, float]) -> None:
    for call in (lambda: backend.run("ls", **bounds), lambda: backend.run_many(["ls"], **bounds)):
        with pytest.raises(ConfigError, match=next(iter(bounds))):
            call()


def test_the_limits_give_the_time_out(store: CorpusStore) -> None:
    with LocalBackend(store, Limits(command_timeout=0.1)) as backend:
        assert backend.run(FOREVER).timed_out
        assert not backend.run("head -n 1 corpus.jsonl", timeout=60).timed_out


def test_the_locale_is_the_programs(store: CorpusStore) -> None:
    longest = "grep -o 'n.e' corpus.jsonl | sort -u"
    with LocalBackend(store) as c, LocalBackend(store, locale="C.UTF-8") as utf8:
        assert "née".encode() not in c.run(longest).stdout
        assert "née".encode() in utf8.run(longest).stdout
        assert (c.locale, utf8.locale) == ("C", "C.UTF-8")


def test_a_batch_keeps_order_and_puts_errors_in_place(backend: LocalBackend) -> None:
    results = backend.run_many(["wc -l corpus.jsonl", REFUSED, "head -n 1 corpus.jsonl", "grep -c QQQ corpus.jsonl"])
    assert isinstance(results[1], CommandRefused)
    assert [each.exit_code for each in results if isinstance(each, CommandResult)] == [0, 0, 1]
    assert isinstance(results[0], CommandResult)
    assert results[0].stdout == b"300 corpus.jsonl\n"
    assert backend.run_many([]) == []


def test_a_batch_runs_equal_commands_once(backend: LocalBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    run = backend._runner.run

    def counted(pipeline: Pipeline, **options: Any) -> CommandResult:
        started.append(pipeline.text)
        return run(pipeline, **options)

    monkeypatch.setattr(backend._runner, "run", counted)
    results = backend.run_many(["ls", "wc -l corpus.jsonl", "ls", "ls"])
    assert sorted(started) == ["ls", "wc -l corpus.jsonl"]
    assert results[0] == results[2] == results[3] != results[1]


def test_budgets_hold_in_a_batch(backend: LocalBackend) -> None:
    results = backend.run_many(["cat corpus.jsonl", "rg Ulm corpus.jsonl"], max_output_bytes=50)
    assert [len(each.stdout) for each in results if isinstance(each, CommandResult)] == [50, 50]


def test_closing_twice_is_fine_and_using_it_then_is_not(store: CorpusStore) -> None:
    backend = LocalBackend(store)
    backend.run_many(["ls", "wc -l corpus.jsonl"])
    backend.close()
    backend.close()
    for use in (
        lambda: backend.run("ls"),
        lambda: backend.run_many(["ls"]),
        lambda: backend.explain("ls"),
    ):
        with pytest.raises(BackendClosed, match="open_backend"):
            use()
    store.check_unchanged()  # the store is not the backend's to close


@linux_only
def test_closing_stops_what_runs(store: CorpusStore) -> None:
    backend = LocalBackend(store, cache_bytes=0)  # with it, the second would wait for the first
    caught: list[GrepSeekError | CommandResult] = []

    def use() -> None:
        try:
            caught.append(backend.run(FOREVER))
        except BackendClosed as error:
            caught.append(error)

    def use_batch() -> None:
        caught.extend(backend.run_many([FOREVER + " | head -n 1"]))  # another one, or it would share the first

    threads = [threading.Thread(target=use), threading.Thread(target=use_batch)]
    for thread in threads:
        thread.start()
    wait_for_children(3)
    backend.close()
    for thread in threads:
        thread.join()
    assert [type(each) for each in caught] == [BackendClosed] * 2
    assert children() == set()


@pytest.mark.slow
@linux_only
def test_an_interrupted_batch_leaves_nothing(store: CorpusStore) -> None:
    gc.collect()
    before = descriptors()
    backend = LocalBackend(store)

    def interrupt() -> None:
        wait_for_children(min(2, local.usable_cores()))
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        backend.run_many([f"{FOREVER} | head -n {number}" for number in range(1, 9)])
    thread.join()
    assert children() == set()
    assert backend.run("wc -l corpus.jsonl").exit_code == 0  # and it can still be used
    backend.close()
    del backend
    gc.collect()  # the interrupt's traceback holds the batch
    assert descriptors() == before


def test_copies_are_the_backend_itself(backend: LocalBackend) -> None:
    assert copy.deepcopy({"backend": backend})["backend"] is backend


def test_pickling_opens_it_again(store: CorpusStore) -> None:
    with LocalBackend(store, Limits(command_timeout=7), "sequential", locale="C.UTF-8") as backend:
        again = pickle.loads(pickle.dumps(backend))
        with again:
            assert (again.mode, again.locale, again.corpus_digest) == ("sequential", "C.UTF-8", store.digest)
            assert again._sandbox.limits == Limits(command_timeout=7)
            assert again.run("ls") == backend.run("ls")
        assert backend.run("ls").exit_code == 0


def _in_child(backend: LocalBackend, answers: multiprocessing.SimpleQueue[object]) -> None:
    results = backend.run_many(["wc -l corpus.jsonl", "ls"])
    backend.close()
    answers.put([getattr(each, "stdout", each) for each in results])


@linux_only
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # 3.12 on: a fork beside threads, on purpose
def test_a_forked_child_may_use_and_close_it(backend: LocalBackend) -> None:
    backend.run_many(["wc -l corpus.jsonl", "ls"])  # the parent has its threads
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=_in_child, args=(backend, answers))
    child.start()
    assert answers.get() == [b"300 corpus.jsonl\n", b"corpus.jsonl\n"]
    child.join()
    answers.close()
    assert child.exitcode == 0
    child.close()
    assert backend.run("ls").stdout == b"corpus.jsonl\n"  # the child's close was its own


def test_a_changed_corpus_is_noticed_before(store: CorpusStore, backend: LocalBackend) -> None:
    with store.corpus_file.open("ab") as file:
        file.write(b"more\n")
    with pytest.raises(CorpusChanged):
        backend.run("wc -l corpus.jsonl")
    assert [type(each) for each in backend.run_many(["ls", "wc -l corpus.jsonl"])] == [CorpusChanged] * 2


@linux_only
def test_a_change_during_the_command_is_noticed_after(store: CorpusStore, backend: LocalBackend) -> None:
    def change() -> None:
        wait_for_children(1)
        os.utime(store.corpus_file, ns=(1, 1))
        for pid in children():
            os.kill(pid, signal.SIGTERM)

    thread = threading.Thread(target=change)
    thread.start()
    with pytest.raises(CorpusChanged):
        backend.run(FOREVER)
    thread.join()


def test_faults_are_named_for_what_they_are() -> None:
    assert issubclass(BackendClosed, EngineFault)
