from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest

from grepseek_env.tasks.world import BenchText, CalibratedText, generate_corpus
from grepseek_env.tasks.world.text import _draw, _tables

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def sample() -> list[bytes]:
    """4 MB of passages."""
    bench = BenchText(11)
    return [line for number in range(2) for line in bench.chunk(number).split(b"\n")[:-1]][:7200]


def words(line: bytes) -> list[bytes]:
    return re.findall(rb"[a-z]+", json.loads(line)["contents"].lower().encode())


def test_lines_are_those_of_the_reference_corpus(sample: list[bytes]) -> None:
    for number, line in enumerate(sample):
        record = json.loads(line)
        assert list(record) == ["id", "contents"]
        assert record["id"] == str(number)
        assert re.match(r'"[A-Z][^"]*"\n\S', record["contents"])
        assert json.dumps(record).encode() == line  # its escapes too are those of json.dumps


@pytest.mark.slow
def test_the_statistics_are_those_of_real_text(sample: list[bytes]) -> None:
    sizes = [len(line) for line in sample]
    assert 545 < sum(sizes) / len(sizes) < 620
    tokens, lines, vocabulary = Counter[bytes](), Counter[bytes](), []
    size = 0
    for line in sample:
        tokens.update(words(line))
        lines.update(set(words(line)))
        size += len(line) + 1
        if size >> 20 > len(vocabulary):
            vocabulary.append(len(tokens))
    total = sum(tokens.values())
    for word, of_tokens, of_lines in (
        (b"the", 0.072, 0.93),
        (b"of", 0.041, 0.87),
        (b"was", 0.012, 0.50),
        (b"he", 0.0054, 0.21),
    ):
        assert tokens[word] / total == pytest.approx(of_tokens, rel=0.2)
        assert lines[word] / len(sample) == pytest.approx(of_lines, rel=0.06)
    ranked = [count / total * 1e6 for _, count in tokens.most_common()]
    for rank, share in ((100, 774), (1_000, 114), (10_000, 7.9)):  # of 4 MB of real text
        assert ranked[rank - 1] == pytest.approx(share, rel=0.25)
    # New words keep appearing, ever more slowly (16,700 and 40,200 distinct words after 1 and 4 MB of real text).
    assert 15_000 < vocabulary[0] < 25_000
    assert 36_000 < vocabulary[3] < 52_000
    assert vocabulary[1] - vocabulary[0] > vocabulary[3] - vocabulary[2] > 5_000
    once = sum(count == 1 for count in tokens.values()) / len(tokens)
    assert 0.38 < once < 0.58
    capitals = sum(len(re.findall(rb"\b[A-Z]", line)) for line in sample)
    assert 0.2 < capitals / total < 0.32


def test_bench_words_of_all_classes_exist(sample: list[bytes]) -> None:
    sample = sample[:3_500]
    lines = Counter(word for line in sample for word in set(words(line)))
    per_million = [count * 1e6 / len(sample) for count in lines.values()]
    assert sum(300 <= share <= 3_000 for share in per_million) > 1_000  # M
    assert sum(share > 50_000 for share in per_million) > 50  # F
    pairs = Counter(pair for line in sample for pair in set(itertools.pairwise(words(line))))
    assert sum(1 <= count <= 10 for count in pairs.values()) > 10_000  # P


def test_no_sentence_is_repeated(sample: list[bytes]) -> None:
    sentences = Counter(s for line in sample for s in re.split(rb"(?<=[a-z])\. ", line[60:]) if len(s) > 60)
    assert len(sentences) > 10_000
    assert sentences.most_common(1)[0][1] == 1


def test_chunks_are_independent_and_repeatable() -> None:
    text = CalibratedText(5)
    later = text.bodies(3, 50)
    assert text.bodies(0, 50) != later
    assert CalibratedText(5).bodies(3, 50) == later
    assert CalibratedText(6).bodies(3, 50) != later


def test_probabilities_add_up_and_codes_stay_in_their_bins() -> None:
    tables = _tables()
    assert len(tables.guide) == len(tables.content) == 1 << 20
    assert tables.content.min() >= tables.heads
    bits = np.arange(1 << 20, dtype=np.uint64) | np.uint64(0xFFFFFFFF00000000)
    codes = _draw(tables, tables.guide, bits)
    bins = tables.guide
    assert (codes < tables.first[bins] + tables.width[bins].astype(np.int64)).all()
    assert (codes >= tables.first[bins]).all()
    # Bins follow one another without a gap, so that every rank can be drawn.
    edges = tables.first[1:] - tables.first[:-1]
    assert (edges == tables.width[:-1].astype(np.int64)).all()


def test_a_longer_corpus_begins_with_the_shorter_one(tmp_path: Path) -> None:
    short = generate_corpus(tmp_path / "a.jsonl", bytes=100_000, seed=3).read_bytes()
    long = generate_corpus(tmp_path / "b.jsonl", bytes="0.15MB", seed=3).read_bytes()
    assert 95_000 < len(short) <= 100_000
    assert short.endswith(b'"}\n')
    assert long.startswith(short)
    assert generate_corpus(tmp_path / "c.jsonl", bytes=100_000, seed=4).read_bytes() != short
