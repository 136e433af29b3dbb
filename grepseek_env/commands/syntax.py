"""Records of the command language: from words with their places in the text to a checked pipeline."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from grepseek_env.commands.spec import Effect, FlagSpec, ProgramSpec

__all__ = ["Operand", "OperandKind", "Option", "Piece", "Pipeline", "ScriptFacts", "Span", "Stage", "Word"]


class Span(NamedTuple):
    """A part of the command text.

    Attributes:
        start: index of its first character.
        end: index after its last character.
    """

    start: int
    end: int


class Piece(NamedTuple):
    """A run of a word's value whose characters stand side by side in the command text.

    Attributes:
        at: index of its first character in the word's value.
        origin: index of that character in the command text.
        quoted: whether the run is quoted.
    """

    at: int
    origin: int
    quoted: bool


@dataclass(frozen=True, slots=True)
class Word:
    """One argument.

    Attributes:
        value: the argument after quote removal, as the program receives it.
        span: where it stands in the command text, quotes included.
        pieces: where its characters come from; empty for an empty word and for an expanded glob.
    """

    value: str
    span: Span
    pieces: tuple[Piece, ...] = field(default=(), repr=False, compare=False)

    def origin(self, index: int) -> int:
        """Returns where the value's character `index` stands in the command text."""
        if not self.pieces:
            return self.span.start
        piece = self.pieces[max(0, bisect_right(self.pieces, index, key=lambda p: p.at) - 1)]
        return min(piece.origin + index - piece.at, self.span.end)

    def part(self, start: int, end: int) -> Span:
        """Returns the place of `value[start:end]`, at least one character wide."""
        if not self.pieces:
            return self.span
        first = self.origin(start)
        return Span(first, max(first + 1, self.origin(end - 1) + 1 if end > start else first))


class OperandKind(Enum):
    """What an operand is to its program."""

    FILE = "file"
    STDIN = "stdin"
    """The word `-`."""
    PATTERN = "pattern"
    SCRIPT = "script"
    SET = "set"
    """tr's sets."""
    ASSIGNMENT = "assignment"
    """awk's NAME=TEXT."""
    EXPRESSION = "expression"
    """A word of find's expression."""
    STRAY = "stray"
    """A word that the program itself rejects before it reads anything."""


@dataclass(frozen=True, slots=True)
class Operand:
    """One argument that is no flag.

    Attributes:
        kind: what it is to the program.
        value: the argument.
        span: its place in the command text.
    """

    kind: OperandKind
    value: str
    span: Span


@dataclass(frozen=True, slots=True)
class Option:
    """One flag as it was given.

    Attributes:
        spec: its table record.
        name: the spelling it was resolved to, such as ``"--max-count"`` for ``--max-c=1``.
        value: its value; None without one.
        span: its place in the command text, value included.
    """

    spec: FlagSpec
    name: str
    value: str | None
    span: Span

    @property
    def effect(self) -> Effect:
        """What the flag, with this value, does to slicing."""
        return self.spec.effect_of(self.value)


@dataclass(frozen=True, slots=True)
class ScriptFacts:
    """What is proven about a sed script, an awk program or tr's sets.

    Attributes:
        effect: FILTER, MAP or OPAQUE.
        aligned: with FILTER or MAP, every output ends with a newline if the input's last line does, so that what
            follows sees the same lines on slices; a stage that is not aligned must be the last one that is sliced.
        odd_bytes: the output may hold a NUL byte or a piece of a character that the input did not have.
        why: with OPAQUE, what in it needs the whole stream; else empty.
    """

    effect: Effect
    aligned: bool = True
    odd_bytes: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class Stage:
    """One program of a pipeline.

    Attributes:
        spec: its table entry.
        argv: its arguments; `argv[0]` is the bare name.
        options: its flags in the order given.
        operands: its other arguments in the order given.
        span: its place in the command text.
        script: what is proven about its script, program or sets; None for programs without one.
        usage_error: what the program itself will complain about before it reads anything; empty if nothing.
    """

    spec: ProgramSpec
    argv: tuple[str, ...]
    options: tuple[Option, ...]
    operands: tuple[Operand, ...]
    span: Span
    script: ScriptFacts | None = None
    usage_error: str = ""

    @property
    def program(self) -> str:
        """The bare name."""
        return self.spec.name

    @property
    def files(self) -> tuple[Operand, ...]:
        """The operands that name an input: files, the folder, or `-`."""
        return tuple(o for o in self.operands if o.kind in {OperandKind.FILE, OperandKind.STDIN})

    def given(self, *names: str) -> tuple[Option, ...]:
        """Returns the options whose record bears any of these names, in the order given."""
        return tuple(o for o in self.options if any(name in o.spec.names for name in names))


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A checked command: every stage is allowed, and `argv` is what bash would start.

    Attributes:
        text: the command as it was written.
        stages: its programs, in order; at least one.
    """

    text: str
    stages: tuple[Stage, ...]

    @property
    def argv(self) -> tuple[tuple[str, ...], ...]:
        """The arguments of every stage."""
        return tuple(stage.argv for stage in self.stages)
