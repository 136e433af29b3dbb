from __future__ import annotations

import re
from pathlib import Path

import pytest

from grepseek_env.bench.engine.pipelines import LETTERS, PIPELINES, select_pipelines
from grepseek_env.commands import parse
from grepseek_env.errors import ConfigError

CASES = Path(__file__).parents[2] / "cases" / "bench_pipelines.md"


def test_they_are_those_that_were_fixed() -> None:
    fixed = re.findall(r"^(\d+)\. `(.*)`$", CASES.read_text(encoding="utf-8"), re.MULTILINE)
    assert [(str(p.number), p.text) for p in PIPELINES if p.in_mean] == fixed


def test_words_are_put_in_and_the_commands_are_allowed() -> None:
    words = {letter: f"word{letter.lower()}" for letter in LETTERS}
    for pipeline in PIPELINES:
        command = pipeline.command(words)
        assert "{" not in command
        assert parse(command).stages
    assert PIPELINES[5].command(words) == "rg 'wordr[a-z]*' corpus.jsonl | head -n 5"


def test_lists_of_numbers_and_ranges() -> None:
    assert [p.number for p in select_pipelines("9, 1,4-6")] == [1, 4, 5, 6, 9]
    assert select_pipelines("") == PIPELINES


@pytest.mark.parametrize("text", ["0", "17", "1-99", "a", "3-", "-3", "1;2"])
def test_other_lists_are_errors(text: str) -> None:
    with pytest.raises(ConfigError, match="pipeline"):
        select_pipelines(text)
