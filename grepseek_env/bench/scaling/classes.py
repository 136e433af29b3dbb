"""The classes of query, each a pipeline with places for words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from grepseek_env.bench.engine.pipelines import BenchPipeline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grepseek_env.bench.engine.words import Draw

__all__ = ["CLASSES", "QueryClass", "batch_commands"]


@dataclass(frozen=True, slots=True)
class QueryClass:
    """One class of query.

    Attributes:
        name: in tables and plots.
        pipeline: what stands for the class; its letters are those of `grepseek_env.bench.engine.pipelines.LETTERS`.
    """

    name: str
    pipeline: BenchPipeline


_QUERIES = {
    "rare word, in full": "rg -F '{R}' corpus.jsonl",
    "phrase, head -n 3": "rg -F '{P}' corpus.jsonl | head -n 3",
    "two words, ANDed": "rg -F '{R}' corpus.jsonl | rg -F '{M}'",
    "medium word, in full": "rg -F '{M}' corpus.jsonl",
    "frequent word, head -n 3": "rg -F '{F}' corpus.jsonl | head -n 3",
    "frequent word, wc -l": "rg -F '{F}' corpus.jsonl | wc -l",
    "absent word": "rg -F '{N}' corpus.jsonl",
    "rare word, -i, in full": "rg -i -F '{R}' corpus.jsonl",
    "phrase, -i, head -n 3": "rg -i -F '{P}' corpus.jsonl | head -n 3",
    "frequent word, -i, head -n 3": "rg -i -F '{F}' corpus.jsonl | head -n 3",
    "frequent word, -i, wc -l": "rg -i -F '{F}' corpus.jsonl | wc -l",
    "regular expression, head -n 5": "rg '{R}[a-z]*' corpus.jsonl | head -n 5",
}

CLASSES: tuple[QueryClass, ...] = tuple(
    QueryClass(name, BenchPipeline(number, template)) for number, (name, template) in enumerate(_QUERIES.items(), 1)
)

# What trained agents were reported to run: 56 % one search and head, 21 % two searches and head, 8 % a count.
_BATCH = (
    "rg -F '{R}' corpus.jsonl | head -n 3",
    "rg -F '{M}' corpus.jsonl | head -n 5",
    "rg -F '{P}' corpus.jsonl | head -n 3",
    "rg -i -F '{R}' corpus.jsonl | head -n 3",
    "rg -F '{F}' corpus.jsonl | head -n 8",
    "rg -F '{M}' corpus.jsonl | rg -F '{F}' | head -n 3",
    "rg -F '{R}' corpus.jsonl | rg -i -F '{M}' | head -n 5",
    "rg -F '{M}' corpus.jsonl | wc -l",
)


def batch_commands(draws: Sequence[Draw], size: int) -> list[str]:
    """Returns `size` different commands of the mix that trained agents run, or as many as the draws give.

    Args:
        draws: choices of words.
        size: how many commands.
    """
    words = [{letter: word.text for letter, word in draw.items()} for draw in draws]
    every = [template.format_map(each) for each in words for template in _BATCH]
    return list(dict.fromkeys(every))[:size]
