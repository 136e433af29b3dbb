"""Plans: golden for every case, faithful to what was written, and cautious where facts or flags call for it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grepseek_env.commands import parse
from grepseek_env.engine.explain import explain_plan
from grepseek_env.engine.plan import (
    Concat,
    Exists,
    Exits,
    Head,
    HeadBytes,
    Merge,
    Offset,
    Sequential,
    Sliced,
    Sum,
    Tail,
    TailBytes,
    Uniq,
    UniqShow,
    exit_code,
    failed,
)
from grepseek_env.engine.planner import plan
from grepseek_env.errors import CommandRefused
from tests.support.catalogue import catalogue
from tests.support.odd_corpora import ordinary
from tests.support.plans import facts_of
from tests.support.strategies import pipelines

if TYPE_CHECKING:
    from grepseek_env.engine.plan import Combiner, Plan
    from tests.support.golden import Golden

FACTS = facts_of(ordinary(50))


def plan_of(command: str, locale: str = "C", **facts: Any) -> Plan:
    return plan(parse(command), dataclasses.replace(FACTS, **facts), locale=locale)


def sliced(command: str, locale: str = "C", **facts: Any) -> Sliced:
    found = plan_of(command, locale, **facts)
    assert isinstance(found, Sliced), found
    return found


def reason(command: str, locale: str = "C", **facts: Any) -> str:
    found = plan_of(command, locale, **facts)
    assert isinstance(found, Sequential), found
    return found.reason


@pytest.mark.parametrize("name", ["commands", "catalogue"])
def test_golden_plans(golden: Golden, name: str) -> None:
    def explained(row: dict[str, Any]) -> list[str]:
        try:
            pipeline = parse(row["command"])
        except CommandRefused as error:
            return [f"refused: {error.reason}"]
        return explain_plan(plan(pipeline, FACTS)).split("\n")

    golden.check(f"plans/{name}.jsonl", explained)


@pytest.mark.parametrize("name", ["commands", "catalogue"])
def test_golden_plans_are_those_of_the_cases(name: str) -> None:
    import json

    from tests.support.golden import ROOT

    rows = (ROOT / "plans" / f"{name}.jsonl").read_text(encoding="ascii").splitlines()
    assert [json.loads(row)["command"] for row in rows] == [case.command for case in catalogue(f"{name}.txt")]


def test_every_must_case_is_accepted() -> None:
    for case in catalogue():
        if case.kind == "must":
            parse(case.command)


def check_pieces(command: str, found: Plan) -> None:
    if not isinstance(found, Sliced):
        return
    assert found.written + found.tail == parse(command).argv
    assert len(found.mapped) == len(found.written) >= 1
    for run, written in zip(found.mapped, found.written, strict=True):
        assert run == written or (written[0] == run[0] == "uniq" and run[1] == "-c")
    if found.piped is not None:
        assert found.piped[-1][0] == found.mapped[-1][0]
        assert len(found.mapped) - len(found.piped) in {0, 1}


def test_pieces_make_up_the_pipeline() -> None:
    for case in catalogue():
        try:
            pipeline = parse(case.command)
        except CommandRefused:
            continue
        check_pieces(case.command, plan(pipeline, FACTS))


@settings(max_examples=150)
@given(
    command=pipelines(),
    locale=st.sampled_from(["C", "C.UTF-8"]),
    size=st.sampled_from([0, 1, 10**12]),
    flag=st.booleans(),
)
def test_any_accepted_pipeline_has_a_plan(command: str, locale: str, size: int, *, flag: bool) -> None:
    try:
        pipeline = parse(command)
    except CommandRefused:
        return
    facts = dataclasses.replace(
        FACTS, bytes=size, leading_bom=flag, final_newline=not flag, invalid_utf8_lines=int(flag)
    )
    found = plan(pipeline, facts, locale=locale)
    check_pieces(command, found)
    assert explain_plan(found)


@pytest.mark.parametrize(
    ("command", "combiner"),
    [
        ("rg Ulm corpus.jsonl", Concat()),
        ("rg Ulm corpus.jsonl | head", Head(10)),
        ("rg Ulm corpus.jsonl | head -3", Head(3)),
        ("rg Ulm corpus.jsonl | head -n 200000 | rg x", Head(200000)),
        ("rg -m 4 Ulm corpus.jsonl", Head(4)),
        ("rg Ulm corpus.jsonl | head -c 9", HeadBytes(9)),
        ("rg Ulm corpus.jsonl | tail -n -3", Tail(3)),
        ("rg Ulm corpus.jsonl | tail -c 3", TailBytes(3)),
        ("grep -c Ulm corpus.jsonl", Sum()),
        ("rg Ulm corpus.jsonl | wc -lw", Sum(2, 7)),
        ("rg Ulm corpus.jsonl | wc -l -", Sum(1, 1, "-")),
        ("wc ./corpus.jsonl", Sum(3, len(str(FACTS.bytes)), "./corpus.jsonl")),
        ("rg Ulm corpus.jsonl | sort -rn -k 2", Merge(("sort", "-m", "-rn", "-k", "2"))),
        ("sort -t corpus.jsonl -k2 corpus.jsonl", Merge(("sort", "-m", "-t", "corpus.jsonl", "-k2"))),
        ("rg Ulm corpus.jsonl | uniq", Uniq(UniqShow.ALL)),
        ("rg Ulm corpus.jsonl | uniq -c", Uniq(UniqShow.COUNTED)),
        ("rg Ulm corpus.jsonl | uniq -d", Uniq(UniqShow.REPEATED)),
        ("rg Ulm corpus.jsonl | uniq -u", Uniq(UniqShow.SINGLE)),
        ("grep -nb Ulm corpus.jsonl", Offset(lines=True, bytes=True)),
        ("grep -Hb Ulm ./corpus.jsonl", Offset(lines=False, bytes=True, label="./corpus.jsonl:")),
        ("cat corpus.jsonl | grep -Hn Ulm", Offset(lines=True, bytes=False, label="(standard input):")),
        ("rg Ulm corpus.jsonl | grep -q x", Exists()),
    ],
)
def test_combiners(command: str, combiner: Combiner) -> None:
    assert sliced(command).combiner == combiner


@pytest.mark.parametrize(
    ("command", "mapped"),
    [
        ("rg Ulm corpus.jsonl | rg -n x", 1),
        ("rg Ulm corpus.jsonl | grep -m 1 -o x", 1),
        ("rg Ulm corpus.jsonl | cut -c 3- | rg x", 2),
        ("rg Ulm corpus.jsonl | cut -c 3- | grep x", 2),
        ("rg Ulm corpus.jsonl | cut -c 3- | grep -a x", 3),
        ("rg Ulm corpus.jsonl | tr ' ' '\\0' | grep x", 2),
        ("rg Ulm corpus.jsonl | tr a '\\n' | grep x", 3),
        ("rg Ulm corpus.jsonl | head -n -2", 1),
        ("rg Ulm corpus.jsonl | tail -n +2", 1),
        ("rg Ulm corpus.jsonl | tail -n 10001", 1),
        ("rg Ulm corpus.jsonl | head -n 1K", 1),
        ("rg Ulm corpus.jsonl | uniq -i", 1),
        ("rg Ulm corpus.jsonl | uniq -cd", 1),
        ("rg Ulm corpus.jsonl | wc -L", 1),
        ("rg Ulm corpus.jsonl | sort -c", 1),
        ("rg Ulm corpus.jsonl | grep -A 1 x", 1),
        ("rg Ulm corpus.jsonl | grep -P -c x", 1),
        ("rg Ulm corpus.jsonl | sed 's/a/b/;3q'", 1),
        ("rg Ulm corpus.jsonl | tr -d '\\n' | wc -c", 1),
        ("rg Ulm corpus.jsonl | grep x | grep y | sort | uniq -c | sort -rn", 4),
    ],
)
def test_how_far_the_slices_go(command: str, mapped: int) -> None:
    assert len(sliced(command).mapped) == mapped


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("rg -C 1 Ulm corpus.jsonl", "-C prints neighbours"),
        ("rg -nN Ulm corpus.jsonl", "are given together"),
        ("rg -m 0 Ulm corpus.jsonl", "limit"),
        ("rg -m 1 -c Ulm corpus.jsonl", "bounds the count"),
        ("rg -b --column Ulm corpus.jsonl", "a column stands"),
        ("rg -n -r x Ulm corpus.jsonl", "line breaks"),
        ("grep -Hhn Ulm corpus.jsonl", "order of flags"),
        ("cat -nE corpus.jsonl", "together"),
        ("rg Ulm corpus.jsonl corpus.jsonl", "several inputs"),
        ("rg Ulm corpus.jsonl | grep x corpus.jsonl", "reads a file instead"),
        ("rg Ulm corpus.jsonl | grep -r x", "reads the folder"),
        ("rg Ulm corpus.jsonl | ls", "reads the folder"),
        ("rg Ulm", "no file"),
        ("grep Ulm -", "instead of the corpus"),
        ("grep Ulm missing.txt", "instead of the corpus"),
        ("rg --no-such-flag Ulm corpus.jsonl", "will complain"),
        ("rg Ulm corpus.jsonl | tr", "will complain"),
        ("cat corpus.jsonl | sed 3q", "counts lines"),
        ("rg -n -N Ulm corpus.jsonl", "-n and -N are given together"),
        ("rg -N --column Ulm corpus.jsonl", "-N and --column are given together"),
    ],
)
def test_reasons_for_one_pass(command: str, why: str) -> None:
    assert why in reason(command)


def test_an_empty_corpus_is_not_cut() -> None:
    assert "empty" in reason("rg Ulm corpus.jsonl", bytes=0)


def test_byte_order_marks_and_offsets() -> None:
    assert isinstance(sliced("rg -b Ulm corpus.jsonl").combiner, Offset)
    assert "byte-order mark" in reason("rg -b Ulm corpus.jsonl", leading_bom=True)
    assert isinstance(sliced("grep -b Ulm corpus.jsonl", leading_bom=True).combiner, Offset)


def test_invalid_characters_matter_to_grep_outside_the_c_locale() -> None:
    assert sliced("grep Ulm corpus.jsonl", invalid_utf8_lines=1)
    assert "binary" in reason("grep Ulm corpus.jsonl", "C.UTF-8", invalid_utf8_lines=1)
    assert sliced("grep -a Ulm corpus.jsonl", "C.UTF-8", invalid_utf8_lines=1)
    assert sliced("rg Ulm corpus.jsonl", "C.UTF-8", invalid_utf8_lines=1)
    assert sliced("grep Ulm corpus.jsonl", "C.UTF-8")


def test_uniq_is_stitched_by_bytes_in_the_c_locale_alone() -> None:
    assert isinstance(sliced("cut -c 1 corpus.jsonl | uniq").combiner, Uniq)
    assert isinstance(sliced("cut -c 1 corpus.jsonl | uniq", "C.UTF-8").combiner, Concat)


@pytest.mark.parametrize(
    ("command", "piped"),
    [
        ("rg -F 'corpus.jsonl' corpus.jsonl", ("rg", "-F", "corpus.jsonl", "-")),
        ("rg corpus.jsonl -e corpus.jsonl", ("rg", "-", "-e", "corpus.jsonl")),
        ("grep -e corpus.jsonl ./corpus.jsonl", ("grep", "--label=./corpus.jsonl", "-e", "corpus.jsonl", "-")),
        ("grep -- -x corpus.jsonl", ("grep", "--label=corpus.jsonl", "--", "-x", "-")),
        ("wc -l corpus.jsonl", ("wc", "-l")),
        ("cut -c 1 corpus.jsonl", ("cut", "-c", "1", "-")),
        ("uniq -d corpus.jsonl", ("uniq", "-c", "-")),
        ("cat corpus.jsonl", ("cat", "-")),
        ("cat corpus.jsonl | rg x", ("rg", "x", "-")),
        ("cat corpus.jsonl | rg -e x -", ("rg", "-e", "x", "-")),
        ("cat corpus.jsonl | grep -H x", ("grep", "-H", "x")),
    ],
)
def test_programs_read_slices_from_stdin(command: str, piped: tuple[str, ...]) -> None:
    found = sliced(command).piped
    assert found is not None
    assert found[0] == piped


def test_where_the_name_shows_slices_are_files() -> None:
    assert sliced("rg -H Ulm corpus.jsonl").piped is None
    assert sliced("rg -g '*.jsonl' Ulm corpus.jsonl").piped is None
    assert sliced("grep --include='*.jsonl' Ulm corpus.jsonl").piped is None
    assert sliced("grep -H Ulm corpus.jsonl").piped is not None
    assert sliced("rg Ulm corpus.jsonl").stdin_label == "corpus.jsonl"
    assert sliced("grep Ulm corpus.jsonl").stdin_label == ""


@pytest.mark.parametrize(
    ("command", "work", "early"),
    [
        ("rg -F Ulm corpus.jsonl", "scan", False),
        ("rg -F 'a.b' corpus.jsonl | head -n 1", "scan", True),
        ("rg 'a.b' corpus.jsonl | sort | head -n 1", "cpu", False),
        ("rg -v -F Ulm corpus.jsonl", "cpu", False),
        ("grep -q Ulm corpus.jsonl", "cpu", True),
        ("cat corpus.jsonl | rg -F Ulm | sed 3q", "scan", True),
        ("cat corpus.jsonl | wc -l", "scan", False),
        ("wc corpus.jsonl", "cpu", False),
        ("grep -n Ulm corpus.jsonl | head -n 1", "cpu", True),
        ("rg -F Ulm corpus.jsonl | cat -n | tail -n 1", "scan", False),
    ],
)
def test_guesses_about_speed(command: str, work: str, *, early: bool) -> None:
    found = sliced(command)
    assert (found.work, found.early) == (work, early)


@pytest.mark.parametrize(
    ("exits", "codes", "code"),
    [
        (Exits.SEARCH, [1, 1], 1),
        (Exits.SEARCH, [1, 0, 1], 0),
        (Exits.SEARCH, [0, 2], 2),
        (Exits.SEARCH, [1, 137], 137),
        (Exits.SEARCH, [], 1),
        (Exits.FIRST_FAILURE, [0, 0], 0),
        (Exits.FIRST_FAILURE, [0, 4, 2], 4),
        (Exits.FIRST_FAILURE, [], 0),
    ],
)
def test_exit_codes(exits: Exits, codes: list[int], code: int) -> None:
    assert exit_code(exits, codes) == code


def test_which_codes_end_a_stream() -> None:
    assert [failed(("grep", "x"), code) for code in (0, 1, 2, 137)] == [False, False, True, True]
    assert [failed(("cut",), code) for code in (0, 1)] == [False, True]
