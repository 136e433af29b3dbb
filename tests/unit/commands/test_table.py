"""The table is complete and consistent: walked entry by entry, and audited against the installed programs."""

from __future__ import annotations

import re
import string
import subprocess
from typing import TYPE_CHECKING

import pytest

from grepseek_env.commands import COMMANDS, Arity, Effect, FlagSpec, ProgramSpec, Style, describe, parse
from grepseek_env.engine.programs import open_programs

if TYPE_CHECKING:
    from pathlib import Path

ENTRIES = list(COMMANDS.values())
GNU = [spec for spec in ENTRIES if spec.style in {Style.GETOPT, Style.GETOPT_IN_ORDER}]
WRONG = "-\x02"
"""A flag that no program knows: it ends every program before it starts to work. Given twice, since the first may be
taken for a value."""
KNOWN_LONG = re.compile(r"(?<![-\w'])--[a-z0-9][-a-z0-9]*")


@pytest.fixture(scope="module")
def program_dir() -> Path:
    return open_programs().folder


def run(program_dir: Path, *argv: str) -> str:
    done = subprocess.run(
        argv,
        executable=program_dir / argv[0],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={"PATH": str(program_dir), "LC_ALL": "C"},
        timeout=20,
        check=False,
    )
    return (done.stdout + done.stderr).decode(errors="replace")


def test_programs_are_those_of_the_command_language() -> None:
    assert list(COMMANDS) == [
        "rg",
        "grep",
        "find",
        "sed",
        "awk",
        "head",
        "tail",
        "cat",
        "ls",
        "wc",
        "sort",
        "cut",
        "uniq",
        "tr",
    ]
    assert all(name == spec.name for name, spec in COMMANDS.items())


@pytest.mark.parametrize("spec", ENTRIES, ids=lambda spec: spec.name)
def test_entries_are_consistent(spec: ProgramSpec) -> None:
    assert spec.help
    assert spec.examples
    for flag in spec.flags:
        assert all(name.startswith("-") and name != "--" for name in flag.names)
        assert (flag.metavar != "") == (flag.arity is not Arity.NONE)
        assert bool(flag.accepts) == bool(flag.expected)
        assert flag.effect is not Effect.SCRIPT or spec.effect is Effect.SCRIPT
        if flag.ban is not None:
            assert flag.effect is Effect.OPAQUE
        if flag.accepts:
            assert all(value is None or re.fullmatch(flag.accepts, value) for value in flag.inert)
        assert all(name in spec.exact for name in flag.against)


def test_a_flag_declared_twice_is_an_error() -> None:
    flag = COMMANDS["head"].flags[0]
    with pytest.raises(ValueError, match="declared twice"):
        ProgramSpec("x", "", Effect.MAP, Style.GETOPT, COMMANDS["head"].operands, (flag, flag), ())


@pytest.mark.parametrize("example", [example for spec in ENTRIES for example in spec.examples])
def test_examples_are_accepted(example: str) -> None:
    pipeline = parse(example)
    assert not any(stage.usage_error for stage in pipeline.stages)


@pytest.mark.parametrize("spec", ENTRIES, ids=lambda spec: spec.name)
def test_help_names_every_offered_flag_and_no_refused_one(spec: ProgramSpec) -> None:
    text = describe(spec)
    for flag in spec.flags:
        line = next((ln for ln in text.splitlines() if re.match(rf"  {re.escape(flag.names[0])}[ ,\[=]", ln)), "")
        assert bool(line) == bool(flag.help and flag.ban is None), flag.names
        assert flag.help in line
    assert all(example in text for example in spec.examples)


@pytest.mark.parametrize(
    ("name", "flag"),
    [(spec.name, flag) for spec in ENTRIES for flag in spec.flags if flag.ban is not None],
    ids=lambda value: value if isinstance(value, str) else value.names[0],
)
def test_refused_flags_are_refused_in_every_spelling(name: str, flag: FlagSpec) -> None:
    # A word before it, since head and tail take a number only right behind their name.
    lead = ["x"] if COMMANDS[name].style is Style.GETOPT else []
    for spelling in flag.names:
        glued = f"{spelling}=x" if spelling.startswith("--") else f"{spelling}x"
        for words in ([spelling, "x"], [glued]) if flag.arity is not Arity.NONE else ([spelling],):
            if COMMANDS[name].style is Style.FIND and words == [glued]:
                continue
            with pytest.raises(ValueError, match=f"{name} {re.escape(spelling)} is not available"):
                parse(" ".join([name, *lead, *words, "x"]))


@pytest.mark.parametrize("spec", GNU, ids=lambda spec: spec.name)
def test_every_long_flag_of_the_program_is_in_the_table(spec: ProgramSpec, program_dir: Path) -> None:
    # --help names most; getopt names the rest when asked for an ambiguous beginning.
    found = {name for line in run(program_dir, spec.name, "--help").splitlines() for name in flag_column(line)}
    for letter in string.ascii_lowercase:
        answer = run(program_dir, spec.name, f"--{letter}", WRONG, WRONG)
        if "ambiguous" in answer:
            found |= set(re.findall(r"'(--[-a-z0-9]+)'", answer.split("possibilities", 1)[-1]))
    assert found
    assert found - spec.exact.keys() == set()


def flag_column(line: str) -> list[str]:
    """The long flags that a line of --help introduces: those in its left column."""
    left = re.match(r"\s{1,8}(-.*?)(?:\s{2,}|$)", line)
    return KNOWN_LONG.findall(left.group(1)) if left else []


@pytest.mark.parametrize("spec", GNU, ids=lambda spec: spec.name)
def test_short_flags_are_known_to_both_or_neither(spec: ProgramSpec, program_dir: Path) -> None:
    unknown = [
        c
        for c in string.ascii_letters + string.digits
        if f"-{c}" not in spec.exact
        and f"invalid option -- '{c}'" not in run(program_dir, spec.name, f"-{c}", WRONG, WRONG)
    ]
    assert unknown == []


def test_every_flag_of_rg_is_in_the_table(program_dir: Path) -> None:
    script = run(program_dir, "rg", "--generate", "complete-bash")
    listed = max((part.split('"', 1)[0] for part in script.split('opts="')[1:]), key=len)
    found = {word for word in listed.split() if word.startswith("-")}
    assert len(found) > 150
    assert found - COMMANDS["rg"].exact.keys() == set()


@pytest.mark.parametrize(
    ("name", "word"), [("rg", "--no-such-flag"), ("rg", "-Y"), ("grep", "--nosuch"), ("wc", "-q"), ("sed", "-k")]
)
def test_unknown_flags_are_rejected_by_the_programs_before_they_read(name: str, word: str, program_dir: Path) -> None:
    assert parse(f"{name} {word} x missing.txt").stages[0].usage_error
    answer = run(program_dir, name, word, "x", "missing.txt")
    assert re.search(r"unrecognized|invalid option|unknown option", answer)
    assert "missing.txt" not in answer
