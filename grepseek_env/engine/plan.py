"""What a plan is: which programs run on slices of the corpus, how their outputs become one, what then runs once.

A slice is a run of whole lines of the corpus; slices are numbered in file order and consumed in that order. After a
slice in which a program failed (`failed`), later slices do not count: the whole stream would have ended there too.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Argv",
    "Combiner",
    "Concat",
    "Exists",
    "Exits",
    "Head",
    "HeadBytes",
    "Merge",
    "Numbers",
    "Offset",
    "Plan",
    "Sequential",
    "Sliced",
    "Sum",
    "Tail",
    "TailBytes",
    "Uniq",
    "UniqShow",
    "exit_code",
    "failed",
]

Argv: TypeAlias = tuple[str, ...]
"""Arguments of one program, bare name first."""


@dataclass(frozen=True, slots=True)
class Concat:
    """The outputs of the slices, one after the other."""


@dataclass(frozen=True, slots=True)
class Head:
    """The first lines of the concatenation.

    Attributes:
        lines: how many; decided as soon as that many newlines have come.
    """

    lines: int


@dataclass(frozen=True, slots=True)
class HeadBytes:
    """The first bytes of the concatenation.

    Attributes:
        count: how many bytes.
    """

    count: int


@dataclass(frozen=True, slots=True)
class Tail:
    """The last lines of the concatenation; a last line without its newline counts.

    Attributes:
        lines: how many.
    """

    lines: int


@dataclass(frozen=True, slots=True)
class TailBytes:
    """The last bytes of the concatenation.

    Attributes:
        count: how many bytes.
    """

    count: int


@dataclass(frozen=True, slots=True)
class Sum:
    """One line of numbers a slice, added up column by column; nothing if no slice printed anything.

    A slice's line is `columns` numbers separated by spaces, before them what is no number (`corpus.jsonl:` of
    grep -H), after them wc's label.

    Attributes:
        columns: how many numbers a line has.
        width: every number is padded with spaces on the left to this width.
        label: what follows the numbers after one space; empty for nothing.
    """

    columns: int = 1
    width: int = 1
    label: str = ""


@dataclass(frozen=True, slots=True)
class Merge:
    """The slices are sorted; the whole is their merge.

    Attributes:
        argv: the merging program; the inputs' names are appended, in slice order, at most 16 of them (more need
            `--batch-size`, or temporary files). A single input is the answer itself: sort, which failed on it, must
            not complain again.
    """

    argv: Argv


class UniqShow(Enum):
    """Which groups of equal neighbours uniq prints, and how."""

    ALL = "all"
    """The first line of each."""
    COUNTED = "counted"
    """Each with its size before it."""
    REPEATED = "repeated"
    """Those of two lines or more."""
    SINGLE = "single"
    """Those of one line."""


@dataclass(frozen=True, slots=True)
class Uniq:
    """Groups of equal neighbours; the group at a seam is stitched.

    Attributes:
        show: what is printed. The slices print with `uniq -c`, plain `uniq` for `ALL`.
    """

    show: UniqShow


class Numbers(Enum):
    """How an output line starts that bears numbers."""

    COLON = "colon"
    """`LINE:`, `BYTE:` or `LINE:BYTE:`, as grep and rg write."""
    CAT = "cat"
    """A line number right-aligned in six columns and a tab, as cat -n writes."""


@dataclass(frozen=True, slots=True)
class Offset:
    """Concatenation of lines that start with a number counted from the slice's start, which is to be rebased.

    Attributes:
        lines: the line number (the first number) counts from the lines of the corpus before the slice.
        bytes: the byte offset (the next number) counts from the bytes of the corpus before the slice.
        numbers: how they are written.
        label: file name and colon before the numbers; empty for nothing.
    """

    lines: bool
    bytes: bool
    numbers: Numbers = Numbers.COLON
    label: str = ""


@dataclass(frozen=True, slots=True)
class Exists:
    """Prints nothing; decided as soon as a slice ends with exit code 0."""


Combiner: TypeAlias = Concat | Head | HeadBytes | Tail | TailBytes | Sum | Merge | Uniq | Offset | Exists


class Exits(Enum):
    """How the exit codes that the last sliced program gave on each slice become one."""

    FIRST_FAILURE = "first-failure"
    """The first that is not 0."""
    SEARCH = "search"
    """Like grep: an error wins, else 0 if any slice had a match, else 1."""


@dataclass(frozen=True, slots=True)
class Sequential:
    """The pipeline runs once over the whole corpus.

    Attributes:
        reason: why, completing "one pass over the corpus: ...".
    """

    reason: str


@dataclass(frozen=True, slots=True)
class Sliced:
    """The first programs run on every slice, the others once.

    Attributes:
        mapped: what runs on a slice that is a file of the corpus's name in its own folder, as written; only a
            `uniq -d` or `-u` is run as `uniq -c`.
        piped: the same for a slice that arrives on stdin (a pipe, or the corpus file seeked to the slice's start and
            read to its end); a leading `cat` is gone. None where the file's name shows.
        combiner: makes one stream of the slices' outputs.
        tail: what runs once on that stream, which must reach it through a pipe (wc looks).
        exits: with an empty `tail`, how the command's exit code comes about.
        work: "scan" where one pass is limited by memory or does not read the whole file, so that slices bring
            nothing; "cpu" where the programs are.
        early: the first slices may decide, so that a small first slice pays.
        reason: how far the slicing goes and why no farther, in words.
        written: the sliced programs as they were written: `written + tail` is the pipeline.
        stdin_label: with `piped`, what the first program, an rg, would call the file: its messages say `<stdin>`.
            Empty where messages are the same.
    """

    mapped: tuple[Argv, ...]
    piped: tuple[Argv, ...] | None
    combiner: Combiner
    tail: tuple[Argv, ...]
    exits: Exits
    work: Literal["scan", "cpu"]
    early: bool
    reason: str
    written: tuple[Argv, ...]
    stdin_label: str = ""


Plan: TypeAlias = Sequential | Sliced


def failed(argv: Sequence[str], code: int) -> bool:
    """Returns whether an exit code of this program (128 + s for death by signal s) means that it stopped early.

    The death of a program by SIGPIPE means that all that was wanted has come; it is not to be asked about.
    """
    return code > 1 or (code == 1 and argv[0] not in {"rg", "grep"})


def exit_code(exits: Exits, codes: Sequence[int]) -> int:
    """Returns the command's exit code.

    Args:
        exits: the rule.
        codes: the codes of the last sliced program, in slice order, up to the slice that decided or failed.
    """
    match exits:
        case Exits.FIRST_FAILURE:
            return next((code for code in codes if code), 0)
        case Exits.SEARCH:
            return next((code for code in codes if code > 1), min(codes, default=1))
