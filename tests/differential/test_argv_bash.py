"""Whatever is accepted, bash passes the same arguments to the same programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grepseek_env.commands import COMMANDS, parse
from grepseek_env.errors import CommandRefused
from tests.support.bash_argv import bash_argv, bash_c_argv, make_stubs
from tests.support.oracle import cases
from tests.support.strategies import near_shell, pipelines

if TYPE_CHECKING:
    from pathlib import Path

# One bash process answers many commands: each example is a whole batch.
BATCH = settings(
    max_examples=max(25, settings().max_examples // 40),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    view = tmp_path_factory.mktemp("argv") / "view"
    view.mkdir()
    (view / "corpus.jsonl").write_text('{"id": "0"}\n', encoding="ascii")
    return view


def accepted(texts: list[str]) -> list[str]:
    kept = []
    for text in texts:
        try:
            parse(text)
        except CommandRefused:
            continue
        kept.append(text)
    return kept


def check(texts: list[str], folder: Path) -> None:
    for text, argv in zip(texts, bash_argv(texts, folder), strict=True):
        assert parse(text).argv == argv, f"bash reads {text!r} differently"


def test_catalogue_and_examples(folder: Path) -> None:
    examples = [example for spec in COMMANDS.values() for example in spec.examples]
    texts = accepted([command for _, command in cases()])
    assert len(texts) > 100
    check([*texts, *examples], folder)


def test_real_programs_see_the_same(folder: Path, tmp_path: Path) -> None:
    stubs = make_stubs(tmp_path / "stubs")
    texts = [
        "rg -F 'a  b' corpus.jsonl | head -n 3",
        r"""rg -e "foo$" -e"\$5" -e it\'s -e 'x'"y"z -e "" -e T[0-9]+ -e a\*b -e{} -e x{a} *.jsonl | sort -k2,2 -t,""",
        "cat ./* [a-d]orpus.json? [!d]orpus.jsonl | uniq -c",
        "grep --include=*.jsonl 'a\nb' corpus.jsonl \\\n | wc -l",
        'rg "a\\\nb" "\\n \\a \\\\" corpus.jsonl\n',
    ]
    for text in texts:
        assert parse(text).argv == bash_c_argv(text, folder, stubs)


@BATCH
@given(texts=st.lists(near_shell(), min_size=120, max_size=120))
def test_near_shell(texts: list[str], folder: Path) -> None:
    check(accepted(texts), folder)


@pytest.mark.slow
@BATCH
@given(texts=st.lists(pipelines(), min_size=20, max_size=20))
def test_pipelines_from_the_table(texts: list[str], folder: Path) -> None:
    check(accepted(texts), folder)
