"""Commands on slices against bash: bytes, exit code and messages, on every corpus, cut in every bad spot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grepseek_env.commands import parse
from tests.support.catalogue import catalogue
from tests.support.odd_corpora import REFUSED, odd, ordinary
from tests.support.oracle import DEADLINE
from tests.support.slicing import FEEDINGS, Sliceable, even_cuts, line_ends
from tests.support.strategies import pipelines

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from grepseek_env.engine.modes import Feeding

CORPORA = {"ordinary": ordinary(120), **{name: data for name, data in odd().items() if name not in REFUSED}}
SLICES = (1, 2, 3, 7)
COMMANDS = [case.command for case in catalogue()]
SAMPLE = 29  # every so many commands in the fast run
FEW = 59


@pytest.mark.parametrize("feeding", FEEDINGS)
@pytest.mark.parametrize("slices", SLICES)
def test_a_sample_of_the_catalogue(tmp_path: Path, slices: int, feeding: Feeding) -> None:
    corpus = Sliceable(tmp_path, CORPORA["ordinary"])
    runner = corpus.runner(even_cuts(corpus.data, slices), feeding)
    offset = SLICES.index(slices)
    wrong = corpus.differences(COMMANDS[offset::SAMPLE], runner)
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(CORPORA) - {"ordinary", "empty"}))
def test_odd_corpora(tmp_path: Path, name: str) -> None:
    corpus = Sliceable(tmp_path, CORPORA[name])
    offset = sorted(CORPORA).index(name)
    wrong = corpus.differences(COMMANDS[offset::FEW], corpus.runner(even_cuts(corpus.data, 3)))
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("slices", SLICES)
@pytest.mark.parametrize(
    ("name", "locale"),
    [*((name, "C") for name in sorted(set(CORPORA) - {"empty"})), ("ordinary", "C.UTF-8"), ("bad_utf8", "C.UTF-8")],
)
def test_the_whole_catalogue(tmp_path: Path, name: str, locale: str, slices: int) -> None:
    corpus = Sliceable(tmp_path, CORPORA[name], locale)
    cuts = even_cuts(corpus.data, slices)
    # The commands take the numbers of slices and the feeds in turns, but for the ordinary corpus.
    turn, step = (0, 1) if name == "ordinary" else (SLICES.index(slices), len(SLICES))
    for feeding, chosen in zip(FEEDINGS, (COMMANDS[turn :: 2 * step], COMMANDS[turn + step :: 2 * step]), strict=True):
        wrong = corpus.differences(chosen, corpus.runner(cuts, feeding))
        assert not wrong, "\n".join(wrong)


def bad_spots() -> dict[str, tuple[bytes, tuple[int, ...]]]:
    """Returns corpora of few lines with the cuts that are worst for them."""
    blank = b"Einstein T1\n\n\nUlm T2\n\nEinstein T1\n"
    run = b"T4\n" * 6 + b"Ulm\n" + b"Einstein\n" * 3
    long = b"Ulm T1\n" + b"x" * 300_000 + b" Einstein Ulm T4\n" + b"T4\nEinstein\n"
    plain = b"".join(b"%d Einstein T%d Ulm\n" % (i, i % 3) for i in range(12))
    cut_after = {
        "after and before blank lines": (blank, (12, 13, 14, 21, 22)),
        "between duplicates": (run, (3, 6)),
        "inside a run, which one slice is all of": (run, (3, 9, 15, 18, 31)),
        "at the first line's end": (plain, (len(b"0 Einstein T0 Ulm\n"),)),
        "before the last line": (plain, (plain.rindex(b"\n", 0, -1) + 1,)),
        "around a huge line": (long, (7, long.index(b"T4\nEin") - 1 + 1)),
        "every line": (plain, tuple(line_ends(plain)[:-1])),
        "empty slices": (plain, (0, line_ends(plain)[3], line_ends(plain)[3], len(plain))),
        "before an open last line": (plain[:-1], (plain.rindex(b"\n", 0, -1) + 1,)),
        "one line": (b"Einstein Ulm T4\n", (0,)),
        "one open line": (b"Einstein Ulm T4", ()),
    }
    for data, cuts in cut_after.values():
        assert all(at in {0, *line_ends(data)} for at in cuts)
    return cut_after


BAD_SPOTS = bad_spots()
COMBINED = [
    command.replace("FIRST", first)
    for first in ("rg Einstein corpus.jsonl", "cat corpus.jsonl", "grep -v Ulm corpus.jsonl", "cut -c -3 corpus.jsonl")
    for command in (
        "FIRST",
        "FIRST | head -n 2",
        "FIRST | head -n -1",
        "FIRST | head -c 20",
        "FIRST | tail -n 2",
        "FIRST | tail -c 20",
        "FIRST | wc",
        "FIRST | wc -l",
        "FIRST | sort",
        "FIRST | sort -u | sed 1d",
        "FIRST | sort -rn -k 1,1 | head -n 3",
        "FIRST | uniq",
        "FIRST | uniq -c",
        "FIRST | uniq -d",
        "FIRST | uniq -u",
        "FIRST | uniq -c | sort -rn",
        "FIRST | grep -c T",
        "FIRST | rg -c T4",
        "FIRST | grep -q T4",
        "FIRST | grep -n T",
        "FIRST | cat -n",
        "FIRST | sed -n '$p'",
    )
] + [
    "grep -n Ulm corpus.jsonl",
    "grep -bn T corpus.jsonl",
    "rg -n Ulm corpus.jsonl | head -n 3",
    "cat -n corpus.jsonl",
    "wc corpus.jsonl",
    "wc -lw corpus.jsonl",
    "uniq -c corpus.jsonl",
    "sort -u corpus.jsonl",
    "head -n 3 corpus.jsonl",
    "head -n -3 corpus.jsonl",
    "tail -n 3 corpus.jsonl",
    "tail -c 30 corpus.jsonl",
    "grep -q NOSUCH corpus.jsonl",
    "rg 'bad(' corpus.jsonl | head -n 3",
    "grep 'bad\\(' corpus.jsonl",
    "grep 'stray \\e' corpus.jsonl",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("spot", BAD_SPOTS)
def test_bad_spots(tmp_path: Path, spot: str) -> None:
    data, cuts = BAD_SPOTS[spot]
    corpus = Sliceable(tmp_path, data)
    feeding = FEEDINGS[list(BAD_SPOTS).index(spot) % 2]
    wrong = corpus.differences(COMBINED[list(BAD_SPOTS).index(spot) % 3 :: 3], corpus.runner(cuts, feeding))
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("feeding", FEEDINGS)
@pytest.mark.parametrize("spot", BAD_SPOTS)
def test_every_combination_in_bad_spots(tmp_path: Path, spot: str, feeding: Feeding) -> None:
    data, cuts = BAD_SPOTS[spot]
    corpus = Sliceable(tmp_path, data)
    wrong = corpus.differences(COMBINED, corpus.runner(cuts, feeding))
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("budget", [0, 1, 100, 4096, 10_000_000])
@pytest.mark.parametrize(
    "command",
    ["cat corpus.jsonl", "rg -F Einstein corpus.jsonl | sed 1d", "grep -n T corpus.jsonl", "sort corpus.jsonl",
     "sort corpus.jsonl | sed 1d", "wc corpus.jsonl"],
)  # fmt: skip
def test_a_budget_keeps_exactly_the_first_bytes(tmp_path: Path, command: str, budget: int) -> None:
    corpus = Sliceable(tmp_path, CORPORA["ordinary"])
    whole = corpus.wanted(command)
    cut = len(whole.stdout) > budget
    for feeding in FEEDINGS:
        runner = corpus.runner(even_cuts(corpus.data, 3), feeding)
        ours = runner.run(parse(command), timeout=DEADLINE, max_output_bytes=budget)
        assert (ours.stdout, ours.output_truncated) == (whole.stdout[:budget], cut)
        assert ours.exit_code == (None if cut else whole.exit_code)


LINES = st.lists(
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


@settings(max_examples=settings().max_examples * 2 // 5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    commands=st.lists(pipelines(), min_size=1, max_size=4),
    lines=LINES,
    closed=st.booleans(),
    choice=st.randoms(use_true_random=False),
)
def test_property_generated_pipelines_at_random_cuts(
    tmp_path_factory: pytest.TempPathFactory,
    commands: list[str],
    lines: list[bytes],
    choice: random.Random,
    *,
    closed: bool,
) -> None:
    data = b"\n".join(lines) + b"\n" * closed
    if not data:
        return
    corpus = Sliceable(tmp_path_factory.mktemp("generated"), data)
    ends = line_ends(data)
    cuts = sorted(choice.sample(ends, min(choice.randint(0, 3), len(ends))))
    runner = corpus.runner(cuts, choice.choice(FEEDINGS))
    wrong = corpus.differences([*commands, "cat corpus.jsonl"], runner)
    assert not wrong, f"cut at {cuts} {data!r}\n" + "\n".join(wrong)
