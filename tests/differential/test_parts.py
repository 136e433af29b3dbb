"""Commands over a corpus in parts, opened in this process, against bash over the one file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from grepseek_env.commands import parse
from grepseek_env.distributed.open import open_parts
from grepseek_env.errors import CommandRefused
from tests.support.catalogue import catalogue
from tests.support.odd_corpora import REFUSED, odd, ordinary
from tests.support.oracle import DEADLINE
from tests.support.parting import Parted
from tests.support.slicing import even_cuts

if TYPE_CHECKING:
    from pathlib import Path

CORPORA = {"ordinary": ordinary(120), **{name: data for name, data in odd().items() if name not in REFUSED}}
COMMANDS = [case.command for case in catalogue()]
PARTS = (1, 2, 4)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GREPSEEK_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("parts", PARTS)
def test_a_sample_of_the_catalogue(tmp_path: Path, parts: int) -> None:
    data = CORPORA["ordinary"]
    corpus = Parted(tmp_path, data, even_cuts(data, parts))
    with open_parts(corpus.manifest) as backend:
        wrong = corpus.differences(COMMANDS[PARTS.index(parts) :: 31], backend)
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(CORPORA) - {"empty"}))
def test_the_catalogue_on_odd_corpora(tmp_path: Path, name: str) -> None:
    data = CORPORA[name]
    corpus = Parted(tmp_path, data, even_cuts(data, 3))
    step = 1 if name == "ordinary" else 7
    with open_parts(corpus.manifest) as backend:
        wrong = corpus.differences(COMMANDS[::step], backend)
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ordinary", "bad_utf8"])
def test_in_utf8(tmp_path: Path, name: str) -> None:
    data = CORPORA[name]
    corpus = Parted(tmp_path, data, even_cuts(data, 3), "C.UTF-8")
    with open_parts(corpus.manifest, locale="C.UTF-8") as backend:
        wrong = corpus.differences(COMMANDS[::5], backend)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "command",
    ["cat corpus.jsonl", "rg -F Einstein corpus.jsonl | sed 1d", "grep -n T corpus.jsonl", "sort corpus.jsonl",
     "sed -n '2,$p' corpus.jsonl", "cat corpus.jsonl corpus.jsonl", "wc corpus.jsonl"],
)  # fmt: skip
def test_a_budget_keeps_exactly_the_first_bytes(tmp_path: Path, command: str) -> None:
    data = CORPORA["ordinary"]
    corpus = Parted(tmp_path, data, even_cuts(data, 3))
    whole = corpus.wanted(command)
    with open_parts(corpus.manifest) as backend:
        for budget in (0, 1, 100, 4096, 10_000_000):
            ours = backend.run(command, timeout=DEADLINE, max_output_bytes=budget)
            cut = len(whole.stdout) > budget
            assert (ours.stdout, ours.output_truncated) == (whole.stdout[:budget], cut)
            assert ours.exit_code == (None if cut else whole.exit_code)


# On a corpus too large to be put together, what needs it whole is refused; everything else is as bash has it.
WITHOUT_A_COPY = [
    "ls", "ls -a", "find . -name '*.jsonl' -size +1k", "find . -printf '%f %s\\n'", "grep X nosuch.txt", "head nosuch",
    "rg 'bad(' corpus.jsonl", "rg 'bad(' corpus.jsonl | head -n 3", "grep 'bad\\(' corpus.jsonl | wc -l",
    "sed 's/x' corpus.jsonl", "awk '{' corpus.jsonl", "rg Ulm corpus.jsonl | grep 'bad\\('", "sort -k x corpus.jsonl",
    "rg Ulm corpus.jsonl | sed 's/x' | wc -l", "cut corpus.jsonl", "grep -A1 -m2 Ulm corpus.jsonl",
    "awk 'END{print NR}' corpus.jsonl", "sed -n '/T3/,/T5/p' corpus.jsonl", "sed -n '/Foo/,/T5/p' corpus.jsonl",
    "tail -n +3 corpus.jsonl | head -n 2", "awk 'NR==3{exit 3}' corpus.jsonl", "sed -n '3{p;q}' corpus.jsonl",
    "rg -U 'T1' corpus.jsonl", "cat -s corpus.jsonl | wc -l",
]  # fmt: skip
NEEDS_A_COPY = ["cat corpus.jsonl corpus.jsonl", "rg Ulm", "sed F corpus.jsonl", "rg --vimgrep Ulm corpus.jsonl",
                "rg Ulm corpus.jsonl | cat corpus.jsonl -"]  # fmt: skip


def test_what_needs_no_copy_of_the_whole_gets_none(tmp_path: Path) -> None:
    data = CORPORA["ordinary"]
    corpus = Parted(tmp_path, data, even_cuts(data, 4))
    with open_parts(corpus.manifest, whole_bytes=0) as backend:
        accepted = [command for command in WITHOUT_A_COPY if _accepted(command)]
        for command in accepted:
            backend.run(command, timeout=DEADLINE)  # not refused
        wrong = corpus.differences(accepted, backend)
        assert not wrong, "\n".join(wrong)
        for command in NEEDS_A_COPY:
            with pytest.raises(CommandRefused, match="one file") as refused:
                backend.run(command)
            assert refused.value.reason == "needs-whole"
    assert len(accepted) > 15
    assert not (tmp_path / "cache" / "whole").exists()


def _accepted(command: str) -> bool:
    try:
        parse(command)
    except CommandRefused:
        return False
    return True


@pytest.mark.slow
def test_outputs_longer_than_a_window_come_in_chunks(tmp_path: Path) -> None:
    line = b'{"id": "%d", "contents": "Einstein ' + b"x" * 1000 + b' Ulm"}\n'
    data = b"".join(line % number for number in range(12_000))
    corpus = Parted(tmp_path, data, even_cuts(data, 2))
    commands = ["cat corpus.jsonl", "rg -F Ulm corpus.jsonl | sed 1d", "sort -r corpus.jsonl",
                "cut -c 2- corpus.jsonl", "grep -bn Ulm corpus.jsonl", "sort -r corpus.jsonl | head -n 2",
                "cut -c 2- corpus.jsonl | tail -n 1"]  # fmt: skip
    with open_parts(corpus.manifest) as backend:
        wrong = corpus.differences(commands, backend)
    assert not wrong, "\n".join(text[:300] for text in wrong)
