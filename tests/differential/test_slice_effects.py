"""What the table and the readers of scripts declare to be line by line is so: f(x + y) = f(x) + f(y), asked of the
programs themselves.
"""

from __future__ import annotations

import io
import subprocess
from typing import TYPE_CHECKING

import pytest

from grepseek_env.commands import COMMANDS, Arity, Effect, FlagSpec, Operands, parse
from grepseek_env.engine.programs import open_programs
from tests.support.odd_corpora import odd, ordinary

if TYPE_CHECKING:
    from pathlib import Path

LOCAL = frozenset({Effect.FILTER, Effect.MAP, Effect.KEEP, Effect.NAME})
CORPORA = {
    "ordinary": ordinary(150),
    **{name: odd()[name] for name in ("crlf", "bad_utf8", "no_final_newline")},
}
VALUES = {
    "PATTERN": ("Ulm", "b|"),
    "TEXT": ("<>",),
    "GLOB": ("*.jsonl", "*.txt"),
    "TYPE": ("json", "text"),
    "LIST": ("1-20", "2"),
    "CHAR": ('"', ","),
    "NUM": ("1", "60"),
    "ENGINE": ("default", "pcre2", "auto"),
}
SCRIPTS = (
    ["sed", "s/Einstein/E/g"],
    ["sed", "-E", "s/([A-Z])[a-z]+/\\1\\n/"],
    ["sed", "/Ulm/d"],
    ["sed", "-n", "/Ulm/p"],
    ["sed", ":a;s/e\\(.*\\)x/x\\1/;ta"],
    ["sed", "y/abc/xyz/"],
    ["sed", "#n\n/Ulm/p;/Curie/P"],
    ["awk", "/Einstein/"],
    ["awk", "-F", '"', "{print $4, NF}"],
    ["awk", '{n=split($0, a, ","); for (i=1;i<=n;i++) print a[i]}'],
    ["awk", '{x = ""; if (/Ulm/) x = "u"; print x length($0)}'],
    ["awk", '{gsub(/e/, "E"); $1 = $1; print}'],
    ["awk", "{if (match($0, /[0-9]+/)) print substr($0, RSTART, RLENGTH)}"],
    ["awk", '{printf "%s ", $2}'],
    ["tr", "a-z", "A-Z"],
    ["tr", " ", "\\n"],
    ["tr", "-d", '"'],
    ["tr", "-s", " e"],
    ["tr", "-cd", "a-z\\n"],
)


def words(name: str, flag: FlagSpec, value: str | None) -> list[str]:
    pattern = ["Einstein"] if COMMANDS[name].operands is Operands.PATTERN_FILES and "-e" not in flag.names else []
    spelling = flag.names[0]
    given = [spelling] if value is None else [f"{spelling}={value}"] if spelling.startswith("--") else [spelling, value]
    extra = ["-f", "2,4"] if name == "cut" and not {"-f", "-c", "-b"} & set(flag.names) else []
    return [name, *given, *extra, *pattern]


def declared() -> list[list[str]]:
    """One command for each flag, and each value tried, that leaves a line-local program line-local."""
    found = []
    for name in ("rg", "grep", "cat", "cut"):
        for flag in COMMANDS[name].offered():
            if flag.names[0] == "-j":
                continue  # a number of threads; what it may be is checked elsewhere
            choices = (
                flag.accepts.split("|")
                if "[" not in flag.accepts and flag.accepts
                else VALUES.get(flag.metavar, ("1",))
            )
            values: list[str | None] = [None] if flag.arity is Arity.NONE else [*choices]
            if flag.arity is Arity.OPTIONAL:
                values.append(None)
            found += [words(name, flag, value) for value in values if flag.effect_of(value) in LOCAL]
    return found


def output(argv: list[str], data: bytes, folder: Path, program_dir: Path) -> bytes:
    on_stdin = argv[0] == "tr"
    folder.mkdir(exist_ok=True)
    (folder / "corpus.jsonl").write_bytes(data)
    with (folder / "corpus.jsonl").open("rb") as corpus:
        return subprocess.run(
            argv if on_stdin else [*argv, "corpus.jsonl"],
            executable=program_dir / argv[0],
            stdin=corpus if on_stdin else subprocess.DEVNULL,
            capture_output=True,
            cwd=folder,
            env={"PATH": str(program_dir), "LC_ALL": "C"},
            timeout=60,
            check=False,
        ).stdout


@pytest.mark.slow
@pytest.mark.parametrize("argv", [*declared(), *SCRIPTS], ids=" ".join)
def test_what_is_declared_line_by_line_is(argv: list[str], tmp_path: Path) -> None:
    program_dir = open_programs().folder
    checked = parse(" ".join("'" + word.replace("'", "'\\''") + "'" for word in argv)).stages[0]
    if checked.script is not None:
        assert checked.script.effect in LOCAL
    for data in CORPORA.values():
        lines = io.BytesIO(data).readlines()
        cut = len(lines) // 3
        whole = output(argv, data, tmp_path / "whole", program_dir)
        parts = [output(argv, b"".join(part), tmp_path / "part", program_dir) for part in (lines[:cut], lines[cut:])]
        assert b"".join(parts) == whole
        if checked.script is not None and checked.script.aligned and data[-1:] == b"\n":
            assert whole[-1:] in {b"\n", b""}
