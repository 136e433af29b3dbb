import os
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from grepseek_env.engine.index import ALL, Everything, TokenIndex
from grepseek_env.engine.literals.records import Literal
from tests.support.indexing import draw_clauses, line_ranges, make, missed, mixed, small_runs
from tests.support.odd_corpora import REFUSED, odd

ROUNDS = 300 if os.environ.get("HYPOTHESIS_PROFILE") == "fuzz" else 6
K, LONG_S, DOTLESS = "\u212a".encode(), "\u017f".encode(), "\u0131".encode()
FILLER = [b"line %d of plain filler text that says little" % number for number in range(40)]


def one_per_block(folder: Path, *planted: bytes) -> tuple[TokenIndex, dict[bytes, int]]:
    """Plants lines among others, each in a block of its own; returns the index and the offsets of what was planted."""
    lines = [line for number, text in enumerate(planted) for line in (*FILLER[number * 3 :][:3], text)] + FILLER
    data = b"".join(line + b"\n" for line in lines)
    _, index = make(folder, data, block=16)
    return index, {line: begin for (begin, _), line in zip(line_ranges(data), lines, strict=True)}


def found(index: TokenIndex, *clauses: bytes | Literal | tuple[Literal, ...]) -> list[int] | Everything:
    given = tuple(c if isinstance(c, tuple) else (c if isinstance(c, Literal) else Literal(c),) for c in clauses)
    got = index.candidates(given)
    return ALL if got is ALL else [begin for begin, _ in got.spans().tolist()]


@pytest.mark.parametrize("seed", range(4))
def test_property_no_line_that_matches_is_left_out(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    narrowed = 0
    for number in range(ROUNDS):
        data = mixed(rng, rng.choice((1, 30, 200, 400)))
        small_runs(monkeypatch, rng.choice((40, 200, 5000, 1 << 20)), rng.choice((60, 200, 1 << 20)))
        _, index = make(tmp_path / str(number), data, block=rng.choice((16, 17, 64, 300)))
        for _ in range(80):
            clauses = draw_clauses(rng, data)
            assert missed(index, data, clauses) is None, clauses
            narrowed += index.candidates(clauses) is not ALL
    assert narrowed > 20


@pytest.mark.parametrize("name", sorted(set(odd()) - REFUSED - {"empty", "huge_line"}))
def test_odd_corpora(tmp_path: Path, name: str) -> None:
    rng, data = random.Random(name), odd()[name]
    _, index = make(tmp_path, data, block=128)
    for _ in range(40):
        clauses = draw_clauses(rng, data)
        assert missed(index, data, clauses) is None, clauses


def test_a_line_of_six_megabytes(tmp_path: Path) -> None:
    data = odd()["huge_line"]
    _, index = make(tmp_path, data, block=4096)
    got = index.candidates(((Literal(b" Einstein Ulm "),),), limit_bytes=len(data))
    assert got is not ALL
    at = data.index(b"xxxx")
    assert any(begin <= at < end for begin, end in got.spans().tolist())


def test_an_empty_corpus_has_no_candidates(tmp_path: Path) -> None:
    _, index = make(tmp_path, b"")
    got = index.candidates(((Literal(b"word"),),))
    assert got is not ALL
    assert (len(got), got.bytes, got.spans().shape) == (0, 0, (0, 2))


CASES = {
    "a word": (b"the quixotic one", b" quixotic "),
    "a word's beginning": (b"the quixotic one", b"the quixo"),
    "a word's end": (b"the quixotic one", b"otic one"),
    "a word's middle": (b"the quixotic one", b"uixoti"),
    "both ends cut": (b"seven brightly coloured boats", b"htly coloured bo"),
    "letters and digits": (b"model AX77b9 sold", b"ax77".upper()),
    "digits": (b"in 1879 there", b" 1879 "),
    "long digits": (b"call 5551234567 now", b" 5551234567 "),
    "the beginning of long digits": (b"call 5551234567 now", b"call 555123"),
    "the end of long digits": (b"call 5551234567 now", b"34567 now"),
    "the middle of long digits": (b"call 5551234567 now", b"551234"),
    "escapes": (rb"first\nsecond \"quoted\" third", rb"first\nsec"),
    "accents": ("née Skłodowska".encode(), "Skłod".encode()),
    "a cut character": ("née Skłodowska".encode(), "łodow".encode()[1:]),
    "characters without spaces": ("東京都渋谷区".encode(), "都渋谷".encode()),
    "a dash between years": ("1990–1995 period".encode(), "1990–1995".encode()),
    "a very long word": (b"pre " + b"abcde" * 12 + b" post", b" " + b"abcde" * 12 + b" "),
    "the beginning of a very long word": (b"pre " + b"abcde" * 12 + b" post", b"pre " + b"abcde" * 8),
    "the middle of a very long word": (b"pre " + b"abcde" * 12 + b" post", b"abcdeabcd"),
    "the end of a very long word that begins with digits": (b"pre " + b"1234567" * 6 + b"suffix post", b"fix post"),
    "a very long word that begins with digits": (b"pre " + b"1234567" * 6 + b"suffix post", b"1234567" * 6 + b"suff"),
    "the end of a very long word": (b"pre " + b"abcde" * 12 + b" post", b"cdeabcde post"),
}


@pytest.mark.parametrize("name", CASES)
def test_one_block_is_left(tmp_path: Path, name: str) -> None:
    line, text = CASES[name]
    index, at = one_per_block(tmp_path, b"other planted words", line, b"more planted words")
    assert found(index, text) == [at[line]]


def test_case_matters_not_and_words_apart_are_no_phrase(tmp_path: Path) -> None:
    index, at = one_per_block(tmp_path, b"Great Harbour town", b"great town, no port")
    assert found(index, b"GREAT harbour") == [at[b"Great Harbour town"]]
    assert found(index, b"eat", b"arb") == [at[b"Great Harbour town"]]
    assert found(index, b" harbour no ") == []


def test_one_of_several_and_all_of_several(tmp_path: Path) -> None:
    index, at = one_per_block(tmp_path, b"apricot tree", b"walnut tree", b"walnut and apricot tree", b"cedar")
    apricot, walnut, cedar = (Literal(text) for text in (b"apricot", b"walnut", b"cedar"))
    assert found(index, (apricot, cedar)) == [at[b"apricot tree"], at[b"walnut and apricot tree"], at[b"cedar"]]
    assert found(index, apricot, walnut) == [at[b"walnut and apricot tree"]]
    assert found(index, (apricot, cedar), (walnut, cedar)) == [at[b"walnut and apricot tree"], at[b"cedar"]]
    assert found(index, (apricot, Literal(b"absent")), b"tree", b"walnut") == [at[b"walnut and apricot tree"]]
    assert found(index, (Literal(b"absent"), Literal(b"nowhere"))) == []
    assert found(index, (apricot, Literal(b"x"))) is ALL  # one branch says nothing


def test_what_says_nothing(tmp_path: Path) -> None:
    index, _ = one_per_block(tmp_path, b"apricot tree")
    for clauses in ((), (b"",), (b"a",), (b"ap",), (b" ",), (b"filler",), (b"--",)):
        assert found(index, *clauses) is ALL
    assert index.candidates(((),)) is ALL


def test_special_letters_count_where_they_are_asked_for(tmp_path: Path) -> None:
    kelvin, long_s, dotless = "300 \u212aelvin".encode(), "\u017fecret".encode(), "\u0131stanbul".encode()
    index, at = one_per_block(tmp_path, kelvin, long_s, dotless, b"kelvin and secret", b"istanbul")
    plain = Literal(b"kelvin", fold=True)
    assert found(index, plain) == [at[b"kelvin and secret"]]
    assert found(index, Literal(b"kelvin", fold=True, specials=(K,))) == [at[kelvin], at[b"kelvin and secret"]]
    assert found(index, Literal(b"secret", fold=True, specials=(LONG_S,))) == [at[long_s], at[b"kelvin and secret"]]
    assert found(index, Literal(b"istanbul", fold=True, specials=(DOTLESS, LONG_S))) == [
        at[long_s],
        at[dotless],
        at[b"istanbul"],
    ]
    assert found(index, Literal(b"kelvin", fold=True, specials=("\u00e5".encode(),))) is ALL  # there is no such list


def test_without_case_only_ascii_counts(tmp_path: Path) -> None:
    line = "\u00c9cole primaire".encode()
    index, at = one_per_block(tmp_path, line)
    assert found(index, Literal("\u00e9cole".encode(), fold=True)) == [at[line]]
    assert found(index, Literal("\u00e9cole".encode())) == []


def test_more_bytes_than_worth_it(tmp_path: Path) -> None:
    index, at = one_per_block(tmp_path, b"apricot tree")
    block = len(b"apricot tree\n" + FILLER[0] + b"\n")
    got = index.candidates(((Literal(b"apricot"),),), limit_bytes=block)
    assert got is not ALL
    assert (got.bytes, got.spans().tolist()) == (block, [[at[b"apricot tree"], at[b"apricot tree"] + block]])
    assert index.candidates(((Literal(b"apricot"),),), limit_bytes=block - 1) is ALL


def test_neighbours_are_one_span(tmp_path: Path) -> None:
    data = (
        b"plain text of some length\n" * 50 + b"needle one here and there\n" * 3 + b"plain text of some length\n" * 50
    )
    _, index = make(tmp_path, data, block=16)
    got = index.candidates(((Literal(b"needle"),),))
    assert got is not ALL
    assert got.blocks.tolist() == [50, 51, 52]
    assert got.spans().tolist() == [[50 * 26, 53 * 26]]


def test_many_clauses_and_literals(tmp_path: Path) -> None:
    index, at = one_per_block(tmp_path, b"apricot tree", b"walnut tree")
    some = (Literal(b"apricot"), *(Literal(b"absent%d" % number) for number in range(150)))
    assert found(index, some) == [at[b"apricot tree"]]
    assert found(index, *[b"apricot"] * 300) == [at[b"apricot tree"]]
    assert found(index, *[b" ".join([b"apricot"] * 300)]) == [at[b"apricot tree"]]
    assert found(index, b"apricot " * 2000) == [at[b"apricot tree"]]


def test_threads_do_not_disturb_one_another(tmp_path: Path) -> None:
    rng = random.Random(5)
    data = mixed(rng, 400)
    _, index = make(tmp_path, data, block=32)
    queries = [draw_clauses(rng, data) for _ in range(200)]

    def ask(clauses: tuple[tuple[Literal, ...], ...]) -> object:
        got = index.candidates(clauses)
        return None if got is ALL else got.blocks.tolist()

    alone = [ask(query) for query in queries]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            assert list(pool.map(ask, queries)) == alone


def test_blocks_are_in_order_and_of_32_bits(tmp_path: Path) -> None:
    rng = random.Random(6)
    data = mixed(rng, 400)
    _, index = make(tmp_path, data, block=32)
    for _ in range(50):
        got = index.candidates(draw_clauses(rng, data))
        if got is not ALL:
            assert got.blocks.dtype == np.uint32
            assert (np.diff(got.blocks.astype(np.int64)) > 0).all()
            assert len(got) == len(got.blocks)
