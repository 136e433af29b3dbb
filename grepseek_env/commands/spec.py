"""What a table entry says about a program: its flags, its operands, and what each means for slicing."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Arity", "Ban", "Effect", "FlagSpec", "Operands", "ProgramSpec", "Style", "ValueKind", "describe"]


class Effect(Enum):
    """What a program, or one of its flags, does to the chance of running it on slices of its input.

    A slice is a run of whole lines. A flag that declares nothing is OPAQUE: the program then sees the whole stream.
    """

    KEEP = "keep"
    """The flag leaves the program's own effect as it is."""
    FILTER = "filter"
    """Prints some of its input lines, unchanged and in order, each chosen by looking at that line alone."""
    MAP = "map"
    """Turns each line into some text by looking at that line alone."""
    COUNT = "count"
    """Prints a number of lines, matches, words or bytes: slices are summed."""
    OFFSET_LINES = "offset-lines"
    """Prints the number of a line, counted in what enters this stage."""
    OFFSET_BYTES = "offset-bytes"
    """Prints a position in bytes, counted in what enters this stage."""
    EXISTS = "exists"
    """Prints nothing; the exit code says whether a line was selected."""
    HEAD = "head"
    """The value says how many leading lines or bytes are printed (a negative one: all but the last)."""
    TAIL = "tail"
    """The value says how many trailing lines or bytes are printed (with `+`: from which on)."""
    LIMIT = "limit"
    """Stops after as many selected lines as the value says, in each file."""
    CONTEXT = "context"
    """Prints neighbours of selected lines."""
    SORT = "sort"
    """Orders its lines: sorted slices can be merged with the same KEY flags."""
    KEY = "key"
    """Says how lines are compared: a merge needs the same flag."""
    UNIQ = "uniq"
    """Joins equal neighbours: the seam between two slices has to be stitched."""
    NAME = "name"
    """Prints or tests the file's name, and is otherwise like KEEP: a slice must bear the corpus's name."""
    SCRIPT = "script"
    """Decided by the script, pattern sets or expression: see `Stage.script`."""
    OPAQUE = "opaque"
    """Anything else: the program sees the whole stream, once."""


class Arity(Enum):
    """How many values a flag takes."""

    NONE = "none"
    REQUIRED = "required"
    OPTIONAL = "optional"
    """Only attached, as in `--color=never`."""


class ValueKind(Enum):
    """What a flag's value is."""

    TEXT = "text"
    PATTERN = "pattern"
    """A pattern; the first operand is then a file."""
    SCRIPT = "script"
    """A piece of a sed script; the first operand is then a file."""
    ASSIGNMENT = "assignment"
    """awk's NAME=TEXT."""


class Operands(Enum):
    """What the words that are no flags mean."""

    PATTERN_FILES = "PATTERN [FILE...]"
    SCRIPT_FILES = "SCRIPT [FILE...]"
    FILES = "[FILE...]"
    ONE_FILE = "[FILE]"
    SETS = "SET1 [SET2]"
    EXPRESSION = "[PATH...] [EXPRESSION]"


class Style(Enum):
    """How a program reads its own arguments."""

    GETOPT = "getopt"
    """getopt_long: flags anywhere, long names may be abbreviated."""
    GETOPT_IN_ORDER = "getopt-in-order"
    """getopt_long, but the first operand ends the flags."""
    RG = "rg"
    """Flags anywhere, no abbreviations, `-m=1` means `-m 1`."""
    AWK = "awk"
    """Short flags only, the first operand ends them."""
    FIND = "find"
    """Paths, then an expression of words with one dash."""


@dataclass(frozen=True, slots=True)
class Ban:
    """Why something a program can do is not offered.

    Attributes:
        why: completes "... is not available: it ...".
        instead: what to write instead, as a sentence without a full stop.
    """

    why: str
    instead: str


@dataclass(frozen=True, slots=True)
class FlagSpec:
    """One flag of a program: checking, planning, prompt help and docs all read this record.

    Attributes:
        names: every spelling, dashes included; the first is how help shows it.
        help: one line, without a full stop.
        effect: what the flag does to slicing.
        arity: how many values it takes.
        metavar: the value's name in help.
        kind: what the value is.
        accepts: a regular expression that the whole value must match; empty accepts any value.
        expected: the accepted values in words, for the error.
        inert: values with which the flag changes nothing, so that its effect is KEEP (None: given without a value).
        opaque: values with which it is OPAQUE whatever `effect` says.
        against: flags that it overrides or that override it: given together, the program's effect is OPAQUE.
        odd_bytes: its output may hold a NUL byte or a piece of a character that the input did not have.
        ban: why it is refused; None for an accepted flag.
    """

    names: tuple[str, ...]
    help: str
    effect: Effect = Effect.OPAQUE
    arity: Arity = Arity.NONE
    metavar: str = ""
    kind: ValueKind = ValueKind.TEXT
    accepts: str = ""
    expected: str = ""
    inert: tuple[str | None, ...] = ()
    opaque: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    odd_bytes: bool = False
    ban: Ban | None = None

    def effect_of(self, value: str | None) -> Effect:
        """Returns what the flag does to slicing when it is given with this value."""
        if self.inert and value in self.inert:
            return Effect.KEEP
        return Effect.OPAQUE if value in self.opaque else self.effect


@dataclass(frozen=True)
class ProgramSpec:
    """One program of the command language.

    Attributes:
        name: the bare name it is called by.
        help: what it does, one line, without a full stop.
        effect: what it does to slicing when no flag changes that.
        style: how it reads its arguments.
        operands: what its operands are.
        flags: every flag that the real program knows, refused ones included, so that an unknown flag can be told
            from one that is not offered.
        examples: accepted commands.
        dot: the folder `.` may be named as a file operand.
        odd_bytes: its output may hold NUL bytes or pieces of characters whatever its flags.
        exact: flag spelling -> record.
    """

    name: str
    help: str
    effect: Effect
    style: Style
    operands: Operands
    flags: tuple[FlagSpec, ...]
    examples: tuple[str, ...]
    dot: bool = False
    odd_bytes: bool = False
    exact: Mapping[str, FlagSpec] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        table: dict[str, FlagSpec] = {}
        for flag in self.flags:
            for name in flag.names:
                if name in table:
                    raise ValueError(f"{self.name}: the flag {name} is declared twice")
                table[name] = flag
        object.__setattr__(self, "exact", table)

    def offered(self) -> tuple[FlagSpec, ...]:
        """Returns the flags that are accepted, in table order."""
        return tuple(flag for flag in self.flags if flag.ban is None)

    def abbreviated(self, name: str) -> tuple[FlagSpec, ...]:
        """Returns the distinct flags whose long names start with `name` (dashes included)."""
        found = [flag for known, flag in self.exact.items() if known.startswith(name) and known.startswith("--")]
        return tuple(dict.fromkeys(found))


def describe(spec: ProgramSpec) -> str:
    """Returns help for one program as plain text: what it does, its flags, examples."""
    lines = [f"{spec.name}: {spec.help}", f"usage: {spec.name} {_usage(spec)}"]
    shown = [(_spelling(flag), flag.help) for flag in spec.offered() if flag.help]
    width = min(max((len(left) for left, _ in shown), default=0), 34)
    lines += [f"  {left:<{width}}  {right}" for left, right in shown]
    lines += ["examples:", *(f"  {example}" for example in spec.examples)]
    return "\n".join(lines)


def _usage(spec: ProgramSpec) -> str:
    return spec.operands.value if spec.operands is Operands.EXPRESSION else f"[FLAG...] {spec.operands.value}"


def _spelling(flag: FlagSpec) -> str:
    match flag.arity:
        case Arity.NONE:
            return ", ".join(flag.names)
        case Arity.REQUIRED:
            return ", ".join(f"{n}={flag.metavar}" if n.startswith("--") else f"{n} {flag.metavar}" for n in flag.names)
        case Arity.OPTIONAL:
            return ", ".join(f"{n}[={flag.metavar}]" if n.startswith("--") else n for n in flag.names)
