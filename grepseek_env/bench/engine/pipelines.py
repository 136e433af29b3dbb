"""The pipelines that are timed. They are fixed, so that a geometric mean over them means something."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from grepseek_env.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LETTERS", "PIPELINES", "BenchPipeline", "select_pipelines"]

LETTERS: Mapping[str, str] = {
    "R": "a rare word, in 2 to 20 of a million lines",
    "M": "a medium word, in 300 to 3,000 of a million lines",
    "F": "a frequent word, in more than 5 % of the lines",
    "P": "a phrase of two adjacent words, in 1 to 10 lines",
    "N": "a word that is absent",
    "H": "a word of the first line",
}


@dataclass(frozen=True, slots=True)
class BenchPipeline:
    """One pipeline with places for words.

    Attributes:
        number: its name in tables and on the command line.
        template: the command; ``{R}`` and so on stand for the words of `LETTERS`.
        whole: it reads the whole corpus whatever the words are, so that copies of it on parts of the corpus do the
            same work together: the ceiling is measured.
        in_mean: it counts in the geometric mean.
    """

    number: int
    template: str
    whole: bool = False
    in_mean: bool = True

    def command(self, words: Mapping[str, str]) -> str:
        """Returns the command for one choice of words (letter -> text)."""
        return self.template.format_map(words)

    @property
    def text(self) -> str:
        """The command with letters for words."""
        return self.template.replace("{", "").replace("}", "")


PIPELINES: tuple[BenchPipeline, ...] = (
    BenchPipeline(1, "rg -F '{P}' corpus.jsonl | head -n 3"),
    BenchPipeline(2, "rg -F '{R}' corpus.jsonl | rg -i -F '{M}' | head -n 5", whole=True),
    BenchPipeline(3, "rg -F '{F}' corpus.jsonl | head -n 3"),
    BenchPipeline(4, "rg -F '{F}' corpus.jsonl | wc -l", whole=True),
    BenchPipeline(5, "rg -i -F '{M}' corpus.jsonl | head -n 100"),
    BenchPipeline(6, "rg '{R}[a-z]*' corpus.jsonl | head -n 5"),
    BenchPipeline(7, "rg -oN '[A-Z][a-z]+ {M}' corpus.jsonl | sort | uniq -c | sort -rn | head -n 3", whole=True),
    BenchPipeline(8, "grep -c '{M}' corpus.jsonl", whole=True),
    BenchPipeline(9, "rg -F '{N}' corpus.jsonl", whole=True),
    BenchPipeline(10, "rg -F '{M}' corpus.jsonl | rg -F '{F}' | rg -v -F '{R}' | head -n 5"),
    BenchPipeline(11, "grep -F '{R}' corpus.jsonl | wc -l", whole=True),
    BenchPipeline(12, "rg -F '{R}' corpus.jsonl", whole=True),
    BenchPipeline(13, "grep -i '{M}' corpus.jsonl | head -n 100"),
    BenchPipeline(14, "rg -F '{H}' corpus.jsonl | head -n 1"),
    BenchPipeline(15, "grep -E '{R}|{P}' corpus.jsonl | head -n 3"),
    # Nearly everything is printed: what a harness makes of large output.
    BenchPipeline(16, "rg -F '{F}' corpus.jsonl | head -n 200000", in_mean=False),
)


def select_pipelines(text: str) -> tuple[BenchPipeline, ...]:
    """Returns the pipelines of a list such as ``1,4,7-9``; an empty one means all.

    Raises:
        ConfigError: it is no such list.
    """
    wanted: set[int] = set()
    for part in filter(None, text.replace(" ", "").split(",")):
        if (match := re.fullmatch(r"(\d+)(?:-(\d+))?", part)) is None:
            raise ConfigError(f"pipelines is {text!r}; write numbers and ranges such as 1,4,7-9")
        wanted.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    if strangers := wanted - {pipeline.number for pipeline in PIPELINES}:
        raise ConfigError(f"there is no pipeline {min(strangers)}; there are 1 to {PIPELINES[-1].number}")
    return tuple(pipeline for pipeline in PIPELINES if not wanted or pipeline.number in wanted)
