"""Random searches with lines that they nearly match: patterns in each program's syntax, and texts made from them."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

Syntax = Literal["rust", "basic", "extended", "fixed"]

WORDS = (
    "Ulm",
    "kiss",
    "Einstein",
    "is",
    "a",
    "ab",
    "1879",
    "née",
    "Zürich",
    "STOP",
    "k",
    "i",
    "ß",
    "the",
    "x_y",
    '"id"',
)
PLAIN_SIGNS = ("-", '"', ":", ",", "/", "#", "&", "~", "<", "=", "'", "_", " ", "!", "%", "@", ";", "\\n")
SPECIALS = {"k": "\u212a", "s": "\u017f", "i": "\u0131", "I": "\u0130", "ß": "\u1e9e"}
AROUND = ("", "", " ", "x", "_", "é", "\u2019", ".", "-", "7", "\u017f", "\u212a", "\r", '"', "漢")
JUNK = "ab ab ab AB\\\\()|*+?[]{}^$.-,1:<>&~k\u212aé"
META = {"rust": "\\.+*?()|[]{}^$#&-~", "basic": "\\.*[]^$", "extended": "\\.+*?()|[]{}^$", "fixed": ""}
CLASSES = ("Kk", "sS", "ab", "Ee", "a", "xyz", "é", "ké", "abcdef", "0-9", "a-c", "^x", "]a", "^]x", "-a", "a-", "-")
NAMED_CLASSES = (
    *(("[[:digit:]]", "7"), ("[[:upper:]a]", "Ua"), ("[^[:space:]]", "xé"), ("[[.a.]b]", "ab"), ("[[=a=]]", "a")),
    *(("[[:alpha:]-]", "a-"), ("\\w", "a_é"), ("\\s", " "), ("\\d", "7d"), ("\\W", " ."), ("\\pL", "aé")),
    *(("\\p{Greek}", "\u03b1"), ("[a&&[^b]]", "a"), ("[[a]b]", "ab"), ("[\\]a]", "a\\]"), ("[\\w-]", "-a\\w")),
)
# Patterns in which a sign does not mean what it means elsewhere, with texts that tell.
HARD: dict[Syntax, tuple[tuple[str, str], ...]] = {
    "rust": (
        ("[-]a|b]c", "-a b]c ac"),
        ("[]a]b|]c", "]b ]c c"),
        ("a(?i)bc|d", "abC ABC D"),
        ("(?i:a)b(?-i:C)", "AbC abc ABC"),
        ("(?P<n>a)(?P<n>b)", "ab"),
        ("(?P<n>ab)", "ab a"),
        (r"a\b{start}b|\<cd\>", "ab cd xcd"),
        ("a{,2}b", "b ab aab"),
        ("a**b", "b aab"),
        (r"a\x00", "a"),
        (r"a\x0a", "a"),
    ),
    "basic": (
        ("a$b", "a$b ab"),
        ("a^b", "a^b ab"),
        (r"x\(^a\)", "xa x^a"),
        (r"x\(a$\)y", "xay xa$y"),
        ("*a", "*a a"),
        (r"\(*a\)b", "*ab ab"),
        ("^*a", "*a a"),
        (r"a\|*b", "*b b a"),
        (r"\+a", "+a a"),
        ("a{2}", "a{2} aa"),
        (r"[\]a]", "\\a] a]"),
        (r"a\{1,\}b", "ab aab b"),
        (r"a**b", "b aab"),
    ),
    "extended": (
        ("a{,2}b", "b ab aab"),
        ("a{x", "a{x ax"),
        ('{"a"', '{"a" "a"'),
        ("a|*b", "a b *b"),
        ("(*a)b", "ab *ab"),
        ("a+*b", "b aab"),
        ("()a", "a"),
        ("a{1", "a{1 a"),
        ("x^a|b$c", "xa bc x^a b$c"),
        ("a**b", "b aab"),
    ),
    "fixed": (("", "a"), ("a\nb", "a b c")),
}
Node = tuple["Callable[[random.Random, Syntax], str]", "Callable[[random.Random], str]"]
"""How a piece of a pattern is written, and a text that it matches."""


@dataclass(frozen=True)
class Drawn:
    """One search and lines for it.

    Attributes:
        words: the program, flags and patterns, without a file.
        lines: without their newlines.
    """

    words: tuple[str, ...]
    lines: tuple[bytes, ...]

    @property
    def stage(self) -> str:
        return shlex.join(self.words)


def escaped(text: str, syntax: Syntax) -> str:
    """Writes a text that stands for itself."""
    return "".join("\\" + sign if sign in META[syntax] else sign for sign in text)


def _text(rng: random.Random) -> Node:
    found = rng.choice(WORDS) if rng.random() < 0.7 else rng.choice(PLAIN_SIGNS)
    if rng.random() < 0.3:
        found = found[rng.randrange(len(found)) :]
    return (lambda _, syntax: escaped(found, syntax)), (lambda _: found)


def _hexed(rng: random.Random) -> Node:
    found = rng.choice("Ulké\u017f")
    way = rng.choice(("\\u{%x}", "\\x{%X}", "\\u%04x", "\\U%08x"))
    return (lambda _, syntax: way % ord(found) if syntax == "rust" else escaped(found, syntax)), (lambda _: found)


def _any(_: random.Random) -> Node:
    return (lambda _, __: "."), (lambda rng: rng.choice("xé7 "))


def _small_class(rng: random.Random) -> Node:
    members = rng.choice(CLASSES)
    return (lambda _, __: f"[{members}]"), (lambda rng: rng.choice(members))


def _named_class(rng: random.Random) -> Node:
    name, members = rng.choice(NAMED_CLASSES)
    return (lambda _, __: name), (lambda rng: rng.choice(members))


def _anchor_within(rng: random.Random) -> Node:
    """Writes an anchor that may stand for itself."""
    sign = rng.choice("^$*")
    return (lambda _, __: sign), (lambda rng: rng.choice((sign, sign, "")))


def _position(rng: random.Random) -> Node:
    sign = rng.choice(("^", "$", "\\b", "\\B", "\\<", "\\>"))
    return (lambda _, __: sign), (lambda _: "")


def _flag(rng: random.Random) -> Node:
    flag = rng.choice(("(?i)", "(?-i)", "(?s)", "(?i-s)", "(?m)", "(?-u)", "(?x)"))
    return (lambda _, syntax: flag if syntax == "rust" else ""), (lambda _: "")


def _again(_: random.Random) -> Node:
    return (lambda _, __: "\\1"), (lambda rng: rng.choice(WORDS))


def _stray(rng: random.Random) -> Node:
    sign = rng.choice('-"/ nde_%')
    return (lambda _, __: "\\" + sign), (lambda _: sign)


def _row(rng: random.Random, depth: int) -> Node:
    parts = [node(rng, depth - 1) for _ in range(rng.randint(1, 4))]
    return (
        lambda r, syntax: "".join(write(r, syntax) for write, _ in parts),
        lambda r: "".join(sample(r) for _, sample in parts),
    )


def _either(rng: random.Random, depth: int) -> Node:
    parts = [node(rng, depth - 1) for _ in range(rng.randint(2, 3))]

    def write(r: random.Random, syntax: Syntax) -> str:
        return {"basic": "\\|", "fixed": "\n"}.get(syntax, "|").join(one(r, syntax) for one, _ in parts)

    return write, lambda r: r.choice(parts)[1](r)


def _group(rng: random.Random, depth: int) -> Node:
    inner = _either(rng, depth) if rng.random() < 0.7 else node(rng, depth - 1)
    opening = rng.choice(("(", "(?:", "(?i:", "(?P<n>", "("))

    def write(r: random.Random, syntax: Syntax) -> str:
        opens, closes = {"rust": (opening, ")"), "extended": ("(", ")"), "fixed": ("", "")}.get(syntax, ("\\(", "\\)"))
        return opens + inner[0](r, syntax) + closes

    return write, inner[1]


def _repeated(rng: random.Random, depth: int) -> Node:
    inner = rng.choice((_text, _any, _small_class))(rng) if rng.random() < 0.5 else _group(rng, depth)
    sign = rng.choice(("*", "+", "?", "{0,2}", "{2}", "{1,}", "{,2}", "+?", "*+", "{0}", "{1}{2}", "{3,70}"))
    basic = {"+": "\\+", "?": "\\?", "+?": "\\+", "*+": "*\\+"}.get(sign, sign.replace("{", "\\{").replace("}", "\\}"))

    def write(r: random.Random, syntax: Syntax) -> str:
        return inner[0](r, syntax) + {"basic": basic, "fixed": ""}.get(syntax, sign)

    return write, lambda r: "".join(inner[1](r) for _ in range(r.choice((0, 1, 1, 2, 3))))


_LEAVES = (
    *[_text] * 8,
    *(_hexed, _any, _small_class, _small_class, _named_class, _named_class, _position, _anchor_within),
    *(_flag, _flag, _again, _stray),
)
_BRANCHES = (_row, _row, _either, _group, _repeated, _repeated)


def node(rng: random.Random, depth: int) -> Node:
    """Draws a piece of a pattern."""
    if depth <= 0 or rng.random() < 0.3:
        return rng.choice(_LEAVES)(rng)
    return rng.choice(_BRANCHES)(rng, depth)


def disguised(rng: random.Random, text: str) -> str:
    """Changes case, puts code points for letters that a search ignoring case may take for them, cuts."""
    chance = rng.random()
    if chance < 0.2:
        text = text.swapcase() if rng.random() < 0.5 else text.upper()
    elif chance < 0.3:
        text = "".join(sign.swapcase() if rng.random() < 0.5 else sign for sign in text)
    elif chance < 0.5:
        text = "".join(SPECIALS.get(c, SPECIALS.get(c.lower(), c)) if rng.random() < 0.5 else c for c in text)
    elif chance < 0.6 and text:
        at = rng.randrange(len(text))
        text = text[:at] + text[at + 1 :]
    elif chance < 0.65:
        text += text[: rng.randint(0, 3)]
    return text


def _flags(rng: random.Random, program: str) -> list[str]:
    some = ["-i", "-w", "-x", "-v", "-a", "-i"]
    some += ["-S", "-s", "--no-unicode"] if program == "rg" else ["--no-ignore-case", "-y"]
    return rng.sample(some, rng.choice((0, 0, 1, 1, 2, 3)))


def draw_search(rng: random.Random, program: Literal["rg", "grep"], lines: int = 24) -> Drawn:
    """Draws a search, patterns that are junk included, and lines that it is likely to match."""
    syntax: Syntax = rng.choice(("rust", "rust", "fixed") if program == "rg" else ("basic", "extended", "fixed"))
    flags = _flags(rng, program)
    flags += {"fixed": ["-F"], "extended": ["-E"]}.get(syntax, [])
    patterns, samples = [], []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if rng.random() < 0.08:
            pattern, texts = rng.choice(HARD[syntax])
            patterns.append(pattern)
            samples += texts.split() * 3
            continue
        if syntax != "fixed" and rng.random() < 0.25:
            pattern = "".join(rng.choice(JUNK) for _ in range(rng.randint(1, 9)))
            patterns.append(pattern)
            samples += ["".join(rng.choice(pattern + JUNK) for _ in range(rng.randint(1, 8))) for _ in range(12)]
            continue
        write, sample = node(rng, 0 if syntax == "fixed" else rng.choice((0, 1, 2, 3)))
        patterns.append(write(rng, syntax))
        samples += [sample(rng) for _ in range(6)]
    if len(patterns) == 1 and rng.random() < 0.7:
        words = [program, *flags, "--", patterns[0]]
    elif program == "grep" and rng.random() < 0.3:
        words = [program, *flags, "--", "\n".join(patterns)]
    else:
        words = [program, *flags, *(word for pattern in patterns for word in ("-e", pattern))]
    made = []
    for _ in range(lines):
        text = rng.choice(samples) if rng.random() < 0.9 else rng.choice(WORDS)
        pieces = [rng.choice(AROUND), disguised(rng, text), rng.choice(AROUND)]
        if rng.random() < 0.2:
            pieces += [disguised(rng, rng.choice(samples)), rng.choice(AROUND)]
        made.append("".join(pieces).replace("\n", " ").replace("\0", " ").removeprefix("\ufeff").encode())
    if rng.random() < 0.1:
        made[rng.randrange(lines)] += b"\xff" + rng.choice(samples).replace("\n", " ").encode()
    return Drawn(tuple(words), tuple(made))


TAILS = (
    *("", "", "head -n 2", "wc -l", "wc -c", "cat", "head", "head -n 0", "head -n 1 | wc -c", "sort", "wc", "uniq -c"),
    *(
        "rg -c ''",
        "grep -c a",
        "rg -n i",
        "grep -v s",
        "rg -v -F a | head -n 3",
        "tail -n 2",
        "cut -c 1-3",
        "cat | wc -l",
    ),
    *(
        "rg -q k",
        "grep -qi S",
        "rg -m 2 -i k",
        "grep -m1 U",
        "rg -o '[a-z]+' | sort | uniq -c",
        "head -c 9",
        "awk 'END{print NR}'",
    ),
)
LAST = (*([""] * 6), "-c", "-q", "-m 2", "-o", "-n", "-A 1", "-H", "-c -m 1", "-b", "-h")


def draw_command(rng: random.Random) -> tuple[str, list[bytes]]:
    """Draws one to three searches, what follows them, and lines that some of them match."""
    searches = [draw_search(rng, rng.choice(("rg", "grep"))) for _ in range(rng.choice((1, 1, 2, 3)))]
    stages = []
    for number, search in enumerate(searches):
        words = list(search.words)
        if number + 1 == len(searches) or rng.random() < 0.1:
            words[1:1] = shlex.split(rng.choice(LAST))
        stages.append(shlex.join(words))
        if number == 0 and rng.random() < 0.7:
            stages[0] += rng.choice((" corpus.jsonl", " ./corpus.jsonl"))
        elif number == 0:
            stages.insert(0, "cat corpus.jsonl")
        if rng.random() < 0.1:
            stages.append("cat")
    stages += [tail for tail in (rng.choice(TAILS),) if tail]
    lines = [line for search in searches for line in search.lines]
    # Lines that several of the searches match.
    lines += [b" ".join(rng.choice(search.lines) for search in searches) for _ in range(20)]
    rng.shuffle(lines)
    return " | ".join(stages), lines
