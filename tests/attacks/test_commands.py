"""Commands that must not do what they try to: through the table, and past it, where only the system stands."""

from __future__ import annotations

import re
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from grepseek_env.commands import COMMANDS, parse
from grepseek_env.engine.executor import execute
from grepseek_env.engine.local import LocalBackend
from grepseek_env.errors import CommandRefused, SpawnFailed
from tests.support.arena import LIMITS, Arena, needs
from tests.support.processes import linux_only

if TYPE_CHECKING:
    from collections.abc import Iterator

FILES = (Path(__file__).with_name("commands.txt"), Path(__file__).parents[1] / "cases" / "attacks.txt")
ATTACKS = [line for file in FILES for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
ATTACKS = [line for line in ATTACKS if not line.startswith("#")]
# These do nothing but take time or memory, or end with the program's own error.
MERELY_COSTLY = (
    "rg -P",
    "rg --regex-size",
    "rg '(((",
    "grep -P",
    "grep -E",
    "sed ':a",
    "sed -n '1{:a",
    "awk",
    "rg x -",
)
ENDLESS = re.compile(r"/dev/(zero|u?random)|while\(|for\(;;|ba\b|tail .*-[fF]|--foll|f\(n\+1\)|-[PE] '|regex-size")
ENDS_BY_ITSELF = ("tr a b {out}", "cat", "sort", "tr -d x corpus.jsonl")


@pytest.fixture(scope="module")
def arena() -> Iterator[Arena]:
    # Not below pytest's own folder: the way there is closed to other users, which is not what is tested.
    with tempfile.TemporaryDirectory(prefix="arena-") as folder:
        Path(folder).chmod(0o755)
        place = Arena(Path(folder))
        yield place
        place.close()


@pytest.fixture(scope="module")
def backend(arena: Arena) -> Iterator[LocalBackend]:
    with LocalBackend(arena.store, LIMITS, cache_bytes=0) as opened:
        yield opened


def test_there_are_enough() -> None:
    assert len(set(ATTACKS)) >= 300
    programs = {attack.split()[0] for attack in ATTACKS}
    assert programs >= COMMANDS.keys()


@pytest.mark.parametrize("attack", ATTACKS)
def test_through_the_table(arena: Arena, backend: LocalBackend, attack: str) -> None:
    command = arena.fill(attack)
    try:
        result = backend.run(command, timeout=seconds(attack), max_output_bytes=1 << 20)
    except CommandRefused as refusal:
        arena.check(str(refusal).encode().replace(command.encode(), b""))
        return
    # What is let through is no attack on anything but time and memory, which have limits.
    assert attack.startswith((*MERELY_COSTLY, *ENDS_BY_ITSELF)), f"accepted: {parse(command).argv}"
    arena.check(result.stdout, result.stderr)


@pytest.mark.slow
@linux_only
@pytest.mark.parametrize("attack", ATTACKS)
def test_past_the_table(arena: Arena, attack: str) -> None:
    needs()
    stages = stages_of(arena.fill(attack))
    try:
        result = execute(stages, arena.sandbox(), timeout=seconds(attack), max_output_bytes=1 << 20)
    except SpawnFailed as failure:
        assert "is none of the programs" in str(failure)  # noqa: PT017 - nothing else may keep it from starting
        return
    arena.check(result.stdout, result.stderr)


def seconds(attack: str) -> float:
    """Returns how long an attack may take; what never ends need not be watched for long."""
    return 0.1 if ENDLESS.search(attack) else 10.0


def stages_of(command: str) -> list[list[str]]:
    """Splits a command as a careless engine would: at bars, then into words as a shell does."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|")
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        words = list(lexer)
    except ValueError:  # a quote that is not closed
        words = command.split()
    stages: list[list[str]] = [[]]
    for word in words:
        if word and set(word) == {"|"}:
            stages.append([])
        else:
            stages[-1].append(word)
    return [stage for stage in stages if stage]
