"""Flags are resolved as the programs resolve them: they complain exactly where that was foreseen."""

from __future__ import annotations

import re
import shlex
import subprocess
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grepseek_env.commands import COMMANDS, ProgramSpec, Style, parse
from grepseek_env.engine.programs import open_programs
from grepseek_env.errors import CommandRefused
from tests.support.odd_corpora import ordinary

if TYPE_CHECKING:
    from pathlib import Path

READERS = [spec for spec in COMMANDS.values() if spec.style not in {Style.FIND, Style.AWK}]
COMPLAINT = re.compile(
    r"unrecognized (?:option|flag)|invalid option|ambiguous|requires an argument|doesn't allow|missing value|"
    r"unexpected argument|missing operand|requires at least one pattern|[Uu]sage: (?:grep|sed)"
)


@st.composite
def flag_words(draw: st.DrawFn, spec: ProgramSpec) -> str:
    """A flag of the table, whole, shortened, run together with another, or with something glued to it."""
    name = draw(st.sampled_from([name for flag in spec.flags for name in flag.names]))
    if name.startswith("--"):
        kept = name[: draw(st.integers(3, len(name)))] if draw(st.booleans()) else name
        return kept + draw(st.sampled_from(("", "", "=1", "=x", "=never")))
    other = draw(st.sampled_from([name for flag in spec.flags for name in flag.names]))
    return name + draw(st.sampled_from(("", "", "1", "Y", "=x", other.lstrip("-")[:1])))


@st.composite
def stage_words(draw: st.DrawFn) -> list[str]:
    spec = draw(st.sampled_from(READERS))
    word = st.one_of(flag_words(spec), flag_words(spec), st.sampled_from(("1", "x", "corpus.jsonl", "--", "-")))
    return [spec.name, *draw(st.lists(word, min_size=1, max_size=4))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    view = tmp_path_factory.mktemp("flags")
    (view / "corpus.jsonl").write_bytes(ordinary(30))
    return view


@pytest.mark.slow
@settings(
    max_examples=max(30, settings().max_examples // 40),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(batch=st.lists(stage_words(), min_size=25, max_size=25))
def test_programs_complain_where_foreseen(batch: list[list[str]], folder: Path) -> None:
    program_dir = open_programs().folder
    for words in batch:
        try:
            stage = parse(shlex.join(words)).stages[0]
        except CommandRefused:
            continue
        done = subprocess.run(
            words,
            executable=program_dir / words[0],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd=folder,
            env={"PATH": str(program_dir), "LC_ALL": "C"},
            timeout=60,
            check=False,
        )
        if stage.usage_error:
            assert done.returncode != 0, words
            assert done.stdout == b"", words
        else:
            assert not COMPLAINT.search(done.stderr.decode(errors="replace")), words
        assert [path.name for path in folder.iterdir()] == ["corpus.jsonl"], words
