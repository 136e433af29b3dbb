from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from grepseek_env.config import Limits
from grepseek_env.engine.executor import execute
from grepseek_env.engine.sandbox import LIMITS_ENFORCED, Sandbox
from grepseek_env.errors import ConfigError, SpawnFailed
from tests.support.processes import linux_only

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from grepseek_env.engine.started import Started

    Start = Callable[..., Started]

LIST_ENVIRONMENT = "BEGIN { for (name in ENVIRON) print name }"
SHOW_TEMP = 'BEGIN { print ENVIRON["TMPDIR"] }'


@pytest.fixture
def started(sandbox: Sandbox) -> Iterator[Start]:
    """Starts `cat` on a pipe, so that it waits while the test looks at it."""
    read, write = os.pipe()
    processes: list[Started] = []

    def start(sandbox: Sandbox = sandbox, timeout: float = 60) -> Started:
        null = os.open(os.devnull, os.O_RDWR)
        with sandbox.environment([["cat"]]) as environment:
            process = sandbox.start(
                ["cat"],
                stdin=read,
                stdout=null,
                stderr=null,
                environment=environment,
                rlimits=sandbox.rlimits(timeout),
            )
        os.close(null)
        processes.append(process)
        return process

    yield start
    os.close(read)
    os.close(write)
    for process in processes:
        assert process.take() == 0
        os.close(process.open_end())


def limits_of(pid: int) -> dict[str, list[str]]:
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()[1:]
    return {line[:26].strip(): line[26:].split()[:2] for line in lines}


def test_nothing_is_inherited(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RIPGREP_CONFIG_PATH", "BASH_ENV", "POSIXLY_CORRECT", "GREP_COLORS", "LANG", "TMPDIR", "TZ"):
        monkeypatch.setenv(name, str(sandbox.view))
    names = execute([["awk", LIST_ENVIRONMENT]], sandbox, timeout=60).stdout.split()
    assert set(names) <= {b"PATH", b"LC_ALL", b"HOME", b"AWKPATH", b"AWKLIBPATH"}  # the last two are gawk's own
    assert {b"PATH", b"LC_ALL", b"HOME"} <= set(names)


def test_only_sort_has_a_temporary_folder_and_for_the_command_only(sandbox: Sandbox) -> None:
    assert execute([["awk", SHOW_TEMP]], sandbox, timeout=60).stdout == b"\n"
    temp = Path(execute([["awk", SHOW_TEMP], ["sort"]], sandbox, timeout=60).stdout.decode().strip())
    assert temp.is_absolute()
    assert not temp.exists()


def test_a_sort_that_spills_is_right_and_leaves_nothing(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    spill = sandbox.view.parent / "spill"
    spill.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(spill))
    data = b"".join(b"%08d\n" % (number * 7919 % 100_003) for number in range(100_003))
    (sandbox.view / "corpus.jsonl").write_bytes(data)
    result = execute([["sort", "-S", "64k", "corpus.jsonl"]], sandbox, timeout=60)
    assert result.stdout == b"".join(sorted(data.splitlines(keepends=True)))
    assert [path for path in spill.rglob("*") if path.parent != spill] == []  # the folder of this process stays


def test_no_temporary_folder_is_a_fault_of_ours(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(sandbox.view / "nowhere"))
    with pytest.raises(SpawnFailed, match="TMPDIR"):
        execute([["sort", "corpus.jsonl"]], sandbox, timeout=60)


@linux_only
def test_it_has_a_session_of_its_own_and_only_three_descriptors(started: Start) -> None:
    os.set_inheritable(extra := os.open(os.devnull, os.O_RDONLY), True)
    process = started()
    os.close(extra)
    assert os.getsid(process.pid) == os.getpgid(process.pid) == process.pid
    for _ in range(1000):  # while it starts it opens its libraries, one after the other
        found = {entry.name for entry in Path(f"/proc/{process.pid}/fd").iterdir()}
        if found == {"0", "1", "2"}:
            return
        time.sleep(0.005)
    pytest.fail(f"it has {found}")


@linux_only
@pytest.mark.skipif(not LIMITS_ENFORCED, reason="no prlimit here")
def test_the_limits_are_set(sandbox: Sandbox, started: Start) -> None:
    limits = Limits(cpu_seconds=7, memory_bytes=1 << 30, temp_file_bytes=1 << 20, open_files=32)
    seen = limits_of(started(replace(sandbox, limits=limits)).pid)
    assert seen["Max cpu time"] == ["7", "8"]
    assert seen["Max address space"] == [str(1 << 30)] * 2
    assert seen["Max file size"] == [str(1 << 20)] * 2
    assert seen["Max open files"] == ["32", "32"]
    assert seen["Max core file size"] == ["0", "0"]


@pytest.mark.skipif(not LIMITS_ENFORCED, reason="no prlimit here")
def test_without_a_processor_limit_the_time_out_gives_one(sandbox: Sandbox) -> None:
    soft, hard = dict(sandbox.rlimits(2.5))[resource.RLIMIT_CPU]
    assert soft % (3 + 1) == 0
    assert soft >= 3 + 1  # sort's threads count together: never less than the run time
    assert hard == soft + 1
    assert dict(sandbox.rlimits(float("inf")))[resource.RLIMIT_CPU][0] > 10**9


@linux_only
@pytest.mark.skipif(not LIMITS_ENFORCED, reason="no prlimit here")
def test_limits_never_exceed_our_own(sandbox: Sandbox) -> None:
    code = (
        "import resource, sys; from pathlib import Path\n"
        "from grepseek_env.engine.programs import open_programs\n"
        "from grepseek_env.engine.sandbox import Sandbox\n"
        "from grepseek_env.engine.executor import execute\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (50, 50))\n"
        f"sandbox = Sandbox(open_programs(), Path({str(sandbox.view)!r}))\n"
        "print(dict(sandbox.rlimits(1))[resource.RLIMIT_NOFILE])\n"
        "print(execute([['wc', '-l', 'corpus.jsonl']], sandbox, timeout=60).stdout)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["(50, 50)", r"b'300 corpus.jsonl\n'"]


@linux_only
def test_signals_blocked_in_this_thread_are_not_blocked_in_programs(started: Start) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPIPE, signal.SIGXCPU})
    try:
        process = started()
        during = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert {signal.SIGPIPE, signal.SIGXCPU} <= during
    status = dict(line.split(":\t") for line in Path(f"/proc/{process.pid}/status").read_text().splitlines())
    bits = (1 << signal.SIGPIPE - 1) | (1 << signal.SIGXCPU - 1) | (1 << signal.SIGXFSZ - 1)
    assert int(status["SigBlk"], 16) & bits == 0
    assert int(status["SigIgn"], 16) & bits == 0


def test_an_unknown_locale_is_refused(sandbox: Sandbox) -> None:
    with pytest.raises(ConfigError, match=r"'de_DE'.*'C', 'C.UTF-8'"):
        replace(sandbox, locale="de_DE")


def test_a_program_outside_the_table_is_not_started(sandbox: Sandbox) -> None:
    with pytest.raises(SpawnFailed, match="'bash' is none of the programs"):
        execute([["bash", "-c", "true"]], sandbox, timeout=60)
