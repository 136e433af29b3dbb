"""From a stage's sed script, awk program or tr sets to what is proven about it, and faults to caret messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from grepseek_env.commands.awk_facts import awk_facts
from grepseek_env.commands.awk_lexer import FORBIDDEN
from grepseek_env.commands.awk_script import read_awk
from grepseek_env.commands.operands import ASSIGNMENT
from grepseek_env.commands.refusal import refusal
from grepseek_env.commands.script import ScriptProblem
from grepseek_env.commands.sed_script import read_sed, sed_facts
from grepseek_env.commands.spec import ValueKind
from grepseek_env.commands.syntax import OperandKind, Span
from grepseek_env.commands.tr_sets import tr_facts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grepseek_env.commands.options import Arguments
    from grepseek_env.commands.spec import ProgramSpec
    from grepseek_env.commands.syntax import Operand, ScriptFacts, Word

__all__ = ["script_facts"]


class _Part(NamedTuple):
    """A piece of a script: the word it stands in, and where in the word it starts."""

    word: Word
    start: int

    @property
    def text(self) -> str:
        return self.word.value[self.start :]


def script_facts(text: str, spec: ProgramSpec, arguments: Arguments, operands: Sequence[Operand]) -> ScriptFacts | None:
    """Reads the script of a stage; None for a program without one.

    Raises:
        CommandRefused: the script does what is not offered, or cannot be read.
    """
    flags = frozenset(option.spec.names[0] for option in arguments.options)
    match spec.name:
        case "sed":
            parts = _parts(arguments)
            if not parts:
                return None
            script = "\n".join(part.text for part in parts)
            try:
                commands = read_sed(script)
            except ScriptProblem as problem:
                raise _refused(text, parts, problem, "sed-script") from None
            quiet = "-n" in flags or script == "#n" or script.startswith("#n\n")
            return sed_facts(commands, quiet=quiet)
        case "awk":
            return _awk(text, arguments, operands)
        case "tr":
            return tr_facts(tuple(o.value for o in operands if o.kind is OperandKind.SET), flags)
        case _:
            return None


def _awk(text: str, arguments: Arguments, operands: Sequence[Operand]) -> ScriptFacts | None:
    settings: dict[str, str] = {}
    given = [
        (option.value or "", option.span) for option in arguments.options if option.spec.kind is ValueKind.ASSIGNMENT
    ]
    late = [(o.value, o.span) for o in operands if o.kind is OperandKind.ASSIGNMENT]
    for value, span in (*given, *late):
        name, _, rest = value.partition("=")
        if ASSIGNMENT.match(value) is None or name in FORBIDDEN:
            raise refusal(text, span, "this variable of awk cannot be set", "write NAME=TEXT", "operand")
        settings[name] = rest
    parts = [_Part(word, 0) for word in arguments.operands[:1]]
    if not parts:
        return None
    try:
        program = read_awk(parts[0].text)
    except ScriptProblem as problem:
        raise _refused(text, parts, problem, "awk-program") from None
    separators = [option.value or "" for option in arguments.options if option.name == "-F"]
    return awk_facts(program, settings, separators, late=bool(late))


def _parts(arguments: Arguments) -> list[_Part]:
    pieces = [
        _Part(*value)
        for option, value in zip(arguments.options, arguments.values, strict=True)
        if option.spec.kind is ValueKind.SCRIPT and value is not None
    ]
    return pieces or [_Part(word, 0) for word in arguments.operands[:1]]


def _refused(text: str, parts: Sequence[_Part], problem: ScriptProblem, reason: str) -> Exception:
    """Finds the fault's place in the command: scripts of several pieces are joined by line breaks."""
    begin = 0
    for part in parts:
        size = len(part.text)
        if problem.start <= begin + size or part is parts[-1]:
            start = part.start + problem.start - begin
            end = part.start + min(size, problem.end - begin)
            span = part.word.part(start, max(start + 1, end))
            return refusal(text, span, problem.what, problem.instead, reason)
        begin += size + 1
    return refusal(text, Span(0, 0), problem.what, problem.instead, reason)
