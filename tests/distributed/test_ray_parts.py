"""A corpus in parts over a local Ray cluster: the same answers as bash, whatever happens to actors."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from grepseek_env.backend import open_backend
from grepseek_env.distributed.open import open_parts
from grepseek_env.errors import BackendClosed, ConfigError, CorpusChanged, EngineFault, PartLost
from tests.support.catalogue import catalogue
from tests.support.odd_corpora import ordinary
from tests.support.oracle import DEADLINE
from tests.support.parting import Parted
from tests.support.slicing import difference, even_cuts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from grepseek_env.distributed.backend import PartsBackend

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Parted:
    data = ordinary(120)
    return Parted(tmp_path_factory.mktemp("parted"), data, even_cuts(data, 4))


@pytest.fixture
def backend(cluster: Any, corpus: Parted) -> Iterator[PartsBackend]:
    assert cluster.is_initialized()
    with open_parts(f"ray://{corpus.manifest}", memory=0) as opened:
        yield opened


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Parted:
    """Commands over it take long enough to be cut into."""
    line = b'{"id": "%d", "contents": "Einstein ' + b"abcdefgh " * 60 + b' Ulm T%d"}\n'
    data = b"".join(line % (number, number % 97) for number in range(60_000))
    return Parted(tmp_path_factory.mktemp("large"), data, even_cuts(data, 4))


def _pids(backend: PartsBackend) -> list[int]:
    links = backend._links
    return [links[number].call("ping").result() for number in range(backend.parts)]


def test_the_whole_catalogue(backend: PartsBackend, corpus: Parted) -> None:
    commands = [case.command for case in catalogue()]
    wrong = corpus.differences(commands, backend)
    assert not wrong, "\n".join(wrong)


def test_each_part_has_a_process_of_its_own(backend: PartsBackend) -> None:
    pids = _pids(backend)
    assert len({*pids, os.getpid()}) == 5


@pytest.mark.parametrize(
    "command", ["awk '{n+=length($0)} END{print n}' corpus.jsonl", "sort -r corpus.jsonl | head -n 3",
                "wc corpus.jsonl", "grep -c -E '(a|b)+c.*T9[0-9]' corpus.jsonl", "cut -c 2- corpus.jsonl | tail -n 2"]
)  # fmt: skip
def test_killing_an_actor_changes_no_answer(cluster: Any, large: Parted, command: str) -> None:
    assert cluster.is_initialized()
    with open_parts(f"ray://{large.manifest}", memory=0) as backend:
        pids = _pids(backend)
        killed = threading.Timer(0.15, lambda: os.kill(pids[1], signal.SIGKILL))
        killed.start()
        ours = backend.run(command, timeout=DEADLINE)
        killed.join()
        assert not difference(command, ours, large.wanted(command))
        # and where it was killed between two commands
        again = backend.run(command, timeout=DEADLINE)
        assert not difference(command, again, large.wanted(command))
        assert _pids(backend)[1] != pids[1]


def test_an_actor_that_dies_again_and_again_is_a_typed_fault(backend: PartsBackend, corpus: Parted) -> None:
    links = backend._links
    real = links.revive

    def kill_again(number: int) -> None:
        real(number)
        os.kill(links[number].call("ping").result(), signal.SIGKILL)
        time.sleep(0.5)

    links.revive = kill_again  # type: ignore[method-assign]
    os.kill(_pids(backend)[2], signal.SIGKILL)
    time.sleep(0.5)
    with pytest.raises(PartLost, match=r"part 2 .*lost under 'wc -l corpus.jsonl'"):
        backend.run("wc -l corpus.jsonl")
    links.revive = real  # type: ignore[method-assign]
    real(2)
    command = "wc -l corpus.jsonl"
    assert not difference(command, backend.run(command), corpus.wanted(command))


def test_deadlines_and_closing_end_what_runs_there(cluster: Any, large: Parted) -> None:
    assert cluster.is_initialized()
    command = "awk '{for (i = 0; i < 300; i++) gsub(/a/, \"a\"); print}' corpus.jsonl | grep -c Ulm"
    backend = open_parts(f"ray://{large.manifest}", memory=0)
    with backend:
        result = backend.run(command, timeout=0.5)
        assert result.timed_out
        assert result.exit_code is None
        short = "wc -l corpus.jsonl"
        assert not difference(short, backend.run(short, timeout=DEADLINE), large.wanted(short))
        pids = _pids(backend)
        assert _settles(lambda: not any(_busy(pid) for pid in pids))
        closer = threading.Timer(0.5, backend.close)
        closer.start()
        with pytest.raises(BackendClosed):
            backend.run(command, timeout=DEADLINE)
        closer.join()
    with pytest.raises(BackendClosed):
        backend.run("wc -l corpus.jsonl")


def test_ctrl_c_ends_what_runs_there(cluster: Any, large: Parted) -> None:
    assert cluster.is_initialized()
    command = "awk '{for (i = 0; i < 300; i++) gsub(/a/, \"a\"); print}' corpus.jsonl | grep -c Ulm"
    with open_parts(f"ray://{large.manifest}", memory=0) as backend:
        pids = _pids(backend)
        timer = threading.Timer(0.7, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            backend.run(command, timeout=DEADLINE)
        timer.join()
        assert _settles(lambda: not any(_busy(pid) for pid in pids))


def _busy(pid: int) -> bool:
    """Returns whether programs run below a process."""
    below, found = [pid], False
    while below:
        each = below.pop()
        for children in Path(f"/proc/{each}/task").glob("*/children"):
            below += map(int, children.read_text().split())
        try:
            found = found or Path(f"/proc/{each}/comm").read_text().strip() in {"awk", "mawk", "gawk", "grep"}
        except OSError:
            continue
    return found


def _settles(done: Any) -> bool:
    for _ in range(400):
        if done():
            return True
        time.sleep(0.05)
    return False


def test_many_commands_at_once(backend: PartsBackend, corpus: Parted) -> None:
    commands = [case.command for case in catalogue("commands.txt") if case.kind == "must"][:40] * 2
    for command, ours in zip(commands, backend.run_many(commands, timeout=DEADLINE), strict=True):
        assert not isinstance(ours, Exception), command
        assert not difference(command, ours, corpus.wanted(command))


def test_a_copy_in_another_process_uses_the_same_actors(cluster: Any, backend: PartsBackend, corpus: Parted) -> None:
    @cluster.remote
    def elsewhere(sent: bytes) -> tuple[int, list[int], bytes]:
        copy = pickle.loads(sent)
        links = copy._links
        pids = [links[number].call("ping").result() for number in range(copy.parts)]
        with copy:
            return os.getpid(), pids, copy.run("wc -l corpus.jsonl").stdout

    pid, pids, counted = cluster.get(elsewhere.remote(pickle.dumps(backend)))
    assert pid != os.getpid()
    assert pids == _pids(backend)
    assert counted == corpus.wanted("wc -l corpus.jsonl").stdout


def test_what_cannot_be_opened_says_why(cluster: Any, corpus: Parted, tmp_path: Path) -> None:
    assert cluster.is_initialized()
    with pytest.raises(ConfigError, match="must be ray:///PATH"):
        open_backend("ray://somewhere")
    other = Parted(tmp_path, b"one\ntwo\n", (4,))
    text = other.manifest.read_text().replace('"part-1.jsonl"', '"part-1.jsonl", "digest": "00"')
    other.manifest.write_text(text)
    with pytest.raises(CorpusChanged, match="not the part that its manifest speaks of"):
        open_parts(f"ray://{other.manifest}", memory=0)
    assert corpus.manifest.exists()


def test_a_host_that_does_not_exist_is_a_fault(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cluster.is_initialized()
    other = Parted(tmp_path, b"one\ntwo\n", (4,))
    monkeypatch.setattr("grepseek_env.distributed.backend.START_SECONDS", 3.0)
    with pytest.raises(EngineFault, match=r"part 0 .*cannot be started"):
        # Ray counts bytes in ten-thousandths: from 1 << 50 its number overflows and it asks for nothing.
        open_parts(f"ray://{other.manifest}", memory=1 << 40)
