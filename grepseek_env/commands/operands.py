"""What the words that are no flags are to each program, and which files may be named."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from grepseek_env.commands.globs import CORPUS
from grepseek_env.commands.options import FIND_SIGNS
from grepseek_env.commands.refusal import refusal
from grepseek_env.commands.spec import Operands, ProgramSpec, Style, ValueKind
from grepseek_env.commands.syntax import Operand, OperandKind, Option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grepseek_env.commands.options import Arguments
    from grepseek_env.commands.syntax import Word

__all__ = ["ASSIGNMENT", "check_file", "check_order", "classify", "obsolete"]

OBSOLETE = re.compile(r"-([0-9]+)")
PLUS = re.compile(r"\+[0-9.]+")
ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=")
FOLDER = frozenset({".", "./"})
CORPUS_NAMES = frozenset({CORPUS, "./" + CORPUS})


def obsolete(text: str, spec: ProgramSpec, words: Sequence[Word]) -> tuple[Option, Sequence[Word]] | None:
    """Reads `head -3` and `tail -3`, which are -n 3 if they come first; None where there is none.

    Raises:
        CommandRefused: tail would not read it as a number of lines.
    """
    if spec.name not in {"head", "tail"} or not words:
        return None
    lines = spec.exact["-n"]
    first = OBSOLETE.fullmatch(words[0].value)
    if first is None:
        return None
    rest = words[1:]
    # tail takes the number only if at most one file follows.
    if spec.name == "tail" and (len(rest) > 1 or (rest and rest[0].value.startswith("-") and rest[0].value != "-")):
        raise refusal(
            text, words[0].span, "tail takes a number like this only with one file", "write tail -n NUM", "flag-value"
        )
    return Option(lines, "-n", first.group(1), words[0].span), rest


def classify(text: str, spec: ProgramSpec, arguments: Arguments) -> tuple[list[Operand], str]:
    """Says what each operand is.

    Returns:
        The operands in order, and the program's own complaint about them; empty if there is none.
    """
    words = arguments.operands
    match spec.operands:
        case Operands.PATTERN_FILES:
            given = any(o.spec.kind is ValueKind.PATTERN or o.name == "--files" for o in arguments.options)
            return _scripted(words, OperandKind.PATTERN, given=given, missing="it needs a pattern")
        case Operands.SCRIPT_FILES:
            given = any(o.spec.kind is ValueKind.SCRIPT for o in arguments.options)
            found, complaint = _scripted(words, OperandKind.SCRIPT, given=given, missing="it needs a script")
            if spec.style is Style.AWK:
                found = [_assignment(text, operand) for operand in found]
            return found, complaint
        case Operands.FILES:
            return _files(words), ""
        case Operands.ONE_FILE:
            if len(words) > 1:
                raise refusal(
                    text,
                    words[1].span,
                    f"a second file of {spec.name} is not available: it would be written",
                    "leave it out: what the last program prints is returned",
                    "operand",
                )
            return _files(words), ""
        case Operands.SETS:
            return _sets(words, {o.spec.names[0] for o in arguments.options})
        case Operands.EXPRESSION:
            return [_find_word(word) for word in words], ""


def _operand(kind: OperandKind, word: Word) -> Operand:
    return Operand(kind, word.value, word.span)


def _files(words: Sequence[Word]) -> list[Operand]:
    return [_operand(OperandKind.STDIN if word.value == "-" else OperandKind.FILE, word) for word in words]


def _scripted(words: Sequence[Word], kind: OperandKind, *, given: bool, missing: str) -> tuple[list[Operand], str]:
    if given:
        return _files(words), ""
    if not words:
        return [], missing
    return [_operand(kind, words[0]), *_files(words[1:])], ""


def _assignment(text: str, operand: Operand) -> Operand:
    if operand.kind is not OperandKind.FILE or "=" not in operand.value:
        return operand
    if ASSIGNMENT.match(operand.value) is None:
        raise refusal(
            text, operand.span, "this is neither the corpus nor NAME=TEXT", f"the file is {CORPUS}", "operand"
        )
    return Operand(OperandKind.ASSIGNMENT, operand.value, operand.span)


def _sets(words: Sequence[Word], flags: set[str]) -> tuple[list[Operand], str]:
    two = not ("-d" in flags and "-s" not in flags)
    most = 2 if two else 1
    least = 2 if ("-d" in flags) == ("-s" in flags) else 1
    found = [_operand(OperandKind.SET if i < most else OperandKind.STRAY, word) for i, word in enumerate(words)]
    if len(words) > most:
        return found, "it takes no file"
    return found, "" if len(words) >= least else "it needs a set"


def _find_word(word: Word) -> Operand:
    return _operand(OperandKind.EXPRESSION if word.value in FIND_SIGNS else OperandKind.FILE, word)


def check_order(text: str, spec: ProgramSpec, operands: Sequence[Operand], options: Sequence[Option]) -> None:
    """Checks that rg prints its files in one order: it searches several at once, and prints the first to end first.

    Raises:
        CommandRefused: outputs of differently named inputs could come in any order.
    """
    if spec.style is not Style.RG or any(o.spec.names[0] in {"--sort", "--sortr", "--sort-files"} for o in options):
        return
    inputs = [
        o
        for o in operands
        if o.kind is OperandKind.STDIN or (o.kind is OperandKind.FILE and o.value in CORPUS_NAMES | FOLDER)
    ]
    for operand in inputs[1:]:
        if operand.value != inputs[0].value:
            raise refusal(
                text, operand.span, "rg prints several files in no fixed order", f"name {CORPUS} alone", "operand"
            )


def check_file(text: str, spec: ProgramSpec, operand: Operand) -> None:
    """Checks a file operand.

    Accepted are the corpus, `-`, the folder where the program lists or searches it, and a name that is missing for
    certain, which is the program's own error.

    Raises:
        CommandRefused: it may name another file.
    """
    name = operand.value
    if name in CORPUS_NAMES or operand.kind is OperandKind.STDIN:
        return
    if name in FOLDER:
        if spec.dot:
            return
        what = f"{spec.name} cannot read a folder"
    elif not name:
        what = "an empty name is no file"
    elif "/" in name or name == "..":
        what = "other files and folders are not available"
    elif PLUS.fullmatch(name) or name.startswith("-"):
        what = "this number is not available here" if name.startswith("+") else "this name is not available"
    else:
        return
    raise refusal(text, operand.span, what, f"the corpus is {CORPUS}", "operand")
