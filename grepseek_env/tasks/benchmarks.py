"""The seven question sets of the evaluation, loaded by name from FlashRAG's collection and kept as JSONL.

Five of them also have questions to train on, which only their full name gives: ``nq/train``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from grepseek_env.errors import ConfigError, QuestionsError, SourceUnavailable
from grepseek_env.paths import cache_dir
from grepseek_env.tasks.qa import load_questions, questions_from_records, write_questions

if TYPE_CHECKING:
    from pathlib import Path

    from grepseek_env.types import Question

__all__ = ["BENCHMARKS", "DATASET", "Benchmark", "Loader", "load_benchmark"]

DATASET = "RUC-NLPIR/FlashRAG_datasets"
# Not installed; offline, not found or refused; an unknown set or split; a broken download.
_LOADING_ERRORS = (ImportError, OSError, ValueError, RuntimeError)
Loader = Callable[[str, str], Iterable[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One set.

    Attributes:
        name: the name of its configuration on the Hub.
        split: test where that has labels, else dev.
        count: number of questions, checked after loading.
        hops: what the questions ask for.
        train: number of questions of the split train; None where there is no such split.
    """

    name: str
    split: str
    count: int
    hops: str
    train: int | None = None

    def count_of(self, split: str) -> int:
        """Returns the number of questions of a split.

        Raises:
            ConfigError: the set has no such split.
        """
        counts = {self.split: self.count} | ({} if self.train is None else {"train": self.train})
        if split not in counts:
            raise ConfigError(f"{self.name} has no split {split!r}; there are {', '.join(counts)}")
        return counts[split]


BENCHMARKS: Mapping[str, Benchmark] = MappingProxyType(
    {
        benchmark.name: benchmark
        for benchmark in (
            Benchmark("nq", "test", 3_610, "one hop", train=79_168),
            Benchmark("triviaqa", "test", 11_313, "one hop", train=78_785),
            Benchmark("popqa", "test", 14_267, "one hop"),
            Benchmark("hotpotqa", "dev", 7_405, "two hops", train=90_447),
            Benchmark("2wikimultihopqa", "dev", 12_576, "two to four hops", train=15_000),
            Benchmark("musique", "dev", 2_417, "two to four hops", train=19_938),
            Benchmark("bamboogle", "test", 125, "two hops"),
        )
    }
)


def load_benchmark(name: str, split: str | None = None, *, loader: Loader | None = None) -> tuple[Question, ...]:
    """Returns the questions of one set, from the cache folder where it was loaded before.

    Args:
        name: a key of `BENCHMARKS`.
        split: None takes the one of the evaluation.
        loader: ``(set, split) -> records`` in place of the Hub.

    Raises:
        ConfigError: no set has this name, or the set not this split.
        SourceUnavailable: the set is not cached and cannot be loaded from here.
        QuestionsError: what was loaded, or the cached file, cannot be used.
    """
    if name not in BENCHMARKS:
        raise ConfigError(f"no benchmark set is named {name!r}; there are {', '.join(BENCHMARKS)}")
    benchmark = BENCHMARKS[name]
    split = split or benchmark.split
    count = benchmark.count_of(split)
    path = cache_dir() / "benchmarks" / f"{name}-{split}.jsonl"
    if path.exists():
        return _counted(f"{name} ({split})", count, load_questions(path), f"{path} (delete it to load it again)")
    source = f"{DATASET}, set {name}, split {split}"
    try:
        records = list((loader or _from_hub)(name, split))
    except _LOADING_ERRORS as error:
        raise _unavailable(f"{name} ({count:,}, split {split})", path, f"{type(error).__name__}: {error}") from error
    questions = _counted(f"{name} ({split})", count, questions_from_records(records, source), source)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_questions(path, questions)
    return questions


def _from_hub(name: str, split: str) -> Iterable[Mapping[str, Any]]:
    # Not an `import` statement: this optional dependency is slow to import, even where it is installed.
    datasets: Any = import_module("datasets")
    records: Iterable[Mapping[str, Any]] = datasets.load_dataset(DATASET, name, split=split)
    return records


def _unavailable(which: str, path: Path, reason: str) -> SourceUnavailable:
    return SourceUnavailable(
        f"the questions of {which} would be loaded from the "
        f"Hub data set {DATASET} through the package datasets (pip install 'grepseek-env[hub]'), which failed: "
        f"{reason}. Without it, save the set as FlashRAG JSONL to {path}, or pass the path of such a file as questions"
    )


def _counted(which: str, count: int, questions: tuple[Question, ...], source: str) -> tuple[Question, ...]:
    if len(questions) != count:
        raise QuestionsError(f"{source}: {len(questions):,} questions, but {which} has {count:,}")
    return questions
