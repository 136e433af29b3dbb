"""Commands on the lines that can matter, with and without an index of small blocks, against bash."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.catalogue import catalogue
from tests.support.literal_queries import draw_corpus, draw_query
from tests.support.odd_corpora import REFUSED, odd, ordinary
from tests.support.patterns import draw_command
from tests.support.strategies import pipelines
from tests.support.ways import WAYS, Corpus

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CORPORA = {"ordinary": ordinary(120), **{name: data for name, data in odd().items() if name not in REFUSED}}
COMMANDS = [case.command for case in catalogue()]
SAMPLE = 47  # every so many commands in the fast run
FEW = 47
LONG = settings().max_examples > 1000  # `make fuzz`
QUERIES = 250 if LONG else 40  # of one corpus


@pytest.mark.parametrize("way", WAYS)
def test_a_sample_of_the_catalogue(tmp_path: Path, way: str) -> None:
    with Corpus(tmp_path, CORPORA["ordinary"]) as corpus:
        wrong = corpus.differences(COMMANDS[list(WAYS).index(way) :: SAMPLE], WAYS[way])
        assert not wrong, "\n".join(wrong)
        assert corpus.narrowed > 4


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(CORPORA) - {"ordinary"}))
def test_odd_corpora(tmp_path: Path, name: str) -> None:
    number = sorted(CORPORA).index(name)
    with Corpus(tmp_path, CORPORA[name]) as corpus:
        wrong = corpus.differences(COMMANDS[number::FEW], list(WAYS.values())[number % len(WAYS)])
        assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("name", "locale"),
    [*((name, "C") for name in sorted(set(CORPORA))), ("ordinary", "C.UTF-8"), ("bad_utf8", "C.UTF-8")],
)
def test_the_whole_catalogue(tmp_path: Path, name: str, locale: str, way: str) -> None:
    # The commands take the ways in turns, but for the ordinary corpus.
    turn, step = (0, 1) if (name, locale) == ("ordinary", "C") else (list(WAYS).index(way), len(WAYS))
    with Corpus(tmp_path, CORPORA[name], locale) as corpus:
        wrong = corpus.differences(COMMANDS[turn::step], WAYS[way])
        assert not wrong, "\n".join(wrong)


class Count:
    """Commands that were compared."""

    total = 0


@pytest.fixture(scope="module", autouse=True)
def count() -> Iterator[None]:
    yield
    print(f"\n{Count.total} random commands were run and compared with bash")


@settings(
    max_examples=max(2, settings().max_examples // 40),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    seed=st.integers(0, 1 << 48), block=st.sampled_from((16, 64, 300, 4096)), locale=st.sampled_from(("C", "C.UTF-8"))
)
def test_property_literals_of_the_corpus(
    tmp_path_factory: pytest.TempPathFactory, seed: int, block: int, locale: str
) -> None:
    rng = random.Random(seed)
    data = draw_corpus(rng)
    commands = [draw_query(rng, data) for _ in range(QUERIES)]
    ways = [WAYS["narrowed, index"], WAYS["auto, small"], rng.choice(list(WAYS.values()))]
    with Corpus(tmp_path_factory.mktemp("literals"), data, locale, block=block) as corpus:
        wrong = corpus.differences_of_many(commands, ways)
        assert not wrong, f"seed {seed}\n" + "\n".join(wrong)
        # With a line that is not valid in C.UTF-8, grep may stop there, and cannot be narrowed.
        assert corpus.narrowed > QUERIES / 3 or locale != "C"
    Count.total += len(commands)


@settings(
    max_examples=max(2, settings().max_examples // 40),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(seed=st.integers(0, 1 << 48), locale=st.sampled_from(("C", "C", "C.UTF-8")))
def test_property_drawn_searches(tmp_path_factory: pytest.TempPathFactory, seed: int, locale: str) -> None:
    rng = random.Random(seed)
    drawn = [draw_command(rng) for _ in range(QUERIES // 8)]
    lines = [line for _, made in drawn for line in made]
    rng.shuffle(lines)
    data = b"\n".join(lines) + b"\n" * rng.choice((0, 1, 1))
    with Corpus(tmp_path_factory.mktemp("drawn"), data, locale, block=rng.choice((16, 64, 300))) as corpus:
        wrong = corpus.differences_of_many(
            [command for command, _ in drawn], list(WAYS.values())[:: rng.choice((2, 3))]
        )
        assert not wrong, f"seed {seed}\n" + "\n".join(wrong)
    Count.total += len(drawn)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Corpus]:
    with Corpus(tmp_path_factory.mktemp("corpus"), ordinary(60)) as made:
        yield made


@settings(
    max_examples=max(4, settings().max_examples // 20),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(commands=st.lists(pipelines(), min_size=4, max_size=12), way=st.sampled_from(sorted(WAYS)))
def test_property_generated_pipelines(corpus: Corpus, commands: list[str], way: str) -> None:
    wrong = corpus.differences_of_many(commands, [WAYS[way]])
    assert not wrong, "\n".join(wrong)
    Count.total += len(commands)
