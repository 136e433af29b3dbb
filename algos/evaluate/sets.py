"""Which questions are evaluated, and which row of the table each belongs to."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from grepseek_env.errors import ConfigError
from grepseek_env.tasks import QuestionSet, load_question_set

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grepseek_env.types import Question

__all__ = ["EvalSet", "load_sets"]


@dataclass(frozen=True, slots=True)
class EvalSet:
    """One question set of an evaluation.

    Attributes:
        name: what the table calls it.
        questions: those that are asked, in order.
    """

    name: str
    questions: QuestionSet

    @property
    def folder(self) -> str:
        """Name of its folder within the run's."""
        return re.sub(r"[^A-Za-z0-9._=-]+", "_", self.name).lstrip(".") or "questions"

    def row(self, question: Question, by: str | None, *, alone: bool) -> str:
        """Returns the row a question belongs to: the set, or with `by` the value of that metadata key."""
        if by is None:
            return self.name
        value = str(question.metadata.get(by, "other"))
        label = f"{by} {value}" if value.isdigit() else value
        return label if alone else f"{self.name}/{label}"


def load_sets(
    questions: str | Sequence[str] | None,
    *,
    corpus: str,
    split: str = "test",
    limit: int | None = None,
    draw: int | None = None,
) -> list[EvalSet]:
    """Returns the sets that are asked for.

    Args:
        questions: names or FlashRAG files, as a list or with commas between; None takes the corpus's own.
        corpus: whose own questions are meant by None.
        split: of names that have several.
        limit: at most so many of each set.
        draw: with `limit`: take a random sample, drawn with this seed, in place of the first ones.

    Raises:
        ConfigError: a number cannot work, a set is named twice, or the corpus has no questions of its own.
        QuestionsError: a set cannot be found or read.
    """
    if limit is not None and limit < 1:
        raise ConfigError(f"limit is {limit}; it must be at least 1, or None for all questions")
    if draw is not None and limit is None:
        raise ConfigError(f"draw is {draw}, but there is no limit: all questions are asked; give --limit too")
    wanted: list[str | None] = [None]
    if questions is not None:
        items = questions.split(",") if isinstance(questions, str) else list(questions)
        wanted = [item.strip() for item in items if item.strip()]
        if not wanted:
            raise ConfigError(f"questions is {questions!r}; name at least one set, such as nq, or a file")
    out: list[EvalSet] = []
    for item in wanted:
        found = load_question_set(item, corpus=corpus, split=split)
        chosen = QuestionSet(_chosen(found, limit, draw), found.name)
        out.append(EvalSet(_name(found.name if item is None else item, {s.name for s in out}), chosen))
    folders = [s.folder for s in out]
    for i, folder in enumerate(folders):
        if folder in folders[:i]:
            raise ConfigError(f"two of the sets would share the folder {folder!r}: {', '.join(s.name for s in out)}")
    return out


def _name(item: str, taken: set[str]) -> str:
    path = Path(item)
    name = path.stem if path.is_file() else item
    if name in taken and path.is_file():
        name = f"{path.resolve().parent.name}-{name}"
    if name in taken:
        raise ConfigError(f"the set {item!r} is named twice; name every set once")
    return name


def _chosen(questions: QuestionSet, limit: int | None, draw: int | None) -> Sequence[Question]:
    if limit is None or limit >= len(questions):
        return questions
    places = range(limit)
    if draw is not None:
        rng = random.Random(draw)  # noqa: S311 - a reproducible sample, not a secret
        return [questions[i] for i in sorted(rng.sample(range(len(questions)), limit))]
    return [questions[i] for i in places]
