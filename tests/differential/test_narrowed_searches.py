"""Searches against the programs themselves: what a printed line must hold, and filters that are exact. No runner."""

from __future__ import annotations

import random
import subprocess
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grepseek_env.commands import parse
from grepseek_env.engine.narrow import Everything, narrow
from grepseek_env.engine.programs import open_programs
from grepseek_env.errors import CommandRefused
from tests.support.patterns import Drawn, draw_search
from tests.support.plans import facts_of

if TYPE_CHECKING:
    from pathlib import Path

    from grepseek_env.engine.narrow import Clause

PATIENCE = 10  # seconds; a few drawn patterns take grep for ever
LOCALES = ("C", "C.UTF-8")


def satisfies(line: bytes, clauses: tuple[Clause, ...]) -> bool:
    return all(any(literal.within(line) for literal in clause) for clause in clauses)


class Checker:
    """Compares what is derived of a search with what its program prints, and counts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs = open_programs().folder
        self.checked = self.narrowed = self.exact = self.printed = 0

    def check(self, drawn: Drawn, locale: str) -> str:
        """Returns what is wrong, or nothing."""
        data = b"".join(line + b"\n" for line in drawn.lines)
        try:
            pipeline = parse(f"{drawn.stage} corpus.jsonl")
        except CommandRefused:
            return ""
        found = narrow(pipeline, facts_of(data), locale=locale)
        if not found.clauses and not found.filters:
            return ""
        (self.folder / "corpus.jsonl").write_bytes(data)
        try:
            done = subprocess.run(
                [word.encode() for word in pipeline.argv[0]],
                executable=self.programs / pipeline.argv[0][0],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                cwd=self.folder,
                env={"PATH": str(self.programs), "LC_ALL": locale},
                check=False,
                timeout=PATIENCE,
            )
        except subprocess.TimeoutExpired:
            return ""
        self.checked += 1
        self.narrowed += bool(found.clauses)
        printed = done.stdout.split(b"\n")[:-1]
        self.printed += bool(printed)
        shown = f"{drawn.stage!r} in {locale}: {found}\n  lines {drawn.lines}\n  {done}"
        if lost := [line for line in printed if not satisfies(line, found.clauses)]:
            return f"lost {lost}\n  {shown}"
        if found.filters:
            self.exact += 1
            assert found.sink == Everything()
            passing = [line for line in drawn.lines if found.filters[0].passes(line)]
            if (passing, 0 if passing else 1, b"") != (printed, done.returncode, done.stderr):
                return f"not exact: {passing}\n  {shown}"
        return ""


@pytest.mark.parametrize("program", ["rg", "grep"])
def test_property_printed_lines_hold_what_they_must(tmp_path: Path, program: str) -> None:
    checker = Checker(tmp_path)

    @settings(max_examples=settings().max_examples * 3, suppress_health_check=[HealthCheck.too_slow])
    @given(seed=st.integers(0, 1 << 48), locale=st.sampled_from(LOCALES if program == "grep" else LOCALES[:1]))
    def check(seed: int, locale: str) -> None:
        wrong = checker.check(draw_search(random.Random(seed), program), locale)
        assert not wrong, wrong

    check()
    # The searches that are drawn must mean something, or nothing would be shown.
    assert checker.narrowed > checker.checked / 2
    assert checker.exact > checker.checked / 10
    assert checker.printed > checker.checked / 4


SIGNS = [chr(code) for code in range(1, 128) if code != 10]
# With X every sign in turn.
PLACES = (
    *(r"a\Xb", "aXb", "Xb", "aX", r"\X", "[X]b", "[Xa]b", "[aX]b", r"a\XXb", "(?X)b", "(?X:a)b", "[[X]b"),
    *("(aX|b)c", r"\(aX\|b\)c", r"\(aX*\|b\)c"),
)
ODD = (
    *("a{,1}b", "a{2,1}b", r"a\{2,1\}b", r"a\{,1\}b", "a{1,1}b", "a{01}b", "a{ 1}b", "a{1 }b", "a{0,1}b", "a{1,1}?b"),
    *(
        "(?ii)a",
        "(?i-i)a",
        "(?-i-s)a",
        "(?i)(?i)a",
        "(?)a",
        "(?#c)a",
        "(?P<a>b)",
        "(?P<a.b>b)",
        "(?<a[0]>b)",
        "(?P<1>b)",
    ),
    *(
        "(?P=a)b",
        r"\x{0041}",
        r"\x41\u0042",
        r"\x{41",
        r"\x4",
        r"\u{1F600}",
        r"[\x41]b",
        r"\Aa",
        r"a\z",
        r"\Ga",
        r"a\Z",
    ),
    *("()a", "a()", "|", "a|", "(|a)b", "[^a]b", "[]a", "[]]b", "[^]]b", "a]b", "a}b", "}", "{", "a{", "a{b", "a{,"),
    *("{1}", "a|{1}", "a??b", "a+?", "^a", "a^", "$a", "a$"),
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "locale"),
    [
        *((words, "C") for words in ("rg", "rg -S", "rg -w", "grep", "grep -E", "grep -iE", "grep -w", "grep -F")),
        *((words, "C.UTF-8") for words in ("grep", "grep -E", "grep -iE")),  # rg heeds no locale
    ],
)
def test_every_sign_in_every_place(tmp_path: Path, words: str, locale: str) -> None:
    checker = Checker(tmp_path)
    wrong = []
    for pattern in [*(place.replace("X", sign) for sign in SIGNS for place in PLACES), *ODD]:
        inner = {"", "b", "a", "\\", pattern[1:2], pattern[2:3]}
        texts = {f"a{sign}b" for sign in inner} | {f"{sign}b" for sign in inner} | inner
        texts |= {pattern, pattern.replace("\\", ""), "aab", "bc", "ac", "AB", "A", "\U0001f600"}
        lines = tuple(text.encode() for text in sorted(texts) if "\n" not in text)
        wrong.append(checker.check(Drawn((*words.split(), "-e", pattern), lines), locale))
    assert not any(wrong), "\n".join(filter(None, wrong))
    assert checker.narrowed > 500
