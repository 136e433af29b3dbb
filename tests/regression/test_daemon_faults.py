"""A daemon as users start it, and what can happen to it: killed, stopped, a full disk, many clients at once."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from grepseek_env.backend import open_backend
from grepseek_env.corpus.store import CorpusStore
from grepseek_env.daemon import client as client_module
from grepseek_env.daemon.client import DaemonClient
from grepseek_env.engine.local import LocalBackend
from grepseek_env.errors import EngineFault
from grepseek_env.types import CommandResult
from tests.support.daemons import FOREVER, Spawned, descendants, eventually, spawned, working_in, write_corpus
from tests.support.processes import linux_only

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [linux_only, pytest.mark.slow]


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.delenv("GREPSEEK_DAEMON", raising=False)
    monkeypatch.delenv("GREPSEEK_DAEMON_TOKEN", raising=False)
    monkeypatch.setattr(client_module, "_BACK_OFF", (0.0, 0.1))
    return write_corpus(tmp_path)


@pytest.fixture
def view(corpus: Path) -> Path:
    with CorpusStore.open(corpus) as store:
        return store.view


@pytest.fixture
def daemon(view: Path, corpus: Path) -> Iterator[Spawned]:
    assert view.is_dir()
    with spawned(corpus) as started:
        yield started


class Asker(threading.Thread):
    """Runs one command in a thread."""

    def __init__(self, client: DaemonClient, command: str = FOREVER) -> None:
        super().__init__()
        self.client, self.command = client, command
        self.fault: EngineFault | None = None
        self.start()

    def run(self) -> None:
        try:
            self.client.run(self.command)
        except EngineFault as error:
            self.fault = error


@pytest.mark.parametrize("victim", ["daemon", "parent", "both"])
def test_a_killed_daemon_is_a_fault_and_leaves_nothing(daemon: Spawned, view: Path, victim: str) -> None:
    pid = daemon.pid
    with DaemonClient(daemon.address) as client:
        askers = [Asker(client) for _ in range(3)]
        eventually(lambda: working_in(view), "a command runs")
        if victim != "parent":
            os.kill(pid, signal.SIGKILL)
        if victim != "daemon":
            daemon.process.kill()
        for asker in askers:
            asker.join(60)
            assert "grepseek serve --corpus" in str(asker.fault)
    daemon.process.wait(30)
    if victim == "both":  # nobody is left who could end the programs: their limits do
        for left in working_in(view):
            os.kill(left, signal.SIGKILL)
    else:
        eventually(lambda: not working_in(view), "no program is left")
    eventually(lambda: not Path(f"/proc/{pid}").exists(), "no daemon is left")


def test_after_a_kill_the_same_socket_is_used_again(daemon: Spawned, corpus: Path) -> None:
    with DaemonClient(daemon.address) as client:
        assert client.run("ls").exit_code == 0
        daemon.process.kill()
        with spawned(corpus):
            assert client.run("ls").exit_code == 0


def test_a_second_daemon_on_the_same_socket_does_not_start(daemon: Spawned, corpus: Path) -> None:
    with pytest.raises(AssertionError, match="already listening"), spawned(corpus):
        pass
    with DaemonClient(daemon.address) as client:
        assert client.run("ls").exit_code == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_commands_end_and_a_second_one_stops_them(
    daemon: Spawned, view: Path, number: signal.Signals
) -> None:
    with DaemonClient(daemon.address) as client:
        asker = Asker(client)
        eventually(lambda: working_in(view), "a command runs")
        daemon.process.send_signal(number)
        eventually(lambda: "stopping" in daemon.log.read_text(), "it stops")
        assert not daemon.address.path.exists()
        assert working_in(view)
        daemon.process.send_signal(number)
        asker.join(60)
        assert asker.fault is not None
    assert daemon.process.wait(30) == 0
    assert not working_in(view)


def test_stop_and_status_are_subcommands(daemon: Spawned, corpus: Path) -> None:
    argv = [sys.executable, "-m", "grepseek_env.cli", "serve", "--corpus", str(corpus)]
    there = ["--socket", str(daemon.address.path)]
    status = subprocess.run([*argv, *there, "--status"], capture_output=True, check=True, text=True)
    assert json.loads(status.stdout)["clients"] == 1
    subprocess.run([*argv, *there, "--stop"], check=True, capture_output=True)
    assert daemon.process.wait(30) == 0
    again = subprocess.run([*argv, "--stop"], check=False, capture_output=True, text=True)
    assert again.returncode == 1
    assert "grepseek serve" in again.stderr


def test_tcp_makes_a_token_and_a_given_one_is_not_shown(corpus: Path, view: Path) -> None:
    with CorpusStore.open(corpus) as store:
        with spawned(corpus, "--tcp", "127.0.0.1:0") as daemon:
            words = dict(word.split("=", 1) for word in daemon.ready_line.split() if "=" in word)  # the last counts
            with DaemonClient(words["GREPSEEK_DAEMON"], token=words["GREPSEEK_DAEMON_TOKEN"]) as client:
                assert client.corpus_digest == store.digest
        with spawned(corpus, "--tcp", "127.0.0.1:0", env={"GREPSEEK_DAEMON_TOKEN": "s3cret"}) as daemon:
            assert "s3cret" not in daemon.ready_line
            assert "s3cret" not in daemon.log.read_text()
    assert view.is_dir()


def test_options_are_heeded_and_a_mistake_is_told_in_a_line(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--quiet", "--limit", "open_files=48", "--mode", "sliced", "--slices", "2")
    with spawned(corpus, *options) as daemon, DaemonClient(daemon.address) as client:
        client.run("ls")
        assert client.settings["limits"]["open_files"] == 48
        assert client.mode == "sliced"
    assert daemon.log.read_text() == ""
    argv = [sys.executable, "-m", "grepseek_env.cli", "serve", "--corpus"]
    sockets = tmp_path / "run"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(sockets))
    for wrong in (
        [str(tmp_path / "none.jsonl")],
        [str(corpus), "--limit", "memory=3"],
        [str(corpus), "--max-clients", "0"],
        [str(corpus), "--idle-seconds", "nan"],
        [str(corpus), "--grace-seconds", "-1"],
        [str(corpus), "--tcp", "nowhere"],
        [str(corpus), "--tcp", "192.0.2.1:9"],
    ):
        done = subprocess.run([*argv, *wrong], check=False, capture_output=True, text=True)
        assert done.returncode == 1
        assert done.stderr.startswith("grepseek: ")
        assert "Traceback" not in done.stderr
        assert not list(sockets.rglob("*.sock"))


def test_files_of_the_folder_where_it_is_started_are_not_imported(corpus: Path, tmp_path: Path) -> None:
    for name in ("json", "numpy", "grepseek_env"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong module')\n")
    as_installed = "import sys; del sys.path[0]; from grepseek_env.cli import main; sys.exit(main())"
    argv = [sys.executable, "-c", as_installed, "serve", "--tcp", "nowhere", "--corpus", str(corpus)]
    done = subprocess.run(argv, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert "'tcp://nowhere'" in done.stderr  # so far it came with its own modules


def test_a_changed_corpus_is_told_to_every_client(daemon: Spawned, view: Path) -> None:
    with DaemonClient(daemon.address) as client:
        client.run("ls")
        with (view / "corpus.jsonl").open("ab") as file:
            file.write(b"more\n")
        (outcome,) = set(map(type, client.run_many(["ls", "wc -l corpus.jsonl"])))
    assert outcome.__name__ == "CorpusChanged"


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """Gives a file system with little space."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1M", "tmpfs", str(folder)]
    if os.getuid() or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("file systems cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


def fill(folder: Path) -> None:
    with contextlib.suppress(OSError), (folder / "filling").open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)


def test_a_full_disk_fails_what_needs_it_and_nothing_else(corpus: Path, view: Path, tmp_path: Path) -> None:
    assert view.is_dir()
    spills = f"cat {' '.join(['corpus.jsonl'] * 200)} | sort"
    with (
        small_disk(tmp_path / "small") as disk,
        spawned(corpus, env={"TMPDIR": str(disk)}) as daemon,
        DaemonClient(daemon.address) as client,
    ):
        _, hard = resource.prlimit(daemon.pid, resource.RLIMIT_RSS)
        resource.prlimit(daemon.pid, resource.RLIMIT_RSS, (1 << 20, hard))  # sort makes its buffer smaller than this
        assert client.run("sort corpus.jsonl").exit_code == 0
        fill(disk)
        failed = client.run(spills)
        assert failed.exit_code == 2
        assert b"No space left on device" in failed.stderr
        assert client.run("wc -l corpus.jsonl") == CommandResult(b"300 corpus.jsonl\n", b"", 0)
        subprocess.run(["mount", "-o", "remount,size=64M", str(disk)], check=True)
        well = client.run(spills)  # the failure was not kept
        assert (well.exit_code, well.stdout.count(b"\n")) == (0, 60_000)
        left = [entry for entry in disk.rglob("*") if not entry.name.startswith("grepseek-spill-")]  # the daemon's own
        assert left == [disk / "filling"]


def test_a_folder_for_temporary_files_that_is_gone_is_a_fault(corpus: Path, view: Path, tmp_path: Path) -> None:
    temp = tmp_path / "temp"
    temp.mkdir()
    with spawned(corpus, env={"TMPDIR": str(temp)}) as daemon, DaemonClient(daemon.address) as client:
        assert client.run("sort corpus.jsonl | head -n 1").exit_code == 0
        shutil.rmtree(temp)
        with pytest.raises(EngineFault, match="temporary"):
            client.run("sort -r corpus.jsonl | head -n 1")
        assert client.run("rg -F alpha corpus.jsonl | wc -l").stdout == b"300\n"
        temp.mkdir()
        assert client.run("sort -r corpus.jsonl | head -n 1").exit_code == 0  # the fault was not kept
    assert view.is_dir()


# --- many clients at once


def commands() -> list[str]:
    """Different commands of every kind of outcome."""
    found = []
    for number in range(0, 300, 23):
        found += [
            f"rg -F 'café {number}\"' corpus.jsonl",
            f"rg -c w{number % 9} corpus.jsonl",
            f"head -n {number} corpus.jsonl | tail -n 2",
            f"rg -F w{number % 7} corpus.jsonl | cut -c 1-{number + 1} | sort | uniq -c | head -n 3",
            f"rg -F nothing{number} corpus.jsonl",
            f"rg '({number}' corpus.jsonl",
            f"cat corpus.jsonl > {number}",
        ]
    return found


def outcome(backend: object, command: str, budget: int | None) -> object:
    """Returns what a command gave, in a form to compare: its result, or the error's kind and text."""
    (result,) = backend.run_many([command], max_output_bytes=budget)  # type: ignore[attr-defined]
    if isinstance(result, CommandResult):
        return hashlib.sha256(result.stdout).hexdigest(), result.exit_code, result.output_truncated, result.stderr
    return type(result), str(result)


def storm(daemon: Spawned, corpus: Path, view: Path, *, clients: int, seconds: float) -> None:
    budgets = (None, 200, 0)
    with open_backend(corpus, daemon=False) as local:  # type: ignore[attr-defined]
        assert isinstance(local, LocalBackend)
        wanted = {(c, b): outcome(local, c, b) for c in commands() for b in budgets}
    pid = daemon.pid
    with DaemonClient(daemon.address) as client:
        client.run_many(commands()[:20])
        before = client.status()["connections"]["accepted"]
    opened: list[int] = []
    eventually(lambda: len(os.listdir(f"/proc/{pid}/task")) > 1, "it has its threads")  # noqa: PTH208 - names only
    wrong: list[object] = []
    until = time.monotonic() + seconds
    items = list(wanted.items())

    def use(number: int) -> None:
        at = number * 13
        try:
            while time.monotonic() < until and not wrong:
                with DaemonClient(daemon.address) as client:
                    opened.append(number)
                    for _ in range(20):
                        (command, budget), expected = items[at % len(items)]
                        at += 31
                        got = outcome(client, command, budget)
                        if got != expected:
                            wrong.append((command, budget, expected, got))
                    if number % 8 == 0:  # gives up in the middle
                        timer = threading.Timer(0.02, client.close)
                        timer.start()
                        with contextlib.suppress(EngineFault):
                            client.run(FOREVER, timeout=1)
                        timer.join()
        except (EngineFault, OSError) as error:
            wrong.append(error)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds + 120)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []
    eventually(lambda: not working_in(view), "no program is left")
    with DaemonClient(daemon.address) as client:
        status = client.status()
    assert (status["clients"], status["running"], status["queued"], status["outbox_bytes"]) == (1, 0, 0, 0)
    assert status["connections"]["accepted"] == before + len(opened) + 1  # nobody waited in vain and came again
    assert descendants(pid) == set()


def settled_descriptors(pid: int) -> int:
    """Returns how many descriptors a process has when the number does not change any more."""
    seen: list[int] = []
    eventually(
        lambda: seen.append(len(os.listdir(f"/proc/{pid}/fd"))) or (len(seen) > 20 and len(set(seen[-20:])) == 1),  # noqa: PTH208 - names only
        "the descriptors settle",
    )
    return seen[-1]


@pytest.mark.parametrize(
    ("clients", "seconds"), [(64, 1.5), pytest.param(64, 120.0, marks=pytest.mark.slow)], ids=["short", "long"]
)
@pytest.mark.parametrize("cache", ["with", "without"])
def test_many_clients_at_once(corpus: Path, view: Path, clients: int, seconds: float, cache: str) -> None:
    with spawned(corpus, "--quiet", *(("--cache-bytes", "0") if cache == "without" else ())) as daemon:
        pid = daemon.pid
        with DaemonClient(daemon.address) as client:
            client.run("sort -r corpus.jsonl | cut -c 1-3")  # both kinds of launchers are there and stay
        before = settled_descriptors(pid)
        storm(daemon, corpus, view, clients=clients, seconds=seconds)
        assert settled_descriptors(pid) == before
        daemon.process.terminate()
        assert daemon.process.wait(60) == 0
