"""Tokens of awk programs, read so that every awk sees the same ones; what awks disagree about is a problem."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from grepseek_env.commands.script import ScriptProblem, bracket_open

__all__ = ["Kind", "Token", "tokens"]


class Kind(Enum):
    """What a token is."""

    NEWLINE = "newline"
    NUMBER = "number"
    STRING = "string"
    REGEX = "regex"
    NAME = "name"
    CALL = "call"
    """A name with its opening parenthesis right behind it (the parenthesis is a token of its own)."""
    WORD = "word"
    """A word of the language."""
    BUILTIN = "builtin"
    SIGN = "sign"
    END = "end"


@dataclass(frozen=True, slots=True)
class Token:
    """One token; `text` leaves out quotes and slashes."""

    kind: Kind
    text: str
    start: int
    end: int


WORDS = frozenset(
    [
        "BEGIN",
        "END",
        "function",
        "if",
        "else",
        "while",
        "for",
        "do",
        "break",
        "continue",
        "next",
        "nextfile",
        "exit",
        "return",
        "delete",
        "in",
        "getline",
        "print",
        "printf",
    ]
)
BUILTINS = frozenset(
    [
        "length",
        "substr",
        "index",
        "split",
        "sub",
        "gsub",
        "match",
        "sprintf",
        "sin",
        "cos",
        "atan2",
        "exp",
        "log",
        "sqrt",
        "int",
        "tolower",
        "toupper",
        "close",
        "fflush",
        "gensub",
        "and",
        "or",
        "xor",
        "compl",
        "lshift",
        "rshift",
        "strtonum",
        "asort",
        "asorti",
        "typeof",
        "isarray",
        "patsplit",
    ]
)
NO_SUCH_THING = "search with rg or grep, and keep awk for fields and sums"
FORBIDDEN: dict[str, tuple[str, str]] = {
    "system": ("runs a program", "join programs with | instead"),
    "rand": ("gives another result every time", "leave it out"),
    "srand": ("depends on the clock", "leave it out"),
    "srandom": ("depends on the clock", "leave it out"),
    "systime": ("depends on the clock", "leave it out"),
    "strftime": ("depends on the clock", "leave it out"),
    "mktime": ("depends on the machine", "leave it out"),
    "ENVIRON": ("shows the machine's settings", "leave it out"),
    "PROCINFO": ("shows what differs from machine to machine", "leave it out"),
    "ARGV": ("can name other files", f"write corpus.jsonl after the program; {NO_SUCH_THING}"),
    "ARGC": ("can name other files", f"write corpus.jsonl after the program; {NO_SUCH_THING}"),
    "SYMTAB": ("can reach every variable", "name the variable"),
    "FUNCTAB": ("can reach every function", "name the function"),
    **dict.fromkeys(
        ("BEGINFILE", "ENDFILE", "func", "switch", "case", "default", "namespace"),
        ("means something to some awks only", "use the words of standard awk, and other names for variables"),
    ),
}
SPACE = re.compile(r"(?:[ \t]|\\\n)+")
COMMENT = re.compile(r"#[^\n]*")
NUMBER = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"', re.DOTALL)
REGEX = re.compile(r"/((?:[^/\\\n]|\\[^\n])*)/")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_.")
SIGN = re.compile(r"&&|\|\||\+\+|--|\+=|-=|\*=|/=|%=|\^=|==|<=|>=|!=|!~|>>|\|&|\*\*|[-+*/%^!<>|?:~$=,;(){}\[\]@&]")
BEFORE_REGEX = frozenset(["(", ",", "!", "~", "!~", "&&", "||", "{", "}", ";", "?", ":", "="])
"""Signs after which every awk reads / as the start of an expression."""
NAMED: dict[str, tuple[str, str]] = {
    "|": ("pipes are not available inside awk", "join programs with | outside the quotes"),
    "|&": ("pipes are not available inside awk", "join programs with | outside the quotes"),
    ">>": ("awk cannot write files here", "print without > or >>: what is printed is returned"),
    "@": ("@ is not available in awk", "leave it out"),
    "**": ("** is not available in awk", "write ^"),
    "&": ("& means nothing to awk", "write &&"),
}


def tokens(program: str) -> list[Token]:
    """Splits a program into tokens, the last one of kind END.

    Raises:
        ScriptProblem: something is not offered, or awks disagree about how to read it.
    """
    found: list[Token] = []
    at = 0
    while at < len(program):
        if blank := SPACE.match(program, at) or COMMENT.match(program, at):
            if blank.group().startswith("#") and blank.group().endswith("\\"):
                raise ScriptProblem(
                    blank.start(), blank.end(), "a \\ ends this comment of the awk program", "leave it out"
                )
            at = blank.end()
            continue
        token = _token(program, at, found)
        found.append(token)
        at = token.end
    return [*found, Token(Kind.END, "", at, at)]


def _token(program: str, at: int, before: list[Token]) -> Token:
    char = program[at]
    if char == "\n":
        return Token(Kind.NEWLINE, char, at, at + 1)
    if char == '"':
        if (found := STRING.match(program, at)) is None:
            raise ScriptProblem(at, at + 1, "a string of the awk program is never closed", 'close it with "')
        return Token(Kind.STRING, found.group(1), at, found.end())
    if (found := NAME.match(program, at)) is not None:
        return _name(program, found.group(), at)
    if (found := NUMBER.match(program, at)) is not None:
        if program[found.end() : found.end() + 1] in LETTERS:
            raise ScriptProblem(
                at, found.end() + 1, "this number of the awk program is not plain", "separate it by a blank"
            )
        return Token(Kind.NUMBER, found.group(), at, found.end())
    if char == "/" and _regex_may_start(at, before):
        return _regex(program, at)
    if (found := SIGN.match(program, at)) is None:
        raise ScriptProblem(at, at + 1, f"awk has no use for {char!r} here", 'quote text in awk: "text"')
    if found.group() in NAMED:
        raise ScriptProblem(at, found.end(), *NAMED[found.group()])
    return Token(Kind.SIGN, found.group(), at, found.end())


def _name(program: str, name: str, at: int) -> Token:
    end = at + len(name)
    if name in FORBIDDEN:
        why, instead = FORBIDDEN[name]
        raise ScriptProblem(at, end, f"awk's {name} is not available: it {why}", instead)
    if program.startswith("::", end):
        raise ScriptProblem(at, end + 2, "namespaces of awk are not available", "use a plain name")
    if name in WORDS:
        return Token(Kind.WORD, name, at, end)
    if name in BUILTINS:
        return Token(Kind.BUILTIN, name, at, end)
    return Token(Kind.CALL if program.startswith("(", end) else Kind.NAME, name, at, end)


def _regex_may_start(at: int, before: list[Token]) -> bool:
    """Whether / starts an expression; else it divides."""
    previous = next((token for token in reversed(before) if token.kind is not Kind.NEWLINE), None)
    broken = bool(before) and before[-1].kind is Kind.NEWLINE
    if previous is None:
        return True
    if previous.kind is Kind.SIGN and previous.text in BEFORE_REGEX:
        return True
    plain = previous.kind in {Kind.NAME, Kind.NUMBER, Kind.STRING} or (
        previous.kind is Kind.SIGN and previous.text in {")", "]", "++", "--"}
    )
    if plain and not broken:
        return False
    # Awks disagree: some look at the last token, some at the grammar.
    raise ScriptProblem(
        at,
        at + 1,
        "awks disagree about whether this / starts an expression",
        "write $0 ~ /.../, in parentheses if need be",
    )


def _regex(program: str, at: int) -> Token:
    found = REGEX.match(program, at)
    if found is None:
        raise ScriptProblem(at, at + 1, "an expression of the awk program is never closed", "close it with /")
    if bracket_open(found.group(1)):
        raise ScriptProblem(at, found.end(), "a / between [ and ] of the awk program is not available", "write \\/")
    return Token(Kind.REGEX, found.group(1), at, found.end())
