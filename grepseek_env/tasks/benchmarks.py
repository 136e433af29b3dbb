"""The seven question sets of the evaluation, loaded by name from FlashRAG's collection and kept as JSONL."""

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
    """

    name: str
    split: str
    count: int
    hops: str


BENCHMARKS: Mapping[str, Benchmark] = MappingProxyType(
    {
        benchmark.name: benchmark
        for benchmark in (
            Benchmark("nq", "test", 3_610, "one hop"),
            Benchmark("triviaqa", "test", 11_313, "one hop"),
            Benchmark("popqa", "test", 14_267, "one hop"),
            Benchmark("hotpotqa", "dev", 7_405, "two hops"),
            Benchmark("2wikimultihopqa", "dev", 12_576, "two to four hops"),
            Benchmark("musique", "dev", 2_417, "two to four hops"),
            Benchmark("bamboogle", "test", 125, "two hops"),
        )
    }
)


def load_benchmark(name: str, *, loader: Loader | None = None) -> tuple[Question, ...]:
    """Returns the questions of one set, from the cache folder where it was loaded before.

    Args:
        name: a key of `BENCHMARKS`.
        loader: ``(set, split) -> records`` in place of the Hub.

    Raises:
        ConfigError: no set has this name.
        SourceUnavailable: the set is not cached and cannot be loaded from here.
        QuestionsError: what was loaded, or the cached file, cannot be used.
    """
    if name not in BENCHMARKS:
        raise ConfigError(f"no benchmark set is named {name!r}; there are {', '.join(BENCHMARKS)}")
    benchmark = BENCHMARKS[name]
    path = cache_dir() / "benchmarks" / f"{name}-{benchmark.split}.jsonl"
    if path.exists():
        return _counted(benchmark, load_questions(path), f"{path} (delete it to load it again)")
    source = f"{DATASET}, set {name}, split {benchmark.split}"
    try:
        records = list((loader or _from_hub)(name, benchmark.split))
    except _LOADING_ERRORS as error:
        raise _unavailable(benchmark, path, f"{type(error).__name__}: {error}") from error
    questions = _counted(benchmark, questions_from_records(records, source), source)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_questions(path, questions)
    return questions


def _from_hub(name: str, split: str) -> Iterable[Mapping[str, Any]]:
    # Not an `import` statement: this optional dependency is slow to import, even where it is installed.
    datasets: Any = import_module("datasets")
    records: Iterable[Mapping[str, Any]] = datasets.load_dataset(DATASET, name, split=split)
    return records


def _unavailable(benchmark: Benchmark, path: Path, reason: str) -> SourceUnavailable:
    return SourceUnavailable(
        f"the questions of {benchmark.name} ({benchmark.count:,}, split {benchmark.split}) would be loaded from the "
        f"Hub data set {DATASET} through the package datasets (pip install 'grepseek-env[hub]'), which failed: "
        f"{reason}. Without it, save the set as FlashRAG JSONL to {path}, or pass the path of such a file as questions"
    )


def _counted(benchmark: Benchmark, questions: tuple[Question, ...], source: str) -> tuple[Question, ...]:
    if len(questions) != benchmark.count:
        raise QuestionsError(
            f"{source}: {len(questions):,} questions, but {benchmark.name} ({benchmark.split}) has {benchmark.count:,}"
        )
    return questions
