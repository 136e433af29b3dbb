"""The readers of sed scripts and awk programs against the programs themselves: what passes does nothing but compute."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grepseek_env.commands.awk_script import read_awk
from grepseek_env.commands.script import ScriptProblem
from grepseek_env.commands.sed_script import read_sed
from grepseek_env.engine.programs import open_programs
from tests.support.strategies import AWK_PROGRAMS, SED_SCRIPTS

if TYPE_CHECKING:
    from pathlib import Path

QUICK = settings(
    max_examples=max(40, settings().max_examples // 40), deadline=None, suppress_health_check=list(HealthCheck)
)

SED_PIECES = (
    *("s", "/", "x", "y", "e", "w", "r", "R", "W", "id", "f", "\n", ";", "{", "}", "[", "]", "[:alpha:]", "\\", "\\\\"),
    *("a", "i", "c", "a\\", "a foo", " ", "1", "$", "/x/", ",", "+", "~", "!", "I", "M", "p", "g", "d", "b", ":", "t"),
    *(
        "#",
        "n",
        "N",
        "=",
        "q",
        "s/a/b/",
        "s/[/]/e/",
        "y/a/b/",
        "\\n",
        "|",
        "e id",
        "\ne id",
        "\\\n",
        "}e id",
        "\t",
        "^",
    ),
    *("[^]", "\\]", "\\[", "é", "&", "0", "-", "_"),
)
AWK_PIECES = (
    *(
        '"a" | getline',
        '> "f"',
        '>"f"',
        "/",
        '"',
        '"/"',
        "/x/",
        ")",
        "(",
        "[",
        "]",
        "{",
        "}",
        ";",
        "\n",
        ",",
        "getline",
    ),
    *(
        "getline x",
        '< "f"',
        "|",
        "print ",
        "printf ",
        "print $1",
        "if (x)",
        "else ",
        " in ",
        "a",
        "x",
        "++",
        "--",
        "$",
        "!",
    ),
    *(
        "~",
        "?",
        ":",
        "=",
        "/=",
        "#",
        "\\\n",
        "length",
        'system("id")',
        "@",
        "/[/]/",
        '"\\""',
        "return ",
        "next",
        "<",
        "-",
    ),
)
# What mawk's listing shows where a program reads or writes a file, or runs something.
FILE_IN_LISTING = re.compile(
    r"pushint\s+-\d+\n\d+ \.\s+(?:print|printf|getline)\b|\.\s+(?:system|srand|rand)\b|ENVIRON|ARGV"
)
TEXT_IN_LISTING = re.compile(r"(?:pushs|match\d|pushr\w*)\s.*")


@st.composite
def changed(draw: st.DrawFn, originals: tuple[str, ...], pieces: tuple[str, ...]) -> str:
    """A script with pieces put in or cut out."""
    text = draw(st.one_of(st.just(""), st.sampled_from(originals)))
    for _ in range(draw(st.integers(1, 5))):
        at = draw(st.integers(0, len(text)))
        cut = draw(st.integers(0, 2))
        text = text[:at] + draw(st.sampled_from(pieces)) + text[at + cut :]
    return text


def run(argv: list[str], program: Path, folder: Path) -> tuple[str, str]:
    done = subprocess.run(
        argv,
        executable=program,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        cwd=folder,
        env={},
        timeout=30,
        check=False,
    )
    return done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


@pytest.mark.slow
@QUICK
@given(scripts=st.lists(st.lists(changed(SED_SCRIPTS, SED_PIECES), min_size=1, max_size=2), min_size=20, max_size=20))
def test_sed_itself_finds_nothing_forbidden_in_what_passes(scripts: list[list[str]], tmp_path: Path) -> None:
    sed = open_programs().folder / "sed"
    for pieces in scripts:
        try:
            read_sed("\n".join(pieces))
        except ScriptProblem:
            continue
        _, errors = run(["sed", "--sandbox", *(word for piece in pieces for word in ("-e", piece))], sed, tmp_path)
        assert "sandbox" not in errors, pieces


def test_sed_finds_what_is_forbidden(tmp_path: Path) -> None:
    # The test above would prove nothing if this sed did not report what it forbids.
    assert "sandbox" in run(["sed", "--sandbox", "e id"], open_programs().folder / "sed", tmp_path)[1]


@pytest.fixture(scope="module")
def mawk() -> Path:
    programs = open_programs()
    if "mawk" not in programs.versions["awk"]:
        pytest.skip("only mawk lists what a program was compiled to")
    return programs.folder / "awk"


def listing(program: str, mawk: Path, folder: Path) -> str:
    return TEXT_IN_LISTING.sub("", run(["awk", "-W", "dump", program], mawk, folder)[0])


@pytest.mark.parametrize(
    "program", ['{print > "f"}', '{"id" | getline}', '{getline < "f"}', "{system(1)}", "{x = ENVIRON[1]}"]
)
def test_mawk_lists_what_is_forbidden(program: str, mawk: Path, tmp_path: Path) -> None:
    assert FILE_IN_LISTING.search(listing(program, mawk, tmp_path))


@pytest.mark.slow
@QUICK
@given(programs=st.lists(changed(AWK_PROGRAMS, AWK_PIECES), min_size=20, max_size=20))
def test_mawk_compiles_nothing_forbidden_from_what_passes(programs: list[str], mawk: Path, tmp_path: Path) -> None:
    for program in programs:
        try:
            read_awk(program)
        except ScriptProblem:
            continue
        if not program.startswith("-"):  # would be a flag, which is refused elsewhere
            assert not FILE_IN_LISTING.search(listing(program, mawk, tmp_path)), program
