"""Sorts the commands of a batch by how they are best run, and runs them so."""

from __future__ import annotations

from concurrent.futures import wait
from typing import TYPE_CHECKING, Any

from grepseek_env.commands import parse
from grepseek_env.engine.interrupts import HeldSignals
from grepseek_env.engine.narrowed import NarrowedRunner
from grepseek_env.engine.scheduler import SCHEDULER
from grepseek_env.errors import GrepSeekError, SpawnFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future, ThreadPoolExecutor

    from grepseek_env.commands import Pipeline
    from grepseek_env.engine.cache import ResultCache
    from grepseek_env.engine.executor import Cancellation
    from grepseek_env.engine.modes import Runner
    from grepseek_env.engine.narrowed import Manner
    from grepseek_env.types import CommandResult

    OnResult = Callable[[str, CommandResult | GrepSeekError], None]

__all__ = ["Batch"]

_FEWEST_TOGETHER = 4  # commands for which a pass of their own pays
_MOST_QUICK = 64


class Batch:
    """Commands that came together, all different.

    Args:
        commands: their text.
        runner: runs them.
        run: runs one by itself.
        cache: keeps results; None: nothing is kept.
        check: raises `CorpusChanged` if the corpus is not what it was.
        timeout: seconds that each may run.
        max_output_bytes: stdout of each is cut after this many bytes; None keeps all.
        cancels: any of them ends all.
        on_result: called with a command and its result, or its error, as soon as that is there, in the thread where
            it came to be.

    Attributes:
        results: command -> its result, or its error.
    """

    def __init__(
        self,
        commands: Sequence[str],
        *,
        runner: Runner,
        run: Callable[[str], CommandResult],
        cache: ResultCache | None,
        check: Callable[[], None],
        timeout: float,
        max_output_bytes: int | None,
        cancels: Sequence[Cancellation],
        on_result: OnResult | None = None,
    ) -> None:
        self.results: dict[str, CommandResult | GrepSeekError] = {}
        self._on_result = on_result
        self._runner = runner if isinstance(runner, NarrowedRunner) else None
        self._run = run
        self._cache = cache
        self._check = check
        self._max_output_bytes = max_output_bytes
        self._options: dict[str, Any] = {"timeout": timeout, "max_output_bytes": max_output_bytes, "cancels": cancels}
        self._alone: list[str] = []
        self._waiting: dict[Manner, list[Pipeline]] = {"quick": [], "together": [], "alone": []}
        for command in commands:
            if self._runner is None:
                self._alone.append(command)
            else:
                self._sort(command, self._runner)
        self._alone += [pipeline.text for pipeline in self._waiting["alone"]]

    def run(self, pool: Callable[[], ThreadPoolExecutor], give_up: Cancellation) -> None:
        """Runs them all.

        Args:
            pool: returns threads, as many as there are cores.
            give_up: one of `cancels`; set where this is interrupted, so that no command is left behind.
        """
        futures: list[Future[None]] = []
        groups = self._groups()
        try:
            if groups or len(self._alone) > 1:
                threads = pool()
                with HeldSignals():  # what was handed over and not noted could not be waited for
                    futures.extend(threads.submit(self._run_together, group) for group in groups)
                    futures.extend(threads.submit(self._run_alone, command) for command in self._alone)
            self._run_quick()
            if not futures:
                for command in self._alone:
                    self._run_alone(command)
            for future in futures:
                future.result()
        except BaseException:  # such as KeyboardInterrupt
            give_up.set()
            for future in futures:
                future.cancel()
            wait(futures)
            raise

    def _sort(self, command: str, runner: NarrowedRunner) -> None:
        try:
            pipeline = parse(command)
            known = None if self._cache is None else self._cache.known(pipeline.argv, self._max_output_bytes)
            if known is not None:
                self._put(command, known)
            else:
                self._waiting[runner.manner(pipeline)].append(pipeline)
        except GrepSeekError as error:
            self._put(command, error)

    def _put(self, command: str, result: CommandResult | GrepSeekError) -> None:
        self.results[command] = result
        if self._on_result is not None:
            self._on_result(command, result)

    def _groups(self) -> list[list[Pipeline]]:
        """Returns groups of commands that each take one pass over the corpus, at most one group a core."""
        waiting = self._waiting["together"]
        groups = min(SCHEDULER.cores, -(-len(waiting) // _FEWEST_TOGETHER))
        return [waiting[number::groups] for number in range(groups)]

    def _run_alone(self, command: str) -> None:
        try:
            result: CommandResult | GrepSeekError = self._run(command)
        except GrepSeekError as error:
            result = error
        self._put(command, result)

    def _run_quick(self) -> None:
        waiting = self._waiting["quick"]
        for start in range(0, len(waiting), _MOST_QUICK):  # between these, signals get through
            self._run_all(waiting[start : start + _MOST_QUICK], NarrowedRunner.run_quick)

    def _run_together(self, pipelines: list[Pipeline]) -> None:
        self._run_all(pipelines, NarrowedRunner.run_together)

    def _run_all(self, pipelines: list[Pipeline], run: Callable[..., list[CommandResult]]) -> None:
        try:
            self._check()
            try:
                results = run(self._runner, pipelines, **self._options)
            except SpawnFailed:
                self._check()  # what could not be opened may be the corpus
                raise
            self._check()
        except GrepSeekError as error:
            for pipeline in pipelines:
                self._put(pipeline.text, error)
            return
        for pipeline, result in zip(pipelines, results, strict=True):
            if self._cache is not None:
                self._cache.keep(pipeline.argv, result)
            self._put(pipeline.text, result)
