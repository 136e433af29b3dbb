from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from grepseek_env.daemon.address import TcpAddress, UnixAddress, same_user
from grepseek_env.daemon.client import DaemonClient
from grepseek_env.daemon.options import Options
from grepseek_env.daemon.protocol import (
    PROTOCOL,
    VERSION,
    Beat,
    Cancel,
    Explain,
    Failed,
    Hello,
    Message,
    MessageReader,
    Rejected,
    Run,
    Status,
    Text,
    Welcome,
    encode,
)
from grepseek_env.daemon.server import Server
from grepseek_env.engine.local import LocalBackend
from grepseek_env.errors import CommandRefused, ConfigError, CorpusChanged, EngineFault
from grepseek_env.types import CommandResult
from tests.support.daemons import FOREVER, Served, eventually, serving, working_in
from tests.support.processes import children, descriptors, linux_only

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Self

    from grepseek_env.corpus.store import CorpusStore

COMMANDS = [
    "wc -l corpus.jsonl",
    "rg -F 'café 7' corpus.jsonl",
    "rg -F absent corpus.jsonl",
    "rg '(' corpus.jsonl",
    "cat corpus.jsonl > copy",
    "head -n 2 corpus.jsonl | tr a-z A-Z",
    "cat missing.jsonl",
    "ls \udc80",
]


class Raw:
    """Speaks the protocol by hand."""

    def __init__(self, served: Served, hello: Message | None = None) -> None:
        self.socket = served.address.connect()
        self.socket.settimeout(20)
        self.reader = MessageReader()
        self.come: list[Message] = []
        if hello is not None:
            self.send(hello)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, *messages: Message) -> None:
        self.socket.sendall(b"".join(map(encode, messages)))

    def receive(self) -> Message | None:
        while not self.come:
            data = self.socket.recv(1 << 16)
            if not data:
                return None
            self.come += self.reader.feed(data)
        return self.come.pop(0)

    def ended(self) -> bool:
        try:
            while self.receive() is not None:
                pass
        except ConnectionResetError:
            pass
        return True


HELLO = Hello(PROTOCOL, VERSION)


@pytest.fixture
def raw(served: Served) -> Iterator[Raw]:
    with Raw(served, HELLO) as connection:
        assert isinstance(connection.receive(), Welcome)
        yield connection


def test_it_answers_as_the_engine_in_process(store: CorpusStore, client: DaemonClient) -> None:
    with LocalBackend(store, cache_bytes=0) as local:
        expected = local.run_many(COMMANDS)
        got = client.run_many(COMMANDS)
        for mine, theirs in zip(got, expected, strict=True):
            if isinstance(theirs, CommandRefused):
                assert isinstance(mine, CommandRefused)
                assert (str(mine), mine.reason, mine.start, mine.end) == (
                    str(theirs), theirs.reason, theirs.start, theirs.end)  # fmt: skip
            else:
                assert mine == theirs
        for budget in (0, 1, 100, None):
            command = "cat corpus.jsonl"
            assert client.run(command, max_output_bytes=budget) == local.run(command, max_output_bytes=budget)
        assert client.explain(COMMANDS[0]) == local.explain(COMMANDS[0])
        assert client.program_dir == local.program_dir
        assert client.corpus_digest == local.corpus_digest


def test_a_large_output_comes_whole(store: CorpusStore, client: DaemonClient) -> None:
    command = f"cat {' '.join(['corpus.jsonl'] * 150)}"
    with LocalBackend(store, cache_bytes=0) as local:
        expected = local.run(command)
    assert len(expected.stdout) > 2 << 20
    assert client.run(command) == expected


def test_many_threads_share_one_connection(served: Served, client: DaemonClient) -> None:
    wrong: list[object] = []

    def use(number: int) -> None:
        for turn in range(5):
            wanted = (number * 5 + turn) % 300
            result = client.run(f"rg -F 'café {wanted}\"' corpus.jsonl | wc -l")
            if result != CommandResult(b"1\n", b"", 0):
                wrong.append((wanted, result))

    threads = [threading.Thread(target=use, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert served.server.metrics.events["accepted"] == 1
    assert served.server.metrics.outcomes["ok"] == 80


def test_a_slow_command_does_not_hold_up_others(served: Served, raw: Raw) -> None:
    raw.send(Run(1, FOREVER, 60, None), Run(2, "cat corpus.jsonl > x", 60, None), Explain(3, "ls"))
    first, second = raw.receive(), raw.receive()
    answers = {first.id: first, second.id: second}  # type: ignore[union-attr]
    assert isinstance(answers[2], Failed)
    assert isinstance(answers[3], Text)
    raw.send(Cancel(1))
    answer = raw.receive()
    assert isinstance(answer, Failed)
    assert (answer.id, answer.kind) == (1, "BackendClosed")
    eventually(lambda: served.server.metrics.outcomes["cancelled"] == 1, "the count")


@linux_only
def test_a_command_whose_client_has_gone_is_stopped(served: Served, store: CorpusStore, raw: Raw) -> None:
    raw.send(*(Run(number, FOREVER, 60, None) for number in range(3)))
    eventually(lambda: len(working_in(store.view)) >= 1, "the command runs")
    raw.socket.close()
    eventually(lambda: not working_in(store.view), "nothing is left")
    eventually(lambda: served.server.metrics.outcomes["cancelled"] == 3, "they were counted")


def test_a_waiting_client_gets_signs_of_life(store: CorpusStore) -> None:
    with serving(store, options=Options(beat_seconds=0.02)) as served, Raw(served, HELLO) as raw:
        raw.receive()
        raw.send(Run(1, FOREVER, 60, None))
        assert [raw.receive(), raw.receive()] == [Beat(), Beat()]


def test_an_idle_client_is_disconnected_and_may_come_again(store: CorpusStore) -> None:
    with serving(store, options=Options(beat_seconds=0.02, idle_seconds=0.05)) as served:
        with DaemonClient(served.address) as client, Raw(served, HELLO) as busy:
            busy.receive()
            busy.send(Run(1, FOREVER, 60, None))
            client.explain("ls")
            served.wait_for("idle")
            client.explain("ls")
            assert busy.receive() == Beat()  # who waits is not idle
        assert served.server.metrics.events["accepted"] >= 3


def test_whoever_says_nothing_is_disconnected(store: CorpusStore) -> None:
    with serving(store, options=Options(hello_seconds=0.05)) as served, Raw(served) as raw:
        assert raw.ended()
        served.wait_for("silent")


@pytest.mark.parametrize(
    ("hello", "reason", "text"),
    [
        (Hello(PROTOCOL + 1, VERSION), "protocol", "restart the daemon"),
        (Hello(PROTOCOL, "0.0.1"), "version", "0.0.1"),
        (Hello(PROTOCOL, VERSION, "x"), "token", "GREPSEEK_DAEMON_TOKEN"),
        (Hello(PROTOCOL, VERSION, "\udc80é"), "token", "GREPSEEK_DAEMON_TOKEN"),
        (Hello(PROTOCOL, VERSION, "", "ab" * 32), "corpus", "abababababab"),
    ],
)
def test_whom_it_cannot_serve_is_told_why(served: Served, hello: Hello, reason: str, text: str) -> None:
    with Raw(served, hello) as raw:
        answer = raw.receive()
        assert isinstance(answer, Rejected)
        assert answer.reason == reason
        assert text in answer.message
        assert raw.ended()


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n\r\n", b"\xc1", encode(Status(1)), b"\xc6\x00\x7f\xff\xff" + b"x" * 20_000]
)
def test_who_speaks_something_else_is_disconnected(served: Served, data: bytes) -> None:
    with Raw(served) as raw:
        raw.socket.sendall(data)
        assert raw.ended()
    with DaemonClient(served.address) as client:
        assert client.run("ls").exit_code == 0


@pytest.mark.parametrize(
    "messages", [(Run(1, FOREVER, 9, None), Run(1, "ls", 9, None)), (Beat(),), (HELLO,)], ids=["id", "beat", "hello"]
)
def test_who_breaks_the_rules_is_disconnected(served: Served, raw: Raw, messages: tuple[Message, ...]) -> None:
    raw.send(*messages)
    assert raw.ended()
    served.wait_for("dropped")


def test_the_window_is_held(store: CorpusStore) -> None:
    with serving(store, options=Options(window=2)) as served:
        with Raw(served, HELLO) as raw:
            raw.receive()
            raw.send(*(Run(number, FOREVER, 60, None) for number in range(5)))
            assert raw.ended()
        with DaemonClient(served.address) as client:  # a client of ours keeps to it
            commands = [f"head -n {number} corpus.jsonl | wc -l" for number in range(20)]
            results = client.run_many(commands)
        assert [r.stdout for r in results if isinstance(r, CommandResult)] == [b"%d\n" % n for n in range(20)]


def test_there_may_be_so_many_clients(store: CorpusStore) -> None:
    with (
        serving(store, options=Options(max_clients=1)) as served,
        DaemonClient(served.address),
        pytest.raises(EngineFault, match="--max-clients"),
    ):
        DaemonClient(served.address)


def test_tcp_wants_a_token(store: CorpusStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        LocalBackend(store) as backend,
        TcpAddress("127.0.0.1", 0).listen() as listener,
        pytest.raises(ConfigError, match="token is empty"),
    ):
        Server(backend, [(TcpAddress("127.0.0.1", 1), listener)])
    with serving(store, TcpAddress("127.0.0.1", 0), options=Options(token="s3cret")) as served:  # noqa: S106 - no real one
        address = str(served.address)
        for wrong in ("", "s3cre", "S3cret"):
            with pytest.raises(EngineFault, match="another token"):
                DaemonClient(address, token=wrong)
        with DaemonClient(address, token="s3cret") as client:  # noqa: S106 - no real one
            assert client.run("ls").stdout == b"corpus.jsonl\n"
            assert "s3cret" not in repr(client)
        monkeypatch.setenv("GREPSEEK_DAEMON_TOKEN", "s3cret")
        with DaemonClient(address) as client:
            assert client.run("ls").stdout == b"corpus.jsonl\n"
        assert not any("s3cret" in line for line in served.log)


@linux_only
def test_other_users_are_refused(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grepseek_env.daemon.server.same_user", lambda _: False)
    with pytest.raises(EngineFault, match="the user who started it"):
        DaemonClient(served.address)
    assert "rejected reason=user" in served.log


@linux_only
def test_another_users_daemon_is_refused(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grepseek_env.daemon.connection.same_user", lambda _: False)
    with pytest.raises(EngineFault, match="another user's"):
        DaemonClient(served.address)


@linux_only
def test_users_are_told_apart(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    with served.address.connect() as connection:
        assert same_user(connection)
        monkeypatch.setattr(os, "getuid", lambda: 4242)
        assert not same_user(connection)


def test_those_who_show_nothing_are_counted_too(store: CorpusStore) -> None:
    with serving(store, options=Options(max_clients=1)) as served:
        silent = [Raw(served) for _ in range(2)]
        eventually(lambda: len(served.server._handlers) == 2, "they are there")
        with Raw(served) as third:
            assert third.ended()
        served.server.stop()  # does not wait for them
        served.thread.join()
        assert [each.ended() for each in silent] == [True, True]
        for each in silent:
            each.socket.close()


def test_large_results_take_turns(store: CorpusStore) -> None:
    with serving(store, options=Options(large_results=1)) as served, DaemonClient(served.address) as client:
        outcomes = client.run_many([f"head -n {number} corpus.jsonl" for number in range(20)])
        assert [len(each.stdout.splitlines()) for each in outcomes if isinstance(each, CommandResult)] == [*range(20)]
        assert client.run("ls", max_output_bytes=np.int64(100)).exit_code == 0


def test_an_output_beyond_the_daemons_memory_is_a_fault_not_a_cut(store: CorpusStore) -> None:
    with serving(store, options=Options(max_result_bytes=1000)) as served, DaemonClient(served.address) as client:
        assert len(client.run("cat corpus.jsonl", max_output_bytes=1000).stdout) == 1000
        for budget in (None, 1001):
            with pytest.raises(EngineFault, match="max_output_bytes"):
                client.run("cat corpus.jsonl", max_output_bytes=budget)
        assert client.run("head -c 1000 corpus.jsonl").exit_code == 0


def test_who_does_not_read_is_disconnected_and_holds_up_nobody_for_ever(store: CorpusStore) -> None:
    options = Options(stall_seconds=0.2, outbox_bytes=1 << 20)
    big = f"cat {' '.join(['corpus.jsonl'] * 200)}"
    with serving(store, options=options) as served, Raw(served, HELLO) as deaf:
        deaf.receive()
        deaf.send(*(Run(number, big, 60, None) for number in range(8)))
        eventually(lambda: served.server._waiting > options.outbox_bytes, "its output waits")
        with DaemonClient(served.address) as client:
            assert client.run("ls").exit_code == 0
        eventually(lambda: served.server._waiting == 0, "its output was given up")


def test_bounds_that_cannot_work_come_back_typed(client: DaemonClient) -> None:
    with pytest.raises(ConfigError, match="timeout is -1"):
        client.run("ls", timeout=-1)
    with pytest.raises(ConfigError, match="max_output_bytes is -1"):
        client.run_many(["ls"], max_output_bytes=-1)


def test_time_outs_and_a_changed_corpus_come_back_typed(store: CorpusStore, client: DaemonClient) -> None:
    result = client.run(FOREVER, timeout=0.05)
    assert result.timed_out
    assert result.exit_code is None
    with store.corpus_file.open("ab") as file:
        file.write(b"more\n")
    with pytest.raises(CorpusChanged, match="size"):
        client.run("ls")


def test_equal_commands_of_different_clients_run_once(store: CorpusStore) -> None:
    with serving(store, cache_bytes=1 << 20) as served:
        clients = [DaemonClient(served.address) for _ in range(4)]
        assert len({client.run("wc -c corpus.jsonl").stdout for client in clients}) == 1
        cache = clients[0].status()["cache"]
        assert (cache["misses"], cache["hits"]) == (1, 3)
        for client in clients:
            client.close()


def test_the_status_tells_what_goes_on(served: Served, client: DaemonClient, raw: Raw) -> None:
    client.run("ls")
    raw.send(Run(1, FOREVER, 60, None))
    status: dict[str, Any] = {}

    def running() -> bool:
        status.update(client.status())
        return bool(status["running"] == 1)

    eventually(running, "it runs")
    assert status["commands"] == {"total": 1, "ok": 1}
    assert status["clients"] == 2
    assert status["queued"] == 0
    assert status["run"]["p95_ms"] >= status["run"]["p50_ms"] > 0
    assert status["settings"]["mode"] == "auto"
    assert served.server.values()["digest"] == client.corpus_digest


def test_a_stop_lets_running_commands_end(store: CorpusStore) -> None:
    go = threading.Event()
    with serving(store) as served, DaemonClient(served.address) as client:
        run = served.server._backend.run

        def slow(*args: Any, **kwargs: Any) -> CommandResult:
            assert go.wait(30)
            return run(*args, **kwargs)

        served.server._backend.run = slow  # type: ignore[method-assign]
        got: list[CommandResult] = []
        thread = threading.Thread(target=lambda: got.append(client.run("wc -l corpus.jsonl")))
        thread.start()
        eventually(lambda: served.server._under_way() == 1, "it is under way")
        served.server.stop()
        served.wait_for("stopping")
        assert not UnixAddress(store.sidecar.parent / "d.sock").path.exists()
        go.set()
        thread.join()
        served.thread.join()
    assert got == [CommandResult(b"300 corpus.jsonl\n", b"", 0)]


@pytest.mark.slow
@linux_only
@pytest.mark.parametrize("how", ["grace", "now"])
def test_a_stop_ends_what_does_not_end_by_itself(store: CorpusStore, how: str) -> None:
    options = Options(grace_seconds=0.2 if how == "grace" else 3600)
    gc.collect()
    before = descriptors()
    with serving(store, options=options) as served:
        got: list[Exception] = []
        address = served.address

        def use() -> None:
            with DaemonClient(address) as client:
                try:
                    client.run(FOREVER)
                except EngineFault as error:
                    got.append(error)

        thread = threading.Thread(target=use)
        thread.start()
        eventually(lambda: working_in(store.view), "it runs")
        served.server.stop(now=how == "now")
        served.thread.join()
        assert children() == set()
        thread.join()
        assert "grepseek serve" in str(got[0])
    del served
    gc.collect()
    assert descriptors() == before


def test_new_commands_are_not_taken_while_it_stops(store: CorpusStore) -> None:
    with serving(store, options=Options(grace_seconds=30)) as served, Raw(served, HELLO) as raw:
        raw.receive()
        raw.send(Run(1, FOREVER, 60, None))
        eventually(lambda: served.server._under_way() == 1, "it is under way")
        served.server.stop()
        served.wait_for("stopping")
        raw.send(Run(2, "ls", 60, None))
        answer = raw.receive()
        assert isinstance(answer, Failed)
        assert (answer.id, answer.kind) == (2, "stopping")


def test_another_daemons_socket_is_left_alone(store: CorpusStore) -> None:
    path = store.sidecar.parent / "d.sock"
    with serving(store) as served:
        path.unlink()
        other = UnixAddress(path).listen()
        served.server.stop()
        served.thread.join()
        assert path.is_socket()
        other.close()


def test_an_error_that_nobody_thought_of_costs_the_connection_only(served: Served, client: DaemonClient) -> None:
    run = served.server._backend.run

    def broken(*_: Any, **__: Any) -> CommandResult:
        raise ZeroDivisionError("not thought of")

    served.server._backend.run = broken  # type: ignore[method-assign]
    with pytest.raises(EngineFault, match="went away twice"):
        client.run("ls")
    assert any("ZeroDivisionError" in line for line in served.log)
    served.server._backend.run = run  # type: ignore[method-assign]
    assert client.run("ls").exit_code == 0


def test_a_server_can_be_asked_to_stop_before_and_after(store: CorpusStore) -> None:
    with LocalBackend(store) as backend:
        address = UnixAddress(store.sidecar.parent / "d.sock")
        server = Server(backend, [(address, address.listen())])

        async def serve() -> None:
            await server.serve(server.stop)

        asyncio.run(serve())
        server.stop()
    assert not address.path.exists()


def test_the_time_since_the_start_is_told(client: DaemonClient) -> None:
    first = client.status()["uptime_seconds"]
    time.sleep(0.01)
    assert client.status()["uptime_seconds"] > first
