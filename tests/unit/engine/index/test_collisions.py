"""Tokens that share one 64-bit hash, as the kernels that are used compute it: nothing is left out for it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest

from grepseek_env.engine.index import ALL
from grepseek_env.engine.literals.records import Literal
from tests.support.indexing import dictionary_of, inverted, make, missed, small_runs
from tests.support.ways import WAYS, Corpus

if TYPE_CHECKING:
    from pathlib import Path

# The hash takes 8 bytes at a time. Each of these pairs of 8 bytes leads from one state to one other, found by trying
# first halves until the second half that makes up for them was of letters and digits.
_FIRST = (b"8wy6u14ibkk56ar3", b"x2ceebdtgrhlsrsv", b"hzxv592e1m2zu4zf")
_FIRST += (b"hs9y94jtqv9e5liq", b"98ol3rtw7uhtvzvk", b"dqs6inz0mfcr5wg5")
_SECOND = (b"mbwqfbwxo6a91q2g", b"aata4ns864q8dc9c", b"mbhzpoju9w3cg098")
_SECOND += (b"50mjap23fd77pbf8", b"all4mwex6uazd1ld", b"6oy8cxdqcjuqbidw")
WHOLE = tuple(
    b"".join(each) + b"kingston" for each in itertools.product(_FIRST, _SECOND)
)  # two buckets of 16, and more
CUT = tuple(
    each + b"kingston" + b"abc" * 10 for each in (b"a4h5a3tdg6yqsn8w", b"hpc1bkm85smtdt60", b"ho6vvelji2tr8tj4")
)
ABSENT = WHOLE[7]  # its hash is there, and it is not
TOKENS = (*(token for token in WHOLE if token != ABSENT), *CUT)


def corpus() -> bytes:
    """Returns lines with tokens that share their hash, some twice and some in capitals, among others."""
    lines = []
    for number, token in enumerate(TOKENS):
        lines += [b"line %d of plain text" % number, b"a %s z" % (token.upper() if number % 5 == 0 else token)]
        if number % 3 == 0:
            lines.append(b"again %s %s" % (token, TOKENS[number - 1]))
    return b"\n".join(lines) + b"\n"


@pytest.fixture(autouse=True, params=[300, 1 << 40], ids=["many runs", "one run"])
def _runs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    small_runs(monkeypatch, request.param)


def test_they_do_share_it() -> None:
    from grepseek_env.engine.index import texts

    hashes = []
    for token in (*WHOLE, *CUT):
        room = np.frombuffer(token + bytes(16), np.uint8)
        hashes.append(int(texts.hash_token(np.uint64(room.ctypes.data), np.uint64(len(token)))))
    assert len(set(hashes[: len(WHOLE)])) == 1, "the hash changed: find other tokens"
    assert len(set(hashes[len(WHOLE) :])) == 1
    assert len(set(TOKENS)) == 38


def test_each_has_its_own_blocks(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    data = corpus()
    unit = request.node.callspec.params["_runs"]
    _, index = make(tmp_path, data, block=16)
    held, wanted = dictionary_of(index), inverted(data, 16, unit)
    assert held.keys() == wanted.keys()
    for token, blocks in held.items():
        assert blocks is None or blocks == wanted[token]


def test_no_line_that_matches_is_left_out_and_little_else_is_kept(tmp_path: Path) -> None:
    data = corpus()
    _, index = make(tmp_path, data, block=16)
    for token in TOKENS:
        for text in (b" " + token + b" ", token, token[:20], token[5:], b"a " + token[:30]):
            for fold in (False, True):
                clauses = ((Literal(text, fold=fold),),)
                assert missed(index, data, clauses) is None, text
        found = index.candidates(((Literal(b" " + token + b" ", fold=True),),))
        assert found is not ALL
        assert 1 <= len(found) <= 5
    found = index.candidates(((Literal(b" " + ABSENT + b" "),),))
    assert found is not ALL
    assert len(found) == 0


@pytest.mark.parametrize("way", ["narrowed, index", "auto, index, batch"])
def test_answers_are_those_of_bash(tmp_path: Path, way: str) -> None:
    commands = [
        command
        for token in (*TOKENS[::6], ABSENT)
        for text in (token.decode(),)
        for command in (
            f"rg -F {text} corpus.jsonl",
            f"rg -c -F ' {text} ' corpus.jsonl",
            f"grep -i '{text[3:30]}' corpus.jsonl | head -n 1",
            f"rg '{text}.*[a-z]' corpus.jsonl | wc -l",
        )
    ]
    with Corpus(tmp_path, corpus(), block=16) as opened:
        wrong = opened.differences_of_many(commands, [WAYS[way]])
        assert not wrong, "\n".join(wrong)
        assert opened.narrowed == len(commands)
