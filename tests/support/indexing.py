"""Corpora that are hard to index, literals drawn from them, and what an index must give, found by brute force."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from grepseek_env.corpus.build import build_corpus
from grepseek_env.engine.index import ALL, TokenIndex, build_index
from grepseek_env.engine.index import build as build_module
from grepseek_env.engine.index import runs as runs_module
from grepseek_env.engine.index.layout import HEADER_BYTES, Header
from grepseek_env.engine.literals.records import SPECIAL_LETTERS, Literal

if TYPE_CHECKING:
    import random
    from pathlib import Path

    import pytest

    from grepseek_env.corpus.store import CorpusStore
    from grepseek_env.engine.literals.records import Clause

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEKSI0123456789"
_KINDS = (
    (LETTERS, (1, 2, 3, 5, 7, 8, 9, 12)),
    ("0123456789", (1, 4, 5, 6, 7, 8, 9, 12, 40)),
    ("éüñłαβγд", (1, 3, 6, 12)),
    ("中国日本語’–あ", (1, 2, 4, 30)),
    ("\u212a\u017f\u0131\u0130ksi", (1, 3, 5)),
    ("ab0", (23, 24, 25, 47, 48, 49, 50, 100, 300)),
)
_GAPS = (b" ", b" ", b" ", b"", b".", b"\\n", b"-", b'"', b"\r")
_TOKEN = re.compile(rb"[\xe2-\xff][0-9a-z\x80-\xe1]*|[0-9a-z\x80-\xe1]+")


def mixed(rng: random.Random, lines: int) -> bytes:
    """Returns lines of words of all kinds, glued together in places; some lines are empty, the last may be open."""
    words = []
    kinds = (*rng.sample(_KINDS[1:], rng.randint(0, 3)), _KINDS[0])
    for _ in range(rng.choice((5, 60, 400))):
        alphabet, lengths = rng.choice(kinds)
        words.append("".join(rng.choice(alphabet) for _ in range(rng.choice(lengths))).encode())
    words += [word[: rng.randint(1, len(word))] + rng.choice(words) for word in words if rng.random() < 0.3]
    made = (
        b"x" + b"".join(rng.choice(words) + rng.choice(_GAPS) for _ in range(rng.choice((0, 1, 3, 10, 30))))
        for _ in range(lines)
    )
    return b"\n".join(made) + rng.choice((b"", b"\n", b"\n", b"\n"))


def draw_literal(rng: random.Random, data: bytes) -> Literal:
    """Returns a piece of one of the corpus's lines, now and then with a letter more, now and then without case."""
    length = rng.choice((1, 2, 3, 4, 5, 6, 8, 10, 15, 25, 50, 70, 120))
    at = rng.randrange(max(1, len(data) - length))
    text = data[at : at + length].split(b"\n")[0] + rng.choice((b"", b"", b"", b"", b"z", b"0", b" "))
    if rng.random() < 0.7:
        return Literal(text)
    text = max(re.findall(rb"[\x00-\x7f]+", text), key=len, default=b"").lower()
    return Literal(text, fold=True, specials=tuple(s for s, letter in SPECIAL_LETTERS.items() if letter in text))


def draw_clauses(rng: random.Random, data: bytes) -> tuple[Clause, ...]:
    return tuple(
        tuple(draw_literal(rng, data) for _ in range(rng.choice((1, 1, 1, 2, 3))))
        for _ in range(rng.choice((1, 1, 2, 3)))
    )


def line_ranges(data: bytes) -> list[tuple[int, int]]:
    """Returns where lines begin and end, their newline included."""
    ends = [match.end() for match in re.finditer(rb"\n", data)]
    if not data.endswith(b"\n") and data:
        ends.append(len(data))
    return list(pairwise([0, *ends]))


def missed(index: TokenIndex, data: bytes, clauses: tuple[Clause, ...]) -> bytes | None:
    """Returns a line that satisfies the clauses and lies in none of the candidates; None if there is no such line."""
    found = index.candidates(clauses, limit_bytes=len(data))
    if found is ALL:
        return None
    spans = found.spans()
    assert int((spans[:, 1] - spans[:, 0]).sum()) == found.bytes
    assert (spans[1:, 0] > spans[:-1, 1]).all()
    for begin, end in line_ranges(data):
        line = data[begin:end].removesuffix(b"\n")
        if all(any(literal.within(line) for literal in clause) for clause in clauses):
            at = int(np.searchsorted(spans[:, 1], begin, side="right"))
            if at == len(spans) or not spans[at, 0] <= begin < end <= spans[at, 1]:
                return line
    return None


def make(folder: Path, data: bytes, *, block: int = 64, workers: int = 2) -> tuple[CorpusStore, TokenIndex]:
    """Prepares and indexes a corpus."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "text.jsonl").write_bytes(data)
    store = build_corpus(folder / "text.jsonl")
    build_index(store, block_bytes=block, workers=workers)
    index = TokenIndex.open(store)
    assert index is not None
    return store, index


def small_runs(
    monkeypatch: pytest.MonkeyPatch, run_bytes: int, most_block: int = 1 << 20, unit: int | None = None
) -> None:
    """Makes runs of this size, so that small corpora have several."""
    monkeypatch.setattr(build_module, "check_run_bytes", lambda *_: run_bytes)
    monkeypatch.setattr(runs_module, "MOST_BLOCK", most_block)
    monkeypatch.setattr(runs_module, "UNIT", run_bytes if unit is None else unit)


def cut_token(token: bytes) -> bytes:
    """Returns the text by which a token is known."""
    if token.isdigit():
        return token if len(token) <= 5 else token[:5] + b"\1"
    return token if len(token) <= 48 else token[:24] + b"\1"


def inverted(data: bytes, block: int, unit: int = 1 << 40) -> dict[bytes, list[int]]:
    """Returns what an index must hold: for each token the numbers of its blocks, made the slow way."""
    found: dict[bytes, list[int]] = {}
    number, start = -1, -block
    for begin, end in line_ranges(data):
        if begin >= start + block or begin // unit > start // unit:
            number, start = number + 1, begin
        for token in _TOKEN.findall(data[begin:end].lower()):
            blocks = found.setdefault(cut_token(token), [])
            if blocks[-1:] != [number]:
                blocks.append(number)
    return found


def dictionary_of(index: TokenIndex) -> dict[bytes, list[int] | None]:
    """Returns what an index holds: for each token its blocks, None where they are more than half."""
    from grepseek_env.engine.index import codes

    file = index.info.path.read_bytes()
    header = Header.from_bytes(file[:HEADER_BYTES])
    part = {name: file[at : at + size] for name, (at, size) in header.sections.items()}
    raw = np.frombuffer(part["lists"] + bytes(64), np.uint8)
    at, held, texts = 0, {}, iter(re.findall(rb"\n([^\n]+)", part["texts"]))
    for size in part["sizes"]:
        if size == 0:  # the room left in the last bucket of a part
            continue
        begin, length = at, size
        if size == 255:
            begin, length = at + 4, int.from_bytes(part["lists"][at : at + 4], "little") - 4
        out = np.zeros(header.blocks + 16, np.uint32)
        count = int(
            codes.decode(raw.ctypes.data + begin, raw.ctypes.data + begin + length, header.blocks, out.ctypes.data)
        )
        assert count <= header.blocks or count == codes.ALWAYS
        held[next(texts)] = None if count == codes.ALWAYS else out[:count].tolist()
        at = begin + length
    assert next(texts, None) is None
    return held
