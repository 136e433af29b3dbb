"""Named corpora and question sets.

A name is `NAME[?OPTION=VALUE&...][/SPLIT]`: ``world:tiny``, ``world:small?seed=3&paraphrase=0.5``,
``world:tiny/test``, ``nq``. `register_task` adds one's own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from grepseek_env.config import closest
from grepseek_env.corpus.fetch import SOURCES, fetch
from grepseek_env.errors import ConfigError, CorpusNotFound, QuestionsError
from grepseek_env.paths import cache_dir
from grepseek_env.tasks.benchmarks import BENCHMARKS, load_benchmark
from grepseek_env.tasks.qa import QuestionSet, load_questions, questions_from_records
from grepseek_env.tasks.world import BENCH_OPTIONS, PRESETS, WORLD_OPTIONS, World, bench_corpus, world_config

if TYPE_CHECKING:
    from grepseek_env.corpus.store import CorpusStore
    from grepseek_env.types import Question

__all__ = [
    "TASKS",
    "Task",
    "TaskName",
    "load_question_set",
    "parse_name",
    "questions_from",
    "register_task",
    "resolve_corpus",
    "resolve_questions",
    "training_questions",
]

Options: TypeAlias = Mapping[str, str]
QuestionsLike: TypeAlias = "str | os.PathLike[str] | Sequence[Mapping[str, Any] | Question]"


class CorpusSource(Protocol):
    """Makes a corpus, if need be, and says where it is."""

    def __call__(self, options: Options, /, *, progress: bool) -> Path:
        """Returns the path of the JSONL file."""


@dataclass(frozen=True, slots=True)
class Task:
    """One named corpus, question set, or both.

    Attributes:
        name: without options and split.
        description: one line for listings.
        splits: the first is taken where none is asked for.
        named_splits: further ones, which only ``NAME/SPLIT`` gives.
        options: names that may follow the question mark.
        questions: ``(split, options) -> questions``; None where there are none.
        corpus: where the text comes from; None where the questions have no corpus of their own.
        offline: works without a network, so that the contract tests walk it.
    """

    name: str
    description: str = ""
    splits: tuple[str, ...] = ("train", "test")
    options: tuple[str, ...] = ()
    questions: Callable[[str, Options], Sequence[Question]] | None = None
    corpus: CorpusSource | None = None
    offline: bool = True
    named_splits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskName:
    """A parsed name."""

    task: Task
    options: Options
    split: str | None


def _world_task(name: str, description: str) -> Task:
    def questions(split: str, options: Options) -> Sequence[Question]:
        return World(world_config(name, options)).questions(split)

    def corpus(options: Options, *, progress: bool) -> Path:
        return World(world_config(name, options)).cached(progress=progress)

    return Task(f"world:{name}", description, ("train", "test"), WORLD_OPTIONS, questions, corpus)


def _public_corpus(name: str) -> Task:
    source = SOURCES[name]

    def corpus(_options: Options, *, progress: bool) -> Path:
        if not (cache_dir() / "corpora" / source.name).is_file():
            raise CorpusNotFound(
                f"{name} ({source.description}) has not been fetched; run: grepseek corpus fetch {name} "
                f"(a download of {source.packed_bytes / 1e9:.0f} GB, {source.unpacked_bytes / 1e9:.0f} GB unpacked)"
            )
        return fetch(name, progress=progress)

    return Task(name, source.description, (), (), None, corpus, offline=False)


def _benchmark_task(name: str) -> Task:
    def questions(split: str, _options: Options) -> Sequence[Question]:
        return load_benchmark(name, split)

    benchmark = BENCHMARKS[name]
    description = f"{benchmark.count:,} questions of {benchmark.hops}; needs the reference corpus wiki18"
    # To train on only where it is asked for: a mere name is the set that is evaluated, whatever split is usual there.
    train = () if benchmark.train is None else ("train",)
    return Task(name, description, (benchmark.split,), (), questions, None, offline=False, named_splits=train)


TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        *(_world_task(name, preset.description) for name, preset in PRESETS.items()),
        Task("world:bench", "text calibrated like real text, for benchmarks", (), BENCH_OPTIONS, None, bench_corpus),
        *map(_public_corpus, SOURCES),
        *map(_benchmark_task, BENCHMARKS),
    )
}


def register_task(
    name: str,
    *,
    questions: QuestionsLike | Mapping[str, QuestionsLike] | Callable[[str], Sequence[Question]] | None = None,
    corpus: str | os.PathLike[str] | Callable[[], Path] | None = None,
    description: str = "",
    splits: Sequence[str] = ("train", "test"),
    replace: bool = False,
) -> Task:
    """Adds a name that `corpus=` and `questions=` accept everywhere; the contract tests walk it too.

    Args:
        name: letters, digits and ``:._-``.
        questions: a FlashRAG file, a list, a mapping from split to one of these, or a callable that is given the
            split and returns questions.
        corpus: a file or folder, another name, or a callable that returns the path of the JSONL file.
        splits: what may be asked for; a mapping's keys take precedence.
        replace: allow a name that is taken.

    Raises:
        ConfigError: the name is taken or malformed, or there is neither corpus nor questions.
    """
    if not name or not all(c.isalnum() or c in ":._-" for c in name):
        raise ConfigError(f"task name is {name!r}; use letters, digits and ':._-' only")
    if name in TASKS and not replace:
        raise ConfigError(f"a task named {name!r} is registered already; pass replace=True to replace it")
    if questions is None and corpus is None:
        raise ConfigError(f"task {name!r} has neither corpus nor questions; give at least one")
    if isinstance(questions, Mapping):
        splits = tuple(questions)
    task = Task(
        name,
        description,
        tuple(splits) if questions is not None else (),
        (),
        None if questions is None else _question_source(name, questions),
        None if corpus is None else _corpus_source(corpus),
    )
    TASKS[name] = task
    return task


def _question_source(
    name: str, questions: QuestionsLike | Mapping[str, QuestionsLike] | Callable[[str], Sequence[Question]]
) -> Callable[[str, Options], Sequence[Question]]:
    def source(split: str, _options: Options) -> Sequence[Question]:
        value: Any = questions[split] if isinstance(questions, Mapping) else questions
        if callable(value):
            value = value(split)
        return questions_from(value, name=f"{name}/{split}")

    return source


def _corpus_source(corpus: str | os.PathLike[str] | Callable[[], Path]) -> CorpusSource:
    def source(_options: Options, *, progress: bool) -> Path:
        return corpus() if callable(corpus) else resolve_corpus(corpus, progress=progress)

    return source


def parse_name(value: str) -> TaskName | None:
    """Reads a name with its options and split; None where no task is called so.

    Raises:
        ConfigError: the task exists, but not this option or split.
    """
    head, _, rest = value.partition("?")
    query, _, split = (rest or head).partition("/")
    name = head if rest else query
    task = TASKS.get(name)
    if task is None:
        return None
    options: dict[str, str] = {}
    for item in (query if rest else "").split("&"):
        if not item:
            continue
        key, equals, setting = item.partition("=")
        if key not in task.options:
            known = ", ".join(task.options) or "none"
            raise ConfigError(f"{value!r}: {name} has no option {key!r}{closest(key, task.options)}; known: {known}")
        if not equals or not setting:
            raise ConfigError(f"{value!r}: option {key!r} has no value; write {key}=VALUE")
        options[key] = setting
    known_splits = (*task.splits, *task.named_splits)
    if split and split not in known_splits:
        raise ConfigError(f"{value!r}: {name} has no split {split!r}; there are {', '.join(known_splits) or 'none'}")
    return TaskName(task, options, split or None)


def _unknown(value: str, wanted: str) -> str:
    names = [task.name for task in TASKS.values() if getattr(task, wanted) is not None]
    return f"{value!r} is neither a file nor a name{closest(value, names)}; names are {', '.join(names)}"


def resolve_corpus(corpus: str | os.PathLike[str], *, progress: bool = False) -> Path:
    """Returns the path of a corpus file or folder, generating it into the cache folder where a name says so.

    Args:
        corpus: a path or a name.
        progress: show a progress bar while a corpus is generated.

    Raises:
        CorpusNotFound: nothing of this path or name exists.
        ConfigError: a name's option or split is unknown or has a value that cannot work.
    """
    path = Path(corpus)
    if path.exists():
        return path
    parsed = parse_name(str(corpus)) if isinstance(corpus, str) else None
    if parsed is None:
        raise CorpusNotFound(_unknown(str(corpus), "corpus"))
    if parsed.task.corpus is None:
        raise CorpusNotFound(
            f"{corpus!r} is a question set without a corpus of its own; "
            f"pass corpus=... besides questions={corpus!r} (wiki18 is the reference corpus of the benchmark sets)"
        )
    return parsed.task.corpus(parsed.options, progress=progress)


def resolve_questions(questions: QuestionsLike, split: str = "train", limit: int | None = None) -> tuple[Question, ...]:
    """Returns the questions of a file, a list or a name.

    Args:
        questions: a FlashRAG JSONL path, dicts, `Question` records, or a name.
        split: of a name that has several; a name with one split has that one, and `NAME/SPLIT` decides itself.
        limit: at most so many; None takes all that the set holds.

    Raises:
        QuestionsError: nothing of this path or name exists, or its content cannot be used.
        ConfigError: a name's option or split is unknown.
    """
    found = load_question_set(questions, split=split)
    return tuple(found[:limit])


def questions_from(value: QuestionsLike, name: str = "questions") -> tuple[Question, ...]:
    """Returns all questions of a path, dicts, `Question` records, or a name (its first split)."""
    match value:
        case str() | os.PathLike():
            return resolve_questions(value)
        case _:
            return questions_from_records(value, name)


def training_questions(questions: str) -> str:
    """Returns the file or name of questions to train on; a benchmark's mere name is the set that it is evaluated on."""
    return f"{questions}/train" if questions in BENCHMARKS and not Path(questions).is_file() else questions


def load_question_set(
    questions: QuestionsLike | QuestionSet | None,
    *,
    corpus: str | os.PathLike[str] | CorpusStore | None = None,
    split: str = "train",
) -> QuestionSet:
    """Returns a question set; that of a generated world computes its questions when they are asked for.

    Args:
        questions: see `resolve_questions`; None takes those that belong to `corpus`.
        corpus: what the environment searches; only a name has questions of its own.
        split: see `resolve_questions`.

    Raises:
        ConfigError: there are no questions given, and the corpus has none of its own.
        QuestionsError: see `resolve_questions`.
    """
    if questions is None:
        return _own_questions(corpus, split)
    if isinstance(questions, QuestionSet):
        return questions
    if not isinstance(questions, (str, os.PathLike)):
        return QuestionSet(questions_from_records(questions), "questions")
    path = Path(questions)
    if path.is_file():
        return QuestionSet(load_questions(path), str(path))
    parsed = parse_name(questions) if isinstance(questions, str) else None
    if parsed is None:
        raise QuestionsError(_unknown(str(questions), "questions"))
    return _named(parsed, str(questions), split)


def _named(parsed: TaskName, value: str, split: str) -> QuestionSet:
    task = parsed.task
    if task.questions is None:
        raise QuestionsError(f"{value!r} is a corpus without questions of its own; pass questions=... besides it")
    chosen = parsed.split or (split if len(task.splits) > 1 else task.splits[0])
    if chosen not in (*task.splits, *task.named_splits):
        raise ConfigError(f"{task.name} has no split {chosen!r}; there are {', '.join(task.splits)}")
    return QuestionSet(task.questions(chosen, parsed.options), f"{value.partition('/')[0]}/{chosen}")


def _own_questions(corpus: str | os.PathLike[str] | CorpusStore | None, split: str) -> QuestionSet:
    if isinstance(corpus, str) and not Path(corpus).exists():
        parsed = parse_name(corpus)
        if parsed is not None and parsed.task.questions is not None:
            return _named(parsed, corpus, split)
    raise ConfigError(
        f"questions is None, and corpus {corpus!r} has no questions of its own; "
        "pass a FlashRAG JSONL file, a list of dicts or a name such as 'world:tiny' or 'nq'"
    )
