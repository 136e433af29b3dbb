"""What the environments do: the mix of commands that trained agents were seen to write.

56 % `rg | head`, 21 % `rg | rg | head`, 8 % `... | wc -l`, the rest of other kinds; rollouts come in groups of five of
one question, and 30 % of a group's commands have come in it before.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from grepseek_env.bench.engine.pipelines import LETTERS, PIPELINES
from grepseek_env.bench.engine.words import candidates, line_ranges
from grepseek_env.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from grepseek_env.bench.engine.words import Sample

__all__ = ["EPISODE", "GROUP", "mix_words", "replay"]

GROUP = 5
EPISODE = 5
"""Commands before the answer."""

_REPEATED = 0.3
_SHARES: Sequence[tuple[float, tuple[int, ...]]] = (
    (0.56, (1, 3, 5, 6, 14)),
    (0.21, (2,)),
    (0.08, (4, 11)),
    (0.15, (7, 8, 9, 10, 12, 13, 15)),
)
_MOST_WORDS = 2000
_TRIES = 50


def mix_words(sample: Sample, lines: int, *, seed: int) -> dict[str, tuple[str, ...]]:
    """Returns letter -> words, as frequent in the sample as `LETTERS` wants them in the corpus.

    They are not counted in the whole corpus, so that thousands of different commands can be made.

    Raises:
        ConfigError: the corpus has no word of a kind.
    """
    words = {k: tuple(v[:_MOST_WORDS]) for k, v in candidates(sample, lines, line_ranges(lines), seed).items()}
    for letter, found in words.items():
        if not found:
            raise ConfigError(
                f"the corpus of {lines} lines has no word for {letter}, {LETTERS[letter]}; "
                "use a larger corpus of ordinary text"
            )
    return words


def replay(words: Mapping[str, Sequence[str]], num_envs: int, *, seed: int) -> Iterator[list[str]]:
    """Yields the commands of one step after another, one an environment; equal arguments give equal commands.

    Environments 0 to 4 are one group, 5 to 9 the next. A group has a new question after `EPISODE` steps, and then
    writes commands that nobody has written before, as far as there are words for it.
    """
    rng = random.Random(seed)  # noqa: S311  reproducible draws, not secrets
    templates = {pipeline.number: pipeline for pipeline in PIPELINES}
    shares = [share for share, _ in _SHARES]
    written: set[str] = set()

    def command(seen: list[str]) -> str:
        if seen and rng.random() < _REPEATED:
            return rng.choice(seen)
        [(_, numbers)] = rng.choices(_SHARES, shares)
        made = ""
        # Frequent words are few; what another group wrote would come from the cache and flatter whoever shares one.
        for _ in range(_TRIES):
            chosen = {letter: rng.choice(found) for letter, found in words.items()}
            made = templates[rng.choice(numbers)].command(chosen)
            if made not in written:
                break
        written.add(made)
        seen.append(made)
        return made

    while True:
        groups: list[list[str]] = [[] for _ in range(0, num_envs, GROUP)]
        for _ in range(EPISODE):
            yield [command(groups[i // GROUP]) for i in range(num_envs)]
