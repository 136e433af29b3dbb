"""Random corpora, and commands whose literals are pieces of them: cut anywhere, disguised, combined."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

from tests.support.indexing import mixed
from tests.support.odd_corpora import ordinary
from tests.support.patterns import SPECIALS, disguised, escaped

if TYPE_CHECKING:
    import random

    from tests.support.patterns import Syntax

# The code points that may stand for a letter, digits, escapes, long tokens, signs between words.
PLANTED = (
    *(
        "\u212aelvin",
        "\u017fecret",
        "STRA\u1e9eE",
        "stra\u00dfe",
        "\u0131stanbul",
        "\u0130zmir",
        "ki\u017fs",
        "Ma\u017fk",
    ),
    *(
        "1879",
        "18791",
        "187912345678",
        "0.5",
        "x1879y",
        "caf\u00e9",
        "CAF\u00c9",
        "\u4e2d\u56fd\u8bed",
        "na\u00efve-te",
    ),
    *("a" * 23, "b" * 24, "ab" * 30, "don\u2019t", "\u201cquoted\u201d", "snake_case", "semi;colon", "tab\there"),
)
_PLAIN = str.maketrans({"\u212a": "K", "\u017f": "s", "\u0131": "i", "\u0130": "I", "\u1e9e": "SS", "\u00df": "ss"})
TAILS = (
    *("", "", "", "head -n 1", "head -n 3", "head", "wc -l", "wc -l", "wc -c", "sort | uniq -c | sort -rn | head -n 3"),
    *("cut -c 1-40", "tail -n 2", "head -c 99", "rg -o '[A-Za-z]+' | head -n 9", "cat", "awk 'END{print NR}'"),
)
ENDS = ("", "", "", "", "-c", "-q", "-m 1", "-m 3", "-o", "-n")


def draw_corpus(rng: random.Random) -> bytes:
    """Returns a corpus of some hundred lines."""
    lines = ordinary(rng.choice((20, 150)), seed=rng.randrange(1 << 30)).splitlines(keepends=True)
    lines += mixed(rng, rng.choice((10, 100))).splitlines(keepends=True)
    for _ in range(rng.choice((5, 40))):
        words = rng.choices(PLANTED, k=rng.randint(1, 5))
        text = rng.choice((" ", "\n", '"', "", ", ")).join(words)
        line = rng.choice((text.replace("\n", "\\n"), json.dumps({"t": text}, ensure_ascii=rng.random() < 0.3)))
        # A word at the line's start, or at its end, stands at a block's border too.
        lines.append(f"{line}{rng.choice(('', '', rng.choice(words)))}\n".encode())
    if rng.random() < 0.1:
        lines.append(b"x\xff\xfe Einstein caf\xe9 \xc3\n")
    if rng.random() < 0.2:
        lines.append(b"y" * rng.choice((200, 5000)) + b" Einstein 1879\n")
    lines = [line if line.endswith(b"\n") else line + b"\n" for line in lines]
    rng.shuffle(lines)
    data = b"".join(lines)
    return data if rng.random() < 0.7 else data[:-1]


def draw_literal(rng: random.Random, data: bytes) -> str:
    """Returns a piece of a line, not empty, perhaps with a letter more or others in place of some."""
    length = rng.choice((1, 2, 3, 3, 4, 5, 6, 7, 8, 10, 14, 20, 27, 40, 60))
    at = rng.randrange(len(data))
    match rng.randrange(4):
        case 0:  # from a line's start
            at = data.rfind(b"\n", 0, at) + 1
        case 1:  # up to a line's end
            end = data.find(b"\n", at)
            at = max(0, (end if end >= 0 else len(data)) - length)
        case _:
            pass
    text = data[at : at + length].decode(errors="ignore").split("\n")[-1 if rng.random() < 0.3 else 0].replace("\0", "")
    text = text or rng.choice(PLANTED)
    match rng.randrange(8):
        case 0:
            return text + rng.choice("z0 é.k")
        case 1:
            return rng.choice("z0 é.s") + text
        case 2:
            return "".join(SPECIALS.get(c, c) for c in text)
        case 3:
            return disguised(rng, text) or text
        case _:
            return text


def _bytes_escaped(rng: random.Random, text: str) -> str:
    r"""Writes some letters as escapes of their bytes, which is what ``\xC3`` is without Unicode."""
    return "".join(
        "".join(f"\\x{byte:02X}" for byte in letter.encode()) if rng.random() < 0.5 else escaped(letter, "rust")
        for letter in text
    )


def _search(rng: random.Random, data: bytes) -> tuple[str, list[str]]:
    """Returns program and flags, and patterns."""
    syntax: Syntax = rng.choice(("fixed", "fixed", "rust", "basic", "extended"))
    program = rng.choice(("rg", "grep")) if syntax == "fixed" else "rg" if syntax == "rust" else "grep"
    flags = [{"fixed": "-F", "extended": "-E"}.get(syntax, "")]
    flags += rng.choice(((), (), (), ("-i",), ("-i",), ("-w",), ("-x",), ("-i", "-w"), ("-i", "-x"), ("-a",)))
    number = rng.choice((1, 1, 1, 1, 2, 3))
    patterns = [escaped(draw_literal(rng, data), syntax) for _ in range(number)]
    if program == "rg" and rng.random() < 0.1:
        flags.append("--no-unicode")
        if syntax == "rust":
            patterns = [_bytes_escaped(rng, draw_literal(rng, data)) for _ in patterns]
    elif syntax != "fixed" and rng.random() < 0.5:
        first, second = patterns[0], escaped(draw_literal(rng, data), syntax)
        opens, bar, closes = ("\\(", "\\|", "\\)") if syntax == "basic" else ("(", "|", ")")
        forms = (
            f"{first}.*{second}",
            f"{first}{bar}{second}",
            f"{opens}{first}{bar}{second}{closes}",
            f"{first}[a-z]*",
            f"^{first}",
            f"{first}$",
            f"{first}.",
            f"[a-z]*{first}*",
            f"[{rng.choice(('Kk', 'Ee', '18'))}]{first}",
            f"{first}\\b",
            f"{opens}{first}{closes}*{second}",
        )
        patterns[0] = rng.choice(forms)
    return " ".join([program, *filter(None, flags)]), patterns


def _letters(rng: random.Random) -> tuple[str, list[str]]:
    """Returns a search for a word, or a line, that only special letters may spell."""
    words = [word for word in PLANTED if not word.isascii() and word.translate(_PLAIN).isascii()]
    wanted = rng.choice(words).translate(_PLAIN)
    flags = ["-i", rng.choice(("-w", "-w", "-x")), *rng.choice(((), ("-v",)))]
    return " ".join([rng.choice(("rg", "rg", "grep")), *flags]), [rng.choice((wanted, wanted.lower(), wanted.upper()))]


def _common(rng: random.Random) -> tuple[str, list[str]]:
    """Returns a search that lets most lines through."""
    return rng.choice(("rg -F", "grep", "grep -v", "rg -v")), [rng.choice(("a", "e", "in", "no such word"))]


def draw_query(rng: random.Random, data: bytes) -> str:
    """Returns a command that searches the corpus for pieces of it."""
    stages: list[str] = []
    number = rng.choice((1, 1, 1, 2, 2, 3))
    for at in range(number):
        chance = rng.random()
        if chance < 0.15:
            words, patterns = _letters(rng)
        elif chance < 0.3 and at + 1 < number:
            words, patterns = _common(rng)
        else:
            words, patterns = _search(rng, data)
        if " -v" not in words and rng.random() < (0.4 if at else 0.1):
            words += " -v"
        if at + 1 == number:
            words += " " + rng.choice(ENDS)
        if len(patterns) == 1 and rng.random() < 0.6:
            words += " -- " + shlex.quote(patterns[0])
        else:
            words += "".join(f" -e {shlex.quote(pattern)}" for pattern in patterns)
        stages.append(words)
    if rng.random() < 0.15:
        stages.insert(0, "cat corpus.jsonl")
    else:
        stages[0] += " corpus.jsonl"
    tail = rng.choice(TAILS)
    return " | ".join([*stages, tail] if tail else stages)
