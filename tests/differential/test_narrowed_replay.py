"""Pipelines on the lines that their narrowing leaves, and their exact filters in plain Python, against bash."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.catalogue import catalogue
from tests.support.narrowing import Narrowed
from tests.support.odd_corpora import REFUSED, odd, ordinary
from tests.support.patterns import draw_command
from tests.support.strategies import pipelines

if TYPE_CHECKING:
    from pathlib import Path

CORPORA = {"ordinary": ordinary(120), **{name: data for name, data in odd().items() if name not in REFUSED}}
COMMANDS = [case.command for case in catalogue()]
SAMPLE = 13  # every so many commands in the fast run
FEW = 61


def run(narrowed: Narrowed, commands: list[str], seed: int) -> None:
    rng = random.Random(seed)
    wrong = [text for text in (narrowed.difference(command, rng) for command in commands) if text]
    assert not wrong, "\n".join(wrong)


def test_a_sample_of_the_catalogue(tmp_path: Path) -> None:
    narrowed = Narrowed(tmp_path, CORPORA["ordinary"])
    run(narrowed, COMMANDS[::SAMPLE], 1)
    assert narrowed.replayed > 10
    assert narrowed.exact > 5


@pytest.mark.slow
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


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(seed=st.integers(0, 1 << 48), locale=st.sampled_from(("C", "C", "C.UTF-8")))
def test_property_drawn_searches(tmp_path_factory: pytest.TempPathFactory, seed: int, locale: str) -> None:
    rng = random.Random(seed)
    command, lines = draw_command(rng)
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
