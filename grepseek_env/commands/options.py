"""Words -> flags and operands, resolved as each program itself resolves them; nothing is judged here.

What the program would reject before it reads anything becomes a `usage_error`: the command may run, since the
error is the program's own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from grepseek_env.commands.spec import Arity, Style
from grepseek_env.commands.syntax import Option, Span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grepseek_env.commands.spec import FlagSpec, ProgramSpec
    from grepseek_env.commands.syntax import Word

__all__ = ["FIND_SIGNS", "Arguments", "resolve"]

FIND_SIGNS = frozenset({"(", ")", "!", ","})
"""Words of find's expression that are no flags."""
FIND_LEADING = frozenset({"-H", "-L", "-P"})


@dataclass(slots=True)
class Arguments:
    """The arguments of one program, sorted out.

    Attributes:
        options: known flags in the order given, refused ones included.
        operands: the other words in the order given.
        unknown: the first flag that the program does not know, with its place.
        usage_error: what the program will complain about; empty if nothing.
        values: the words that are values of the option at the same index of `options`; None where it is attached.
    """

    options: list[Option] = field(default_factory=list)
    operands: list[Word] = field(default_factory=list)
    unknown: tuple[str, Span] | None = None
    usage_error: str = ""
    values: list[tuple[Word, int] | None] = field(default_factory=list)

    def add(self, option: Option, value: tuple[Word, int] | None = None) -> None:
        """Adds a flag; `value` is the word that holds its value and where in the word the value starts."""
        self.options.append(option)
        self.values.append(value)

    def fail(self, error: str, flag: str, span: Span) -> None:
        """Notes the program's own error; the first one counts, since the program stops there."""
        if not self.usage_error:
            self.usage_error = error
            self.unknown = (flag, span)


def resolve(spec: ProgramSpec, words: Sequence[Word]) -> Arguments:
    """Sorts out the words after the program's name."""
    resolver = _Resolver(spec, words)
    return resolver.run_find() if spec.style is Style.FIND else resolver.run()


class _Resolver:
    def __init__(self, spec: ProgramSpec, words: Sequence[Word]) -> None:
        self.spec = spec
        self.words = words
        self.at = 0
        self.found = Arguments()

    def run(self) -> Arguments:
        flags_end_at_operand = self.spec.style in {Style.GETOPT_IN_ORDER, Style.AWK}
        while self.at < len(self.words):
            word = self.words[self.at]
            self.at += 1
            value = word.value
            if value == "--":
                break
            if not value.startswith("-") or value == "-":
                self.found.operands.append(word)
                if flags_end_at_operand:
                    break
            elif value.startswith("--"):
                self._long(word)
            else:
                self._cluster(word)
        self.found.operands.extend(self.words[self.at :])
        return self.found

    def run_find(self) -> Arguments:
        """Reads find's paths, then its expression, in which every other word belongs to the one before."""
        in_expression = False
        while self.at < len(self.words):
            word = self.words[self.at]
            self.at += 1
            value = word.value
            if value in FIND_SIGNS:
                in_expression = True
                self.found.operands.append(word)
            elif not value.startswith("-") or value == "-":
                if in_expression:
                    self.found.fail("paths come before the expression", value, word.span)
                self.found.operands.append(word)
            elif (flag := self.spec.exact.get(value)) is None:
                self.found.fail(f"it does not know {value}", value, word.span)
            else:
                in_expression = in_expression or value not in FIND_LEADING
                if flag.arity is Arity.REQUIRED:
                    self._next_value(flag, value, word.span)
                else:
                    self.found.add(Option(flag, value, None, word.span))
        return self.found

    def _long(self, word: Word) -> None:
        name, equals, value = word.value.partition("=")
        flag, full = self._lookup(name, word)
        if flag is None:
            return
        after = len(name) + 1
        match flag.arity:
            case Arity.REQUIRED if not equals:
                self._next_value(flag, full, word.span)
            case Arity.NONE if equals:
                self.found.fail(f"{full} takes no value", name, word.span)
                self.found.add(Option(flag, full, value, word.span))
            case _:
                given = (word, after) if equals else None
                self.found.add(Option(flag, full, value if equals else None, word.span), given)

    def _lookup(self, name: str, word: Word) -> tuple[FlagSpec | None, str]:
        if (flag := self.spec.exact.get(name)) is not None:
            return flag, name
        if self.spec.style is Style.RG and len(name) == 3 and (flag := self.spec.exact.get(name[1:])) is not None:
            return flag, name[1:]  # rg takes --c for -c
        candidates = () if self.spec.style in {Style.RG, Style.AWK} else self.spec.abbreviated(name)
        match candidates:
            case (only,):
                return only, next(known for known in only.names if known.startswith(name))
            case ():
                self.found.fail(f"it does not know {name}", name, word.part(0, len(name)))
            case _:
                # Any of them may be meant by another release of the program; a refused one is refused here too.
                refused = next((flag for flag in candidates if flag.ban is not None), None)
                if refused is not None:
                    return refused, next(known for known in refused.names if known.startswith(name))
                self.found.fail(f"{name} is ambiguous", name, word.part(0, len(name)))
        return None, name

    def _cluster(self, word: Word) -> None:
        value = word.value
        index = 1
        while index < len(value):
            name = "-" + value[index]
            flag = self.spec.exact.get(name)
            place = word.part(index if index > 1 else 0, index + 1)
            index += 1
            if flag is None:
                self.found.fail(f"it does not know {name}", name, place)
                if self.spec.style is Style.RG and value[index : index + 1] == "=":
                    return
                continue
            match flag.arity:
                case Arity.NONE:
                    if self.spec.style is Style.RG and value[index : index + 1] == "=":
                        self.found.fail(f"{name} takes no value", name, place)
                        self.found.add(Option(flag, name, value[index:], place))
                        return
                    self.found.add(Option(flag, name, None, place))
                case Arity.REQUIRED:
                    start = index + (self.spec.style is Style.RG and value[index : index + 1] == "=")
                    if index == len(value):
                        self._next_value(flag, name, place)
                    else:
                        whole = Span(place.start, word.span.end)
                        self.found.add(Option(flag, name, value[start:], whole), (word, start))
                    return
                case Arity.OPTIONAL:
                    attached = value[index:] if index < len(value) else None
                    given = (word, index) if attached is not None else None
                    self.found.add(Option(flag, name, attached, Span(place.start, word.span.end)), given)
                    return

    def _next_value(self, flag: FlagSpec, name: str, span: Span) -> None:
        if self.at == len(self.words):
            self.found.fail(f"{name} needs a value", name, span)
            self.found.add(Option(flag, name, None, span))
            return
        word = self.words[self.at]
        self.at += 1
        self.found.add(Option(flag, name, word.value, Span(span.start, word.span.end)), (word, 0))
