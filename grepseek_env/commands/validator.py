"""The only gate: words -> checked pipeline, or the refusal.

Allowed is what the table declares: programs by bare name, flags it offers, the corpus as the one file. What a program
itself rejects before it reads anything is allowed too, since its error is exact.
"""

from __future__ import annotations

import difflib
import re
from functools import lru_cache
from typing import NoReturn

from grepseek_env.commands.operands import check_file, check_order, classify, obsolete
from grepseek_env.commands.options import Arguments, resolve
from grepseek_env.commands.parser import split
from grepseek_env.commands.refusal import refusal
from grepseek_env.commands.scripts import script_facts
from grepseek_env.commands.spec import ProgramSpec, Style
from grepseek_env.commands.syntax import OperandKind, Option, Pipeline, Span, Stage, Word
from grepseek_env.commands.table import COMMANDS

__all__ = ["parse"]

RENAMED: dict[str, str] = {
    "egrep": "grep -E",
    "fgrep": "grep -F",
    "rgrep": "grep -r",
    "ripgrep": "rg",
    "gawk": "awk",
    "mawk": "awk",
}
SHOWN_FLAGS = 24


@lru_cache(maxsize=4096)
def parse(text: str) -> Pipeline:
    """Checks a command.

    Args:
        text: one pipeline, at most 8 KiB of UTF-8, quoted as in bash.

    Returns:
        The pipeline; its `argv` is what bash would start.

    Raises:
        CommandRefused: the command is outside the language; the text is a caret message.
    """
    stages = split(text)
    return Pipeline(text, tuple(_stage(text, words, span) for words, span in stages))


def _stage(text: str, words: list[Word], span: Span) -> Stage:
    spec = _program(text, words[0])
    words = words[1:]
    argv = (spec.name, *(word.value for word in words))
    if (given := obsolete(text, spec, words)) is not None:
        option, rest = given
        arguments = resolve(spec, rest)
        arguments.options.insert(0, option)
        arguments.values.insert(0, None)
    else:
        arguments = resolve(spec, words)
    for option in arguments.options:
        _check_option(text, spec, option, usage_error=bool(arguments.usage_error))
    if arguments.unknown is not None and spec.style in {Style.AWK, Style.FIND}:
        _unread(text, spec, arguments)
    operands, complaint = classify(text, spec, arguments)
    for operand in operands:
        if operand.kind in {OperandKind.FILE, OperandKind.STDIN}:
            check_file(text, spec, operand)
    check_order(text, spec, operands, arguments.options)
    usage_error = arguments.usage_error or complaint
    script = script_facts(text, spec, arguments, operands)  # read even if the program will complain: never trust that
    return Stage(
        spec, argv, tuple(arguments.options), tuple(operands), span, None if usage_error else script, usage_error
    )


def _program(text: str, word: Word) -> ProgramSpec:
    name = word.value
    if (spec := COMMANDS.get(name)) is not None:
        return spec
    bare = name.rsplit("/", 1)[-1]
    allowed = f"programs: {' '.join(COMMANDS)}"
    if "/" in name and bare in COMMANDS:
        raise refusal(text, word.span, "programs are called by name, not by path", f"write {bare}", "unknown-program")
    if bare in RENAMED:
        raise refusal(text, word.span, f"{bare} is not available", f"write {RENAMED[bare]}", "unknown-program")
    near = difflib.get_close_matches(name, COMMANDS, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    shown = name if len(name) <= 40 and name.isprintable() else "this program"
    raise refusal(text, word.span, f"{shown or 'an empty name'} is not available", hint + allowed, "unknown-program")


def _check_option(text: str, spec: ProgramSpec, option: Option, *, usage_error: bool) -> None:
    flag = option.spec
    if flag.ban is not None:
        raise refusal(
            text,
            option.span,
            f"{spec.name} {option.name} is not available: it {flag.ban.why}",
            flag.ban.instead,
            "flag",
        )
    value = option.value
    if value is None or not flag.accepts or usage_error:
        return
    if not re.fullmatch(flag.accepts, value):
        raise refusal(
            text,
            option.span,
            f"{spec.name} {option.name} takes {flag.expected} here",
            f"write one of these, or leave {option.name} out",
            "flag-value",
        )


def _unread(text: str, spec: ProgramSpec, arguments: Arguments) -> NoReturn:
    """Refuses what the program would complain about, where its complaint cannot be relied on."""
    name, span = arguments.unknown or ("", Span(0, 0))
    if name in spec.exact or not name.startswith("-"):
        raise refusal(
            text, span, f"{spec.name}: {arguments.usage_error}", f"usage: {spec.name} {spec.operands.value}", "flag"
        )
    offered = [flag.names[0] for flag in spec.offered() if flag.help][:SHOWN_FLAGS]
    raise refusal(
        text, span, f"{spec.name} has no flag {name} here", f"flags of {spec.name}: {' '.join(offered)}", "flag"
    )
