from __future__ import annotations

import copy
import gc
import multiprocessing
import os
import pickle
import signal
import threading
from typing import TYPE_CHECKING

import pytest

from grepseek_env.backend import open_backend
from grepseek_env.config import Limits
from grepseek_env.corpus.store import CorpusStore
from grepseek_env.daemon import client as daemon_client
from grepseek_env.daemon.address import UnixAddress, default_socket
from grepseek_env.daemon.client import DaemonClient
from grepseek_env.engine.local import LocalBackend
from grepseek_env.env import GrepSeekEnv
from grepseek_env.errors import BackendClosed, CommandRefused, ConfigError, CorpusChanged, EngineFault
from grepseek_env.types import CommandResult, SearchBackend
from tests.support.daemons import FOREVER, Served, eventually, serving, working_in, write_corpus
from tests.support.processes import descriptors, linux_only

if TYPE_CHECKING:
    import socket
    from pathlib import Path

WELL = CommandResult(b"corpus.jsonl\n", b"", 0)


def test_it_is_a_search_backend(client: DaemonClient) -> None:
    assert isinstance(client, SearchBackend)
    assert client.run("ls") == WELL


def test_without_a_daemon_it_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(EngineFault, match=rf"grepseek serve --corpus FILE --socket {tmp_path}/d.sock"):
        DaemonClient(tmp_path / "d.sock")


def test_a_daemon_that_comes_back_is_used_again(store: CorpusStore) -> None:
    with serving(store) as served:
        client = DaemonClient(served.address)
        assert client.run("ls") == WELL
    with serving(store):
        assert client.run("ls") == WELL
    client.close()


def test_a_daemon_that_comes_back_a_little_later_is_used_too(store: CorpusStore) -> None:
    with serving(store) as served:
        client = DaemonClient(served.address)
    got: list[CommandResult] = []
    thread = threading.Thread(target=lambda: got.append(client.run("ls")))
    thread.start()
    with serving(store):
        thread.join()
    assert got == [WELL]
    client.close()


def test_one_that_stays_away_is_a_fault_for_everybody_at_once(
    store: CorpusStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_client, "_BACK_OFF", (0.0, 0.05, 0.1))
    with serving(store) as served:
        client = DaemonClient(served.address)
    faults: list[EngineFault] = []

    def use() -> None:
        try:
            client.run("ls")
        except EngineFault as error:
            faults.append(error)

    threads = [threading.Thread(target=use) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(faults) == 40
    assert client._attempts <= 3  # the rest were told by one of these
    assert "grepseek serve --corpus" in str(faults[0])
    client.close()


def test_one_that_comes_back_with_another_corpus_is_not_used(store: CorpusStore, tmp_path: Path) -> None:
    with serving(store) as served:
        client = DaemonClient(served.address)
    (tmp_path / "other").mkdir()
    with (
        CorpusStore.open(write_corpus(tmp_path / "other", 5)) as other,
        serving(other, served.address),
        pytest.raises(CorpusChanged, match="serves the corpus"),
    ):
        client.run("ls")
    client.close()


def test_one_that_comes_back_with_other_limits_is_not_used(store: CorpusStore) -> None:
    with serving(store) as served:
        client = DaemonClient(served.address)
    with serving(store, limits=Limits(open_files=32)), pytest.raises(EngineFault, match="other settings"):
        client.run("ls")
    with serving(store, limits=Limits(command_timeout=1)):
        assert client.run("ls") == WELL  # each command brings its own time-out
    client.close()


def test_a_batch_of_one_keeps_its_error_in_place(client: DaemonClient) -> None:
    (refused,) = client.run_many(["cat corpus.jsonl > x"])
    assert isinstance(refused, CommandRefused)
    assert client.run_many([]) == []


def test_a_closed_client_says_so(served: Served) -> None:
    client = DaemonClient(served.address)
    client.close()
    client.close()
    for use in (lambda: client.run("ls"), lambda: client.run_many(["ls"]), lambda: client.explain("ls"), client.status):
        with pytest.raises(BackendClosed, match="open_backend"):
            use()
    assert "closed" in repr(client)


@linux_only
def test_closing_stops_what_runs(served: Served, store: CorpusStore) -> None:
    client = DaemonClient(served.address)
    caught: list[Exception] = []

    def use() -> None:
        try:
            client.run(FOREVER)
        except EngineFault as error:
            caught.append(error)

    threads = [threading.Thread(target=use) for _ in range(3)]
    for thread in threads:
        thread.start()
    eventually(lambda: served.server._under_way() == 3, "they are under way")
    eventually(lambda: working_in(store.view), "one runs at least; the others may wait for a core")
    client.close()
    for thread in threads:
        thread.join()
    assert [type(each) for each in caught] == [BackendClosed] * 3
    eventually(lambda: not working_in(store.view), "nothing is left")


class SlowSocket:
    """A socket whose reader takes its time on the way into the read."""

    def __init__(self, real: socket.socket) -> None:
        self.real = real
        self.entered, self.go = threading.Event(), threading.Event()
        self.closed = False

    def recv(self, size: int) -> bytes:
        self.entered.set()
        assert self.go.wait(30)
        assert not self.closed, "its number may be another connection's by now"
        return self.real.recv(size)

    def close(self) -> None:
        self.closed = True
        self.real.close()

    def __getattr__(self, name: str) -> object:
        return getattr(self.real, name)


def test_a_descriptor_is_not_closed_while_it_is_read(client: DaemonClient) -> None:
    connection = client._connection
    assert connection is not None
    slow = SlowSocket(connection._socket)
    connection._socket = slow  # type: ignore[assignment]
    caught: list[Exception] = []

    def use() -> None:
        try:
            client.run("ls")
        except BackendClosed as error:
            caught.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    assert slow.entered.wait(30)
    client.close()
    assert not slow.closed
    slow.go.set()
    thread.join()
    assert slow.closed
    assert [type(each) for each in caught] == [BackendClosed]


@linux_only
def test_an_interrupt_stops_the_command_and_the_client_can_be_used_on(served: Served, store: CorpusStore) -> None:
    with DaemonClient(served.address) as client:
        for commands in ([FOREVER], ["ls", f"{FOREVER} | cat", f"{FOREVER} | tr a b"]):

            def interrupt() -> None:
                eventually(lambda: working_in(store.view), "one runs")
                os.kill(os.getpid(), signal.SIGINT)

            thread = threading.Thread(target=interrupt)
            thread.start()
            with pytest.raises(KeyboardInterrupt):
                client.run_many(commands)
            thread.join()
            eventually(lambda: not working_in(store.view), "nothing is left")
        assert client.run("ls") == WELL


@linux_only
def test_an_interrupt_of_one_that_does_not_read_leaves_the_others(served: Served, store: CorpusStore) -> None:
    with DaemonClient(served.address) as client:
        got: list[CommandResult] = []
        reader = threading.Thread(target=lambda: got.append(client.run(FOREVER, timeout=1)))
        reader.start()
        eventually(lambda: working_in(store.view), "the first runs and reads")

        def interrupt() -> None:
            eventually(lambda: served.server._under_way() == 2, "both are under way")
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            client.run(f"{FOREVER} ")
        thread.join()
        reader.join()
        assert got[0].timed_out
    assert served.server.metrics.events["accepted"] == 1


def test_copies_share_it_and_pickles_connect_again(served: Served, client: DaemonClient) -> None:
    assert copy.deepcopy({"backend": client})["backend"] is client
    again = pickle.loads(pickle.dumps(client))
    assert again.corpus_digest == client.corpus_digest
    assert again.mode == client.mode
    assert served.server.metrics.events["accepted"] == 1  # not before it is used
    assert again.run("ls") == WELL
    assert served.server.metrics.events["accepted"] == 2
    again.close()
    assert client.run("ls") == WELL


def _in_child(client: DaemonClient, answers: multiprocessing.SimpleQueue[object]) -> None:
    results = client.run_many(["ls", "wc -l corpus.jsonl"])
    client.close()
    answers.put([getattr(each, "stdout", each) for each in results])


@linux_only
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # 3.12 on: a fork beside threads, on purpose
def test_a_forked_child_gets_a_connection_of_its_own(served: Served, client: DaemonClient) -> None:
    client.run("ls")
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=_in_child, args=(client, answers))
    child.start()
    assert answers.get() == [b"corpus.jsonl\n", b"300 corpus.jsonl\n"]
    child.join()
    assert child.exitcode == 0
    assert client.run("ls") == WELL
    assert served.server.metrics.events["accepted"] == 2


def test_a_command_that_is_too_long_is_refused_in_the_languages_words(store: CorpusStore, client: DaemonClient) -> None:
    command = "rg " + "x" * (5 << 20)
    with LocalBackend(store) as local, pytest.raises(CommandRefused) as theirs:
        local.run(command)
    with pytest.raises(CommandRefused) as mine:
        client.run(command)
    assert str(mine.value) == str(theirs.value)
    (outcome, well) = client.run_many([command, "ls"])
    assert (str(outcome), well) == (str(theirs.value), WELL)


@pytest.mark.slow
@linux_only
def test_nothing_is_left_open(served: Served) -> None:
    with DaemonClient(served.address) as warm:
        warm.run("ls")
    gc.collect()
    served.wait_for("disconnected")
    before = descriptors()
    for _ in range(5):
        client = DaemonClient(served.address)
        client.run_many(["ls", "wc -l corpus.jsonl"])
        del client  # not even closed
    gc.collect()
    eventually(lambda: descriptors() == before, "all is closed")


# --- which backend open_backend gives


@pytest.fixture
def usual(store: CorpusStore) -> UnixAddress:
    return default_socket(store.digest)


def test_it_is_found_by_the_corpus(store: CorpusStore, usual: UnixAddress) -> None:
    with open_backend(store) as backend:  # type: ignore[attr-defined]
        assert isinstance(backend, LocalBackend)
    with serving(store, usual):
        for corpus in (store, store.path, str(store.sidecar)):
            with open_backend(corpus) as backend:  # type: ignore[attr-defined]
                assert isinstance(backend, DaemonClient)
                assert backend.run("ls") == WELL
        with open_backend(store, daemon=True) as backend:  # type: ignore[attr-defined]
            assert isinstance(backend, DaemonClient)
        with open_backend(store, daemon=False) as backend:  # type: ignore[attr-defined]
            assert isinstance(backend, LocalBackend)
    store.check_unchanged()  # a store that was given stays open


def test_a_daemon_that_would_do_something_else_is_not_used(store: CorpusStore, usual: UnixAddress) -> None:
    with serving(store, usual):
        with open_backend(store, limits=Limits(memory_bytes=1 << 30)) as backend:  # type: ignore[attr-defined]
            assert isinstance(backend, LocalBackend)
        with open_backend(store, "sequential") as backend:  # type: ignore[attr-defined]
            assert isinstance(backend, LocalBackend)
        with open_backend(store, limits=Limits(command_timeout=0.05)) as backend:  # type: ignore[attr-defined]
            assert isinstance(backend, DaemonClient)
            assert backend.run(FOREVER).timed_out
        with pytest.raises(ConfigError, match="memory_bytes"):
            open_backend(store, daemon=usual.path, limits=Limits(memory_bytes=1 << 30))


def test_a_dead_daemons_socket_is_passed_over(store: CorpusStore, usual: UnixAddress) -> None:
    usual.listen().close()
    with open_backend(store) as backend:  # type: ignore[attr-defined]
        assert isinstance(backend, LocalBackend)
    with pytest.raises(EngineFault, match="grepseek serve"):
        open_backend(store, daemon=True)


def test_an_address_may_be_given_by_the_environment(
    store: CorpusStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GREPSEEK_DAEMON", str(tmp_path / "d.sock"))
    with pytest.raises(EngineFault, match="grepseek serve"):
        open_backend(store)
    (tmp_path / "other").mkdir()
    with serving(store), CorpusStore.open(write_corpus(tmp_path / "other", 5)) as other:
        with open_backend(store) as backend:  # type: ignore[attr-defined]
            assert isinstance(backend, DaemonClient)
        with open_backend(other) as backend:  # type: ignore[attr-defined]
            assert isinstance(backend, LocalBackend)
        with pytest.raises(ConfigError, match="serves the corpus"):
            open_backend(other, daemon=tmp_path / "d.sock")


def test_looking_for_one_can_be_turned_off(
    store: CorpusStore, usual: UnixAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GREPSEEK_DAEMON", "off")
    with serving(store, usual), open_backend(store) as backend:  # type: ignore[attr-defined]
        assert isinstance(backend, LocalBackend)


def test_an_environment_plays_through_a_daemon(store: CorpusStore, usual: UnixAddress) -> None:
    questions = [{"id": "1", "question": "Which?", "golden_answers": ["w3"]}]
    observations = []
    for daemon in (False, True):
        with serving(store, usual if daemon else None):
            env = GrepSeekEnv(corpus=store.path, questions=questions, action_format="plain")
            assert isinstance(env.backend, DaemonClient if daemon else LocalBackend)
            env.reset(seed=1)
            seen = [env.step(text)[0] for text in ("rg -F w3 corpus.jsonl | head -n 2", "cat x > y")]
            observations.append((seen, env.step("answer: w3")[1]))
            env.close()
    assert observations[0] == observations[1]
