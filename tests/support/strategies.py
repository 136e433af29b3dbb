"""Hypothesis strategies that several tests share."""

from __future__ import annotations

import shlex

from hypothesis import strategies as st

from grepseek_env.commands import COMMANDS, Arity, Effect, FlagSpec, Operands, ProgramSpec, ValueKind

WORDS = (
    "Einstein",
    "Ulm",
    "Curie",
    "corpus.jsonl",
    "the",
    "T4",
    "née",
    "Zürich",
    '"',
    "|a,b|",
    "-x",
    "a b",
    "$5",
    "'",
    "\\",
)
PATTERNS = (
    *WORDS,
    "Ein.*Ulm",
    "^.id",
    "b|",
    "[0-9]+",
    "Einstein|Curie",
    "(Marie) (Curie)",
    "",
    "x{2,3}",
    "\\bUlm\\b",
    "bad(",
    "#1",
)
SED_SCRIPTS = (
    "s/Einstein/E/g",
    "3q",
    "1d",
    "2p",
    "$!d",
    "/Ulm/d",
    "/Ulm/p",
    "/a/,/b/p",
    "N;s/\\n/ /",
    "=",
    "y/abc/xyz/",
    "$a TOTAL",
    "s|\\(U\\)lm|\\1|",
    "1~10p",
    "0,/Ulm/s//X/",
    ":a;s/  / /;ta",
    "G",
)
AWK_PROGRAMS = (
    "END{print NR}",
    "/Einstein/",
    "{print $1}",
    'BEGIN{FS="\\""} {print $4}',
    "length($0) > 60",
    '{n=split($0, a, ","); print n}',
    "!seen[$0]++",
    "{c[$1]++} END{for (k in c) n += c[k]; print n}",
    "NR%2",
    '{printf "%s ", $2}',
    '{gsub(/e/, "E"); print}',
)
TR_SETS = ("a-z", "A-Z", " ", "\\n", "[:upper:]", "[:lower:]", "[:space:]", "\\012", "aeiou", '"', "0-9", "x")
LISTS = ("1", "1-20", "2,4-", "-3")
KEYS = ("1", "2,2", "1.3n", "2r")
SEPARATORS = (",", '"', ":", " ", "|")
NUMBERS = ("0", "1", "2", "3", "10", "100")


def numbers() -> st.SearchStrategy[str]:
    return st.sampled_from(NUMBERS)


def values(spec: ProgramSpec, flag: FlagSpec) -> st.SearchStrategy[str]:
    """Values that mean something to a flag."""
    match flag.kind, flag.metavar:
        case ValueKind.PATTERN, _:
            return st.sampled_from(PATTERNS)
        case ValueKind.SCRIPT, _:
            return st.sampled_from(SED_SCRIPTS)
        case ValueKind.ASSIGNMENT, _:
            return st.sampled_from(("x=1", "OFS=,", "FS=,", "ORS= "))
        case _, "NUM" if spec.name in {"head", "tail"}:
            return st.one_of(numbers(), numbers().map("-".__add__), numbers().map("+".__add__))
        case _, "NUM" | "COLS":
            return st.sampled_from(("1", "2", "3", "7"))
        case _, "LIST":
            return st.sampled_from(LISTS)
        case _, "KEY" if not flag.accepts:
            return st.sampled_from(KEYS)
        case _, "CHAR" | "SEP":
            return st.sampled_from(SEPARATORS)
        case _, "GLOB":
            return st.sampled_from(("*.jsonl", "*", "*.txt", "corpus*"))
        case _, "TYPE" if spec.name == "find":
            return st.sampled_from(("f", "d"))
        case _, "TYPE" if spec.name == "rg":
            return st.sampled_from(("json", "txt"))
        case _, "TYPE":
            return st.sampled_from(("text", "binary", "without-match"))
        case _, _ if flag.accepts and "[" not in flag.accepts:
            return st.sampled_from(tuple(flag.accepts.split("|")))
        case _, "FORMAT":
            return st.just("%p %y\\n")
        case _:
            return st.sampled_from(WORDS)


@st.composite
def flags(draw: st.DrawFn, spec: ProgramSpec) -> list[str]:
    """One flag with its value, spelled in one of the ways its program reads."""
    flag = draw(st.sampled_from([f for f in spec.offered() if f.help]))
    name = draw(st.sampled_from(flag.names))
    value = draw(values(spec, flag)) if flag.arity is not Arity.NONE else ""
    long = name.startswith("--")
    match flag.arity:
        case Arity.NONE:
            return [name]
        case Arity.OPTIONAL:
            return [draw(st.sampled_from((name, f"{name}={value}")))] if long else [name]
        case Arity.REQUIRED if long:
            return draw(st.sampled_from(([name, value], [f"{name}={value}"])))
        case Arity.REQUIRED:
            attached = value and spec.operands is not Operands.EXPRESSION
            return draw(st.sampled_from(([name, value], [name + value]))) if attached else [name, value]


@st.composite
def stages(draw: st.DrawFn, spec: ProgramSpec, *, first: bool, most_flags: int = 3) -> list[str]:
    """The words of one stage: flags of the table, a pattern or script where needed, the corpus in a first stage."""
    if spec.operands is Operands.EXPRESSION:
        tests = [word for group in draw(st.lists(flags(spec), max_size=most_flags)) for word in group]
        return [spec.name, draw(st.sampled_from((".", "corpus.jsonl", "./corpus.jsonl"))), *tests]
    given = [word for group in draw(st.lists(flags(spec), max_size=most_flags)) for word in group]
    match spec.operands:
        case Operands.PATTERN_FILES:
            given.append(draw(st.sampled_from(PATTERNS)))
        case Operands.SCRIPT_FILES:
            given.append(draw(st.sampled_from(AWK_PROGRAMS if spec.name == "awk" else SED_SCRIPTS)))
        case Operands.SETS:
            given += draw(st.lists(st.sampled_from(TR_SETS), min_size=1, max_size=2))
        case _:
            pass
    if first and spec.operands is not Operands.SETS:
        given.append(draw(st.sampled_from(("corpus.jsonl", "./corpus.jsonl"))))
    return [spec.name, *given]


@st.composite
def quoted(draw: st.DrawFn, word: str) -> str:
    """A word as bash quotes it, in one of several ways."""
    plain = word and all(c.isalnum() or c in "-_=./," for c in word)
    ways = [shlex.quote(word)]
    if plain:
        ways.append(word)
    if not any(c in '$`"\\!' for c in word):
        ways.append(f'"{word}"')
    if "\n" not in word:
        ways.append("".join(c if c.isalnum() or c in "_-./" or not c.isascii() else "\\" + c for c in word) or "''")
    return draw(st.sampled_from(ways))


def programs(*, searching: bool = False) -> st.SearchStrategy[ProgramSpec]:
    """Entries of the table; with `searching`, only those that read lines."""
    chosen = [spec for spec in COMMANDS.values() if not searching or spec.name not in {"ls", "find"}]
    return st.sampled_from(chosen)


@st.composite
def pipelines(draw: st.DrawFn, *, most_stages: int = 4, most_flags: int = 3) -> str:
    """A command made from the table: declared flags, fitting values, the corpus in the first stage.

    Most are accepted and run; some the programs themselves reject, which is to be equal everywhere too.
    """
    first = draw(stages(draw(programs()), first=True, most_flags=most_flags))
    rest = draw(
        st.lists(
            programs(searching=True).flatmap(lambda spec: stages(spec, first=False, most_flags=most_flags)),
            max_size=most_stages - 1,
        )
    )
    return " | ".join(" ".join(draw(quoted(word)) for word in stage) for stage in [first, *rest])


def line_local() -> frozenset[str]:
    """Names of the programs that treat each line by itself unless a flag says otherwise."""
    return frozenset(spec.name for spec in COMMANDS.values() if spec.effect in {Effect.FILTER, Effect.MAP})


FRAGMENTS = (
    *COMMANDS,
    *(
        "corpus.jsonl",
        "./corpus.jsonl",
        "-n",
        "-F",
        "--",
        "-",
        "*",
        "?",
        "[a-c]",
        "[!x]*",
        "[",
        "]",
        "*.jsonl",
        "./*",
        "co*l",
        ".*",
    ),
    *(
        "'",
        "''",
        '"',
        '""',
        "\\",
        "\\\\",
        "\\\n",
        "\n",
        "\t",
        " ",
        "  ",
        "$",
        "$x",
        "${",
        "$(",
        "$1",
        "$$",
        "`",
        "~",
        "~/",
        "=~",
        ":~",
    ),
    *(
        "#",
        " #",
        "!",
        "{",
        "}",
        "{a,b}",
        "{1..3}",
        "{}",
        ",",
        "..",
        "|",
        " | ",
        "|&",
        "||",
        "&",
        "&&",
        ";",
        "<",
        ">",
        "(",
        ")",
    ),
    *(
        "a=b",
        "x",
        "é",
        "漢",
        "\u2028",
        "\xa0",
        "\r",
        "\v",
        "\x02",
        "\x1f",
        "$'",
        '$"',
        "'a b'",
        '"a b"',
        '"$"',
        '"\\$"',
        "a\\ b",
    ),
    *("corpus", ".jsonl", "c", "l", "@(a)", "+(x)", "%", "^", "/", "../", "s/a*/b/", "[[:alpha:]]", "[^a]*", "a]b"),
)


def near_shell() -> st.SearchStrategy[str]:
    """Text that looks like shell: mostly starts with a program, then fragments that mean something to bash."""
    start = st.sampled_from(("rg ", "grep ", "head ", "rg -F ", "", " ", "cat corpus.jsonl | rg "))
    piece = st.one_of(st.sampled_from(FRAGMENTS), st.sampled_from(FRAGMENTS), st.text(max_size=3))
    return st.builds(lambda head, parts: head + "".join(parts), start, st.lists(piece, max_size=14))
