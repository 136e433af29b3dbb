from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from grepseek_env.bench.engine import words as module
from grepseek_env.bench.engine.words import Sample, choose_words, line_ranges, read_sample
from grepseek_env.errors import ConfigError
from grepseek_env.tasks.world.bench import BenchText

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@pytest.fixture(scope="module")
def lines() -> list[bytes]:
    return BenchText().chunk(0).splitlines(keepends=True)


@pytest.fixture
def corpus(tmp_path: Path, lines: list[bytes]) -> Path:
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(b"".join(lines))
    return path


def counter(lines: list[bytes]) -> object:
    def count(texts: Sequence[str]) -> list[int]:
        return [sum(text.encode() in line for line in lines) for text in texts]

    return count


def test_every_word_is_as_frequent_as_its_letter_says(corpus: Path, lines: list[bytes]) -> None:
    draws = choose_words(read_sample(corpus), len(lines), counter(lines), draws=3, seed=0)
    assert len(draws) == 3
    ranges = line_ranges(len(lines))
    for draw in draws:
        for letter, word in draw.items():
            assert word.lines == sum(word.text.encode() in line for line in lines)
            assert ranges[letter][0] <= word.lines <= ranges[letter][1]
        assert draw["H"].text.encode() in lines[0]
        assert " " in draw["P"].text
    assert len({draw["F"].text for draw in draws}) == 3


def test_equal_seeds_give_equal_words_and_others_others(corpus: Path, lines: list[bytes]) -> None:
    sample = read_sample(corpus)
    first, again, other = (choose_words(sample, len(lines), counter(lines), draws=2, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_ranges_are_shares_of_a_million_lines() -> None:
    assert line_ranges(1_000_000)["R"] == (2, 20)
    assert line_ranges(1_000_000)["M"] == (300, 3000)
    assert line_ranges(2_500_000)["R"] == (5, 50)
    assert line_ranges(100)["R"] == (1, 1)
    assert line_ranges(100)["F"] == (6, 99)


def test_blocks_hold_every_line_of_a_small_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(b"".join(b"%s word%s\n" % (b"ab" * (i % 9), b"x" * (i % 4)) for i in range(500)) + b"last")
    for block in (7, 64, 1000):
        monkeypatch.setattr(module, "_BLOCK_BYTES", block)
        monkeypatch.setattr(module, "_BLOCKS", 1 << 20)
        assert read_sample(path).lines == 501
    monkeypatch.setattr(module, "_BLOCKS", 4)
    assert 0 < read_sample(path).lines < 501


def test_words_end_where_letters_end_and_escapes_are_no_words(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(b'{"id": "1", "text": "Alpha beta42 gamma\\ndelta epsilon zeta"}\n')
    sample = read_sample(path)
    assert set(sample.words) == {"id", "text", "gamma", "epsilon", "zeta"}
    assert set(sample.pairs) == {"epsilon zeta"}
    assert sample.first == ("text", "gamma", "epsilon", "zeta")


def test_few_words_are_used_again() -> None:
    sample = Sample(
        first=("opening",),
        words={"w" + c * 4: 1 for c in "abcdef"} | {"often": 30, "medium": 2},
        pairs={"one pair": 1},
        lines=100,
    )
    known = {"often": 30, "medium": 2, "opening": 1, "one pair": 1} | {"w" + c * 4: 1 for c in "abcdef"}
    draws = choose_words(sample, 100, lambda texts: [known.get(text, 0) for text in texts], draws=4, seed=0)
    assert [draw["F"].text for draw in draws] == ["often"] * 4
    assert len({draw["R"].text for draw in draws}) == 4


def test_a_corpus_without_words_is_named() -> None:
    with pytest.raises(ConfigError, match=r"no word for R, a rare word.*ordinary text"):
        choose_words(Sample((), {}, {}, 10), 10, lambda texts: [0 for _ in texts], draws=1, seed=0)
