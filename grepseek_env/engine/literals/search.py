"""What a stage that searches selects: rg and grep, their flags and patterns."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from grepseek_env.commands.spec import Effect, ValueKind
from grepseek_env.commands.syntax import OperandKind
from grepseek_env.engine.literals.posix import read_posix
from grepseek_env.engine.literals.records import ExactFilter, Literal
from grepseek_env.engine.literals.required import ANYTHING, Choice, Fold, Matches, NotUnderstood, any_of, plain
from grepseek_env.engine.literals.rust import is_plain, read_rust

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from grepseek_env.commands.syntax import Option, Stage
    from grepseek_env.corpus.facts import CorpusFacts
    from grepseek_env.engine.literals.records import Clause, Word

__all__ = ["Search", "read_search"]

_MOST_CLAUSES = 8  # of one search
_MOST_PATTERNS = 64  # more are cut at first sight

_NUMBERED = re.compile(r"\\[xuU]")
# What matters to which lines are selected, and what changes nothing about them. A flag of neither is not understood.
_HEEDED = {
    "rg": frozenset({"-e", "-F", "-i", "-S", "-s", "-w", "-x", "-v", "--no-unicode"}),
    "grep": frozenset({"-e", "-E", "-F", "-G", "-i", "--no-ignore-case", "-w", "-x", "-v", "-a"}),
}
_IDLE = {
    "rg": frozenset(
        {
            *("-a", "-N", "-I", "-j", "--mmap", "--no-mmap", "--no-config", "--no-messages", "--no-heading"),
            *("--line-buffered", "--block-buffered", "--no-line-buffered", "--no-block-buffered", "--color"),
            *("--no-crlf", "--no-encoding", "--no-multiline-dotall", "--no-pre", "--no-search-zip", "--no-stats"),
            *("--no-json", "--no-trim", "--no-include-zero", "--no-binary", "--no-max-columns-preview", "--messages"),
            "--unicode",
        }
    ),
    "grep": frozenset({"-h", "-s", "-U", "--line-buffered", "--color"}),
}
# The code points beyond ASCII that a program ignoring case takes for a letter, behind that letter.
_LETTERS = {"rg": (("k", "\u212a"), ("s", "\u017f")), "grep": (("i", "\u0131"), ("s", "\u017f"))}


@dataclass(frozen=True, slots=True)
class Search:
    """What one rg or grep selects.

    Attributes:
        clauses: every line that matches satisfies all of them.
        invert: the lines that do not match are selected.
        exact: what it selects, exactly, if that is a search for literals; what it does with these lines is another
            matter.
        refers_back: a pattern holds a back-reference.
    """

    clauses: tuple[Clause, ...]
    invert: bool
    exact: ExactFilter | None
    refers_back: bool = False


def read_search(stage: Stage, corpus: CorpusFacts, locale: str) -> Search | str:
    """Reads a stage of rg or grep.

    Args:
        stage: its flags may print something else than lines.
        corpus: facts of what it reads, or of what those lines come from.
        locale: LC_ALL of the program.

    Returns:
        What it selects, or in words why that is not known.
    """
    known = _HEEDED[stage.program] | _IDLE[stage.program]
    for option in stage.options:
        if option.effect is Effect.KEEP and option.spec.names[0] not in known:
            return f"{option.name} is not looked into"
        if opposite := stage.given(*option.spec.against):
            return f"{option.name} and {opposite[0].name} are given together"
    if not _patterns(stage):
        return f"{stage.program} is given no pattern"
    return _rg(stage, corpus) if stage.program == "rg" else _grep(stage, corpus, locale)


def _rg(stage: Stage, corpus: CorpusFacts) -> Search:
    patterns = _patterns(stage)
    case = _last(stage.options, {"-i", "-S", "-s"})
    whole = _last(stage.options, {"-w", "-x"})
    fixed, by_bytes = bool(stage.given("-F")), bool(stage.given("--no-unicode"))
    fold = Fold.UNICODE if case in {"-i", "-S"} else Fold.NO
    told = True  # whether case is heeded is known, not only allowed for
    if case == "-S":
        told = all(pattern.isascii() and (fixed or is_plain(pattern)) for pattern in patterns)
        if told and any(pattern != pattern.lower() for pattern in patterns):
            fold = Fold.NO
    matches = ANYTHING  # a pattern with a newline is rejected
    if not any("\n" in pattern for pattern in patterns):
        read = plain if fixed else _read_bytes if by_bytes else read_rust
        matches = _any_pattern(lambda pattern: read(pattern, fold), patterns)
    word: Word = "none" if whole != "-w" else "ascii" if corpus.ascii_only else "unicode"
    exact = (
        told
        and not by_bytes
        and not corpus.leading_bom  # rg drops it
        and not (word == "unicode" and corpus.invalid_utf8_lines)
    )
    return _search(stage, matches, word, whole_line=whole == "-x", exact=exact)


def _read_bytes(pattern: str, fold: Fold) -> Matches:
    """Reads a pattern under --no-unicode, where an escape by number is a byte rather than a character."""
    return ANYTHING if _NUMBERED.search(pattern) else read_rust(pattern, fold)


def _grep(stage: Stage, corpus: CorpusFacts, locale: str) -> Search | str:
    syntaxes = {option.spec.names[0] for option in stage.options} & {"-E", "-F", "-G"}
    if len(syntaxes) > 1:
        return f"{' and '.join(sorted(syntaxes))} are given together"
    by_bytes = locale == "C"  # every byte is a character, and none beyond ASCII is a letter
    broken = not by_bytes and corpus.invalid_utf8_lines > 0
    if broken and not stage.given("-a"):
        return f"the corpus is not all valid in the locale {locale}, so grep may stop at a binary match"
    case = _last(stage.options, {"-i", "--no-ignore-case"})
    insensitive = Fold.ASCII if by_bytes else Fold.UNICODE
    reads = _Posix(
        fold=insensitive if case == "-i" else Fold.NO,
        syntax=next(iter(syntaxes), "-G"),
        encoding="latin-1" if by_bytes else "utf-8",
    )
    lines = [line for pattern in _patterns(stage) for line in pattern.split("\n")]
    if by_bytes:
        lines = [line.encode().decode("latin-1") for line in lines]
    matches = _any_pattern(reads.pattern, lines)
    whole_line = bool(stage.given("-x"))
    word: Word = "ascii" if stage.given("-w") and not whole_line else "none"
    warns = any(option.name == "-y" for option in stage.options)  # in some releases
    exact = not broken and not warns and (word == "none" or by_bytes or corpus.ascii_only)
    found = _search(stage, matches, word, whole_line=whole_line, exact=exact)
    return dataclasses.replace(found, refers_back=reads.refers_back)


class _Posix:
    """Reads grep's patterns, and remembers whether one refers back."""

    def __init__(self, *, fold: Fold, syntax: str, encoding: str) -> None:
        self.fold = fold
        self.syntax = syntax
        self.encoding = encoding
        self.refers_back = False

    def pattern(self, line: str) -> Matches:
        if self.syntax == "-F":
            return plain(line, self.fold, self.encoding)
        read = read_posix(line, self.fold, extended=self.syntax == "-E", encoding=self.encoding)
        self.refers_back = self.refers_back or read.refers_back
        return read.matches


def _patterns(stage: Stage) -> list[str]:
    given = [option.value or "" for option in stage.options if option.spec.kind is ValueKind.PATTERN]
    return given + [operand.value for operand in stage.operands if operand.kind is OperandKind.PATTERN]


def _last(options: Iterable[Option], names: set[str]) -> str:
    """Returns which of these flags comes last; empty if none does."""
    given = [option.spec.names[0] for option in options if option.spec.names[0] in names]
    return given[-1] if given else ""


def _any_pattern(read: Callable[[str], Matches], patterns: Sequence[str]) -> Matches:
    if len(patterns) > _MOST_PATTERNS:
        return ANYTHING
    try:
        return any_of([read(pattern) for pattern in patterns])
    except NotUnderstood:
        return ANYTHING


def _search(stage: Stage, matches: Matches, word: Word, *, whole_line: bool, exact: bool) -> Search:
    clauses = [_clause(choice, stage.program) for choice in matches.choices()]
    if len(clauses) > _MOST_CLAUSES:
        clauses.sort(key=lambda clause: -min(len(literal.text) for literal in clause))
    invert = bool(stage.given("-v"))
    literals: Clause = ()
    if exact and matches.precise and clauses and matches.texts is not None:
        # Of texts that hold one another the clause has the shortest; where a line's whole or words matter, all count.
        bounded = whole_line or word != "none"
        literals = _clause(Choice(matches.texts, matches.fold), stage.program) if bounded else clauses[0]
    return Search(
        clauses=tuple(dict.fromkeys(clauses[:_MOST_CLAUSES])),
        invert=invert,
        exact=ExactFilter(literals, invert=invert, word=word, whole_line=whole_line) if literals else None,
    )


def _clause(choice: Choice, program: str) -> Clause:
    return tuple(_literal(text, choice.fold, program) for text in choice.texts)


def _literal(text: bytes, fold: Fold, program: str) -> Literal:
    match fold:
        case Fold.NO:
            return Literal(text)
        case Fold.ASCII:
            return Literal(text, fold=True)
        case Fold.UNICODE:
            letters = text.decode("ascii")
            specials = tuple(point.encode() for letter, point in _LETTERS[program] if letter in letters)
            return Literal(text, fold=True, specials=specials)
