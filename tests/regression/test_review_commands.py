"""Faults of the command language that a hostile reading found; each test is named after what it shows."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from grepseek_env.commands import parse
from grepseek_env.errors import CommandRefused
from tests.support.bash_argv import bash_argv

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("key", ["-k1R", "-k 1,1R", "--key=2R,3", "-k 1.1Rb", "-uk2nR", "--k 3R"])
def test_a_sort_key_in_random_order_is_refused_like_that_flag(key: str) -> None:
    with pytest.raises(CommandRefused, match="random order"):
        parse(f"sort {key} corpus.jsonl | head -n 2")


def test_sort_keys_without_random_order_stay() -> None:
    for key in ("-k1,1nr", "-k 2", "--key=1.2bdf,3", "-t R -k 2"):
        assert parse(f"sort {key} corpus.jsonl").argv


@pytest.mark.parametrize(
    "command",
    [
        "find . -printf '" + r"\111" * 1000 + "%x'",
        "find . -printf '%" + "0" * 8000 + "x'",
        "find . -printf '" + "%00" * 2000 + "x'",
        "cat c" + "*" * 4000 + "x*l",
        "cat c" + "*?" * 2000 + "*x*l",
        "rg c" + "*[a-z]" * 1000 + "x*l corpus.jsonl",
    ],
)
def test_no_command_can_keep_the_checker_busy(command: str) -> None:
    # In a process of its own: a backtracking expression holds the interpreter, so nothing inside could stop it.
    code = (
        "import sys\nfrom grepseek_env.commands import parse\nfrom grepseek_env.errors import CommandRefused\n"
        "try:\n    parse(sys.stdin.read())\nexcept CommandRefused:\n    pass\n"
    )
    subprocess.run([sys.executable, "-c", code], input=command, text=True, timeout=60, check=True)


def test_globs_of_many_stars_match_as_in_bash(tmp_path: Path) -> None:
    view = tmp_path / "view"
    view.mkdir()
    (view / "corpus.jsonl").write_bytes(b"{}\n")
    globs = ["c***l", "*?**.json?", "*c*o*r*p*u*s*.*l", "c*z*l", "?" * 12, "?" * 13, "*" * 40, "*?" * 13, "[a-c]**[!a]"]
    commands = [f"cat {glob}" for glob in globs]
    assert [parse(command).argv for command in commands] == bash_argv(commands, view)


@pytest.mark.parametrize(
    "command",
    [
        "rg Ulm corpus.jsonl\n| head",
        "rg Ulm corpus.jsonl |\n head",
        "rg Ulm corpus.jsonl |\n",
        "|\nhead",
        "rg a |\n| wc",
    ],
)
def test_a_line_break_outside_quotes_is_refused_even_after_a_pipe(command: str) -> None:
    with pytest.raises(CommandRefused):
        parse(command)


@pytest.mark.parametrize("flag", ["-R", "-Rn", "-iR", "--dereference-recursive"])
def test_grep_with_capital_r_searches_the_folder_too(flag: str) -> None:
    assert parse(f"grep {flag} Ulm .").stages[0].given("--recursive")  # what the planner asks for


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("find -maxdepth 1 .", "paths come before the expression"),
        ("find . -type f foo", "paths come before the expression"),
        ("find . -name", "-name needs a value"),
        ("awk '{print}' -v", None),
        ("awk -v", "-v needs a value"),
        ("find . -nam x", "no flag -nam"),
    ],
)
def test_what_find_and_awk_cannot_read_is_named(command: str, said: str | None) -> None:
    with pytest.raises(CommandRefused) as caught:
        parse(command)
    assert said is None or said in str(caught.value)
