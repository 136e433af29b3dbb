"""Faults that users of systems like this one reported about commands; each test is named after its report."""

from __future__ import annotations

import pytest

from grepseek_env.commands import parse
from grepseek_env.errors import CommandRefused


def test_cisco_vulnerability_localization_benchmark_4_a_bar_in_quotes_is_no_pipe() -> None:
    assert parse('rg -n "unsafe|from_raw" corpus.jsonl').argv == (("rg", "-n", "unsafe|from_raw", "corpus.jsonl"),)


def test_vcptoolbox_369_alternatives_with_colons() -> None:
    assert parse('grep "Error:|Warning:" corpus.jsonl').argv == (("grep", "Error:|Warning:", "corpus.jsonl"),)


@pytest.mark.parametrize(
    "pattern",
    ["how to install", "tee shirt", "rm -rf /", "/etc/passwd", "exec(system)", "; id", "a && b", "> out", "`x`"],
)
def test_patterns_are_never_searched_for_dangerous_words(pattern: str) -> None:
    assert parse(f"rg -F '{pattern}' corpus.jsonl").argv == (("rg", "-F", pattern, "corpus.jsonl"),)


@pytest.mark.parametrize("command", ["cat corpus.jsonl|bash", "cat corpus.jsonl |sh", "echo x |sh", "cat payload|bash"])
def test_tracker_554_a_pipe_without_blanks_still_starts_a_program(command: str) -> None:
    with pytest.raises(CommandRefused) as caught:
        parse(command)
    assert caught.value.reason == "unknown-program"


def test_vllm_45167_a_closing_tag_in_a_pattern() -> None:
    assert parse('rg -F "</tool_call>" corpus.jsonl').argv == (("rg", "-F", "</tool_call>", "corpus.jsonl"),)


def test_ripgrep_2582_a_search_without_a_file_is_accepted() -> None:
    # Standard input is empty, so rg searches the folder: it cannot wait for a terminal.
    stage = parse("rg Einstein").stages[0]
    assert not stage.usage_error
    assert stage.files == ()


@pytest.mark.parametrize(
    "command", ["rg -F 'Café' corpus.jsonl", "rg -i 'straße' corpus.jsonl", "grep -i école corpus.jsonl"]
)
def test_patterns_outside_ascii_arrive_unchanged(command: str) -> None:
    assert any(not word.isascii() for word in parse(command).argv[0])


@pytest.mark.parametrize(
    "command", ["rg -x foo corpus.jsonl", "rg 'foo$' corpus.jsonl", "rg --crlf -x foo corpus.jsonl"]
)
def test_ripgrep_1568_line_ends_are_left_to_rg(command: str) -> None:
    assert not parse(command).stages[0].usage_error


def test_a_bad_regular_expression_is_the_programs_own_error() -> None:
    assert parse("rg '(' corpus.jsonl").argv == (("rg", "(", "corpus.jsonl"),)
