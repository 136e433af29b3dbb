"""The processes between an engine and its programs: what happens when one of them dies, forks or is missing."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from grepseek_env.config import Limits
from grepseek_env.corpus.store import CorpusStore
from grepseek_env.engine import sandbox as sandbox_module
from grepseek_env.engine.confine import client
from grepseek_env.engine.confine.client import LAUNCHERS
from grepseek_env.engine.executor import execute
from grepseek_env.engine.local import LocalBackend
from grepseek_env.engine.programs import open_programs
from grepseek_env.errors import ConfigError, LauncherLost, SandboxMissing, SandboxWarning
from tests.support.processes import children, keepers, launchers, linux_only, running, wait_for_children

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from grepseek_env.engine.sandbox import Sandbox
    from grepseek_env.types import CommandResult

pytestmark = linux_only

FOREVER = ["awk", "BEGIN { while (1); }"]
COUNT = ["wc", "-l", "corpus.jsonl"]
COUNTED = b"300 corpus.jsonl\n"


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    LAUNCHERS.close()
    yield
    eventually(lambda: not children(), "no program is left")
    LAUNCHERS.close()
    eventually(lambda: not keepers(), "no keeper is left")


def eventually(condition: Callable[[], bool], what: str) -> None:
    """Waits until a condition holds; where it never does, the test fails instead of hanging."""
    for _ in range(2000):
        if condition():
            return
        time.sleep(0.005)
    pytest.fail(f"never came true: {what}")


def run(sandbox: Sandbox, *argvs: list[str], timeout: float = 60) -> CommandResult:
    return execute(argvs, sandbox, timeout=timeout)


def kill_when_running(*victims: Callable[[], set[int]]) -> threading.Thread:
    """Kills some of the processes in between as soon as a program runs."""

    def kill() -> None:
        eventually(lambda: bool(launchers() and children()), "a program runs")
        time.sleep(0.1)  # a command that is still being started is simply started again
        for pid in [pid for victim in victims for pid in victim()]:
            os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


def test_one_keeper_and_one_launcher_serve_all_commands(sandbox: Sandbox) -> None:
    for _ in range(5):
        assert run(sandbox, COUNT, ["cat"]).stdout == COUNTED
    assert (len(keepers()), len(launchers())) == (1, 1)
    assert run(sandbox, COUNT, ["sort"]).stdout == COUNTED
    assert (len(keepers()), len(launchers())) == (1, 2)  # one that may write temporary files


def test_views_that_belong_together_share_a_launcher(sandbox: Sandbox, tmp_path: Path) -> None:
    folders = [tmp_path / f"{number}" for number in range(4)]
    for number, folder in enumerate(folders):
        folder.mkdir()
        (folder / "corpus.jsonl").write_text("x\n" * number)
    together = replace(sandbox, folders=(sandbox.view, *folders))
    for number, folder in enumerate(folders):
        assert run(replace(together, view=folder), COUNT).stdout == f"{number} corpus.jsonl\n".encode()
    assert len(launchers()) == 1
    assert b"Permission denied" in run(sandbox, ["cat", str(folders[3] / "corpus.jsonl")]).stderr  # not for strangers


def test_a_killed_launcher_is_a_fault_and_the_next_command_works(sandbox: Sandbox) -> None:
    thread = kill_when_running(launchers)
    with pytest.raises(LauncherLost, match="the next command starts another"):
        run(sandbox, FOREVER, ["cat"])
    thread.join()
    eventually(lambda: not children(), "its programs are gone")
    assert run(sandbox, COUNT).stdout == COUNTED


def test_a_launcher_killed_between_commands_is_not_noticed(sandbox: Sandbox) -> None:
    assert run(sandbox, COUNT).stdout == COUNTED
    for pid in launchers():
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: not launchers(), "it is gone")
    assert run(sandbox, COUNT).stdout == COUNTED


@pytest.mark.slow
@pytest.mark.parametrize("victims", [(keepers,), (keepers, launchers), (launchers, keepers)])
def test_a_killed_keeper_leaves_nothing_running(sandbox: Sandbox, victims: tuple[Callable[[], set[int]], ...]) -> None:
    assert run(sandbox, COUNT).stdout == COUNTED
    thread = kill_when_running(*victims)
    try:
        result = run(sandbox, FOREVER, timeout=1)
    except LauncherLost:
        pass
    else:
        assert result.timed_out  # a launcher works on without its keeper
    thread.join()
    assert run(sandbox, COUNT, ["sort"]).stdout == COUNTED
    assert len(keepers()) == 1


def test_a_backend_runs_a_command_once_more_when_its_launcher_dies(sandbox: Sandbox) -> None:
    with (
        CorpusStore.open(sandbox.view / "corpus.jsonl") as store,
        LocalBackend(store, mode="sequential", cache_bytes=0) as backend,
    ):
        slow = "awk '{for(i=0;i<40000;i++)x=x+i} END{print NR}' corpus.jsonl"
        thread = kill_when_running(launchers)
        assert backend.run(slow).stdout == b"300\n"
        thread.join()


def test_a_launcher_that_does_not_answer_is_given_up(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_ANSWER_SECONDS", 1)
    assert run(sandbox, COUNT).stdout == COUNTED
    (hung,) = launchers()
    os.kill(hung, signal.SIGSTOP)
    with pytest.raises(LauncherLost):  # what it was told may yet be done, so it is not told another
        run(sandbox, COUNT)
    assert run(sandbox, COUNT).stdout == COUNTED
    assert len(launchers()) == 2
    os.kill(hung, signal.SIGCONT)
    eventually(lambda: launchers().isdisjoint({hung}), "it ends once it can")


def test_a_fork_has_launchers_of_its_own(sandbox: Sandbox) -> None:
    assert run(sandbox, COUNT).stdout == COUNTED
    before = launchers()
    pid = os.fork()
    if not pid:
        code = 1
        try:
            good = run(sandbox, COUNT, ["sort"]).stdout == COUNTED and launchers().isdisjoint(before)
            code = 0 if good else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert run(sandbox, COUNT).stdout == COUNTED
    assert launchers() == before


def test_many_views_keep_few_launchers(sandbox: Sandbox, tmp_path: Path) -> None:
    read, write = os.pipe()
    with sandbox.environment([["cat"]]) as environment:
        program = sandbox.start(["cat"], stdin=read, stdout=1, stderr=2, environment=environment, rlimits=[])
    os.close(read)
    for number in range(20):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        (folder / "corpus.jsonl").write_text("x\n" * number)
        assert run(replace(sandbox, view=folder), COUNT).stdout == f"{number} corpus.jsonl\n".encode()
    eventually(lambda: len(launchers()) <= 17, "those that nobody used lately end")
    assert children() == {program.pid}
    os.close(write)
    assert program.take() == 0
    os.close(program.open_end())
    eventually(lambda: len(launchers()) <= 16, "it goes with its last program")


def test_a_replaced_corpus_file_is_read(sandbox: Sandbox) -> None:
    assert run(sandbox, COUNT).stdout == COUNTED
    (sandbox.view / "new").write_text("x\n")
    (sandbox.view / "new").replace(sandbox.view / "corpus.jsonl")
    assert run(sandbox, COUNT).stdout == b"1 corpus.jsonl\n"


def test_nothing_else_in_the_view_is_read(sandbox: Sandbox) -> None:
    (sandbox.view / "questions.jsonl").write_text("golden\n")
    assert run(sandbox, COUNT).stdout == COUNTED
    result = run(sandbox, ["cat", "questions.jsonl"])
    assert (result.stdout, result.exit_code) == (b"", 1)


def test_a_temporary_folder_that_was_cleaned_up_is_made_again(sandbox: Sandbox) -> None:
    assert run(sandbox, COUNT, ["sort"]).stdout == COUNTED
    shutil.rmtree(sandbox_module._spill_root())
    assert run(sandbox, COUNT, ["sort"]).stdout == COUNTED


def test_commands_do_not_read_one_anothers_temporary_files(sandbox: Sandbox) -> None:
    show = ["awk", 'BEGIN { print ENVIRON["TMPDIR"] }']
    folders = {run(sandbox, show, ["sort"]).stdout for _ in range(3)}
    assert len(folders) == 3
    names = run(sandbox, ["ls", sandbox_module._spill_root()])
    assert (names.stdout, names.exit_code) == (b"", 2)


# --- missing layers


@pytest.fixture
def no_landlock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretends that the kernel has none."""
    checked = client._checked

    def without(data: bytes) -> dict[str, Any]:
        return {**checked(data), "landlock": (False, "this kernel has no Landlock")}

    monkeypatch.setattr(client, "_checked", without)
    sandbox_module._warn.cache_clear()


@pytest.mark.usefixtures("no_landlock")
def test_a_missing_layer_is_told_once(sandbox: Sandbox, recwarn: pytest.WarningsRecorder) -> None:
    warned = r"without landlock \(files outside the corpus\): this kernel has no"
    with pytest.warns(SandboxWarning, match=warned):
        run(sandbox, COUNT)
    assert run(sandbox, COUNT).stdout == COUNTED
    assert not recwarn.list


@pytest.mark.usefixtures("no_landlock")
def test_require_refuses_to_work_without(sandbox: Sandbox) -> None:
    with pytest.raises(SandboxMissing, match=r"sandbox='require'.*landlock"):
        run(replace(sandbox, confine="require"), COUNT)
    with (
        CorpusStore.open(sandbox.view / "corpus.jsonl") as store,
        pytest.raises(SandboxMissing, match="landlock"),
    ):
        LocalBackend(store, sandbox="require")


def test_on_another_system_it_warns_or_refuses(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox_module, "_LINUX", False)
    sandbox_module._warn.cache_clear()
    with pytest.warns(SandboxWarning, match="Linux only"):
        assert run(sandbox, COUNT).stdout == COUNTED
    with pytest.raises(SandboxMissing, match="Linux only"):
        run(replace(sandbox, confine="require"), COUNT)
    assert run(replace(sandbox, confine="off"), COUNT).stdout == COUNTED
    assert not keepers()


def test_options_are_checked_and_kept(sandbox: Sandbox) -> None:
    with pytest.raises(ConfigError, match=r"sandbox is 'none'.*'auto', 'require', 'off'"):
        replace(sandbox, confine="none")  # type: ignore[arg-type]
    with CorpusStore.open(sandbox.view / "corpus.jsonl") as store, LocalBackend(store, sandbox="off") as backend:
        copy = pickle.loads(pickle.dumps(backend))
        assert copy.sandbox == backend.sandbox == "off"
        copy.close()


# --- the engine dies


def test_killing_the_engine_leaves_nothing(sandbox: Sandbox, tmp_path: Path) -> None:
    spill = tmp_path / "spill"
    spill.mkdir()
    marker = f"{time.monotonic_ns()}"
    code = (
        "import sys; from pathlib import Path\n"
        "from grepseek_env.engine.programs import open_programs\n"
        "from grepseek_env.engine.sandbox import Sandbox\n"
        "from grepseek_env.engine.executor import execute\n"
        "sandbox = Sandbox(open_programs(), Path(sys.argv[1]))\n"
        f"spins = ['awk', 'BEGIN {{ while (1) x = {marker} }}']\n"
        "execute([['cat', 'corpus.jsonl'], ['sort', '-S', '16k']], sandbox, timeout=60)\n"
        "print('ready', flush=True)\n"
        "execute([spins, ['sort', '-S', '16k'], ['cat']], sandbox, timeout=60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(sandbox.view)],
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(spill)},
    ) as engine:
        assert engine.stdout is not None
        assert engine.stdout.readline() == b"ready\n"
        eventually(lambda: len(set(running(marker))) >= 2, "the program runs")  # the engine's own text holds it too
        group = [line for line in Path("/proc/self/cgroup").read_text().splitlines() if "pids" in line]
        engine.kill()
    eventually(lambda: not set(running(marker)), "the program is gone")
    eventually(lambda: not list(spill.iterdir()), "its temporary files are gone")
    if group:
        folder = Path("/sys/fs/cgroup/pids" + group[0].split(":", 2)[2])
        eventually(lambda: len(list(folder.glob("grepseek-*"))) <= len(keepers()) + 40, "its group is gone")


def test_a_program_cannot_take_more_memory_than_it_may(sandbox: Sandbox) -> None:
    bounded = replace(sandbox, limits=Limits(memory_bytes=96 << 20))
    grows = ["awk", 'BEGIN { x = "a"; while (length(x) < 16000000) x = x x; print "held"; while (1); }']
    seen: list[int] = []

    def look() -> None:
        wait_for_children(1)
        for _ in range(40):
            for pid in children():
                try:
                    status = Path(f"/proc/{pid}/status").read_text()
                except OSError:
                    continue
                if "awk" in status.partition("\n")[0]:  # not a process that has yet to become it
                    peaks = [line for line in status.splitlines() if line.startswith("VmPeak")]
                    seen.extend(int(line.split()[1]) << 10 for line in peaks)
            time.sleep(0.005)

    thread = threading.Thread(target=look)
    thread.start()
    result = run(bounded, grows, timeout=1)
    thread.join()
    assert result.stdout in {b"held\n", b""}
    assert seen
    assert max(seen) <= 96 << 20


def test_the_programs_of_this_host_have_what_they_need() -> None:
    programs = open_programs()
    for path in (*programs.libraries, *programs.loaders):
        assert Path(path).exists()
