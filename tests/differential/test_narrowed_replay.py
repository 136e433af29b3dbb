"""Pipelines on the lines that their narrowing leaves, and their exact filters in plain Python, against bash."""

from __future__ import annotations

import random
import shlex
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.catalogue import catalogue
from tests.support.narrowing import Narrowed
from tests.support.odd_corpora import REFUSED, odd, ordinary
from tests.support.patterns import draw_search
from tests.support.strategies import pipelines

if TYPE_CHECKING:
    from pathlib import Path

CORPORA = {"ordinary": ordinary(120), **{name: data for name, data in odd().items() if name not in REFUSED}}
COMMANDS = [case.command for case in catalogue()]
SAMPLE = 7  # every so many commands in the fast run
FEW = 61
TAILS = (
    *("", "", "head -n 2", "wc -l", "wc -c", "cat", "head", "head -n 0", "head -n 1 | wc -c", "sort", "wc", "uniq -c"),
    *(
        "rg -c ''",
        "grep -c a",
        "rg -n i",
        "grep -v s",
        "rg -v -F a | head -n 3",
        "tail -n 2",
        "cut -c 1-3",
        "cat | wc -l",
    ),
    *(
        "rg -q k",
        "grep -qi S",
        "rg -m 2 -i k",
        "grep -m1 U",
        "rg -o '[a-z]+' | sort | uniq -c",
        "head -c 9",
        "awk 'END{print NR}'",
    ),
)
LAST = (*([""] * 6), "-c", "-q", "-m 2", "-o", "-n", "-A 1", "-H", "-c -m 1", "-b", "-h")


def run(narrowed: Narrowed, commands: list[str], seed: int) -> None:
    rng = random.Random(seed)
    wrong = [text for text in (narrowed.difference(command, rng) for command in commands) if text]
    assert not wrong, "\n".join(wrong)


def test_a_sample_of_the_catalogue(tmp_path: Path) -> None:
    narrowed = Narrowed(tmp_path, CORPORA["ordinary"])
    run(narrowed, COMMANDS[::SAMPLE], 1)
    assert narrowed.replayed > 20
    assert narrowed.exact > 10


@pytest.mark.parametrize("name", sorted(set(CORPORA) - {"ordinary", "empty"}))
def test_odd_corpora(tmp_path: Path, name: str) -> None:
    narrowed = Narrowed(tmp_path, CORPORA[name])
    run(narrowed, COMMANDS[sorted(CORPORA).index(name) :: FEW], 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "locale"),
    [*((name, "C") for name in sorted(set(CORPORA) - {"empty"})), ("ordinary", "C.UTF-8"), ("bad_utf8", "C.UTF-8")],
)
def test_the_whole_catalogue(tmp_path: Path, name: str, locale: str) -> None:
    narrowed = Narrowed(tmp_path, CORPORA[name], locale)
    # The commands take turns, but for the ordinary corpus.
    turns = 1 if name == "ordinary" else 4
    run(narrowed, COMMANDS[sorted(CORPORA).index(name) % turns :: turns], 3)
    assert narrowed.replayed > 25


def drawn_command(rng: random.Random) -> tuple[str, list[bytes]]:
    """Draws one to three searches, what follows them, and lines that some of them match."""
    searches = [draw_search(rng, rng.choice(("rg", "grep"))) for _ in range(rng.choice((1, 1, 2, 3)))]
    stages = []
    for number, search in enumerate(searches):
        words = list(search.words)
        if number + 1 == len(searches) or rng.random() < 0.1:
            words[1:1] = shlex.split(rng.choice(LAST))
        stages.append(shlex.join(words))
        if number == 0 and rng.random() < 0.7:
            stages[0] += rng.choice((" corpus.jsonl", " ./corpus.jsonl"))
        elif number == 0:
            stages.insert(0, "cat corpus.jsonl")
        if rng.random() < 0.1:
            stages.append("cat")
    stages += [tail for tail in (rng.choice(TAILS),) if tail]
    lines = [line for search in searches for line in search.lines]
    # Lines that several of the searches match.
    lines += [b" ".join(rng.choice(search.lines) for search in searches) for _ in range(20)]
    rng.shuffle(lines)
    return " | ".join(stages), lines


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(seed=st.integers(0, 1 << 48), locale=st.sampled_from(("C", "C", "C.UTF-8")))
def test_property_drawn_searches(tmp_path_factory: pytest.TempPathFactory, seed: int, locale: str) -> None:
    rng = random.Random(seed)
    command, lines = drawn_command(rng)
    data = b"\n".join(lines) + b"\n" * rng.choice((0, 1, 1))
    if data:
        run(Narrowed(tmp_path_factory.mktemp("drawn"), data, locale), [command], seed)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(command=pipelines(), seed=st.integers(0, 1 << 48))
def test_property_generated_pipelines(narrowed: Narrowed, command: str, seed: int) -> None:
    run(narrowed, [command], seed)


@pytest.fixture(scope="module")
def narrowed(tmp_path_factory: pytest.TempPathFactory) -> Narrowed:
    return Narrowed(tmp_path_factory.mktemp("narrowed"), ordinary(60))
