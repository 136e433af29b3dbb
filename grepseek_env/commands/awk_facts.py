"""What slices allow of an awk program: whether each line's output is proven to depend on that line alone.

A variable that rules set must be set anew for each line before it is read; an array must be filled anew as a whole.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from grepseek_env.commands.awk_tree import Node, NodeKind
from grepseek_env.commands.spec import Effect
from grepseek_env.commands.syntax import ScriptFacts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from grepseek_env.commands.awk_tree import Program, Rule

__all__ = ["awk_facts"]

COUNTERS: dict[str, str] = {"NR": "NR counts lines", "FNR": "FNR counts lines", "FILENAME": "FILENAME names the file"}
MATCH_RESULTS = frozenset({"RSTART", "RLENGTH"})
HARMLESS_SETTINGS = frozenset({"FS", "OFS", "SUBSEP", "CONVFMT", "OFMT"})
"""May be set before the first line; ORS too, but then outputs need not end with a newline."""
SPECIAL = HARMLESS_SETTINGS | {"ORS", "RS", "NR", "FNR", "FILENAME", "RT", "IGNORECASE", "FIELDWIDTHS", "FPAT"}
"""Read by awk itself, so rules must not set them."""
BYTEWISE = frozenset(["substr", "sprintf", "sub", "gsub", "gensub", "tolower", "toupper"])
UNPROVEN = frozenset(["patsplit", "asort", "asorti", "close", "fflush"])
ODD_ESCAPE = re.compile(r"\\[0-9x]|[^\x00-\x7f]")


class _Unproven(Exception):
    """Why a program is not proven to treat each line by itself."""


def awk_facts(program: Program, settings: Mapping[str, str], separators: Sequence[str], *, late: bool) -> ScriptFacts:
    """Says what slices allow.

    Args:
        settings: what -v sets.
        separators: what -F sets.
        late: whether a variable is set between the files.
    """
    try:
        _check(program, settings, late=late)
    except _Unproven as unproven:
        return ScriptFacts(Effect.OPAQUE, odd_bytes=True, why=str(unproven))
    rules = [rule for rule in program.rules if not rule.when]
    sets_ors = "ORS" in settings or any("ORS" in _changed(r.action) for r in program.rules if r.action)
    if len(rules) == 1 and _selects(rules[0]) and not sets_ors:
        return ScriptFacts(Effect.FILTER)
    nodes = [node for rule in program.rules for node in _rule_nodes(rule)]
    odd = any(_is_odd(node) for node in nodes) or any(
        not text or ODD_ESCAPE.search(text) for text in (*settings.values(), *separators)
    )
    aligned = not sets_ors and all(_ends_lines(node) for node in nodes if node.kind is NodeKind.PRINT)
    return ScriptFacts(Effect.MAP, aligned=aligned, odd_bytes=odd)


def _check(program: Program, settings: Mapping[str, str], *, late: bool) -> None:
    rules = [rule for rule in program.rules if not rule.when]
    if late:
        raise _Unproven("a variable is set between files")
    if special := sorted((settings.keys() & SPECIAL) - HARMLESS_SETTINGS - {"ORS"}):
        raise _Unproven(f"{special[0]} is set")
    if program.functions:
        raise _Unproven("functions may carry values over lines")
    if not rules:
        raise _Unproven("it has no rule on lines")
    for rule in program.rules:
        if rule.when == "END":
            raise _Unproven("END comes after all lines")
        if len(rule.patterns) > 1:
            raise _Unproven("a range carries over lines")
        if rule.when == "BEGIN" and rule.action is not None:
            _check_begin(rule.action)
    changed = frozenset().union(*(_changed(node) for rule in rules for node in _rule_parts(rule)))
    if special := sorted(changed & SPECIAL):
        raise _Unproven(f"{special[0]} is set for later lines")
    lines = _Lines(changed)
    known: set[str] = set()
    for rule in rules:
        lines.rule(rule, known)


def _check_begin(action: Node) -> None:
    for node in _walk(action):
        if node.kind in {NodeKind.PRINT, NodeKind.GETLINE} or (node.kind is NodeKind.JUMP and node.text == "exit"):
            raise _Unproven(f"BEGIN does more than set variables: {node.text or 'getline'}")
    if special := sorted(_changed(action) & (SPECIAL - HARMLESS_SETTINGS - {"ORS"})):
        raise _Unproven(f"{special[0]} is set")


class _Lines:
    """Follows the rules on one line; `known` are the names that are certain to have been set for this line."""

    def __init__(self, changed: frozenset[str]) -> None:
        self.changed = changed

    def rule(self, rule: Rule, known: set[str]) -> None:
        for pattern in rule.patterns:
            self.visit(pattern, known)
        if rule.action is not None:
            # With a pattern, the action may not be run.
            self.visit(rule.action, known if not rule.patterns else set(known))

    def use(self, name: str, known: set[str]) -> None:
        if name in COUNTERS:
            raise _Unproven(COUNTERS[name])
        if name in self.changed and name not in known:
            raise _Unproven(f"{name} may carry a value over lines")

    def visit(self, node: Node, known: set[str]) -> None:
        parts = node.parts
        match node.kind:
            case NodeKind.VARIABLE:
                if node.text != "NF":
                    self.use(node.text, known)
            case NodeKind.ELEMENT | NodeKind.MEMBER:
                self.all(parts, known)
                self.use(node.text, known)
            case NodeKind.ASSIGN:
                target, value = parts
                if node.text != "=":
                    self.visit(target, known)
                self.visit(value, known)
                self.assign(target, known)
            case NodeKind.STEP:
                self.visit(parts[0], known)
            case NodeKind.SHORT | NodeKind.IF:
                self.visit(parts[0], known)
                outcomes = []
                for part in parts[1:]:
                    outcomes.append(branch := set(known))
                    self.visit(part, branch)
                if node.kind is NodeKind.IF and len(outcomes) == 2:
                    known |= outcomes[0] & outcomes[1]
            case NodeKind.LOOP:
                self.visit(parts[0], known)
                for part in parts[1:]:
                    self.visit(part, set(known))
            case NodeKind.BUILTIN:
                self.builtin(node, known)
            case NodeKind.DELETE:
                self.all(parts, known)
                if parts:
                    self.use(node.text, known)
                else:
                    known.add(node.text)
            case NodeKind.GETLINE:
                raise _Unproven("getline reads the next line")
            case NodeKind.FOR_IN:
                raise _Unproven("the order of for (... in ...) may depend on earlier lines")
            case NodeKind.JUMP:
                if node.text not in {"next", "break", "continue"}:
                    raise _Unproven(f"{node.text} stops")
            case NodeKind.CALL:
                raise _Unproven("functions may carry values over lines")
            case _:
                self.all(parts, known)

    def all(self, parts: Sequence[Node], known: set[str]) -> None:
        for part in parts:
            self.visit(part, known)

    def assign(self, target: Node, known: set[str]) -> None:
        match target.kind:
            case NodeKind.VARIABLE:
                known.add(target.text)
            case _:
                # An element leaves the others as they were, so its array must be known already.
                self.visit(target, known)

    def builtin(self, node: Node, known: set[str]) -> None:
        parts = node.parts
        match node.text:
            case name if name in UNPROVEN:
                raise _Unproven(f"{name} is not followed")
            case "split":
                self.all((*parts[:1], *parts[2:3]), known)
                known.update(part.text for part in (*parts[1:2], *parts[3:4]))
            case "match":
                self.all(parts[:2], known)
                known.update(MATCH_RESULTS, (part.text for part in parts[2:3]))
            case _:
                self.all(parts, known)


def _changed(node: Node | None) -> frozenset[str]:
    """Names of variables and arrays that a part of the program sets; NF belongs to the line and is left out."""
    return frozenset(name for part in _walk(node) for name in _sets(part)) - {"NF"} if node else frozenset()


def _sets(node: Node) -> tuple[str, ...]:
    match node.kind:
        case NodeKind.ASSIGN | NodeKind.STEP | NodeKind.FOR_IN:
            return _target(node.parts[0])
        case NodeKind.GETLINE:
            return tuple(name for part in node.parts for name in _target(part))
        case NodeKind.DELETE:
            return (node.text,)
        case NodeKind.BUILTIN if node.text in {"sub", "gsub"}:
            return tuple(name for part in node.parts[2:3] for name in _target(part))
        case NodeKind.BUILTIN if node.text == "split":
            return tuple(name for part in (*node.parts[1:2], *node.parts[3:4]) for name in _target(part))
        case NodeKind.BUILTIN if node.text == "match":
            return (*MATCH_RESULTS, *(name for part in node.parts[2:3] for name in _target(part)))
        case _:
            return ()


def _target(node: Node) -> tuple[str, ...]:
    return (node.text,) if node.kind in {NodeKind.VARIABLE, NodeKind.ELEMENT} else ()


def _walk(node: Node) -> Iterator[Node]:
    waiting = [node]
    while waiting:
        current = waiting.pop()
        yield current
        waiting.extend(current.parts)


def _rule_parts(rule: Rule) -> tuple[Node, ...]:
    return rule.patterns if rule.action is None else (*rule.patterns, rule.action)


def _rule_nodes(rule: Rule) -> Iterator[Node]:
    for part in _rule_parts(rule):
        yield from _walk(part)


def _selects(rule: Rule) -> bool:
    """Whether a rule prints whole lines as they are, at most once each."""
    changing = {NodeKind.ASSIGN, NodeKind.STEP}
    if any(n.kind in changing or n.text in {"sub", "gsub"} for p in rule.patterns for n in _walk(p)):
        return False
    if rule.action is None:
        return True
    match rule.action.parts:
        case (Node(kind=NodeKind.PRINT, text="print", parts=()),):
            return True
        case (
            Node(
                kind=NodeKind.PRINT,
                text="print",
                parts=(Node(kind=NodeKind.FIELD, parts=(Node(kind=NodeKind.NUMBER, text="0"),)),),
            ),
        ):
            return True
        case _:
            return False


def _ends_lines(node: Node) -> bool:
    """Whether a print statement is certain to end its output with a newline."""
    if node.text == "print":
        return True
    match node.parts:
        case (Node(kind=NodeKind.STRING, text=text), *_):
            return text.endswith("\\n") and not text.endswith("\\\\n")
        case _:
            return False


def _is_odd(node: Node) -> bool:
    match node.kind:
        case NodeKind.BUILTIN:
            return node.text in BYTEWISE
        case NodeKind.PRINT:
            return node.text == "printf"
        case NodeKind.STRING | NodeKind.REGEX:
            return ODD_ESCAPE.search(node.text) is not None
        case _:
            return False
