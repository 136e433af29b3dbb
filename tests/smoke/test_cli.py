"""The console command, as a user calls it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

GREPSEEK = [sys.executable, "-m", "grepseek_env.cli"]
LINES = [{"id": str(i), "contents": f'"T{i}"\nline {i} says {"hello" if i % 3 else "goodbye"}'} for i in range(30)]


def grepseek(
    *args: str | Path, stdin: str | None = None, code: int = 0, **env: str
) -> subprocess.CompletedProcess[str]:
    out = subprocess.run(
        [*GREPSEEK, *map(str, args)],
        input=stdin,
        stdin=None if stdin is not None else subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **env},
        check=False,
    )
    assert out.returncode == code, (out.returncode, out.stdout, out.stderr)
    return out


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "text.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in LINES), encoding="utf-8")
    return path


def test_run_passes_on_bytes_messages_and_exit_code(corpus: Path) -> None:
    out = grepseek("run", "--corpus", corpus, "rg -F goodbye corpus.jsonl | wc -l")
    assert out.stdout == "10\n"
    assert grepseek("run", "--corpus", corpus, "rg nothing corpus.jsonl", code=1).stdout == ""
    assert "regex parse error" in grepseek("run", "--corpus", corpus, "rg '(' corpus.jsonl", code=2).stderr


def test_run_refuses_with_a_caret(corpus: Path) -> None:
    out = grepseek("run", "--corpus", corpus, "cat corpus.jsonl > x", code=2)
    assert "^" in out.stderr
    assert out.stdout == ""


def test_run_cuts_output_where_asked(corpus: Path) -> None:
    out = grepseek("run", "--corpus", corpus, "--max-output-bytes", "7", "cat corpus.jsonl")
    assert out.stdout == '{"id": '
    assert "cut at 7 bytes" in out.stderr


@pytest.mark.slow
def test_run_time_out_says_so_and_exits_124(corpus: Path) -> None:
    out = grepseek("run", "--corpus", corpus, "--timeout", "0.2", "awk 'BEGIN { while (1) x++ }'", code=124)
    assert "ran out of time" in out.stderr


def test_run_explain(corpus: Path) -> None:
    assert "rg" in grepseek("run", "--corpus", corpus, "--explain", "rg x corpus.jsonl").stdout


def test_run_missing_corpus_is_named(tmp_path: Path) -> None:
    out = grepseek("run", "--corpus", tmp_path / "nowhere.jsonl", "cat corpus.jsonl", code=1)
    assert "nowhere.jsonl" in out.stderr
    assert "Traceback" not in out.stderr


@pytest.mark.slow
def test_corpus_build_info_verify(corpus: Path) -> None:
    assert "30" in grepseek("corpus", "build", corpus).stdout
    assert "30" in grepseek("corpus", "info", corpus).stdout
    grepseek("corpus", "verify", corpus)
    grepseek("corpus", "verify", "--deep", corpus)
    with corpus.open("a", encoding="utf-8") as f:
        f.write("{}\n")
    out = grepseek("corpus", "verify", corpus, code=1)
    assert "corpus build" in out.stdout + out.stderr
    grepseek("run", "--corpus", corpus, "wc -l corpus.jsonl", code=1)
    grepseek("corpus", "build", corpus)
    assert grepseek("run", "--corpus", corpus, "wc -l corpus.jsonl").stdout == "31 corpus.jsonl\n"


@pytest.mark.slow
def test_corpus_info_names_the_slices(corpus: Path) -> None:
    grepseek("corpus", "build", corpus)
    assert "slices" not in grepseek("corpus", "info", corpus).stdout
    built = grepseek("corpus", "build", "--slices", "3", corpus).stdout.splitlines()
    assert "3 files in" in built[-1]
    assert grepseek("corpus", "info", corpus).stdout.splitlines() == built


def test_corpus_build_names_the_bad_line(tmp_path: Path) -> None:
    path = tmp_path / "nul.jsonl"
    path.write_bytes(b"one\ntwo\nthr\0ee\n")
    out = grepseek("corpus", "build", path, code=1)
    assert "line 3" in out.stderr


def test_corpus_fetch_unknown_name() -> None:
    assert "wiki18" in grepseek("corpus", "fetch", "wiki19", code=1).stderr


def test_score_prints_one_line_an_item(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    rows = [
        {"id": "a", "prediction": "The Beatles", "golden_answers": ["Beatles"]},
        {"id": "b", "prediction": "x y", "golden_answers": ["x"]},
    ]
    path.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    out = grepseek("score", path)
    assert [json.loads(line) for line in out.stdout.splitlines()] == [
        {"id": "a", "em": 1.0, "f1": 1.0},
        {"id": "b", "em": 0.0, "f1": 2 / 3},
    ]
    assert "EM 0.5000  F1 0.8333" in out.stderr


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "malformed JSON: Expecting property name enclosed in double quotes at character"),
        ("[]", "JSON object"),
        ("{}", "key 'id' is missing; there are none"),
        ('{"id": 1, "answer": 2}', "key 'prediction' is missing; there are 'id', 'answer'"),
        ('{"id": 1, "prediction": 2, "golden_answers": ["x"]}', "prediction must be text"),
        ("[" * 100000, "malformed JSON"),
    ],
)
def test_score_names_file_and_line_of_bad_input(tmp_path: Path, line: str, why: str) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"id": "a", "prediction": "x", "golden_answers": ["x"]}\n' + line + "\n", encoding="utf-8")
    out = grepseek("score", path, code=1)
    assert "line 2" in out.stderr
    assert why in out.stderr
    assert "Error(" not in out.stderr
    assert "Traceback" not in out.stderr


def test_a_missing_file_is_told_without_an_error_number(tmp_path: Path) -> None:
    assert grepseek("score", tmp_path / "no.jsonl", code=1).stderr == (
        f"grepseek: {tmp_path / 'no.jsonl'}: No such file or directory\n"
    )


def test_play_an_episode_from_a_pipe() -> None:
    out = grepseek("play", "--seed", "1", stdin="rg -c . corpus.jsonl\nrm x\nanswer: nobody\n")
    assert "[turn 2 of 6]" in out.stdout
    assert "golden:" in out.stdout


def test_play_gives_up_at_the_end_of_input() -> None:
    assert "given up" in grepseek("play", stdin="").stdout


@pytest.mark.slow
def test_rollout_writes_resumes_and_guards(tmp_path: Path) -> None:
    out = tmp_path / "run"
    args = ["rollout", "--policy", "keyword", "--limit", "6", "--out", str(out), "--quiet"]
    assert "6 episodes" in grepseek(*args).stdout
    first = (out / "trajectories.jsonl").read_bytes()
    assert json.loads((out / "manifest.json").read_text())["settings"]["policy"] == "keyword"
    # Cut in the middle of a line, as a crash would: the run goes on and gives the same file.
    (out / "trajectories.jsonl").write_bytes(first[: len(first) // 2])
    grepseek(*args)
    assert (out / "trajectories.jsonl").read_bytes() == first
    other = grepseek(*args[:2], "random", *args[3:], code=1)
    assert "policy" in other.stderr
    assert "--overwrite" in other.stderr


def test_rollout_unknown_policy_lists_names(tmp_path: Path) -> None:
    out = grepseek("rollout", "--policy", "keywrd", "--out", tmp_path / "x", code=1)
    assert "did you mean 'keyword'" in out.stderr


def test_ctrl_c_keeps_what_is_complete(tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = [*GREPSEEK, "rollout", "--policy", "keyword", "--samples", "400", "--out", str(out), "--quiet"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    path = out / "trajectories.jsonl"
    deadline = time.monotonic() + 60
    while not (path.exists() and path.stat().st_size > 5000):
        assert time.monotonic() < deadline, "the run did not start"
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    for line in path.read_text(encoding="utf-8").splitlines():
        assert json.loads(line)["finish_reason"]


@pytest.mark.slow
def test_doctor_and_prompt_and_help() -> None:
    report = grepseek("doctor").stdout
    assert "rg" in report
    assert "ready" in report
    prompt = grepseek("prompt")
    assert "corpus.jsonl" in prompt.stdout
    assert "version" in prompt.stderr
    assert "{turns}" in grepseek("prompt", "--template").stdout
    text = grepseek("--help").stdout
    for name in ("run", "play", "rollout", "score", "corpus", "doctor", "demo", "bench", "prompt"):
        assert name in text
        assert grepseek(name, "--help").stdout.startswith("usage: grepseek")


@pytest.mark.slow
def test_an_unknown_subcommand_lists_those_of_plugins_too() -> None:
    choices = grepseek("frobnicate", code=2).stderr.partition("choose from")[2]
    for name in ("run", "serve", "rollout", "demo"):
        assert name in choices


def test_reader_that_goes_away_is_no_error(corpus: Path) -> None:
    command = " ".join(GREPSEEK) + f" run --corpus {corpus} 'cat corpus.jsonl' | head -c 1"
    out = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=True)
    assert out.stderr == ""


@pytest.mark.slow
def test_a_rollout_whose_episodes_fail_says_why(tmp_path: Path) -> None:
    with socket.socket() as listener:  # bound and not listening: every connection is refused
        listener.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        out = grepseek(
            *("rollout", "--policy", "openai", "--model", "m", "--base-url", url, "--limit", "2", "--retries", "0"),
            *("--policy-option", "attempts=1", "--out", tmp_path / "run", "--quiet"),
            code=1,
        )
    assert "2 failed" in out.stderr
    assert url in out.stderr  # so that a wrong address can be seen
