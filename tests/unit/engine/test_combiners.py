"""The algebra of combiners, against the real programs, at every cut of small inputs."""

from __future__ import annotations

import itertools
import random
import subprocess
from functools import cache
from typing import TYPE_CHECKING

import pytest

from grepseek_env.engine.combiners import combine, folding
from grepseek_env.engine.plan import (
    Combiner,
    Concat,
    Exists,
    Head,
    HeadBytes,
    Merge,
    Numbers,
    Offset,
    Sum,
    Tail,
    TailBytes,
    Uniq,
    UniqShow,
)
from grepseek_env.engine.programs import open_programs
from grepseek_env.errors import EngineFault

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TEXTS = (b"", b"a", b"a", b"b", b" a", b"1 a", b"10 b", b"2,a", b"\xff", b"a\rb", b"x" * 99)


def inputs() -> list[list[bytes]]:
    """Lines of inputs, each with its newline but for one input's last."""
    found = []
    for seed in range(2):
        pick = random.Random(seed)
        found.append([pick.choice(TEXTS[: 4 + 4 * (seed % 2)]) + b"\n" for _ in range(7)])
    found[-1][-1] = b"open"
    return found


@cache
def run(argv: tuple[str, ...], stdin: bytes) -> bytes:
    programs = open_programs()
    done = subprocess.run(
        argv, executable=programs.paths[argv[0]], input=stdin, capture_output=True, env={"LC_ALL": "C"}, check=False
    )
    return done.stdout


def splits(lines: list[bytes]) -> Iterator[list[bytes]]:
    """Yields the input in one, two and three parts, empty parts included."""
    places = range(len(lines) + 1)
    for cuts in itertools.combinations_with_replacement(places, 2):
        edges = (0, *cuts, len(lines))
        yield [b"".join(lines[a:b]) for a, b in itertools.pairwise(edges)]


def chunked(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def combined(combiner: Combiner, outputs: list[bytes], size: int, parts: list[bytes]) -> bytes:
    before = list(itertools.accumulate(parts, initial=b""))

    def base(number: int) -> tuple[int, int]:
        return before[number].count(b"\n"), len(before[number])

    return b"".join(combine(combiner, [chunked(output, size) for output in outputs], base))


CASES: list[tuple[tuple[str, ...], tuple[str, ...], Combiner]] = [
    (("cat",), ("cat",), Concat()),
    *((("head", "-n", str(n)), ("head", "-n", str(n)), Head(n)) for n in (0, 1, 3, 99)),
    *((("head", "-c", str(n)), ("head", "-c", str(n)), HeadBytes(n)) for n in (0, 1, 7, 9999)),
    *((("tail", "-n", str(n)), ("tail", "-n", str(n)), Tail(n)) for n in (0, 1, 3, 99)),
    *((("tail", "-c", str(n)), ("tail", "-c", str(n)), TailBytes(n)) for n in (0, 1, 7, 9999)),
    (("grep", "-c", "a"), ("grep", "-c", "a"), Sum()),
    (("rg", "-c", "a", "-"), ("rg", "-c", "a", "-"), Sum()),
    (("rg", "-c", "NOSUCH", "-"), ("rg", "-c", "NOSUCH", "-"), Sum()),
    (("grep", "-cH", "a"), ("grep", "-cH", "a"), Sum()),
    (("wc", "-l"), ("wc", "-l"), Sum()),
    (("wc", "-c", "-"), ("wc", "-c"), Sum(label="-")),
    (("wc",), ("wc",), Sum(3, 7)),
    (("wc", "-wm", "-"), ("wc", "-wm", "-"), Sum(2, 7, "-")),
    (("uniq",), ("uniq",), Uniq(UniqShow.ALL)),
    (("uniq", "-c"), ("uniq", "-c"), Uniq(UniqShow.COUNTED)),
    (("uniq", "-d"), ("uniq", "-c"), Uniq(UniqShow.REPEATED)),
    (("uniq", "-u"), ("uniq", "-c"), Uniq(UniqShow.SINGLE)),
    (("grep", "-n", "a"), ("grep", "-n", "a"), Offset(lines=True, bytes=False)),
    (("grep", "-b", ""), ("grep", "-b", ""), Offset(lines=False, bytes=True)),
    (("grep", "-nb", ""), ("grep", "-nb", ""), Offset(lines=True, bytes=True)),
    (("grep", "-onb", "a"), ("grep", "-onb", "a"), Offset(lines=True, bytes=True)),
    (("grep", "-Hn", "a"), ("grep", "-Hn", "a"), Offset(lines=True, bytes=False, label="(standard input):")),
    (("rg", "--column", "a", "-"), ("rg", "--column", "a", "-"), Offset(lines=True, bytes=False)),
    (("cat", "-n"), ("cat", "-n"), Offset(lines=True, bytes=False, numbers=Numbers.CAT)),
    (("grep", "-q", "a"), ("grep", "-q", "a"), Exists()),
]


@pytest.mark.parametrize(("whole", "local", "combiner"), CASES)
def test_parts_combine_to_the_whole(whole: tuple[str, ...], local: tuple[str, ...], combiner: Combiner) -> None:
    for lines in inputs():
        want = run(whole, b"".join(lines))
        for parts in splits(lines):
            outputs = [run(local, part) for part in parts]
            for size in (1, 5, 1 << 16):
                assert combined(combiner, outputs, size, parts) == want, (lines, parts, size)


SORTS = [
    "",
    "-r",
    "-n",
    "-u",
    "-nu",
    "-s -n",
    "-rs -k1,1n",
    "-f -u",
    "-t, -k2",
    "-k2,2 -b",
    "-rn",
    "-V",
    "-g",
    "-s -t, -k2 -r",
]


@pytest.mark.parametrize("flags", SORTS)
def test_sorted_parts_merge_to_the_whole(tmp_path: Path, flags: str) -> None:
    argv = ("sort", *flags.split())
    for lines in inputs():
        want = run(argv, b"".join(lines))
        for number, cuts in enumerate([(0, 3), (1, 4)]):
            edges = (0, *cuts, len(lines))
            names = []
            for a, b in itertools.pairwise(edges):
                names.append(str(tmp_path / f"{number}-{a}-{b}-{len(names)}"))
                (tmp_path / names[-1]).write_bytes(run(argv, b"".join(lines[a:b])))
            programs = open_programs()
            merged = subprocess.run(
                ("sort", "-m", *argv[1:], *names),
                executable=programs.paths["sort"],
                capture_output=True,
                env={"LC_ALL": "C"},
                check=True,
            )
            assert merged.stdout == want, (lines, cuts)


def test_a_decided_answer_asks_for_no_more() -> None:
    def endless() -> Iterator[list[bytes]]:
        yield [b"1\n2", b"\n3\n4\n"]
        raise AssertionError("the second slice was asked for")

    assert b"".join(combine(Head(3), endless())) == b"1\n2\n3\n"
    fold = folding(HeadBytes(2), lambda _number: (0, 0))
    assert (fold.feed(b"abc"), fold.done) == (b"ab", True)


def test_bases_are_asked_for_only_where_a_number_follows() -> None:
    asked = []

    def base(number: int) -> tuple[int, int]:
        asked.append(number)
        return 10 * number, 0

    slices = [[b"1:a\n"], [], [b"1", b":b\n2:c\n"], []]
    assert b"".join(combine(Offset(lines=True, bytes=False), slices, base)) == b"1:a\n21:b\n22:c\n"
    assert asked == [2]


def test_a_tail_holds_about_as_much_as_it_gives() -> None:
    fold = folding(Tail(2), lambda _number: (0, 0))
    for number in range(1000):
        assert fold.feed(b"%d\n" % number) == b""
    assert len(fold._kept) < 5  # type: ignore[attr-defined]
    assert fold.finish() == b"998\n999\n"


def test_long_counts_of_uniq_are_added_up() -> None:
    slices = [[b"9999999 a b\n"], [b"      1 a b\n      1 c\n"]]
    assert b"".join(combine(Uniq(UniqShow.COUNTED), slices)) == b"10000000 a b\n      1 c\n"
    assert b"".join(combine(Uniq(UniqShow.REPEATED), slices)) == b"a b\n"
    assert b"".join(combine(Uniq(UniqShow.SINGLE), slices)) == b"c\n"


@pytest.mark.parametrize(
    ("combiner", "output"),
    [
        (Sum(), b"no number\n"),
        (Sum(2, 7), b"1\n"),
        (Offset(lines=True, bytes=False), b"text\n"),
        (Uniq(UniqShow.ALL), b"open"),
    ],
)
def test_what_is_no_such_output_is_a_fault_and_no_answer(combiner: Combiner, output: bytes) -> None:
    with pytest.raises(EngineFault, match="slice"):
        list(combine(combiner, [[b""], [output]]))


def test_a_merge_is_not_made_of_chunks() -> None:
    with pytest.raises(EngineFault, match="Merge"):
        folding(Merge(("sort", "-m")), lambda _number: (0, 0))
