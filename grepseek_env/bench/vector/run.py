"""`grepseek bench vector` from its options to the table, the file and the picture."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from grepseek_env.backend import open_corpus
from grepseek_env.bench.engine.machine import FreshCache, OtherWork, check_room, machine
from grepseek_env.bench.engine.words import read_sample
from grepseek_env.bench.vector.contestants import parse_contestants
from grepseek_env.bench.vector.measure import Measurement, measure
from grepseek_env.bench.vector.mix import mix_words
from grepseek_env.bench.vector.report import check_plot, figures, plot, results, table
from grepseek_env.engine.index.build import build_index
from grepseek_env.engine.index.index import index_info
from grepseek_env.engine.scheduler import usable_cores
from grepseek_env.errors import ConfigError
from grepseek_env.manifest import run_manifest
from grepseek_env.paths import atomic_write
from grepseek_env.tasks.world.bench import bench_path, generate_corpus
from grepseek_env.tasks.world.config import parse_size

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from grepseek_env.corpus.store import CorpusStore

__all__ = ["VectorBench", "bench_vector"]

_MARGIN = 64 << 20  # what a disk should have left
_BUSY = 0.1
_INDEXED = frozenset({"auto", "narrowed"})
_BASELINE = "async:sequential"


@dataclass(frozen=True, slots=True)
class VectorBench:
    """Options of the benchmark.

    Attributes:
        size: bytes of the generated corpus, as in "500MB".
        corpus: use this file or named corpus instead.
        envs: numbers of environments, separated by commas.
        contestants: KIND:MODE separated by commas; empty for the usual ones.
        baseline: the contestant that ratios are taken against; empty for async:sequential, or else the last.
        seconds: of a measurement; the step under way is finished.
        rounds: measurements of each contestant and number.
        index: make the corpus's token index first if there is none, where a contestant can use it.
        seed: decides commands and orders.
        out: JSON file to write.
        plot: picture to draw.
        quiet: show no progress bars.
    """

    size: str = "64MB"
    corpus: str | None = None
    envs: str = "1,8,64,256"
    contestants: str = ""
    baseline: str = ""
    seconds: float = 5.0
    rounds: int = 3
    index: bool = True
    seed: int = 0
    out: Path | None = None
    plot: Path | None = None
    quiet: bool = False

    def __post_init__(self) -> None:
        for name in ("rounds", "seconds"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} is {getattr(self, name)!r}; it must be greater than 0")
        for name in ("out", "plot"):
            path: Path | None = getattr(self, name)
            if path is not None and (path.is_dir() or not os.access(path.parent, os.W_OK)):
                raise ConfigError(f"{name} is {str(path)!r}, which cannot be written: give a file in a folder of yours")

    def numbers(self) -> tuple[int, ...]:
        """Returns the numbers of environments, ascending.

        Raises:
            ConfigError: they are no such numbers.
        """
        parts = [part.strip() for part in self.envs.split(",")]
        if not all(part.isascii() and part.isdigit() and int(part) for part in parts):
            raise ConfigError(f"envs is {self.envs!r}; write numbers such as 1,8,64")
        return tuple(sorted({int(part) for part in parts}))


def bench_vector(options: VectorBench, command_line: Sequence[str] = ()) -> int:
    """Measures, prints the table and writes the files; returns 0, whatever the figures are.

    On Ctrl-C it prints and writes what is complete, and raises KeyboardInterrupt.

    Args:
        options: what to measure.
        command_line: kept in the file.

    Raises:
        ConfigError: an option cannot work, or the corpus has no words to search for.
        CorpusError: the corpus cannot be opened, or there is no room for it.
        WrongAnswer: two contestants observed different things.
    """
    contestants = parse_contestants(options.contestants)
    numbers = options.numbers()
    names = [contestant.name for contestant in contestants]
    baseline = options.baseline or (_BASELINE if _BASELINE in names else names[-1])
    if baseline not in names:
        raise ConfigError(f"baseline is {baseline!r}; it must be one of the contestants {', '.join(names)}")
    if options.plot is not None:
        check_plot(options.plot)
    store = _corpus(options)
    if options.index and any(contestant.mode in _INDEXED for contestant in contestants) and index_info(store) is None:
        build_index(store, progress=not options.quiet and sys.stderr.isatty())
    index = index_info(store)
    about: dict[str, Any] = {
        "manifest": run_manifest(_settings(options, names), corpus_digest=store.digest),
        "machine": machine(),
        "date": dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds"),
        "command_line": list(command_line),
        "corpus": {"file": store.path.name, "bytes": store.facts.bytes, "lines": store.facts.lines},
        "index": None if index is None else {"bytes": index.bytes, "block_bytes": index.block_bytes},
    }
    words = mix_words(read_sample(store.corpus_file), store.facts.lines, seed=options.seed)
    print(_heading(about), flush=True)
    cache = FreshCache([store.corpus_file])
    measurement = Measurement()
    other_work = OtherWork()
    # Its watching thread would be there when Gymnasium's asynchronous environments fork.
    tqdm.monitor_interval = 0
    try:
        total = len(contestants) * len(numbers) * options.rounds
        with tqdm(total=total, unit="run", file=sys.stderr, disable=options.quiet or None, leave=False) as bar:

            def after(text: str) -> None:
                bar.set_postfix_str(text, refresh=False)
                bar.update()

            measure(
                measurement,
                contestants,
                numbers,
                store,
                words,
                rounds=options.rounds,
                seconds=options.seconds,
                seed=options.seed,
                before=cache.renew,
                after=after,
            )
    finally:
        _report(measurement, about, baseline, other_work.share(), options)
    return 0


def _corpus(options: VectorBench) -> CorpusStore:
    progress = not options.quiet and sys.stderr.isatty()
    if options.corpus is not None:
        return open_corpus(options.corpus, progress=progress)
    size = parse_size(options.size)
    path = bench_path(size)
    if not path.exists():
        check_room(path.parent, size + _MARGIN, "the generated corpus")
        generate_corpus(path, bytes=size, workers=usable_cores(), progress=progress)
    return open_corpus(str(path), progress=progress)


def _settings(options: VectorBench, names: Sequence[str]) -> dict[str, Any]:
    values = dataclasses.asdict(options)
    for name in ("out", "plot", "quiet", "corpus"):
        del values[name]
    return {**values, "contestants": list(names)}


def _heading(about: dict[str, Any]) -> str:
    corpus, host = about["corpus"], about["machine"]
    size = "none" if about["index"] is None else f"{about['index']['bytes'] / corpus['bytes']:.1%} of the corpus"
    return (
        f"{corpus['bytes'] / 1e6:.0f} MB in {corpus['lines']} lines, warm; {host['cores']} cores, {host['cpu']}, "
        f"load {host['load_before']:.1f} before\n"
        f"token index for those that use it: {size}\n"
        "the same commands for all, every observation compared; ratios are taken within a round: median (range)\n"
    )


def _report(
    measurement: Measurement,
    about: dict[str, Any],
    baseline: str,
    other_work: float | None,
    options: VectorBench,
) -> None:
    print(table(measurement, baseline))
    if other_work is not None:
        busy = "; wait until they are done and measure again" if other_work > _BUSY else ""
        print(f"\nother processes took {other_work:.0%} of the cores meanwhile{busy}")
    if options.out is not None:
        values = {**about, "other_work": other_work, **results(measurement, baseline)}
        atomic_write(options.out, json.dumps(values, indent=1, ensure_ascii=False) + "\n")
        print(f"\nwritten to {options.out}")
    rows = figures(measurement.runs, baseline)
    if options.plot is not None and rows:
        corpus, host = about["corpus"], about["machine"]
        plot(options.plot, rows, f"{corpus['bytes'] / 1e6:.0f} MB corpus, {host['cores']} cores")
        print(f"drawn in {options.plot}")
