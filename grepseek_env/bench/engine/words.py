"""Words for the pipelines, chosen from a corpus by how many of its lines hold them."""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from grepseek_env.bench.engine.pipelines import LETTERS
from grepseek_env.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

__all__ = ["Draw", "Sample", "Word", "candidates", "choose_words", "line_ranges", "read_sample"]

_BLOCKS = 64
_BLOCK_BYTES = 256 << 10
_MOST_TRIED = 40  # candidates counted for each word that is wanted

# A letter before or after, or a backslash (as in the JSON escape \n, which sticks to the next word), is no border.
_WORD = re.compile(rb"(?<![A-Za-z0-9\\])[a-z]{2,15}(?![A-Za-z0-9])")
_PAIR = re.compile(rb"(?<![A-Za-z0-9\\])(?=([a-z]{4,15} [a-z]{4,15})(?![A-Za-z0-9]))")


@dataclass(frozen=True, slots=True)
class Word:
    """A chosen word.

    Attributes:
        text: the word, or two with a space between; ASCII letters.
        lines: how many lines hold it, as `rg -c -F` counts them.
    """

    text: str
    lines: int


Draw = dict[str, Word]
"""A letter of `LETTERS` -> its word."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Words of lines from all over a corpus.

    Attributes:
        first: words of the corpus's first line.
        words: word -> lines of the sample that hold it as a whole word.
        pairs: adjacent words -> the same.
        lines: lines of the sample.
    """

    first: tuple[str, ...]
    words: Mapping[str, int]
    pairs: Mapping[str, int]
    lines: int


def read_sample(corpus: Path) -> Sample:
    """Reads the whole lines of 64 evenly spaced blocks, 16 MiB together, or all of a smaller file."""
    words: Counter[bytes] = Counter()
    pairs: Counter[bytes] = Counter()
    lines = 0
    size = corpus.stat().st_size
    step = max(_BLOCK_BYTES, size // _BLOCKS)
    with corpus.open("rb") as file:
        first = file.readline()
        for start in range(0, size, step):
            # The byte before the block tells whether its first line is whole.
            file.seek(max(start - 1, 0))
            if start:
                file.readline()
            while file.tell() < min(start + _BLOCK_BYTES, size):
                line = file.readline()
                words.update(set(_WORD.findall(line)))
                pairs.update(set(_PAIR.findall(line)))
                lines += 1
    return Sample(
        first=tuple(dict.fromkeys(word.decode() for word in _WORD.findall(first) if len(word) > 3)),
        words={word.decode(): count for word, count in words.items()},
        pairs={pair.decode(): count for pair, count in pairs.items()},
        lines=lines,
    )


def line_ranges(lines: int) -> dict[str, tuple[int, int]]:
    """Returns letter -> fewest and most lines that may hold its word, in a corpus of that many lines.

    In a small corpus at least one line has to hold a rare word and two a medium one.
    """

    def share(fewest: int, most: int, least: int) -> tuple[int, int]:
        low = max(least, math.ceil(fewest * lines / 1_000_000))
        return low, max(low, most * lines // 1_000_000)

    most = max(lines - 1, 1)  # what is in every line belongs to the format, not to the text
    return {
        "R": share(2, 20, 1),
        "M": share(300, 3000, 2),
        "F": (lines // 20 + 1, most),
        "P": (1, 10),
        "N": (0, 0),
        "H": (1, most),
    }


def choose_words(
    sample: Sample, lines: int, count: Callable[[Sequence[str]], Sequence[int]], *, draws: int, seed: int
) -> list[Draw]:
    """Chooses the words of several draws; equal arguments give equal words.

    Where a corpus has too few words of a kind, later draws use the same again.

    Args:
        sample: what to choose from.
        lines: of the corpus.
        count: texts -> number of lines of the corpus that hold each.
        draws: how many.
        seed: another seed gives other words.

    Raises:
        ConfigError: the corpus has no word of a kind.
    """
    ranges = line_ranges(lines)
    columns: dict[str, list[Word]] = {}
    for letter, texts in candidates(sample, lines, ranges, seed).items():
        low, high = ranges[letter]
        found: list[Word] = []
        queue = iter(texts[: _MOST_TRIED * draws])
        while len(found) < draws and (batch := list(itertools.islice(queue, 2 * (draws - len(found))))):
            counted = (Word(text, number) for text, number in zip(batch, count(batch), strict=True))
            found += [word for word in counted if low <= word.lines <= high]
        if not found:
            raise ConfigError(
                f"the corpus of {lines} lines has no word for {letter}, {LETTERS[letter]} (here {low} to {high}): "
                f"{len(texts)} candidates were looked at; use a larger corpus of ordinary text"
            )
        columns[letter] = found
    return [{letter: words[number % len(words)] for letter, words in columns.items()} for number in range(draws)]


def candidates(sample: Sample, lines: int, ranges: Mapping[str, tuple[int, int]], seed: int) -> dict[str, list[str]]:
    """Returns letter -> what may do, in the order in which to try."""

    def shuffled(texts: Iterable[str]) -> list[str]:
        return sorted(texts, key=lambda text: hashlib.sha256(f"{seed} {text}".encode()).digest())

    def common(letter: str, shortest: int) -> list[str]:
        low, high = (bound * sample.lines / lines for bound in ranges[letter])
        return shuffled(word for word, seen in sample.words.items() if len(word) >= shortest and low <= seen <= high)

    once = shuffled(word for word, seen in sample.words.items() if seen == 1 and len(word) > 3)
    return {
        "R": once,
        "M": common("M", 4),
        "F": common("F", 2),
        "P": shuffled(pair for pair, seen in sample.pairs.items() if seen == 1),
        # The front of one word and the back of another look like a word and are hardly ever one.
        "N": [a[: len(a) // 2 + 1] + b[len(b) // 2 :] for a, b in itertools.pairwise(once)],
        "H": shuffled(sample.first),
    }
