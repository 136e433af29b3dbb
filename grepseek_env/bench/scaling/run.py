"""`grepseek bench scaling` from its options to the table, the file and the picture."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import json
import os
import statistics
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from grepseek_env.backend import open_corpus
from grepseek_env.bench.engine.contestants import BASH, parse_contestants
from grepseek_env.bench.engine.figures import figures
from grepseek_env.bench.engine.machine import FreshCache, OtherWork, check_room, machine
from grepseek_env.bench.engine.measure import Entrant, Measurement, PipelineRuns, measure, planned_runs
from grepseek_env.bench.engine.memory import MemorySampler
from grepseek_env.bench.engine.words import choose_words, read_sample
from grepseek_env.bench.scaling.classes import CLASSES, batch_commands
from grepseek_env.bench.scaling.plot import check_plots, draw_scaling
from grepseek_env.bench.scaling.report import batch_table, class_table, index_table
from grepseek_env.engine.index import build_index, index_info, load_kernels
from grepseek_env.engine.local import LocalBackend
from grepseek_env.engine.scheduler import usable_cores
from grepseek_env.errors import ConfigError, EngineFault, GrepSeekError
from grepseek_env.manifest import run_manifest
from grepseek_env.paths import atomic_write
from grepseek_env.tasks.world.bench import bench_path, generate_corpus
from grepseek_env.tasks.world.config import parse_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from grepseek_env.bench.engine.contestants import Ready
    from grepseek_env.bench.engine.words import Draw
    from grepseek_env.corpus.store import CorpusStore

__all__ = ["ScalingBench", "bench_scaling"]

# The names of the columns -> the contestants of `grepseek bench engine`.
_CONTESTANTS = {"bash": BASH, "without": "narrowed", "with": "narrowed:index"}
_INDEX_SHARE = 2  # at most this part of the corpus is taken while its index is built, the temporary files included
_BASH_BATCH = 16


@dataclass(frozen=True, slots=True)
class ScalingBench:
    """Options of the benchmark.

    Attributes:
        sizes: bytes of the generated corpora, such as "256MB,1GB".
        draws: choices of words.
        rounds: timed runs of each command by each contestant.
        batch: different commands in a batch.
        rebuild: build an index also where there is one.
        workers: threads that build an index; None for one a core.
        seed: decides words and orders.
        timeout: seconds a command may run.
        out: folder to write to.
        quiet: show no progress bars.
    """

    sizes: str = "64MB,128MB,256MB"
    draws: int = 5
    rounds: int = 5
    batch: int = 64
    rebuild: bool = False
    workers: int | None = None
    seed: int = 0
    timeout: float = 120.0
    out: Path | None = None
    quiet: bool = False

    def __post_init__(self) -> None:
        for name in ("draws", "rounds", "batch", "timeout"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} is {getattr(self, name)!r}; it must be greater than 0")
        if self.workers is not None and self.workers < 1:
            raise ConfigError(f"workers is {self.workers!r}; it must be 1 or more")
        if not self.corpus_bytes:
            raise ConfigError("sizes is empty; write such as 256MB,1GB")
        if self.out is not None:
            check_plots()

    @property
    def corpus_bytes(self) -> list[int]:
        """The sizes as numbers, each once, growing."""
        return sorted({parse_size(size) for size in self.sizes.split(",") if size.strip()})


def bench_scaling(options: ScalingBench, command_line: Sequence[str] = ()) -> int:
    """Measures one corpus after another and prints and writes what there is after each; returns 0.

    Args:
        options: what to measure.
        command_line: kept in the file.

    Raises:
        ConfigError: an option cannot work.
        CorpusError: there is no room for a corpus or its index.
        WrongAnswer: a contestant does not answer as bash does.
        EngineFault: a contestant failed.
    """
    settings = {name: value for name, value in dataclasses.asdict(options).items() if name not in {"out", "quiet"}}
    about: dict[str, Any] = {
        "machine": machine(),
        "date": dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds"),
        "command_line": list(command_line),
    }
    sizes: list[dict[str, Any]] = []
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
    for size in options.corpus_bytes:
        with _corpus(size, options) as store:
            about.setdefault("manifest", run_manifest(settings, corpus_digest=store.digest))
            other = OtherWork()
            entry = _one_size(store, options)
            entry["other_work"] = other.share()
        sizes.append(entry)
        print(_text(sizes[-1:]), "\n", flush=True)
        if options.out is not None:
            atomic_write(options.out / "scaling.json", json.dumps({**about, "sizes": sizes}, indent=1) + "\n")
            draw_scaling(sizes, options.out / "scaling.png")
    print(_text(sizes))
    if options.out is not None:
        print(f"\nwritten to {options.out / 'scaling.json'} and scaling.png")
    return 0


def _text(sizes: Sequence[dict[str, Any]]) -> str:
    return "\n\n".join([index_table(sizes), class_table(sizes), batch_table(sizes)])


@contextlib.contextmanager
def _corpus(size: int, options: ScalingBench) -> Iterator[CorpusStore]:
    path = bench_path(size)
    progress = not options.quiet and sys.stderr.isatty()
    if not path.exists():
        check_room(path.parent, size + size // _INDEX_SHARE, "the generated corpus and its index")
        generate_corpus(path, bytes=size, workers=usable_cores(), progress=progress)
    with open_corpus(str(path), progress=progress) as store:
        yield store


def _one_size(store: CorpusStore, options: ScalingBench) -> dict[str, Any]:
    entry: dict[str, Any] = {"bytes": store.facts.bytes, "lines": store.facts.lines}
    entry["index"] = _index(store, options)
    draws = _words(store, options)
    measurement = Measurement([PipelineRuns(each.pipeline) for each in CLASSES])
    contestants = parse_contestants(tuple(_CONTESTANTS.values()))
    with contextlib.ExitStack() as stack:
        ready = {c.name: stack.enter_context(c.open(store)) for c in contestants}
        cache = FreshCache([store.corpus_file, *(file for each in ready.values() for file in each.files)])
        total = planned_runs(
            [each.pipeline for each in CLASSES], contestants, draws=options.draws, rounds=options.rounds
        )
        with tqdm(total=total, unit="run", file=sys.stderr, disable=options.quiet or None, leave=False) as bar:
            measure(
                measurement,
                [Entrant(c, ready[c.name].run) for c in contestants],
                draws[: options.draws],
                rounds=options.rounds,
                seed=options.seed,
                timeout=options.timeout,
                before_command=cache.renew,
                after_run=lambda _text: bar.update() and None,
            )
        entry["classes"], entry["against_bash"] = {}, {}
        for each, runs in zip(CLASSES, measurement.runs, strict=True):
            values = figures(runs)
            entry["classes"][each.name] = {c: values[n].milliseconds for c, n in _CONTESTANTS.items()}
            entry["against_bash"][each.name] = {
                c: ratio.median for c, n in _CONTESTANTS.items() if (ratio := values[n].against_bash) is not None
            }
        cache.renew()
        entry["batch"] = _batch(store, options, draws, ready[BASH])
    return entry


def _index(store: CorpusStore, options: ScalingBench) -> dict[str, Any]:
    """Builds the index where there is none, or anew, and returns what that took."""
    workers = options.workers or usable_cores()
    if options.rebuild or index_info(store) is None:
        load_kernels()  # neither the first compilation nor what the disk takes is a property of the builder
        FreshCache([store.corpus_file]).renew()
        before, start = sum(os.times()[:2]), time.perf_counter()
        with MemorySampler() as sampler:
            build_index(store, workers=workers, progress=not options.quiet and sys.stderr.isatty(), rebuild=True)
        seconds, cpu = time.perf_counter() - start, sum(os.times()[:2]) - before
        measured = {"seconds": seconds, "cpu_seconds": cpu, "workers": workers, "peak_bytes": sampler.peak().here}
    else:
        measured = {}
    info = index_info(store)
    if info is None:
        raise EngineFault("the index that was just built cannot be opened: run grepseek corpus verify")
    return {**measured, "bytes": info.bytes}


def _words(store: CorpusStore, options: ScalingBench) -> list[Draw]:
    with LocalBackend(store, mode="sequential", cache_bytes=0) as backend:

        def count(texts: Sequence[str]) -> list[int]:
            answers = backend.run_many([f"rg -c -F '{text}' corpus.jsonl" for text in texts], timeout=3600)
            return [int(_checked(answer).stdout or 0) for answer in answers]

        sample = read_sample(store.corpus_file)
        least = -(-options.batch // 8)  # each draw gives eight commands of a batch
        return choose_words(sample, store.facts.lines, count, draws=max(options.draws, least), seed=options.seed)


def _checked(answer: Any) -> Any:
    if isinstance(answer, GrepSeekError):
        raise answer
    return answer


def _batch(store: CorpusStore, options: ScalingBench, draws: Sequence[Draw], bash: Ready) -> dict[str, Any]:
    """Returns commands a second: batches of the engine, and bash one after another."""
    commands = batch_commands(draws, options.batch)
    seconds: dict[str, list[float]] = {name: [] for name in _CONTESTANTS}

    def timed(name: str, work: Callable[[], object], count: int) -> None:
        start = time.perf_counter()
        work()
        seconds[name].append((time.perf_counter() - start) / count)

    few = commands[:_BASH_BATCH]
    with (
        LocalBackend(store, mode="narrowed", index=False, cache_bytes=0) as without,
        LocalBackend(store, mode="narrowed", index=True, cache_bytes=0) as with_index,
    ):
        for backend in (without, with_index):
            for answer, command in zip(backend.run_many(few), few, strict=True):
                expected = bash.run(command, options.timeout)
                if _checked(answer).stdout != expected.stdout:
                    raise EngineFault(f"a batch does not answer as bash does: {command}")
        for _ in range(options.rounds):
            timed("bash", lambda: [bash.run(command, options.timeout) for command in few], len(few))
            timed("without", lambda: list(map(_checked, without.run_many(commands))), len(commands))
            timed("with", lambda: list(map(_checked, with_index.run_many(commands))), len(commands))
    rates = {name: 1 / statistics.median(values) for name, values in seconds.items()}
    return {"commands": len(commands), "commands_of_bash": len(few), "per_second": rates, "seconds_each": seconds}
