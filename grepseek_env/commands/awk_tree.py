"""Records of a read awk program."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["Node", "NodeKind", "Program", "Rule"]


class NodeKind(Enum):
    """What a node is; `text` and `parts` of the node are given here."""

    NUMBER = "number"
    """text: as written."""
    STRING = "string"
    """text: between the quotes, escapes untouched."""
    REGEX = "regex"
    """text: between the slashes."""
    VARIABLE = "variable"
    """text: name."""
    ELEMENT = "element"
    """text: array; parts: subscripts."""
    FIELD = "field"
    """parts: number of the field."""
    BUILTIN = "builtin"
    """text: name; parts: arguments."""
    CALL = "call"
    """text: name of a function of the program; parts: arguments."""
    GROUP = "group"
    """parts: what stands between parentheses."""
    OPERATION = "operation"
    """text: the first sign, or a blank for joined texts; parts: operands."""
    SHORT = "short"
    """text: && || or ?; parts: operands, of which all but the first may not be evaluated."""
    MEMBER = "member"
    """text: array; parts: subscripts looked for."""
    ASSIGN = "assign"
    """text: sign; parts: target, value."""
    STEP = "step"
    """text: ++ or --; parts: target."""
    GETLINE = "getline"
    """parts: the target, if one is given."""
    BLOCK = "block"
    """parts: statements."""
    PRINT = "print"
    """text: print or printf; parts: arguments."""
    IF = "if"
    """parts: condition, then, and else if there is one."""
    LOOP = "loop"
    """parts: a BLOCK of what is evaluated at least once and first, then what may be evaluated any number of times."""
    FOR_IN = "for-in"
    """text: array; parts: target, body."""
    DELETE = "delete"
    """text: array; parts: subscripts."""
    JUMP = "jump"
    """text: next, nextfile, exit, return, break or continue; parts: value, if one is given."""


@dataclass(frozen=True, slots=True)
class Node:
    """A part of the program."""

    kind: NodeKind
    text: str = ""
    parts: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern with its action.

    Attributes:
        when: BEGIN, END, or empty for a rule on lines.
        patterns: none, one, or the two of a range.
        action: None where the whole line is printed.
    """

    when: str
    patterns: tuple[Node, ...]
    action: Node | None


@dataclass(frozen=True, slots=True)
class Program:
    """A whole program.

    Attributes:
        rules: in order.
        functions: names of the functions that it defines.
    """

    rules: tuple[Rule, ...]
    functions: tuple[str, ...]
