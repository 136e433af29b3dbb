"""Reported faults of systems that run shell tools for agents; each test is named after its report."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from grepseek_env.engine.executor import execute
from grepseek_env.engine.programs import open_programs
from grepseek_env.engine.sandbox import Sandbox
from tests.support.processes import linux_only, running

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from grepseek_env.types import CommandResult

    Run = Callable[..., CommandResult]


@pytest.fixture
def view(tmp_path: Path) -> Path:
    folder = tmp_path / "view"
    folder.mkdir()
    return folder


@pytest.fixture
def run(view: Path) -> Run:
    def run(data: bytes, *argvs: list[str], timeout: float = 60, **options: str) -> CommandResult:
        (view / "corpus.jsonl").write_bytes(data)
        return execute(argvs, Sandbox(open_programs(), view, **options), timeout=timeout)

    return run


def until_gone(marker: str) -> None:
    """Waits for a killed process to be gone, which is not for its killer to wait for; a live one sleeps a minute."""
    for _ in range(500):
        if not list(running(marker)):
            return
        time.sleep(0.01)
    pytest.fail(f"still running: {list(running(marker))}")


def test_ripgrep_2582_951_opencode_3089_no_path_does_not_wait_for_stdin(view: Path) -> None:
    # In a process whose own stdin is a pipe that stays open; rg then searches the folder.
    code = (
        "import sys; from pathlib import Path\n"
        "from grepseek_env.engine.programs import open_programs\n"
        "from grepseek_env.engine.sandbox import Sandbox\n"
        "from grepseek_env.engine.executor import execute\n"
        "sandbox = Sandbox(open_programs(), Path(sys.argv[1]))\n"
        "for argv in (['rg', 'Einstein'], ['grep', 'Einstein'], ['cat'], ['sort'], ['wc', '-c']):\n"
        "    result = execute([argv], sandbox, timeout=60)\n"
        "    print(result.timed_out, result.exit_code, result.stdout)\n"
    )
    (view / "corpus.jsonl").write_bytes(b"Einstein\n")
    with subprocess.Popen(
        [sys.executable, "-c", code, str(view)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        lines = process.stdout.read().splitlines()
    assert lines == [
        r"False 0 b'corpus.jsonl:Einstein\n'",
        "False 1 b''",
        "False 0 b''",
        "False 0 b''",
        r"False 0 b'0\n'",
    ]


@linux_only
def test_cpython_76116_74340_a_grandchild_does_not_survive_the_time_out(run: Run) -> None:
    marker = f"60.{time.monotonic_ns()}"
    result = run(b"", ["awk", f'BEGIN {{ system("/bin/sleep {marker}") }}'], ["cat"], timeout=0.3, confine="off")
    assert result.timed_out
    until_gone(marker)


@linux_only
def test_cpython_76116_nor_the_end_of_its_parent(run: Run) -> None:
    marker = f"61.{time.monotonic_ns()}"
    result = run(b"", ["awk", f'BEGIN {{ system("/bin/sleep {marker} &") }}'], confine="off")
    assert (result.exit_code, result.timed_out) == (0, False)  # the grandchild holds the pipe open; nobody waits for it
    until_gone(marker)


def test_nano_rlm_61_bytes_that_are_no_utf8_come_back_as_they_are(run: Run) -> None:
    assert run(b"\xf0\n", ["cat", "corpus.jsonl"]).stdout == b"\xf0\n"
    assert run("ééé".encode(), ["cat", "corpus.jsonl"], ["head", "-c", "3"]).stdout == b"\xc3\xa9\xc3"


def test_uutils_grep_9_easybuild_11394_a_broken_byte_and_the_locale(run: Run) -> None:
    data = b"caf\xe9 Einstein\nEinstein ok\n"
    grep = ["grep", "Einstein", "corpus.jsonl"]
    assert run(data, grep).stdout == data
    utf8 = run(data, grep, locale="C.UTF-8")
    assert utf8.stdout.startswith(b"Einstein ok\n") or b"binary file matches" in utf8.stdout + utf8.stderr
    assert utf8.stdout != data
    assert run(data, ["rg", "Einstein", "corpus.jsonl"]).stdout == data


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["rg", "-x", "foo", "corpus.jsonl"], 1),
        (["rg", "foo$", "corpus.jsonl"], 1),
        (["rg", "--crlf", "-x", "foo", "corpus.jsonl"], 0),
        (["grep", "-x", "foo", "corpus.jsonl"], 1),
    ],
)
def test_ripgrep_1568_crlf(run: Run, argv: list[str], code: int) -> None:
    assert run(b"foo\r\nbar\r\n", argv).exit_code == code


@linux_only
@pytest.mark.parametrize("program", ["grep", "rg"])
def test_nns_dapp_3059_ovn_heater_107_an_early_head_is_no_error(run: Run, program: str) -> None:
    big = b"Einstein line\n" * 200_000
    result = run(big, [program, "Einstein", "corpus.jsonl"], ["head", "-n", "1"])
    # Were SIGPIPE ignored in the programs, as Python does for itself, grep would complain of a broken pipe.
    assert (result.stdout, result.stderr, result.exit_code) == (b"Einstein line\n", b"", 0)


def test_sigpipe_ends_a_program_that_writes_into_a_closed_pipe(run: Run) -> None:
    # The middle one ends long before the last, which then shows how the first died: not at all, it is cancelled.
    result = run(b"y\n" * 500_000, ["cat", "corpus.jsonl"], ["head", "-n", "1"], ["sort"])
    assert (result.stdout, result.stderr, result.exit_code) == (b"y\n", b"", 0)


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["rg", "here", "corpus.jsonl"], 0),
        (["rg", "absent", "corpus.jsonl"], 1),
        (["rg", "here", "missing.txt"], 2),
        (["rg", "(", "corpus.jsonl"], 2),
        (["grep", "absent", "corpus.jsonl"], 1),
        (["grep", "here", "missing.txt"], 2),
    ],
)
def test_exit_codes_are_the_programs_own(run: Run, argv: list[str], code: int) -> None:
    result = run(b"it is here\n", argv)
    assert result.exit_code == code
    assert bool(result.stderr) is (code == 2)


def test_wiki_18_escaped_json_is_searched_as_it_is(run: Run) -> None:
    line = rb'{"contents": "Caf\u00e9"}' + b"\n"
    assert run(line, ["rg", "-F", "Café", "corpus.jsonl"]).exit_code == 1
    assert run(line, ["rg", "-F", r"Caf\u00e9", "corpus.jsonl"]).stdout == line


def test_locale_cases(run: Run) -> None:
    data = "École\nİstanbul\nSTRASSE\n".encode()
    school = ["grep", "-i", "école", "corpus.jsonl"]
    assert run(data, school).exit_code == 1
    assert run(data, school, locale="C.UTF-8").stdout == "École\n".encode()
    assert run(data, ["rg", "-i", "école", "corpus.jsonl"]).stdout == "École\n".encode()
    for argv in (["rg", "-i", "istanbul"], ["grep", "-i", "istanbul"], ["rg", "-i", "straße"]):
        assert run(data, [*argv, "corpus.jsonl"], locale="C.UTF-8").exit_code == 1


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks glibc")
def test_transformers_5486_garak_750_nothing_is_forked(view: Path) -> None:
    # Tokenisers warn on stderr when their process forks. Programs are started without a fork, so no handler runs, and
    # what a handler says could not reach the command's messages.
    code = (
        "import ctypes, os, sys; from pathlib import Path\n"
        "libc = ctypes.CDLL(None)\n"
        "if not hasattr(libc, '__register_atfork'): sys.exit(77)\n"
        "handler = ctypes.CFUNCTYPE(None)(lambda: os.write(2, b'The current process just got forked\\n') and None)\n"
        "libc.__register_atfork(handler, None, handler, None)\n"
        "from grepseek_env.engine.programs import open_programs\n"
        "from grepseek_env.engine.sandbox import Sandbox\n"
        "from grepseek_env.engine.executor import execute\n"
        "sandbox = Sandbox(open_programs(), Path(sys.argv[1]))\n"
        "result = execute([['cat', 'corpus.jsonl'], ['wc', '-c']], sandbox, timeout=60)\n"
        "print(result.stdout, result.stderr)\n"
        "if sys.argv[2:]: os.waitpid(os.fork() or os._exit(0), 0)\n"
    )
    (view / "corpus.jsonl").write_bytes(b"12345")
    warmed = open_programs()  # asking programs for their versions is not what is looked at
    assert warmed.versions
    quiet = subprocess.run([sys.executable, "-c", code, str(view)], capture_output=True, text=True, check=False)
    if quiet.returncode == 77:
        pytest.skip("no glibc")
    assert (quiet.stdout, quiet.stderr) == ("b'5\\n' b''\n", "")
    loud = subprocess.run([sys.executable, "-c", code, str(view), "x"], capture_output=True, text=True, check=True)
    assert "just got forked" in loud.stderr  # the handler would have been heard


@linux_only
def test_a_sort_whose_reader_has_ended_says_nothing(run: Run) -> None:
    """sort catches SIGPIPE and sends it to itself again; where a filter refuses that, it complains."""
    data = b"".join(b"%d %s\n" % (number, b"x" * 1000) for number in range(3000))
    for confine in ("auto", "off"):
        result = run(data, ["sort", "-r", "corpus.jsonl"], ["head", "-n", "1"], confine=confine)
        assert (result.stdout[:4], result.stderr, result.exit_code) == (b"999 ", b"", 0)
