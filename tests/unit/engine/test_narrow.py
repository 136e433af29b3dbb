"""Which literals are required, rule by rule; tests/differential shows against the programs that they are."""

from __future__ import annotations

import dataclasses

import pytest

from grepseek_env.commands import parse
from grepseek_env.engine.narrow import (
    CountBytes,
    CountLines,
    Everything,
    ExactFilter,
    Exists,
    GrepCount,
    HeadLines,
    Literal,
    Narrowing,
    Rest,
    Sink,
    narrow,
)
from tests.support.odd_corpora import odd, ordinary
from tests.support.plans import facts_of

FACTS = facts_of(ordinary(60))
BAR = "\N{BROKEN BAR}"
KELVIN, LONG_S, DOTLESS = "\u212a".encode(), "\u017f".encode(), "\u0131".encode()


def narrowed(command: str, locale: str = "C", **facts: object) -> Narrowing:
    command = command if "corpus.jsonl" in command else f"{command} corpus.jsonl"
    return narrow(parse(command), dataclasses.replace(FACTS, **facts), locale=locale)


def shown(found: Narrowing) -> list[str]:
    """Returns the clauses as `a|b`, and `~a` for what is compared without case; BAR is a bar of a literal's own."""

    def literal(each: Literal) -> str:
        return "~" * each.fold + each.text.decode().replace("|", BAR)

    return ["|".join(map(literal, clause)) for clause in found.clauses]


RUST = {
    "Einstein": ["Einstein"],
    "born in 1879": ["born in 1879"],
    "née": ["née"],
    "Einstein|Curie": ["Einstein|Curie"],
    "(Marie|Pierre) Curie": ["Marie Curie|Pierre Curie"],
    "Ein.*Ulm": ["Ein", "Ulm"],
    "Einstein|Ein": ["Ein"],  # who holds the longer holds the shorter
    "Einstein|.": [],  # a branch without a literal
    "Einstein|": [],
    "(?:very )?Ulm": ["Ulm"],
    "colou?r": ["colour|color"],
    "Ulm*": ["Ul"],
    "Ulm+": ["Ulm"],
    "(?:Ulm)+ab": ["Ulm", "ab"],
    "x{2,3}y": ["xx", "y"],
    "ab{3}c": ["abbbc"],
    "ab{0}c": ["ac"],
    "ab{0,2}c": ["a", "c"],
    "ab{,2}c": [],
    "ab{2,1}c": [],
    "(?ii)Ulm": [],
    "a{2}{2}": ["aaaa"],
    "a+?b": ["a", "b"],
    "[Kk]elvin": ["Kelvin|kelvin"],
    "[abcde]ins": ["ins"],  # too many to tell apart
    "Ein[a-z]+tein": ["Ein", "tein"],
    "[^a]Ulm": ["Ulm"],
    "[-]a|b]c": ["a|b]c"],  # the class ends at its first ]
    "[]a]Ulm|b]c": ["Ulm|b]c"],  # ... unless that comes first
    "[a&&[^b]]Ulm": ["Ulm"],
    "[[:alpha:]]Ulm": ["Ulm"],
    r"[\]a]Ulm": ["Ulm"],
    r"\bUlm\b": ["Ulm"],
    r"Ulm\b in": ["Ulm in"],
    r"\b{start}Ulm\b{end-half}": ["Ulm"],
    "^Ulm$": ["Ulm"],
    r"a\.b\|c": [f"a.b{BAR}c"],
    r"\x55lm\u{6d}\U0000006D": ["Ulmmm"],
    r"\u00e9": ["é"],
    r"\d+ Ulm\s\p{Greek}x\pLy": [" Ulm", "x", "y"],
    r"a\tb": ["a\tb"],
    "(?i)Ulm": ["~ulm"],
    "a(?i)b|c": ["~ab|~c"],  # a flag holds up to the end of the group
    "(?:(?i)b)c": ["~bc"],  # a run of both kinds is compared without case
    "(?i:Ulm)1879": ["~ulm1879"],
    "(?i:x)(?-i:Y)": ["~xy"],
    "(?s)Ulm": ["Ulm"],
    "(?P<name>Ulm)": ["Ulm"],
    "(?<name>Ulm)": ["Ulm"],
    "}]": ["}]"],
    # Not understood, or wrong: nothing is said.
    "(?x)U l m": [],
    "(?-u)Ulm": [],
    "(?=Ulm)Ulm": [],
    r"(U)\1": [],
    r"\QUlm\E": [],
    "Ulm{": [],
    "Ulm(": [],
    "Ulm)": [],
    "Ulm[": [],
    "*Ulm": [],
    "Ulm\nBern": [],  # rg rejects a newline
    r"Ulm\n": [],
    r"Ulm\x0A": [],
    r"Ulm\x00": [],  # rg rejects what needs a NUL
    "(" * 100 + "Ulm" + ")" * 100: [],
    "": [],
    "a*": [],
    ".": [],
    "^": [],
}  # fmt: skip
BASIC = {
    "Einstein": ["Einstein"],
    r"Einstein\|Curie": ["Einstein|Curie"],
    "Einstein|Curie": [f"Einstein{BAR}Curie"],  # | stands for itself
    r"\(Marie\|Pierre\) Curie": ["Marie Curie|Pierre Curie"],
    "Ulm*": ["Ul"],
    r"Ulm\+": ["Ulm"],
    r"colou\?r": ["colour|color"],
    r"x\{2,3\}y": ["xx", "y"],
    "a+b?c": ["a+b?c"],
    "*Ulm": ["Ulm"],  # a star that follows nothing
    r"\(*Ulm\)": ["Ulm"],
    "^*Ulm": ["Ulm"],
    r"\(^Ulm\)": ["Ulm"],
    "a^b": ["a", "b"],  # stands for itself; nothing is said of it
    "a$b": ["a", "b"],
    "Ulm$": ["Ulm"],
    r"\(Ulm$\)": ["Ulm"],
    r"\<Ulm\>": ["Ulm"],
    r"\bUlm\B": ["Ulm"],
    r"\`Ulm\'": ["Ulm"],
    r"Ulm\w\W\s\Sx": ["Ulm", "x"],
    r"a\.b": ["a.b"],
    r"a\-b": ["a-b"],  # grep warns, and takes it for a dash
    r"a\db": ["a", "b"],  # what a stray backslash means differs from release to release
    r"\(Ein\)stein\1": ["Einstein"],
    "[[:digit:]]Ulm": ["Ulm"],
    "[[.].]]Ulm": ["Ulm"],
    "[]a]Ulm": ["Ulm"],
    r"[\]Ulm]": ["Ulm]"],  # a backslash in brackets stands for itself
    "[^]x]Ulm": ["Ulm"],
    "[Kk]elvin": ["Kelvin|kelvin"],
    "Ulm\nBern": ["Ulm|Bern"],
    "Ulm\n": [],
    r"Ulm\(": [],
    r"Ulm\)": [],
    r"Ulm\{": [],
    "Ulm[": [],
    "Ulm\\": [],
    "": [],
}  # fmt: skip
EXTENDED = {
    "Einstein|Curie": ["Einstein|Curie"],
    "(Marie|Pierre) Curie": ["Marie Curie|Pierre Curie"],
    "Ulm+": ["Ulm"],
    "x{2,3}y": ["xx", "y"],
    "x{,3}y": ["y"],
    '{"id": "5"': ['"id": "5"'],  # a { that counts nothing stands for itself; nothing is said of it
    "a|*b": ["a|b"],
    "a||b": [],
    "(|a)b": ["b"],
    "a()b": ["ab"],
    "x^*y": ["x", "y"],
    r"a\|b": [f"a{BAR}b"],
    r"(Ein)stein\1": ["Einstein"],
    "Ulm(": [],
    "Ulm)": [],
    "Ulm{2": [],
    "ab{2,1}c": [],
    "{2}Ulm": [],
}  # fmt: skip


def quoted(pattern: str) -> str:
    return "'" + pattern.replace("'", "'\\''") + "'"


@pytest.mark.parametrize(("program", "patterns"), [("rg", RUST), ("grep", BASIC), ("grep -E", EXTENDED)])
def test_patterns(program: str, patterns: dict[str, list[str]]) -> None:
    for pattern, clauses in patterns.items():
        found = narrowed(f"{program} -e {quoted(pattern)}")
        assert shown(found) == clauses, (program, pattern)


def test_expansions_are_bounded() -> None:
    many = "|".join(f"word{number}" for number in range(65))
    assert not narrowed(f"rg '{many}'").clauses
    assert len(narrowed(f"rg '{many[: many.rindex('|')]}'").clauses[0]) == 64
    product = narrowed("rg '[ab][ab][ab][ab][ab][ab]x'")
    assert all(len(clause) <= 16 for clause in product.clauses)
    assert len(narrowed("rg '(((a{60}){60}){60}){60}b'").clauses[0][0].text) <= 256
    assert len(narrowed("rg 'a.b.c.d.e.f.g.h.i.jj'").clauses) == 8
    assert len(narrowed(f"rg -F '{'x' * 5000}'").clauses[0][0].text) == 5000
    for program, begin, end in (("rg", "(", ")"), ("grep -E", "(", ")"), ("grep", r"\(", r"\)")):
        assert shown(narrowed(f"{program} '{begin * 60}Ulm{end * 60}'")) == ["Ulm"]
        assert not narrowed(f"{program} '{begin * 61}Ulm{end * 61}'").clauses


@pytest.mark.parametrize("program", ["rg", "grep"])
def test_flags_that_choose_lines(program: str) -> None:
    assert shown(narrowed(f"{program} -F 'a.b*'")) == ["a.b*"]
    assert shown(narrowed(f"{program} -F -e Ulm -e Bern")) == ["Ulm|Bern"]
    assert shown(narrowed(f"{program} -w Ulm")) == ["Ulm"]
    assert shown(narrowed(f"{program} -x 'U.*lm'")) == ["U", "lm"]
    assert shown(narrowed(f"{program} -i Ulm")) == ["~ulm"]
    assert shown(narrowed(f"{program} -i 1879")) == ["1879"]
    assert shown(narrowed(f"{program} -a -F Ulm")) == ["Ulm"]
    for nothing in ("-v Ulm", "-P Ulm", "-F ''", "-F -e Ulm -e ''", "-n Ulm", "-b Ulm", "-A 1 Ulm", "-H Ulm", "-l Ulm"):
        assert not narrowed(f"{program} {nothing}").clauses, nothing


def test_rg_finds_two_more_code_points_without_case() -> None:
    assert narrowed("rg -i 'KISS it'").clauses == ((Literal(b"kiss it", fold=True, specials=(KELVIN, LONG_S)),),)
    assert narrowed("rg -F -i ulm").clauses == ((Literal(b"ulm", fold=True),),)
    # Characters beyond ASCII have more forms than their own.
    assert shown(narrowed("rg -i 'Zürich straße'")) == ["~z", "~rich stra", "~e"]
    assert shown(narrowed("rg -i '(?:né|x)e'")) == ["~n|~x", "~e"]
    assert narrowed("rg -i \u017f").clauses == ()


def test_grep_without_case_heeds_the_locale() -> None:
    assert narrowed("grep -i 'Kiss née'").clauses == ((Literal("kiss née".encode(), fold=True),),)
    (first,), (second,) = narrowed("grep -i 'Kiss née'", locale="C.UTF-8").clauses
    assert (first, second) == (Literal(b"kiss n", fold=True, specials=(DOTLESS, LONG_S)), Literal(b"e", fold=True))


def test_in_the_locale_c_a_character_of_grep_is_a_byte() -> None:
    assert narrowed("grep 'né*e'").clauses == ((Literal(b"n\xc3"),), (Literal(b"e"),))
    assert narrowed("grep 'né*e'", locale="C.UTF-8").clauses == ((Literal(b"n"),), (Literal(b"e"),))
    assert narrowed("grep '[é]n'").clauses == ((Literal(b"n"),),)


def test_the_last_flag_about_case_counts() -> None:
    assert shown(narrowed("rg -i -s Ulm")) == ["Ulm"]
    assert shown(narrowed("rg -s -i Ulm")) == ["~ulm"]
    assert shown(narrowed("grep -i --no-ignore-case Ulm")) == ["Ulm"]
    assert shown(narrowed("grep --no-ignore-case -y Ulm")) == ["~ulm"]


def test_smart_case() -> None:
    assert shown(narrowed("rg -S ulm")) == ["~ulm"]
    assert shown(narrowed("rg -S Ulm")) == ["Ulm"]
    assert shown(narrowed("rg -S -e Ulm -e bern")) == ["Ulm|bern"]
    # Where it is not looked into which letters count, both are allowed for, and nothing is exact.
    found = narrowed(r"rg -S 'U\x6cm'")
    assert (shown(found), found.filters) == (["~ulm"], ())


def test_searches_in_a_row_are_anded() -> None:
    found = narrowed("cat corpus.jsonl | rg -F Ulm | cat | grep -i Bern | head -n 3")
    assert shown(found) == ["Ulm", "~bern"]
    assert found.covered == 4
    assert shown(narrowed("rg Ulm corpus.jsonl | rg Ulm")) == ["Ulm"]


@pytest.mark.parametrize(
    "stop",
    [
        *("rg -v x", "grep -v x", "rg -n x", "grep -b x", "rg -C 1 x", "grep -1 x", "head -n 5", "tail -n 5", "sort"),
        *("uniq", "sed -n p", "awk 1", "cut -c 1-9", "tr a b", "rg -H x", "grep -P x", "rg -P x", "rg --engine auto x"),
        *("cat -n", "rg --passthru x", "grep -z x", "rg -U x", "grep -E -F x", "rg --crlf x", "grep --color=always x"),
    ],
)
def test_clauses_stop_at_the_first_stage_that_is_no_plain_filter(stop: str) -> None:
    found = narrowed(f"rg Ulm corpus.jsonl | {stop} | rg Bern")
    assert shown(found) == ["Ulm"]
    assert found.covered == 1
    assert not narrowed(
        f"{stop} corpus.jsonl | rg Bern" if stop != "tr a b" else "cat corpus.jsonl | tr a b | rg Bern"
    ).clauses


@pytest.mark.parametrize("last", ["-m 3", "-c", "-q", "-o", "-m 1 -c"])
@pytest.mark.parametrize("program", ["rg", "grep"])
def test_what_prints_less_than_its_lines_is_the_last_that_says_something(program: str, last: str) -> None:
    found = narrowed(f"rg Ulm corpus.jsonl | {program} {last} Bern | rg Aarau")
    assert shown(found) == ["Ulm", "Bern"]
    assert found.covered == 2


def test_a_search_that_refers_back_is_the_last_that_says_something() -> None:
    assert shown(narrowed(r"grep '\(Ul\)m\1' corpus.jsonl | rg Bern")) == ["Ulm"]


def test_what_is_not_the_corpus_is_left_alone() -> None:
    for command in (
        "rg Ulm nosuch.jsonl corpus.jsonl",
        "rg Ulm corpus.jsonl corpus.jsonl",
        "rg Ulm corpus.jsonl | rg Bern corpus.jsonl",
        "rg --files corpus.jsonl",
        "rg -e corpus.jsonl",
        "rg --nosuch Ulm corpus.jsonl",
    ):
        found = narrowed(command)
        assert (found.clauses, found.filters, found.replay, found.sink) == ((), (), None, Rest(0)), command
        assert found.reason
    assert not narrowed("rg Ulm", bytes=0).clauses


def test_the_corpus_is_replaced_by_stdin() -> None:
    assert narrowed("rg Ulm ./corpus.jsonl | wc").replay == (("rg", "Ulm", "-"), ("wc",))
    assert narrowed("grep -e corpus.jsonl corpus.jsonl").replay == (
        ("grep", "--label=corpus.jsonl", "-e", "corpus.jsonl", "-"),
    )
    assert narrowed("cat corpus.jsonl | rg Ulm").replay == (("rg", "Ulm", "-"),)
    assert narrowed("rg -g '*.jsonl' Ulm corpus.jsonl").replay is None


EXACT = {
    "rg -F Ulm": ExactFilter((Literal(b"Ulm"),)),
    "rg Ulm": ExactFilter((Literal(b"Ulm"),)),
    "rg 'Einstein|Ein'": ExactFilter((Literal(b"Ein"),)),
    "rg -x 'Einstein|Ein'": ExactFilter((Literal(b"Einstein"), Literal(b"Ein")), whole_line=True),
    "rg '(?i)ulm'": ExactFilter((Literal(b"ulm", fold=True),)),
    "rg -i kiss": ExactFilter((Literal(b"kiss", fold=True, specials=(KELVIN, LONG_S)),)),
    "rg '[Ee]in'": ExactFilter((Literal(b"Ein"), Literal(b"ein"))),
    "rg -v Ulm": ExactFilter((Literal(b"Ulm"),), invert=True),
    "rg -w Ulm": ExactFilter((Literal(b"Ulm"),), word="unicode"),
    "rg -x -w Ulm": ExactFilter((Literal(b"Ulm"),), word="unicode"),
    "rg -w -x Ulm": ExactFilter((Literal(b"Ulm"),), whole_line=True),
    "grep -w -x Ulm": ExactFilter((Literal(b"Ulm"),), whole_line=True),
    "grep -x -w Ulm": ExactFilter((Literal(b"Ulm"),), whole_line=True),
    "grep -w Ulm": ExactFilter((Literal(b"Ulm"),), word="ascii"),
    "grep -i 'née'": ExactFilter((Literal("née".encode(), fold=True),)),
    r"grep 'a\.b'": ExactFilter((Literal(b"a.b"),)),
    "grep -F 'a\nb'": ExactFilter((Literal(b"a"), Literal(b"b"))),
}  # fmt: skip
INEXACT = (
    *(
        "rg 'Ulm.'",
        "rg '^Ulm'",
        r"rg '\bUlm'",
        "rg 'Ulm+'",
        "rg ''",
        "rg -F -e Ulm -e ''",
        "rg -i née",
        "rg '(?P<n>Ulm)'",
    ),
    *(
        "rg --no-unicode -i Ulm",
        "grep '^Ulm'",
        r"grep 'a\-b'",
        r"grep '\(a\)\1'",
        "grep -y Ulm",
        "rg -P Ulm",
        "rg -U Ulm",
    ),
    *("rg 'a(?i)b'", "grep -F ''", "rg 'a{70}'"),
)


def test_exact_filters() -> None:
    for command, want in EXACT.items():
        found = narrowed(command)
        assert (found.filters, found.sink) == ((want,), Everything()), command
    for command in INEXACT:
        found = narrowed(command)
        assert (found.filters, found.sink) == ((), Rest(0)), command


def test_what_the_corpus_is_decides_whether_a_filter_is_exact() -> None:
    assert narrowed("rg -w Ulm", ascii_only=True).filters[0].word == "ascii"
    assert not narrowed("rg -w Ulm", invalid_utf8_lines=1).filters
    assert narrowed("rg Ulm", invalid_utf8_lines=1).filters
    assert not narrowed("rg Ulm", leading_bom=True).filters
    assert narrowed("rg Ulm", leading_bom=True).clauses
    assert narrowed("grep Ulm", leading_bom=True).filters
    assert not narrowed("grep -w Ulm", locale="C.UTF-8").filters
    assert narrowed("grep -w Ulm", locale="C.UTF-8", ascii_only=True).filters
    broken = {"locale": "C.UTF-8", "invalid_utf8_lines": 1}
    assert not narrowed("grep Ulm", **broken).clauses  # it may stop at a binary match
    assert narrowed("grep -a Ulm", **broken).clauses
    assert not narrowed("grep -a Ulm", **broken).filters


SINKS: dict[str, tuple[int, Sink]] = {
    "rg Ulm": (1, Everything()),
    "rg Ulm | rg -v Bern | grep -F x": (3, Everything()),
    "rg Ulm | cat | rg Bern": (2, Everything()),
    "rg Ulm | cat": (1, Rest(1)),  # the exit code is another one
    "rg Ulm | head": (1, HeadLines(10)),
    "rg Ulm | head -n 3": (1, HeadLines(3)),
    "rg Ulm | head -3": (1, HeadLines(3)),
    "rg Ulm | cat | head -n 0": (1, HeadLines(0)),
    "rg Ulm | head -n -3": (1, Rest(1)),
    "rg Ulm | head -n 3k": (1, Rest(1)),
    "rg Ulm | head -c 3": (1, Rest(1)),
    "rg Ulm | head -n 3 -n 2": (1, Rest(1)),
    "rg Ulm | head -n 3 -": (1, Rest(1)),
    "rg Ulm | head -n 3 | wc -l": (1, Rest(1)),
    "rg Ulm | wc -l": (1, CountLines()),
    "rg Ulm | wc -c": (1, CountBytes()),
    "rg Ulm | wc": (1, Rest(1)),
    "rg Ulm | wc -lc": (1, Rest(1)),
    "rg Ulm | wc -l -": (1, Rest(1)),
    "rg -c Ulm": (1, GrepCount(zero=False)),
    "grep -c Ulm": (1, GrepCount(zero=True)),
    "rg Ulm | grep -c Bern": (2, GrepCount(zero=True)),
    "rg -c Ulm | cat": (0, Rest(0)),
    "rg Ulm | rg -c Bern | cat": (1, Rest(1)),
    "rg --count-matches Ulm": (0, Rest(0)),
    "rg -q Ulm": (1, Exists()),
    "grep -m 3 Ulm": (1, HeadLines(3, search=True)),
    "rg -m 0 Ulm": (0, Rest(0)),
    "grep -m -1 Ulm": (0, Rest(0)),
    "rg -m 3 -c Ulm": (0, Rest(0)),
    "rg Ulm | rg -o Bern": (1, Rest(1)),
    "rg Ulm | sort": (1, Rest(1)),
    "rg Ulm | cat | sort": (1, Rest(2)),
    "rg Ulm | rg 'B.*n'": (1, Rest(1)),
    "rg 'U.*m' | rg Bern": (0, Rest(0)),
}  # fmt: skip


def test_sinks() -> None:
    for command, (filters, sink) in SINKS.items():
        first, bar, rest = command.partition(" |")
        found = narrowed(f"{first} corpus.jsonl{bar}{rest}")
        assert (len(found.filters), found.sink) == (filters, sink), command
        found = narrowed(f"cat corpus.jsonl | {command}")
        later = Rest(sink.first_stage + 1) if isinstance(sink, Rest) and filters else sink
        assert (len(found.filters), found.sink) == (filters, later), command


def test_literals_and_filters_look_at_lines_as_the_programs_do() -> None:
    kiss = Literal(b"kiss", fold=True, specials=(KELVIN, LONG_S))
    assert kiss.within(b"a \xe2\x84\xaaI\xc5\xbfS b")
    assert not Literal(b"kiss", fold=True).within(b"\xe2\x84\xaaISS")
    assert Literal("née".encode(), fold=True).within("x NéE".encode())
    word = ExactFilter((Literal(b"aa"),), word="ascii")
    assert word.passes(b"aaa aa")
    assert not word.passes(b"aaa _aa")
    assert word.passes("éaa".encode())
    assert not ExactFilter((Literal(b"aa"),), word="unicode").passes("éaa".encode())
    assert ExactFilter((Literal(b"aa"),), word="unicode").passes("\u2019aa漢aa\u201d aa.".encode())
    assert ExactFilter((kiss,), whole_line=True).passes("KI\u017fs".encode())
    assert ExactFilter((kiss,), invert=True).passes(b"kis")


def test_corpora_of_one_line_are_narrowed_too() -> None:
    assert narrow(parse("rg -F Ulm corpus.jsonl"), facts_of(odd()["one_line"])).clauses == ((Literal(b"Ulm"),),)
