from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from grepseek_env.config import Limits
from grepseek_env.engine import executor, started
from grepseek_env.engine.executor import Cancellation, execute
from grepseek_env.errors import BackendClosed, EngineFault, SpawnFailed
from tests.support.processes import children, descriptors, linux_only, wait_for_children

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from grepseek_env.engine.sandbox import Sandbox
    from grepseek_env.types import CommandResult

FOREVER = ["awk", "BEGIN { while (1); }"]
pytestmark = linux_only


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    before = descriptors()
    yield
    assert children() == set()
    assert descriptors() == before


def run(sandbox: Sandbox, *argvs: Sequence[str], budget: int | None = None, timeout: float = 60) -> CommandResult:
    return execute(argvs, sandbox, timeout=timeout, max_output_bytes=budget)


def say(text: str, to: str = "/dev/stdout", then: str = "") -> list[str]:
    return ["awk", f'BEGIN {{ printf "{text}" > "{to}"; fflush(); {then} }}']


def test_the_first_program_reads_nothing(sandbox: Sandbox) -> None:
    assert run(sandbox, ["wc", "-c"]).stdout == b"0\n"


def test_words_reach_the_program_as_utf8(sandbox: Sandbox) -> None:
    assert run(sandbox, ["awk", 'BEGIN { print ARGV[1], ARGV[2] "." }', "Zürich 漢", ""]).stdout == (
        "Zürich 漢 .\n".encode()
    )


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGTERM, signal.SIGPIPE, signal.SIGXCPU])
def test_death_by_a_signal_is_128_and_its_number(unconfined: Sandbox, number: signal.Signals) -> None:
    dies = ["awk", f'BEGIN {{ system("kill -{number.value} $PPID") }}']
    assert run(unconfined, dies).exit_code == 128 + number
    assert run(unconfined, dies, ["cat"]).exit_code == 0  # only the last program counts


def test_large_output_arrives_whole(sandbox: Sandbox) -> None:
    data = random.Random(3).randbytes(9_000_001)
    (sandbox.view / "corpus.jsonl").write_bytes(data)
    assert run(sandbox, ["cat", "corpus.jsonl"], ["cat"]).stdout == data


@pytest.mark.parametrize("size", [0, 1, 65535, 65536, 65537, 262143, 262144, 262145])
def test_output_of_exactly_the_budget_is_not_cut(sandbox: Sandbox, size: int) -> None:
    (sandbox.view / "corpus.jsonl").write_bytes(b"x" * size)
    result = run(sandbox, ["cat", "corpus.jsonl"], budget=size)
    assert (len(result.stdout), result.exit_code, result.output_truncated) == (size, 0, False)


@pytest.mark.parametrize("size", [1, 65536, 65537, 262144, 262145])
def test_one_byte_more_is_cut(sandbox: Sandbox, size: int) -> None:
    (sandbox.view / "corpus.jsonl").write_bytes(b"x" * size)
    result = run(sandbox, ["cat", "corpus.jsonl"], budget=size - 1)
    assert (len(result.stdout), result.exit_code, result.output_truncated) == (size - 1, None, True)


def test_an_endless_writer_is_stopped_by_the_budget(sandbox: Sandbox) -> None:
    result = run(sandbox, ["awk", "BEGIN { while (1) print 7 }"], ["cat"], budget=10)
    assert result.stdout == b"7\n" * 5
    assert result.output_truncated
    assert not result.timed_out


def test_a_time_out_keeps_what_was_written(sandbox: Sandbox) -> None:
    result = run(sandbox, say("early", then="while (1);"), timeout=0.3)
    assert (result.stdout, result.exit_code, result.timed_out) == (b"early", None, True)


def test_a_time_out_reaches_every_stage(sandbox: Sandbox) -> None:
    assert run(sandbox, FOREVER, FOREVER, ["cat"], timeout=0.1).timed_out


def test_an_endless_time_out_is_allowed(sandbox: Sandbox) -> None:
    assert run(sandbox, ["head", "-n", "0"], timeout=float("inf")).exit_code == 0


def test_it_is_done_when_the_last_program_is(sandbox: Sandbox) -> None:
    result = run(sandbox, FOREVER, ["head", "-n", "0"])  # bash would wait for ever
    assert (result.stdout, result.exit_code, result.timed_out) == (b"", 0, False)


def test_messages_come_in_stage_order(unconfined: Sandbox) -> None:
    # The second writes before the first, which waits for its end of file.
    late = ["awk", 'BEGIN { system("sleep 0.1"); printf "first" > "/dev/stderr" }']
    sleeps = replace(unconfined, programs=replace(unconfined.programs, folder=shutil.which("sleep").rpartition("/")[0]))
    assert run(sleeps, late, say("second", "/dev/stderr", "while (getline);")).stderr == b"firstsecond"


def test_messages_are_bounded_and_drained(sandbox: Sandbox) -> None:
    limited = replace(sandbox, limits=Limits(stderr_bytes=300))
    loud = ["awk", 'BEGIN { for (i = 0; i < 40000; i++) print "message " i > "/dev/stderr" }']
    result = run(limited, loud, say("other", "/dev/stderr"), ["wc", "-c"])
    whole = b"".join(b"message %d\n" % number for number in range(40000))
    assert result.stderr == whole[:300] + b"other"
    assert result.exit_code == 0


@pytest.mark.parametrize("which", [min, max])
def test_a_program_that_others_kill_is_a_fault_and_no_result(
    sandbox: Sandbox, which: Callable[[set[int]], int]
) -> None:
    def kill() -> None:
        wait_for_children(2)
        os.kill(which(children()), signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    with pytest.raises(EngineFault, match="was killed from outside: too little memory"):  # bash would count what came
        run(sandbox, FOREVER, ["wc", "-c"])
    thread.join()


@pytest.mark.parametrize(
    ("limits", "argv", "code"),
    [
        (Limits(cpu_seconds=1), FOREVER, 128 + signal.SIGXCPU),
        (Limits(temp_file_bytes=1000), ["sort", "-S", "16k", "corpus.jsonl"], 2),  # it may not raise SIGXFSZ
        (Limits(memory_bytes=64 << 20), ["awk", 'BEGIN { text = "a"; while (1) text = text text }'], 2),
    ],
)
def test_a_limit_shows_as_the_programs_own_failure(
    sandbox: Sandbox, limits: Limits, argv: list[str], code: int
) -> None:
    (sandbox.view / "corpus.jsonl").write_bytes(b"0123456789\n" * 100_000)
    result = run(replace(sandbox, limits=limits), argv)
    assert (result.exit_code, result.timed_out, result.output_truncated) == (code, False, False)


def test_a_vanished_program_folder_is_a_fault(sandbox: Sandbox, tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    paths = {name: str(folder / name) for name in sandbox.programs.paths}
    (folder / "cat").symlink_to(sandbox.programs.targets["cat"])
    own = replace(sandbox, programs=replace(sandbox.programs, folder=folder, paths=paths))
    assert run(own, ["cat"]).exit_code == 0
    shutil.rmtree(folder)
    with pytest.raises(SpawnFailed, match=r"program folder .* is gone; open the backend again"):
        run(own, ["cat"])


def test_a_program_that_cannot_be_started_stops_those_before(sandbox: Sandbox) -> None:
    paths = {**sandbox.programs.paths, "wc": "/nonexistent/wc"}
    broken = replace(sandbox, programs=replace(sandbox.programs, paths=paths))
    with pytest.raises(SpawnFailed, match="wc was not started"):
        run(broken, FOREVER, ["cat"], ["wc"])


def test_a_vanished_view_is_a_fault(sandbox: Sandbox) -> None:
    shutil.rmtree(sandbox.view)
    with pytest.raises(SpawnFailed, match=r"corpus view .* is gone"):
        run(sandbox, ["cat"])


def test_running_out_of_descriptors_at_any_point_is_a_fault(sandbox: Sandbox) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    outcomes = []
    try:
        for spare in range(1, 30):
            used = {int(entry.name) for entry in Path("/proc/self/fd").iterdir()}
            highest = [number for number in range(len(used) + spare) if number not in used][spare - 1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
            try:
                outcomes.append(run(sandbox, ["cat", "corpus.jsonl"], ["cat"], ["wc", "-l"]).stdout)
            except SpawnFailed:
                outcomes.append(None)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            assert children() == set()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    first = outcomes.index(b"300\n")
    assert first > 5
    assert outcomes == [None] * first + [b"300\n"] * (len(outcomes) - first)


def test_a_stolen_exit_status_is_a_fault_not_a_zero(unconfined: Sandbox) -> None:
    previous = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with pytest.raises(EngineFault, match="must not ignore SIGCHLD"):
            run(unconfined, ["grep", "nothing of the kind", "corpus.jsonl"])
    finally:
        signal.signal(signal.SIGCHLD, previous)


@pytest.mark.slow
def test_two_hundred_commands_leave_no_descriptor(sandbox: Sandbox) -> None:
    before = descriptors()
    for number in range(200):
        run(sandbox, ["cat", "corpus.jsonl"], ["head", "-n", "1"], budget=(None, 5)[number % 2])
    assert descriptors() == before


def test_many_threads_do_not_mix_anything_up(sandbox: Sandbox) -> None:
    def one(number: int) -> bool:
        text = f"line {number} of many"
        result = run(
            sandbox, say(text + "\\n"), ["cat"], ["tr", "a-z", "A-Z"], say(text, "/dev/stderr", "while (getline) print")
        )
        return result.stdout == text.upper().encode() + b"\n" and result.stderr == text.encode()

    with ThreadPoolExecutor(12) as pool:
        assert all(pool.map(one, range(60)))


def test_cancelling_ends_every_command_that_was_given_it(sandbox: Sandbox) -> None:
    cancel, other = Cancellation(), Cancellation()

    def one(_: int) -> str:
        try:
            execute([FOREVER, ["cat"]], sandbox, timeout=60, cancels=(other, cancel))
        except BackendClosed:
            return "stopped"
        return "ran on"

    with ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(one, number) for number in range(3)]
        wait_for_children(6)
        cancel.set()
        assert [future.result() for future in futures] == ["stopped"] * 3
    assert one(0) == "stopped"  # for good


@pytest.mark.parametrize("look", [True, False])
def test_where_ends_cannot_be_waited_for_it_works_all_the_same(
    unconfined: Sandbox, monkeypatch: pytest.MonkeyPatch, look: bool
) -> None:
    monkeypatch.setattr(started, "_HAS_PIDFD", False)
    monkeypatch.setattr(started, "_HAS_WAITID", look)
    monkeypatch.setattr(executor, "_SET_PIPE_SIZE", None)
    assert run(unconfined, ["cat", "corpus.jsonl"], ["wc", "-l"]).stdout == b"300\n"
    assert run(unconfined, ["grep", "nothing of the kind", "corpus.jsonl"]).exit_code == 1
    assert run(unconfined, FOREVER, ["head", "-n", "0"]).exit_code == 0
    assert run(unconfined, FOREVER, timeout=0.1).timed_out
    assert run(unconfined, ["cat", "corpus.jsonl"], budget=4).output_truncated


class Alarm(BaseException):
    pass


@pytest.mark.slow
def test_an_exception_from_a_signal_at_any_moment_leaves_nothing(sandbox: Sandbox) -> None:
    def ring(_number: int, _frame: object) -> None:
        raise Alarm

    rng, rang = random.Random(5), 0
    previous = signal.signal(signal.SIGALRM, ring)
    try:
        for _ in range(150):
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-6, 8e-3))
                run(sandbox, ["cat", "corpus.jsonl"], ["sort"], ["wc", "-l"])
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Alarm:
                rang += 1
            assert children() == set()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert rang > 10
