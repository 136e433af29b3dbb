"""`grepseek bench engine`, as a user calls it, on a corpus so small that its figures mean nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from grepseek_env.bench.engine import contestants, run
from grepseek_env.bench.engine.contestants import Answer
from grepseek_env.cli import main

if TYPE_CHECKING:
    from pathlib import Path

COMMAND = [sys.executable, "-m", "grepseek_env.cli", "bench", "engine"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def bench(cache: Path, *args: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    out = subprocess.run(
        [*COMMAND, *map(str, args)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "GREPSEEK_CACHE": str(cache)},
        check=False,
    )
    assert out.returncode == code, (out.returncode, out.stdout, out.stderr)
    return out


def test_a_file_that_cannot_be_written_is_told_before_anything_is_measured(cache: Path, tmp_path: Path) -> None:
    out = bench(cache, "--size", "4MB", "--out", tmp_path, code=1)
    assert "cannot be written" in out.stderr
    assert out.stdout == ""


@pytest.mark.slow
def test_all_pipelines_are_compared_and_written_down(cache: Path, tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    out = bench(cache, "--size", "4MB", "--draws", "1", "--rounds", "1", "--out", file)
    assert max(map(len, out.stdout.splitlines())) <= 100
    assert "geometric mean of 15" in out.stdout
    values = json.loads(file.read_text(encoding="utf-8"))
    assert values["complete"]
    assert [p["number"] for p in values["pipelines"]] == list(range(1, 17))
    assert 3.9e6 < values["corpus"]["bytes"] <= 4e6
    assert set(values["words"]["draws"][0]) == set("RMFPNH")
    assert values["manifest"]["programs"]["rg"].startswith("ripgrep")
    assert values["command_line"][1:3] == ["bench", "engine"]
    assert set(values["index_bytes"]) == {"narrowed:index", "auto:index"}
    share = values["index_bytes"]["auto:index"] / values["corpus"]["bytes"]
    assert "auto:index  has an index of" in out.stdout
    assert f"{share:.1%} of the corpus" in out.stdout
    for pipeline in values["pipelines"]:
        (timings,) = pipeline["draws"][0]["rounds"]
        checked = {name: t for name, t in timings.items() if name != "ceiling"}
        assert {"bash", "sequential", "narrowed:index", "auto:index"} < set(checked)
        assert len({(t["digest"], t["exit_code"]) for t in checked.values()}) == 1
        assert pipeline["figures"]["bash"]["against_bash"]["median"] == 1.0
    assert not list((cache / "bench").iterdir())


@pytest.mark.slow
def test_ones_own_corpus_and_a_choice_of_everything(cache: Path, tmp_path: Path) -> None:
    bench(cache, "--size", "1MB", "--draws", "1", "--rounds", "1", "--pipelines", "9", "--no-ceiling")
    (made,) = (cache / "worlds").glob("*-1000000/corpus.jsonl")
    own = tmp_path / "own.jsonl"
    own.write_bytes(made.read_bytes())
    options = ("--draws", "2", "--rounds", "2", "--pipelines", "8-9", "--modes", "sequential", "--no-ceiling")
    out = bench(cache, "--corpus", own, *options)
    assert "8. grep -c 'M' corpus.jsonl" in out.stdout
    assert "auto" not in out.stdout
    assert "ceiling  " not in out.stdout.partition("8. grep")[2].replace("of the ceiling", "")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--size", "many"), "is no size"),
        (("--size", "90000TB"), "GREPSEEK_CACHE"),
        (("--rounds", "0"), "rounds is 0"),
        (("--pipelines", "99"), "no pipeline"),
        (("--contestants", "sequentail"), "did you mean 'sequential'"),
        (("--modes", "sequentail"), "did you mean 'sequential'"),
        (("--out", "nowhere/figures.json"), "folder does not exist"),
        (("--corpus", "nowhere.jsonl"), "nowhere.jsonl"),
    ],
)
def test_what_cannot_work_is_said_at_once(
    cache: Path,
    args: tuple[str, ...],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GREPSEEK_CACHE", str(cache))
    assert main(["bench", "engine", *args]) == 1
    assert message in capsys.readouterr().err


def test_help_names_where_building_an_index_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "engine", "--help"])
    assert "grepseek bench scaling" in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_a_lie_ends_it_with_an_error(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GREPSEEK_CACHE", str(cache))

    class Liar(contestants.LocalBackend):
        def run(self, command: str, **options: object) -> Answer:  # type: ignore[override]
            result = super().run(command, **options)  # type: ignore[arg-type]
            wrong = b"lie" if command.startswith("grep -c") else result.stdout
            return Answer(wrong, result.exit_code, result.timed_out)

    monkeypatch.setattr(contestants, "LocalBackend", Liar)
    out = tmp_path / "figures.json"
    args = ("--size", "1MB", "--draws", "1", "--rounds", "1", "--contestants", "sequential", "--no-ceiling")
    assert main(["bench", "engine", *args, "--pipelines", "8,9", "--out", str(out)]) == 1
    error = capsys.readouterr().err
    assert "pipeline 8: sequential does not answer as bash does" in error
    assert "grep -c" in error
    assert not out.exists()


def test_ctrl_c_prints_what_is_complete(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GREPSEEK_CACHE", str(cache))
    inner = run.measure

    def measure(*args: object, **options: object) -> None:
        left = 20

        def interrupting(_text: str) -> None:
            nonlocal left
            left -= 1
            if not left:
                signal.raise_signal(signal.SIGINT)

        inner(*args, **{**options, "after_run": interrupting})  # type: ignore[arg-type]

    monkeypatch.setattr(run, "measure", measure)
    out = tmp_path / "figures.json"
    args = ("--size", "1MB", "--draws", "1", "--rounds", "3", "--contestants", "sequential", "--out", str(out))
    assert main(["bench", "engine", *args]) == 130
    printed = capsys.readouterr()
    assert "stopped early" in printed.out
    values = json.loads(out.read_text(encoding="utf-8"))
    assert not values["complete"]
    assert values["pipelines"][0]["figures"]["sequential"]["runs"] == 3
    assert values["pipelines"][15]["figures"] == {}
    assert not list((cache / "bench").iterdir())
