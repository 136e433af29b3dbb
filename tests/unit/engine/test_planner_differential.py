"""Plans run as their records define them give what bash gives, with no executor involved."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grepseek_env.commands import parse
from grepseek_env.engine.plan import Sliced
from grepseek_env.engine.planner import plan
from grepseek_env.engine.programs import open_programs
from grepseek_env.errors import CommandRefused
from tests.support.catalogue import catalogue
from tests.support.odd_corpora import REFUSED, odd, ordinary
from tests.support.oracle import oracle
from tests.support.plans import FEEDS, PlanRunner, facts_of
from tests.support.strategies import pipelines

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.plans import Feed

CORPORA = {"ordinary": ordinary(120), **odd()}
SAMPLE = 9  # every so many commands in the fast run


def line_ends(data: bytes) -> list[int]:
    return [at for at in range(1, len(data)) if data[at - 1 : at] == b"\n"]


class Bench:
    """One corpus, cut, and both ways of running commands over it."""

    def __init__(self, folder: Path, data: bytes, cuts: list[int], locale: str = "C") -> None:
        self.data, self.cuts, self.locale = data, cuts, locale
        self.programs = open_programs().folder
        self.view = folder / "view"
        self.view.mkdir(parents=True)
        (self.view / "corpus.jsonl").write_bytes(data)
        (folder / "slices").mkdir()
        self.facts = facts_of(data)
        self.runner = PlanRunner(folder / "slices", self.programs, data, cuts, locale)

    def check(self, command: str, feeds: tuple[Feed, ...] = FEEDS) -> bool:
        """Compares with bash; returns whether the plan is sliced."""
        try:
            found = plan(parse(command), self.facts, locale=self.locale)
        except CommandRefused:
            return False
        if not isinstance(found, Sliced):
            return False
        want = oracle(command, self.view, self.programs, locale=self.locale)
        for feed in feeds if found.piped is not None else ("file",):
            got = self.runner.run(found, feed)
            assert got == (want.stdout, want.exit_code), f"{command!r} cut at {self.cuts}, fed by {feed}: {found}"
        return True


@pytest.mark.slow
def test_a_sample_of_the_catalogue(tmp_path: Path) -> None:
    data = CORPORA["ordinary"]
    ends = line_ends(data)
    bench = Bench(tmp_path, data, [ends[7], ends[70]])
    assert sum(bench.check(case.command) for case in catalogue()[::SAMPLE]) > 50


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "locale"),
    [
        *((name, "C") for name in sorted(set(CORPORA) - REFUSED - {"empty"})),
        ("ordinary", "C.UTF-8"),
        ("bad_utf8", "C.UTF-8"),
    ],
)
def test_the_whole_catalogue(tmp_path: Path, name: str, locale: str) -> None:
    data = CORPORA[name]
    ends = line_ends(data)
    cuts = sorted(random.Random(name).sample(ends, min(4, len(ends))))
    bench = Bench(tmp_path, data, cuts, locale)
    shift = len(name)  # the feeds take turns, each corpus beginning with another
    turns = [(FEEDS[(number + shift) % len(FEEDS)],) for number in range(len(catalogue()))]
    assert sum(map(bench.check, (case.command for case in catalogue()), turns)) > 500


SMALL = st.lists(
    st.sampled_from(
        [
            b"",
            b"T4",
            b"Einstein Ulm",
            b'{"id": "1", "contents": "Curie, n\xc3\xa9e"}',
            b"a,b|",
            b" 12 T4",
            b"-x\r",
            b"\xff",
        ]
    ),
    min_size=1,
    max_size=9,
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(command=pipelines(), lines=SMALL, closed=st.booleans(), choice=st.randoms(use_true_random=False))
def test_generated_pipelines(
    tmp_path_factory: pytest.TempPathFactory, command: str, lines: list[bytes], choice: random.Random, *, closed: bool
) -> None:
    data = b"\n".join(lines) + b"\n" * closed
    if not data:
        return
    ends = line_ends(data)
    cuts = sorted(choice.sample(ends, min(2, len(ends))))
    Bench(tmp_path_factory.mktemp("generated"), data, cuts).check(command)
