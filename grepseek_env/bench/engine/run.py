"""`grepseek bench engine` from its options to the table and the file."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import json
import os
import sys
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from grepseek_env.backend import open_corpus
from grepseek_env.bench.engine.contestants import ceiling, default_names, parse_contestants
from grepseek_env.bench.engine.machine import FreshCache, OtherWork, check_room, machine, memory_available
from grepseek_env.bench.engine.measure import Entrant, Measurement, PipelineRuns, measure, planned_runs
from grepseek_env.bench.engine.pipelines import LETTERS, select_pipelines
from grepseek_env.bench.engine.report import COLUMNS, results, table
from grepseek_env.bench.engine.words import choose_words, line_ranges, read_sample
from grepseek_env.engine.local import LocalBackend
from grepseek_env.engine.scheduler import usable_cores
from grepseek_env.errors import ConfigError, CorpusInvalid, EngineFault, GrepSeekError
from grepseek_env.manifest import run_manifest
from grepseek_env.paths import atomic_write, cache_dir
from grepseek_env.tasks.world.bench import bench_path, generate_corpus
from grepseek_env.tasks.world.config import parse_size

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from grepseek_env.bench.engine.contestants import Contestant
    from grepseek_env.bench.engine.words import Draw
    from grepseek_env.corpus.store import CorpusStore

__all__ = ["EngineBench", "bench_engine"]

_MARGIN = 64 << 20  # what a disk should have left
_BUSY = 0.1


@dataclass(frozen=True, slots=True)
class EngineBench:
    """Options of the benchmark.

    Attributes:
        size: bytes of the generated corpus, as in "1.5GB".
        corpus: use this file or named corpus instead.
        draws: choices of words.
        rounds: timed runs of each command by each contestant.
        contestants: names separated by commas; empty for the usual ones.
        pipelines: numbers and ranges separated by commas; empty for all.
        ceiling: also run copies of a pipeline on parts of the corpus, one a core.
        seed: decides the words and the order of contestants within a round.
        timeout: seconds a command may run.
        out: JSON file to write.
        quiet: show no progress bars.
    """

    size: str = "256MB"
    corpus: str | None = None
    draws: int = 5
    rounds: int = 5
    contestants: str = ""
    pipelines: str = ""
    ceiling: bool = True
    seed: int = 0
    timeout: float = 60.0
    out: Path | None = None
    quiet: bool = False

    def __post_init__(self) -> None:
        for name in ("draws", "rounds", "timeout"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} is {getattr(self, name)!r}; it must be greater than 0")
        if self.out is not None and not self.out.parent.is_dir():
            raise ConfigError(f"out is {str(self.out)!r}, whose folder does not exist: make it first")
        if self.out is not None and (self.out.is_dir() or not os.access(self.out.parent, os.W_OK)):
            raise ConfigError(f"out is {str(self.out)!r}, which cannot be written: give a file in a folder of yours")


def bench_engine(options: EngineBench, command_line: Sequence[str] = ()) -> int:
    """Measures, prints the table and writes the file; returns 0, whatever the figures are.

    On Ctrl-C it prints and writes what is complete, and raises KeyboardInterrupt.

    Args:
        options: what to measure.
        command_line: kept in the file.

    Raises:
        ConfigError: an option cannot work, or the corpus has no words to search for.
        CorpusError: the corpus cannot be opened, or there is no room for it.
        WrongAnswer: a contestant does not answer as bash does.
        EngineFault: a contestant failed.
    """
    measurement = Measurement([PipelineRuns(pipeline) for pipeline in select_pipelines(options.pipelines)])
    names = tuple(filter(None, options.contestants.replace(" ", "").split(",")))
    contestants = list(parse_contestants(names or default_names()))
    store = _corpus(options)
    if options.ceiling:
        folder = cache_dir() / "bench"
        check_room(folder, store.facts.bytes + _MARGIN, "the parts of the corpus, which show the ceiling,")
        folder.mkdir(parents=True, exist_ok=True)
        contestants.append(ceiling(usable_cores(), folder))
    available = memory_available()
    if available is not None and available < (2 if options.ceiling else 1) * store.facts.bytes:
        print("the corpus may not stay in memory, so these will be the disk's figures: choose less", file=sys.stderr)
    about = {
        "manifest": run_manifest(_settings(options, contestants), corpus_digest=store.digest),
        "machine": machine(),
        "date": dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds"),
        "command_line": list(command_line),
        "corpus": {"file": store.path.name, "bytes": store.facts.bytes, "lines": store.facts.lines},
    }
    draws = _words(store, options)
    about["words"] = {
        "lines": line_ranges(store.facts.lines),
        "draws": [{letter: dataclasses.asdict(word) for letter, word in draw.items()} for draw in draws],
    }
    with contextlib.ExitStack() as stack:
        ready = [(contestant, stack.enter_context(contestant.open(store))) for contestant in contestants]
        entrants = [Entrant(contestant, each.run) for contestant, each in ready]
        cache = FreshCache([store.corpus_file, *(file for _, each in ready for file in each.files)])
        total = planned_runs(
            [runs.pipeline for runs in measurement.runs], contestants, draws=options.draws, rounds=options.rounds
        )
        about["index_bytes"] = {contestant.name: each.index_bytes for contestant, each in ready if each.index_bytes}
        print(_heading(about, draws), flush=True)
        other_work = OtherWork()
        try:
            with tqdm(total=total, unit="run", file=sys.stderr, disable=options.quiet or None, leave=False) as bar:

                def after_run(text: str) -> None:
                    bar.set_postfix_str(text, refresh=False)
                    bar.update()

                measure(
                    measurement,
                    entrants,
                    draws,
                    rounds=options.rounds,
                    seed=options.seed,
                    timeout=options.timeout,
                    before_command=cache.renew,
                    after_run=after_run,
                )
        except KeyboardInterrupt:
            _report(measurement, about, other_work.share(), options.out)
            raise
        _report(measurement, about, other_work.share(), options.out)
    return 0


def _corpus(options: EngineBench) -> CorpusStore:
    progress = not options.quiet and sys.stderr.isatty()
    if options.corpus is not None:
        store = open_corpus(options.corpus, progress=progress)
    else:
        size = parse_size(options.size)
        path = bench_path(size)
        if not path.exists():
            check_room(path.parent, size + _MARGIN, "the generated corpus")
            generate_corpus(path, bytes=size, workers=usable_cores(), progress=progress)
        store = open_corpus(str(path), progress=progress)
    if not store.facts.lines:
        raise CorpusInvalid(f"{store.path} is empty: there is nothing to measure")
    return store


def _words(store: CorpusStore, options: EngineBench) -> list[Draw]:
    with LocalBackend(store, mode="sequential", cache_bytes=0) as backend:

        def count(texts: Sequence[str]) -> list[int]:
            # A core a pass; a pass over a corpus from the disk may take minutes.
            answers = backend.run_many([f"rg -c -F '{text}' corpus.jsonl" for text in texts], timeout=3600)
            for answer in answers:
                if isinstance(answer, GrepSeekError):
                    raise answer
                if answer.exit_code not in {0, 1}:
                    raise EngineFault(f"words could not be counted: {answer.stderr.decode(errors='replace')}")
            return [int(answer.stdout or 0) for answer in answers if not isinstance(answer, GrepSeekError)]

        sample = read_sample(store.corpus_file)
        return choose_words(sample, store.facts.lines, count, draws=options.draws, seed=options.seed)


def _settings(options: EngineBench, contestants: Sequence[Contestant]) -> dict[str, Any]:
    values = dataclasses.asdict(options)
    del values["out"], values["quiet"], values["corpus"]
    return {**values, "contestants": [contestant.name for contestant in contestants]}


def _heading(about: dict[str, Any], draws: Sequence[Draw]) -> str:
    corpus, host = about["corpus"], about["machine"]
    size, cores = f"{corpus['bytes'] / 1e6:.0f} MB in {corpus['lines']} lines, warm", f"{host['cores']} cores"
    lines = [
        f"{size}; {cores}, {host['cpu']}, load {host['load_before']:.1f} before",
        "every answer is compared with that of bash; a ratio is taken within a round, its median over draws of words",
    ]
    for letter, meaning in LETTERS.items():
        chosen = ", ".join(dict.fromkeys(f"{draw[letter].text} ({draw[letter].lines})" for draw in draws))
        lines.append(f"{letter}  {meaning}: {chosen}")
    for name, size in about["index_bytes"].items():
        lines.append(f"{name}  has an index of {size / 1e6:.1f} MB, {size / max(corpus['bytes'], 1):.1%} of the corpus")
    return "\n".join(textwrap.fill(line, COLUMNS, subsequent_indent="   ") for line in lines) + "\n"


def _report(measurement: Measurement, about: dict[str, Any], other_work: float | None, out: Path | None) -> None:
    print(table(measurement))
    if other_work is not None:
        busy = "; wait until they are done and measure again" if other_work > _BUSY else ""
        print(f"\nother processes took {other_work:.0%} of the cores meanwhile{busy}")
    if out is not None:
        values = {**about, "other_work": other_work, **results(measurement)}
        atomic_write(out, json.dumps(values, indent=1, ensure_ascii=False) + "\n")
        print(f"\nwritten to {out}")
