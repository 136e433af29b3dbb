"""`World`: one generated world, its corpus and its questions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, overload

from grepseek_env.errors import ConfigError
from grepseek_env.paths import cache_dir
from grepseek_env.tasks.world.config import SPLITS, WorldConfig
from grepseek_env.tasks.world.facts import Facts
from grepseek_env.tasks.world.passages import Passages
from grepseek_env.tasks.world.questions import QuestionMaker
from grepseek_env.tasks.world.writing import write_corpus
from grepseek_env.types import Question

if TYPE_CHECKING:
    import os

__all__ = ["World", "WorldQuestions"]


class World:
    """A fictional world: people, places, works and companies, passages about them, and questions.

    Passages and questions are computed when they are asked for, each from its own index, so that a world of any size
    takes no memory; equal configs give equal bytes in every process and on every platform.

    Every question has exactly one right answer in the world. Its evidence names, for each hop, a passage that contains
    the step's subject and its answer (or one of its aliases) literally, in the raw JSON line.

    Args:
        config: the options; the default is that of ``world:tiny``.
    """

    def __init__(self, config: WorldConfig | None = None) -> None:
        self.config = config or WorldConfig()
        self.facts = Facts(self.config)
        self._passages = Passages(self.config, self.facts)
        self._questions = QuestionMaker(self.config, self.facts, self._passages)

    def __repr__(self) -> str:
        return f"World({self.config!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return World, (self.config,)

    def __len__(self) -> int:
        """Returns the number of passages."""
        return self._passages.count

    @property
    def key(self) -> str:
        """Names the corpus: 16 hexadecimal digits of config and generator version."""
        return self.config.key()

    @property
    def chunks(self) -> int:
        """Number of pieces that the corpus is generated in."""
        return self._passages.chunks

    def chunk(self, number: int) -> bytes:
        """Returns the JSON lines of one piece; pieces do not depend on one another."""
        return self._passages.chunk(number)

    def lines(self, start: int = 0, stop: int | None = None) -> Iterator[str]:
        """Yields JSON lines without newline, from passage id `start` up to before `stop`."""
        return self._passages.lines(start, len(self) if stop is None else min(stop, len(self)))

    def write(self, path: str | os.PathLike[str], *, workers: int = 1, progress: bool = False) -> Path:
        """Writes the corpus; see `write_corpus` for what happens when this is interrupted.

        Raises:
            CorpusError: the file cannot be written.
        """
        expected = len(self) * (80 if self.config.style == "facts" else 610)
        return write_corpus(self, Path(path), expected=expected, workers=workers, progress=progress)

    def cached(self, *, workers: int = 1, progress: bool = False) -> Path:
        """Returns the path of the corpus in the cache folder, writing it first if it is not there."""
        return self.write(cache_dir() / "worlds" / self.key / "corpus.jsonl", workers=workers, progress=progress)

    def question(self, split: str, index: int) -> Question:
        """Returns the question at any index of "train" or "test".

        Raises:
            ConfigError: no such split, a negative index, or a world too small for the kind of question.
        """
        return self._questions(split, index)

    def questions(self, split: str, count: int | None = None) -> Sequence[Question]:
        """Returns the first questions of a split, computed when they are asked for.

        Args:
            count: how many; None takes the config's number.
        """
        return WorldQuestions(self, split, self.config.questions if count is None else count)


class WorldQuestions(Sequence[Question]):
    """The first questions of one split of a world."""

    def __init__(self, world: World, split: str, count: int) -> None:
        if split not in SPLITS:
            raise ConfigError(f"a world has no split {split!r}; there are {', '.join(SPLITS)}")
        self._world, self._split, self._count = world, split, count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Question: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Question, ...]: ...

    def __getitem__(self, index: int | slice) -> Question | tuple[Question, ...]:
        if isinstance(index, slice):
            return tuple(self[place] for place in range(*index.indices(self._count)))
        if not -self._count <= index < self._count:
            raise IndexError(f"question {index} of {self._count}")
        return self._world.question(self._split, index % self._count)
