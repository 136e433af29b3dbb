"""The ways to execute a checked pipeline, and which one a command gets.

Every way gives the same bytes and exit code. Which is fastest was measured (two cores, 1.5 GB, warm): where the
programs are limited by memory, as rg is on a literal, one pass is; where they are limited by the processor, slices are.
Faster than both, where it is possible, is to look for literals in this process and start programs for the rest only.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from grepseek_env.corpus.slicer import LineCounter, cuts, first_cut, ranges
from grepseek_env.engine.executor import execute
from grepseek_env.engine.explain import explain_plan
from grepseek_env.engine.feed import Part
from grepseek_env.engine.interrupts import HeldSignals
from grepseek_env.engine.loop import Bounds
from grepseek_env.engine.narrowed import NarrowedRunner
from grepseek_env.engine.plan import Merge, Sequential, Sliced
from grepseek_env.engine.planner import plan
from grepseek_env.engine.scheduler import SCHEDULER
from grepseek_env.engine.sequential import explain_sequential
from grepseek_env.engine.sliced import run_sliced, starts_last_first
from grepseek_env.engine.worker import Corpus
from grepseek_env.errors import SpawnFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from grepseek_env.commands import Pipeline
    from grepseek_env.corpus.facts import CorpusFacts
    from grepseek_env.engine.combiners import Base
    from grepseek_env.engine.executor import Cancellation
    from grepseek_env.engine.fastpath import Index
    from grepseek_env.engine.sandbox import Sandbox
    from grepseek_env.engine.scheduler import Grant
    from grepseek_env.types import CommandResult

__all__ = ["FEEDINGS", "MODES", "Engine", "Runner", "SequentialRunner", "SlicedRunner"]

Feeding = Literal["auto", "file", "pipe"]
FEEDINGS: tuple[Feeding, ...] = ("auto", "file", "pipe")

_MOST_MERGED = 16  # sort's own limit without temporary files
_SMALLEST = 4 << 20  # a slice smaller than this costs more to start than it saves
_FIRST = 64 << 20  # what is read before the rest where the first lines may decide
_LARGEST = 256 << 20
_ROUNDS = 4  # slices a core, so that cores that are slower at the moment get fewer
_WORTH_IT = {"auto": 32 << 20, "sliced": 2 * _SMALLEST}  # bytes of a corpus from which on it is sliced


@dataclass(frozen=True, slots=True)
class Engine:
    """What every way to execute commands needs.

    Attributes:
        sandbox: how programs are started.
        corpus: the corpus file.
        facts: what is known about it.
        slice_files: the folders of slices that are files, in order, with the bytes of each; none if there are none.
        slices: how many slices may run side by side; None: as many as there are cores.
        feeding: how slices reach their programs; "auto": as files where there are any, else by pipe.
        cuts: offsets to cut at, for tests; None chooses.
        open_index: returns the corpus's index if there is a good one, when it is first needed; None: there is none.
    """

    sandbox: Sandbox
    corpus: Path
    facts: CorpusFacts
    slice_files: tuple[tuple[Path, int], ...] = ()
    slices: int | None = None
    feeding: Feeding = "auto"
    cuts: tuple[int, ...] | None = None
    open_index: Callable[[], Index | None] | None = None


class Runner(Protocol):
    """Executes checked pipelines; any number of threads may use one."""

    def run(
        self,
        pipeline: Pipeline,
        *,
        timeout: float,
        max_output_bytes: int | None = None,
        cancels: Sequence[Cancellation] = (),
    ) -> CommandResult:
        """Runs a pipeline; see `execute` for the arguments and errors."""

    def explain(self, pipeline: Pipeline) -> str:
        """Says in words what `run` would do."""


class SequentialRunner:
    """Runs every pipeline as it stands, once, over the whole corpus."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def run(
        self,
        pipeline: Pipeline,
        *,
        timeout: float,
        max_output_bytes: int | None = None,
        cancels: Sequence[Cancellation] = (),
    ) -> CommandResult:
        """Waits for a core, then runs the pipeline."""
        with HeldSignals() as signals, SCHEDULER.admit(signals, cancels):
            return execute(
                pipeline.argv,
                self._engine.sandbox,
                timeout=timeout,
                max_output_bytes=max_output_bytes,
                cancels=cancels,
                signals=signals,
            )

    def explain(self, pipeline: Pipeline) -> str:
        """Lists the programs."""
        return explain_sequential(pipeline, self._engine.sandbox)


class SlicedRunner:
    """Runs pipelines on slices of the corpus where that wins, and as they stand elsewhere.

    Args:
        engine: what to run with.
        mode: "sliced" slices wherever that is not slower; "auto" also leaves small corpora and busy machines alone.
    """

    def __init__(self, engine: Engine, mode: Literal["sliced", "auto"] = "sliced") -> None:
        self._engine = engine
        self._mode = mode
        self._lines = LineCounter()

    def run(
        self,
        pipeline: Pipeline,
        *,
        timeout: float,
        max_output_bytes: int | None = None,
        cancels: Sequence[Cancellation] = (),
    ) -> CommandResult:
        """Waits for a core, then runs the pipeline, on slices or as it stands."""
        engine = self._engine
        planned = plan(pipeline, engine.facts, locale=engine.sandbox.locale)
        with HeldSignals() as signals, SCHEDULER.admit(signals, cancels) as grant:
            deadline = time.monotonic() + timeout
            if isinstance(planned, Sliced) and not self._why_not(planned) and self._has_room(grant.widen):
                bounds = Bounds(timeout, max_output_bytes, cancels, signals)
                if (result := self._on_slices(planned, grant, bounds)) is not None:
                    return result
            return execute(
                pipeline.argv,
                engine.sandbox,
                timeout=max(deadline - time.monotonic(), 0),
                max_output_bytes=max_output_bytes,
                cancels=cancels,
                signals=signals,
            )

    def _on_slices(self, planned: Sliced, grant: Grant, bounds: Bounds) -> CommandResult | None:
        """Returns the result; None if only one pass can give it, or there is only one slice."""
        engine = self._engine
        file = _open(engine.corpus)

        def bases(number: int) -> Base:
            return self._lines.before(file, parts[number].start), parts[number].start

        try:
            parts = self._parts(planned, file)
            if len(parts) < 2 and engine.cuts is None:  # such as one endless line
                return None
            corpus = Corpus(engine.corpus, file, engine.facts.bytes, bases)
            return run_sliced(planned, parts, corpus, engine.sandbox, grant, bounds, at_once=self._at_once)
        finally:
            os.close(file)

    def explain(self, pipeline: Pipeline) -> str:
        """Shows the plan, the slices, or why there are none."""
        engine = self._engine
        planned = plan(pipeline, engine.facts, locale=engine.sandbox.locale)
        text = explain_plan(planned)
        if isinstance(planned, Sequential):
            return f"{text}\n{explain_sequential(pipeline, engine.sandbox)}"
        if why := self._why_not(planned):
            once = explain_sequential(pipeline, engine.sandbox)
            return f"one pass over the corpus: {why}\n{once}\non slices it would be\n{text}"
        file = _open(engine.corpus)
        try:
            parts = self._parts(planned, file)
        finally:
            os.close(file)
        how = (
            "files of their own" if parts[0].folder is not None else "pipes, the last as the corpus file from there on"
        )
        return f"{text}\nslices:     {len(parts)}, {self._at_once} at once, as {how}"

    @property
    def _at_once(self) -> int:
        return self._engine.slices or (len(self._engine.cuts) + 1 if self._engine.cuts else SCHEDULER.cores)

    def _why_not(self, planned: Sliced) -> str:
        """Returns why one pass is better than this plan, empty if it is not."""
        engine = self._engine
        by_file = self._by_file(planned)
        if not by_file and planned.piped is None:
            return "the file's name matters and there are no slice files (grepseek corpus build --slices N makes them)"
        if engine.cuts is not None:
            return ""
        if self._at_once < 2:
            return "there is one core"
        if engine.facts.bytes < _WORTH_IT[self._mode]:
            return f"the corpus is smaller than {_WORTH_IT[self._mode] >> 20} MB"
        if isinstance(planned.combiner, Merge) and all(argv[0] in {"cat", "sort"} for argv in planned.mapped):
            return "sort uses all cores by itself, and sorts a file in more memory than it takes for a pipe"
        if planned.work == "scan":
            return "it is limited by memory, not by the processor"
        return ""

    def _has_room(self, widen: Callable[[int], int]) -> bool:
        """Returns whether another core is free now; with slices on one core nothing would be won."""
        return self._engine.cuts is not None or self._mode == "sliced" or widen(2) > 1

    def _by_file(self, planned: Sliced) -> bool:
        engine = self._engine
        fits = not isinstance(planned.combiner, Merge) or len(engine.slice_files) <= _MOST_MERGED
        return bool(engine.slice_files) and engine.feeding != "pipe" and fits

    def _parts(self, planned: Sliced, file: int) -> list[Part]:
        engine, size = self._engine, self._engine.facts.bytes
        if self._by_file(planned):
            parts, at = [], 0
            for number, (folder, length) in enumerate(engine.slice_files):
                parts.append(Part(number, at, at + length, folder))
                at += length
            return parts
        if engine.cuts is not None:
            chosen = engine.cuts
        elif isinstance(planned.combiner, Merge):
            chosen = cuts(file, size, min(self._at_once, _MOST_MERGED))
        else:
            big_last = starts_last_first(planned.combiner)
            chosen = _layout(file, size, self._at_once, early=planned.early, big_last=big_last)
        return [Part(number, start, end) for number, (start, end) in enumerate(ranges(chosen, size))]


def _open(corpus: Path) -> int:
    try:
        return os.open(corpus, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise SpawnFailed(f"the corpus cannot be opened: {error}") from error


def _layout(file: int, size: int, at_once: int, *, early: bool, big_last: bool) -> tuple[int, ...]:
    """Returns where to cut: pieces of one size, or growing ones where the first may decide.

    With `big_last` the last piece is one core's whole share: it is read from the corpus file itself, which costs
    nothing, while all others are copied through pipes.
    """
    piece = min(max(size // (at_once * _ROUNDS), _SMALLEST), _LARGEST)
    if not early:
        if big_last and (last := first_cut(file, size, size - size // at_once)) < size:
            return (*cuts(file, last, max(1, round(last / piece))), last)
        return cuts(file, size, max(1, round(size / piece)))
    found: list[int] = []
    wanted, at = min(_FIRST, piece), 0
    while at + wanted < size:
        at = first_cut(file, size, at + wanted)
        if at < size:
            found.append(at)
        wanted = min(wanted * 2, piece)
    return tuple(found)


def _sliced(engine: Engine) -> Runner:
    return SlicedRunner(engine, "sliced")


def _auto(engine: Engine) -> Runner:
    return NarrowedRunner(engine, SlicedRunner(engine, "auto"), "auto")


def _narrowed(engine: Engine) -> Runner:
    return NarrowedRunner(engine, SlicedRunner(engine, "auto"), "narrowed")


MODES: Mapping[str, Callable[[Engine], Runner]] = {
    "auto": _auto,
    "sequential": SequentialRunner,
    "sliced": _sliced,
    "narrowed": _narrowed,
}
