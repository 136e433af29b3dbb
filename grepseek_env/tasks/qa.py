"""Question files in FlashRAG's JSONL form, and question sets.

One JSON object a line: ``{"id": "q0", "question": "Who ...?", "golden_answers": ["..."]}``. Three optional keys are
understood: ``evidence`` (a list of objects with the fields of `EvidenceStep`) and ``metadata`` (an object); every
other key is kept in `Question.metadata`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from grepseek_env.errors import ConfigError, QuestionsError
from grepseek_env.paths import atomic_file
from grepseek_env.types import EvidenceStep, Question

if TYPE_CHECKING:
    import os

__all__ = [
    "QuestionSet",
    "load_questions",
    "question_from_dict",
    "question_to_dict",
    "questions_from_records",
    "write_questions",
]

_STEP_KEYS = ("question", "answer", "passage_id", "subject")


class QuestionSet(Sequence[Question]):
    """Questions in a fixed order that can be asked for by place or by id.

    Items may be computed when they are asked for, as those of generated worlds are.

    Args:
        questions: any sequence of questions; ids must be unique.
        name: what messages call the set.
    """

    def __init__(self, questions: Sequence[Question], name: str = "questions") -> None:
        self.name = name
        self._questions = questions
        self._places: dict[str, int] | None = None

    def __len__(self) -> int:
        return len(self._questions)

    @overload
    def __getitem__(self, index: int) -> Question: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Question]: ...

    def __getitem__(self, index: int | slice) -> Question | Sequence[Question]:
        if isinstance(index, slice):
            return tuple(self._questions[i] for i in range(*index.indices(len(self))))
        return self._questions[index]

    def __repr__(self) -> str:
        return f"QuestionSet({self.name!r}, {len(self)} questions)"

    def by_id(self, question_id: object) -> Question:
        """Returns the question with this id.

        Raises:
            ConfigError: no question of the set has it.
        """
        if self._places is None:
            self._places = {question.id: place for place, question in enumerate(self)}
        if not isinstance(question_id, str) or question_id not in self._places:
            first = ", ".join(repr(key) for key in list(self._places)[:3])
            raise ConfigError(f"{self.name}: no question has id {question_id!r}; ids look like {first}")
        return self[self._places[question_id]]

    def digest(self, limit: int | None = None) -> str:
        """Returns the hexadecimal SHA-256 of the first `limit` questions as `write_questions` would write them."""
        sha = hashlib.sha256()
        for question in self[:limit]:
            sha.update(_line(question))
        return sha.hexdigest()


def load_questions(path: str | os.PathLike[str]) -> tuple[Question, ...]:
    """Reads a FlashRAG JSONL file; blank lines are skipped.

    Raises:
        QuestionsError: the file is missing, empty or not UTF-8, or a line is malformed; names file and line.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise QuestionsError(f"{path}: no such question file") from None
    except OSError as error:
        raise QuestionsError(f"{path}: cannot be read: {error.strerror or error}") from error
    questions = _checked(_records(path, data.removeprefix(b"\xef\xbb\xbf")))
    if not questions:
        raise QuestionsError(f"{path}: no questions in it; expected one JSON object a line")
    return questions


def _records(path: Path, data: bytes) -> Iterator[tuple[str, object]]:
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            yield where, json.loads(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise QuestionsError(f"{where}: not UTF-8 at byte {error.start} of the line; convert the file") from error
        except (ValueError, RecursionError) as error:
            raise QuestionsError(f"{where}: malformed JSON: {error}") from error


def _checked(records: Iterable[tuple[str, object]]) -> tuple[Question, ...]:
    questions: list[Question] = []
    seen: dict[str, str] = {}
    for where, record in records:
        question = record if isinstance(record, Question) else question_from_dict(record, where=where)
        if question.id in seen:
            raise QuestionsError(f"{where}: id {question.id!r} was used before, in {seen[question.id]}")
        seen[question.id] = where
        questions.append(question)
    return tuple(questions)


def questions_from_records(records: Iterable[object], name: str = "questions") -> tuple[Question, ...]:
    """Checks dicts of FlashRAG's form, or `Question` records.

    Raises:
        QuestionsError: one of them is malformed, or an id occurs twice; names its index.
    """
    if not isinstance(records, Iterable):
        raise QuestionsError(f"{name} is {_show(records)}; it must be a path, a name or a list of dicts")
    questions = _checked((f"{name}[{index}]", record) for index, record in enumerate(records))
    if not questions:
        raise QuestionsError(f"{name}: no questions in it")
    return questions


def question_from_dict(record: object, *, where: str = "question") -> Question:
    """Builds a question from one decoded JSON object.

    Args:
        where: names the record in messages.

    Raises:
        QuestionsError: a key is missing or has a value that cannot be used.
    """
    if not isinstance(record, Mapping):
        raise QuestionsError(f"{where}: expected an object with id, question, golden_answers, not {_show(record)}")
    extra = dict(record)
    for key in ("id", "question", "golden_answers"):
        if key not in extra:
            raise QuestionsError(f"{where}: key {key!r} is missing; there are {', '.join(map(repr, extra)) or 'none'}")
    identity, text, golden = extra.pop("id"), extra.pop("question"), extra.pop("golden_answers")
    if isinstance(identity, bool) or not isinstance(identity, (str, int)) or identity == "":
        raise QuestionsError(f"{where}: id is {_show(identity)}; it must be non-empty text or an integer")
    if not isinstance(text, str) or not text.strip():
        raise QuestionsError(f"{where}: question is {_show(text)}; it must be non-empty text")
    evidence = _evidence(extra.pop("evidence", None), where)
    metadata = extra.pop("metadata", None) or {}
    if not isinstance(metadata, Mapping):
        raise QuestionsError(f"{where}: metadata is {_show(metadata)}; it must be an object")
    return Question(str(identity), text, _answers(golden, where), evidence, {**metadata, **extra})


def _answers(golden: object, where: str) -> tuple[str, ...]:
    answers = [golden] if isinstance(golden, str) else golden
    if not isinstance(answers, (list, tuple)) or not answers:
        raise QuestionsError(
            f"{where}: golden_answers is {_show(golden)}; it must be text or a non-empty list of texts"
        )
    for answer in answers:
        if not isinstance(answer, str) or not answer.strip():
            raise QuestionsError(f"{where}: golden_answers holds {_show(answer)}; every answer must be non-empty text")
    return tuple(answers)


def _evidence(value: object, where: str) -> tuple[EvidenceStep, ...]:
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)):
        raise QuestionsError(f"{where}: evidence is {_show(value)}; it must be a list of objects")
    steps = []
    for index, step in enumerate(value):
        if not isinstance(step, Mapping) or not all(isinstance(step.get(key), str) for key in _STEP_KEYS):
            raise QuestionsError(
                f"{where}: evidence[{index}] needs the texts {', '.join(_STEP_KEYS)}; it is {_show(step)}"
            )
        aliases = step.get("aliases", ())
        if not isinstance(aliases, (list, tuple)) or not all(isinstance(alias, str) for alias in aliases):
            raise QuestionsError(f"{where}: evidence[{index}].aliases is {_show(aliases)}; it must be a list of texts")
        steps.append(EvidenceStep(**{key: step[key] for key in _STEP_KEYS}, aliases=tuple(aliases)))
    return tuple(steps)


def question_to_dict(question: Question) -> dict[str, Any]:
    """Returns the JSON object of a question, from which `question_from_dict` makes an equal one."""
    record: dict[str, Any] = {
        "id": question.id,
        "question": question.question,
        "golden_answers": list(question.golden_answers),
    }
    if question.evidence:
        record["evidence"] = [
            {key: getattr(step, key) for key in _STEP_KEYS} | {"aliases": list(step.aliases)}
            for step in question.evidence
        ]
    if question.metadata:
        record["metadata"] = dict(question.metadata)
    return record


def _line(question: Question) -> bytes:
    record = question_to_dict(question)
    try:
        return json.dumps(record, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:  # a lone surrogate, which JSON can escape and UTF-8 cannot hold
        return json.dumps(record).encode() + b"\n"


def write_questions(path: str | os.PathLike[str], questions: Iterable[Question]) -> None:
    """Writes a file that `load_questions` reads back as equal records; it appears whole or not at all."""
    with atomic_file(Path(path)) as file:
        for question in questions:
            file.write(_line(question))


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
