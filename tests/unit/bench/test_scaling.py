from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from grepseek_env.bench.engine.pipelines import LETTERS
from grepseek_env.bench.engine.words import Word
from grepseek_env.bench.scaling.classes import CLASSES, batch_commands
from grepseek_env.bench.scaling.report import batch_table, class_table, index_table
from grepseek_env.bench.scaling.run import ScalingBench, bench_scaling
from grepseek_env.commands import parse
from grepseek_env.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

DRAWS = [{letter: Word(f"{letter.lower()}{number}", 1) for letter in LETTERS} for number in range(8)]
ENTRY = {
    "bytes": 2_000_000_000,
    "lines": 1000,
    "index": {"bytes": 200_000_000, "seconds": 10.0, "cpu_seconds": 16.0, "workers": 2, "peak_bytes": 500_000_000},
    "classes": {"rare": {"bash": 200.0, "without": 50.0, "with": 0.25}},
    "against_bash": {"rare": {"bash": 1.0, "without": 4.0, "with": 800.0}},
    "batch": {"commands": 64, "per_second": {"bash": 6.0, "without": 20.0, "with": 1200.0}},
}


def test_every_class_is_a_command() -> None:
    words = {letter: word.text for letter, word in DRAWS[0].items()}
    for each in CLASSES:
        parse(each.pipeline.command(words))


def test_a_batch_holds_different_commands() -> None:
    commands = batch_commands(DRAWS, 64)
    assert len(set(commands)) == len(commands) == 64
    assert len(batch_commands(DRAWS[:1], 64)) == 8
    for command in commands:
        parse(command)


def test_the_index_table_tells_share_rate_and_memory() -> None:
    lines = index_table([ENTRY, {**ENTRY, "index": {"bytes": 200_000_000}}]).splitlines()
    assert lines[1].split() == ["2.00", "10.0%", "200", "100", "125", "500"]
    assert lines[2].split() == ["2.00", "10.0%", "-", "-", "-", "-"]


def test_the_other_tables_tell_what_was_measured() -> None:
    assert class_table([ENTRY]).splitlines()[-1].split() == ["rare", "200.0", "50.00", "0.250", "4.00", "800"]
    assert batch_table([ENTRY]).splitlines()[-1].split() == ["2.00", "64", "6.0", "20", "1200"]


@pytest.mark.parametrize("wrong", [{"sizes": " , "}, {"rounds": 0}, {"workers": 0}, {"sizes": "many"}])
def test_options_that_cannot_work_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        ScalingBench(**wrong)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_whole_run_writes_figures_and_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GREPSEEK_CACHE", str(tmp_path / "cache"))
    options = ScalingBench("2MB,4MB", draws=1, rounds=1, batch=16, out=tmp_path / "out", quiet=True)
    assert bench_scaling(options) == 0
    written = json.loads((tmp_path / "out" / "scaling.json").read_text())
    assert [entry["lines"] > 1000 for entry in written["sizes"]] == [True, True]
    for entry in written["sizes"]:
        assert set(entry["classes"]) == {each.name for each in CLASSES}
        assert 0 < entry["index"]["bytes"] < entry["bytes"]
    assert (tmp_path / "out" / "scaling.png").read_bytes().startswith(b"\x89PNG")
    assert "frequent word, wc -l" in capsys.readouterr().out
