"""Runs commands on the lines that can matter, found without starting a program.

Three ways, from what is proven about a command (`narrow`): a chain of literal searches is answered in process; where
such a chain is followed by programs, these are given its lines; and where only literals are known that every line of
the answer must hold, the whole command is run on the lines that hold them. Everything else is left to another runner.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from grepseek_env.corpus.slicer import first_cut
from grepseek_env.engine.batch import Asked, answer_together
from grepseek_env.engine.endings import output_of
from grepseek_env.engine.estimate import QUICK_BYTES, Estimate, frequencies, near_bytes, total
from grepseek_env.engine.explain import explain_costs, explain_narrowing, explain_place, explain_why
from grepseek_env.engine.fastpath import FileSearch, conclude, demand
from grepseek_env.engine.interrupts import HeldSignals
from grepseek_env.engine.kernels.load import WORTH_COMPILING, are_compiled, are_loaded, are_possible, load
from grepseek_env.engine.lookups import Lookups
from grepseek_env.engine.loop import Bounds, Decided, OutOfTime
from grepseek_env.engine.memory import MOST_BYTES, MemoryCorpus
from grepseek_env.engine.narrow import narrow
from grepseek_env.engine.once import Output
from grepseek_env.engine.piped import Clock, feed
from grepseek_env.engine.prepared import prepare
from grepseek_env.engine.scanning import EVERY_LINE
from grepseek_env.engine.scheduler import SCHEDULER
from grepseek_env.errors import SpawnFailed
from grepseek_env.types import CommandResult

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from grepseek_env.commands import Pipeline
    from grepseek_env.engine.estimate import Costs
    from grepseek_env.engine.executor import Cancellation
    from grepseek_env.engine.fastpath import Index, Search
    from grepseek_env.engine.literals.records import Clause
    from grepseek_env.engine.modes import Engine, Runner
    from grepseek_env.engine.prepared import Prepared
    from grepseek_env.engine.question import Question
    from grepseek_env.engine.scanning import Spans, Write
    from grepseek_env.engine.scheduler import Grant

__all__ = ["Manner", "NarrowedRunner"]

_MOST_PREPARED = 4096

_UNDECIDED = "nothing is decided before the kernels are compiled, which so large a corpus is worth"

_Where = Literal["kernels", "memory", ""]
Manner = Literal["quick", "together", "alone"]
"""How a command of a batch is best run: at once, since it takes no longer than handing it to another thread; in one
pass with others; or by itself, beside others."""


class NarrowedRunner:
    """Runs commands on the lines that can matter, where that is known, and leaves others to another runner.

    Args:
        engine: what to run with.
        otherwise: runs what cannot be narrowed, or is not worth it.
        mode: "narrowed" narrows wherever that is possible; "auto" only where it is likely to be faster.
    """

    def __init__(self, engine: Engine, otherwise: Runner, mode: Literal["narrowed", "auto"] = "narrowed") -> None:
        self._engine = engine
        self._otherwise = otherwise
        self._mode = mode
        self._lock = threading.Lock()
        self._prepared: OrderedDict[str, Prepared] = OrderedDict()
        self._estimate = Estimate(engine.facts.bytes, engine.facts.lines)
        self._memory: MemoryCorpus | None = None
        self._counts: tuple[int, ...] | None = None
        self._candidates = Lookups(engine.open_index)

    def run(
        self,
        pipeline: Pipeline,
        *,
        timeout: float,
        max_output_bytes: int | None = None,
        cancels: Sequence[Cancellation] = (),
    ) -> CommandResult:
        """Waits for a core, then runs the pipeline; see `execute`."""
        prepared = self._prepare(pipeline)
        where = self._where(prepared, may_load=True)
        if where and prepared.question is not None:
            with HeldSignals() as signals, SCHEDULER.admit(signals, cancels) as grant:
                ends = time.monotonic() + timeout
                bounds = Bounds(timeout, max_output_bytes, cancels, signals)
                result = self._narrowed(pipeline, prepared, prepared.question, where, grant, bounds)
            if result is not None:
                return result
            timeout = max(ends - time.monotonic(), 0.001)
        return self._otherwise.run(pipeline, timeout=timeout, max_output_bytes=max_output_bytes, cancels=cancels)

    def manner(self, pipeline: Pipeline) -> Manner:
        """Returns how a command of a batch is best run."""
        prepared = self._prepare(pipeline)
        where = self._where(prepared, may_load=True)
        if not where or prepared.question is None or prepared.fed:
            return "alone"
        size = self._engine.facts.bytes
        if where == "memory" or size <= QUICK_BYTES:
            return "quick"
        found = self._candidates(prepared.question.clauses)
        if found is None:  # first lines as well: one pass ends for each command with its last one
            return "together"
        early = demand(prepared.narrowing.sink, bounded=False).early
        return "quick" if early or total(found) <= QUICK_BYTES else "alone"

    def run_quick(
        self,
        pipelines: Sequence[Pipeline],
        *,
        timeout: float,
        max_output_bytes: int | None,
        cancels: Sequence[Cancellation],
    ) -> list[CommandResult]:
        """Runs commands whose manner is "quick" one after the other on one core."""
        results: list[CommandResult] = []
        with HeldSignals() as signals, SCHEDULER.admit(signals, cancels) as grant:
            for pipeline in pipelines:
                prepared = self._prepare(pipeline)
                where = self._where(prepared, may_load=True)
                bounds = Bounds(timeout, max_output_bytes, cancels, signals)
                assert prepared.question is not None  # noqa: S101 - else its manner is another
                result = self._narrowed(pipeline, prepared, prepared.question, where, grant, bounds, certain=True)
                assert result is not None  # noqa: S101 - no program was started
                results.append(result)
        return results

    def run_together(
        self,
        pipelines: Sequence[Pipeline],
        *,
        timeout: float,
        max_output_bytes: int | None,
        cancels: Sequence[Cancellation],
    ) -> list[CommandResult]:
        """Runs commands whose manner is "together" in one pass over the corpus, on one core."""
        asked: list[Asked] = []
        for pipeline in pipelines:
            prepared = self._prepare(pipeline)
            assert prepared.question is not None  # noqa: S101 - else its manner is another
            asked.append(Asked(prepared.question, prepared.narrowing.sink, Output(max_output_bytes)))
        with HeldSignals() as signals, SCHEDULER.admit(signals, cancels):
            clock = Clock(Bounds(timeout, max_output_bytes, cancels, signals))
            file = _open(self._engine)
            try:
                return answer_together(file, self._engine.facts.bytes, asked, clock.check)
            finally:
                os.close(file)

    def warm_up(self, announce: Callable[[], object] = lambda: None) -> None:
        """Loads beforehand what commands would load when they first need it.

        Args:
            announce: called before a compilation, which takes seconds.
        """
        size = self._engine.facts.bytes
        if self._mode == "narrowed" or (size > MOST_BYTES and (are_compiled() or size >= WORTH_COMPILING)):
            load(announce)
            _ = self._candidates.index  # opened

    def explain(self, pipeline: Pipeline) -> str:
        """Shows what is searched for where, and what happens to the lines; or why another way is taken."""
        prepared = self._prepare(pipeline)
        where = self._where(prepared, may_load=are_compiled())
        other = self._otherwise.explain(pipeline)
        if not where or prepared.question is None:
            return f"not narrowed: {self._why_not(prepared)}\n{other}"
        found = None if where == "memory" else self._candidates(prepared.question.clauses)
        indexed = where == "kernels" and self._candidates.index is not None
        place = explain_place(
            self._engine.facts.bytes,
            None if found is None else (len(found), total(found)),
            memory=where == "memory",
            indexed=indexed,
        )
        costs, worth = self._costs(pipeline, prepared, prepared.question, where, found)
        why = _UNDECIDED
        if costs is not None:
            program, narrowed = pipeline.stages[0].program, found is not None
            why = explain_why(costs, program, worth=worth, indexed=indexed, narrowed=narrowed)
        shown = explain_costs(costs)
        if self._mode == "auto" and not worth:
            first = self._first(pipeline, prepared, indexed=indexed)
            return f"not narrowed: {first}{why}\nestimated:  {shown}\ncandidates: {place}\n{other}"
        if self._mode == "narrowed":
            why = f"mode narrowed does so wherever it can; mode auto would {'too' if worth else 'not'}: {why}"
        return explain_narrowing(
            prepared.narrowing, prepared.fed, prepared.ending, place=place, costs=shown, why=why, otherwise=other
        )

    # --- what is done

    def _narrowed(
        self,
        pipeline: Pipeline,
        prepared: Prepared,
        question: Question,
        where: _Where,
        grant: Grant,
        bounds: Bounds,
        *,
        certain: bool = False,
    ) -> CommandResult | None:
        """Returns the result; None where the command has to be run as it stands, or had better be if not `certain`."""
        if where == "memory":
            return self._finish(prepared, self._in_memory(question), bounds, Clock(bounds))
        engine = self._engine
        file = _open(engine)
        try:
            clock = Clock(bounds)
            index: Index | None = self._candidates if self._candidates.index is not None else None
            if self._mode == "auto" and not certain:
                if index is not None and question.clauses and not prepared.fed:
                    index = self._judging(pipeline, prepared, question, file)
                elif near := self._near(pipeline, prepared, question, file, grant, bounds, clock):
                    return near
                else:  # with programs that are fed: before they are started
                    found = self._candidates(question.clauses)
                    if not self._estimate.is_worth_it(pipeline, prepared, question, file, found):
                        return None
                    index = None if found is None else lambda _, /: found
            search = FileSearch(file, engine.facts.bytes, question, index, grant, clock.check)
            return self._finish(prepared, search, bounds, clock)
        except _Elsewhere:
            return None
        finally:
            os.close(file)

    def _near(
        self,
        pipeline: Pipeline,
        prepared: Prepared,
        question: Question,
        file: int,
        grant: Grant,
        bounds: Bounds,
        clock: Clock,
    ) -> CommandResult | None:
        """Returns the result if the beginning of the corpus holds all that is wanted."""
        size = self._engine.facts.bytes
        near = near_bytes(pipeline, prepared, size, bounded=bounds.max_output_bytes is not None)
        end = first_cut(file, size, near)
        if not 0 < end < size:
            return None
        try:
            return self._finish(prepared, _Near(file, end, question, grant, clock.check), bounds, clock)
        except _Elsewhere:
            return None

    def _judging(self, pipeline: Pipeline, prepared: Prepared, question: Question, file: int) -> Index:
        """Returns the index, which raises `_Elsewhere` where what it knows makes another way better."""

        def index(clauses: tuple[Clause, ...]) -> Spans | None:
            found = self._candidates(clauses)
            if not self._estimate.is_worth_it(pipeline, prepared, question, file, found):
                raise _Elsewhere
            return found

        return index

    def _finish(self, prepared: Prepared, search: Search, bounds: Bounds, clock: Clock) -> CommandResult | None:
        if prepared.fed:
            output = output_of(prepared.ending, bounds.max_output_bytes)
            return feed(prepared.fed, search, self._engine.sandbox, bounds, clock, output)
        output = Output(bounds.max_output_bytes)
        sink = prepared.narrowing.sink
        need = demand(sink, bounded=output.bounded)
        code, timed_out = 0, False
        try:
            found = search(output.write if need.written else None, most_lines=need.most_lines, early=need.early)
            code = conclude(sink, *found, output)
        except Decided:
            pass
        except OutOfTime:
            timed_out = True
        return CommandResult(
            stdout=output.value(),
            stderr=b"",
            exit_code=None if output.cut or timed_out else code,
            output_truncated=output.cut,
            timed_out=timed_out and not output.cut,
        )

    def _in_memory(self, question: Question) -> Search:
        if self._memory is None:
            self._memory = MemoryCorpus(self._engine.corpus, self._engine.facts.bytes)
        corpus = self._memory

        def search(write: Write | None, *, most_lines: int = EVERY_LINE, early: bool = False) -> tuple[int, int]:
            del early
            return corpus.search(question, write, most_lines=most_lines)

        return search

    # --- what is known

    def _prepare(self, pipeline: Pipeline) -> Prepared:
        known = self._prepared.get(pipeline.text)
        if known is None:
            proven = narrow(pipeline, self._engine.facts, locale=self._engine.sandbox.locale)
            known = prepare(proven, pipeline, self._frequencies)
            with self._lock:
                while len(self._prepared) >= _MOST_PREPARED:
                    self._estimate.forget(self._prepared.popitem(last=False)[0])
                self._prepared[pipeline.text] = known
        return known

    def _where(self, prepared: Prepared, *, may_load: bool) -> _Where:
        """Returns what finds the lines; empty where the command is not to be narrowed."""
        size = self._engine.facts.bytes
        if prepared.question is None:
            return ""
        auto, small = self._mode == "auto", size <= MOST_BYTES
        if auto and small and prepared.replays and prepared.ending is None:
            return ""  # the same programs have to be started, and they read so little in no time
        if auto and small and not are_loaded():
            return "memory"
        if auto and not are_compiled() and size < WORTH_COMPILING:
            return ""
        possible = load() is not None if may_load else are_possible()
        return "kernels" if possible else "memory" if small else ""

    def _why_not(self, prepared: Prepared) -> str:
        if prepared.question is None:
            return prepared.narrowing.reason
        if not are_possible():
            return "numba cannot be imported here"
        if self._engine.facts.bytes <= MOST_BYTES:
            return "the corpus is so small that the programs read it in no time"
        return "the kernels are not compiled on this machine (grepseek corpus build compiles them)"

    def _costs(
        self, pipeline: Pipeline, prepared: Prepared, question: Question, where: _Where, found: Spans | None
    ) -> tuple[Costs | None, bool]:
        """Returns what both ways are likely to take, if that can be told, and whether narrowing is worth it."""
        if where == "memory":
            return self._estimate.costs_in_memory(pipeline, prepared), True
        if not are_loaded():
            return None, True
        file = _open(self._engine)
        try:
            costs = self._estimate.costs(pipeline, prepared, question, file, found)
            return costs, self._estimate.is_worth_it(pipeline, prepared, question, file, found)
        finally:
            os.close(file)

    def _first(self, pipeline: Pipeline, prepared: Prepared, *, indexed: bool) -> str:
        """Says what is searched although the command is not narrowed; see `_near`."""
        near = (
            0
            if indexed and prepared.narrowing.clauses
            else near_bytes(pipeline, prepared, self._engine.facts.bytes, bounded=False)
        )
        return f"after its first {near >> 20} MB, " if near else ""

    def _frequencies(self) -> tuple[int, ...]:
        """Returns how common each byte is in the corpus, from a few samples."""
        if self._counts is None:
            file = _open(self._engine)
            try:
                self._counts = frequencies(file, self._engine.facts.bytes)
            finally:
                os.close(file)
        return self._counts


class _Elsewhere(Exception):
    """Another way is taken; what has been found until now is forgotten."""


@dataclass(frozen=True, slots=True)
class _Near:
    """Searches the lines before `end` and raises `_Elsewhere` where they are not enough."""

    file: int
    end: int
    question: Question
    grant: Grant
    check: Callable[[], None]

    def __call__(self, write: Write | None, *, most_lines: int = EVERY_LINE, early: bool = False) -> tuple[int, int]:
        search = FileSearch(self.file, self.end, self.question, None, self.grant, self.check)
        found = search(write, most_lines=most_lines, early=early)
        if found[0] < most_lines:
            raise _Elsewhere
        return found


def _open(engine: Engine) -> int:
    try:
        return os.open(engine.corpus, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise SpawnFailed(f"the corpus cannot be opened: {error}") from error
