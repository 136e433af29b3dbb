"""Guesses about a pipeline that only speed depends on: what limits it, and whether it may end early."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from grepseek_env.commands.spec import Effect, ValueKind
from grepseek_env.commands.syntax import OperandKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grepseek_env.commands.syntax import Stage

__all__ = ["copies", "stops_early", "work_of"]

_PLAIN = re.compile(r"[^\\.^$|?*+()\[\]{}\n]{2,}")
_NOT_LITERAL = re.compile(r"\[\^?\]?[^\]]*\]|\\.")  # classes and escapes
_OPTIONAL = re.compile(r"(?:\([^()]*\)|.)[?*{]")
_RUN = re.compile(r"[^.^$?*+(){}\n]{3,}")
_CHEAP_COUNTS = frozenset({"-l", "-c"})


def copies(stage: Stage) -> bool:
    """Returns whether the stage prints exactly what it reads."""
    return stage.program == "cat" and all(option.effect is Effect.KEEP for option in stage.options)


def work_of(stages: Sequence[Stage]) -> Literal["scan", "cpu"]:
    """Returns "scan" where the first stage that does anything runs about as fast as memory does."""
    first = next((stage for stage in stages if not copies(stage)), stages[-1])
    match first.program:
        case "cat" | "head" | "tail":
            return "scan" if all(option.effect is not Effect.MAP for option in first.options) else "cpu"
        case "wc":
            counts = {option.spec.names[0] for option in first.options}
            return "scan" if counts and counts <= _CHEAP_COUNTS else "cpu"
        case "rg":
            return "scan" if _finds_literals(first) else "cpu"
        case _:
            return "cpu"


def _finds_literals(stage: Stage) -> bool:
    if stage.given("-v", "-P", "--engine"):
        return False
    patterns = [o.value or "" for o in stage.options if o.spec.kind is ValueKind.PATTERN]
    patterns += [o.value for o in stage.operands if o.kind is OperandKind.PATTERN]
    if stage.given("-F"):
        return all(patterns)
    return all(
        _PLAIN.fullmatch(branch) or _needs_literal(branch) for pattern in patterns for branch in _branches(pattern)
    )


def _branches(pattern: str) -> list[str]:
    return _NOT_LITERAL.sub(".", pattern).split("|")


def _needs_literal(branch: str) -> bool:
    """Returns whether rg is likely to look for a literal first: it did 6 GB/s then, as with the literal alone."""
    return _RUN.search(_OPTIONAL.sub(".", branch)) is not None


def stops_early(stages: Sequence[Stage]) -> bool:
    """Returns whether programs that read a stream may end before the stream does."""
    for stage in stages:
        effects = {option.effect for option in stage.options}
        match stage.program:
            case "head":
                return True
            case "sort" | "wc" | "tail":
                return False
            case "rg" | "grep" if effects & {Effect.EXISTS, Effect.LIMIT}:
                return True
            case "rg" | "grep" if Effect.COUNT in effects:
                return False
            case "sed" | "awk" if stage.script is None or stage.script.effect is Effect.OPAQUE:
                return True  # q, exit
            case _:
                pass
    return False
