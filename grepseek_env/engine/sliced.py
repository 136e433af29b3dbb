"""Runs a plan: its first programs on slices of the corpus side by side, the rest once on what the slices give.

One thread drives a command with one poll: it reads the slices in order, lets later ones work ahead as far as memory
allows, combines, and writes into the programs that run once. As soon as the answer is decided the rest is killed.

Nothing is told before the end, so whatever would show that there were slices (a program that failed, a message that
names a place or is not the same on all slices) makes `run_sliced` give up, and the command is run in one pass.
A program that is killed from outside while it runs on a slice is a fault, never a smaller answer.
"""

from __future__ import annotations

import contextlib
import math
import time
from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING

from grepseek_env.engine.combiners import folding
from grepseek_env.engine.loop import Decided, Loop, OutOfTime
from grepseek_env.engine.once import Once, Output
from grepseek_env.engine.plan import Concat, Exists, Head, HeadBytes, Merge, Offset, Sum, Uniq, exit_code
from grepseek_env.engine.worker import Worker
from grepseek_env.types import CommandResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grepseek_env.engine.combiners import Folding
    from grepseek_env.engine.feed import Part
    from grepseek_env.engine.loop import Bounds
    from grepseek_env.engine.plan import Combiner, Sliced
    from grepseek_env.engine.sandbox import Sandbox
    from grepseek_env.engine.scheduler import Grant
    from grepseek_env.engine.worker import Corpus

__all__ = ["run_sliced", "starts_last_first"]

_NARROW_SECONDS = 0.1  # how long the first slices may decide, one at a time
_MOST_HELD = 256 << 20  # output of all slices that waits, before another is started
# What messages say about places in a stream, which are others on a slice.
_PLACES = (b"FNR=", b"(standard input)", b"<stdin>", b"-:")


def run_sliced(
    plan: Sliced,
    parts: Sequence[Part],
    corpus: Corpus,
    sandbox: Sandbox,
    grant: Grant,
    bounds: Bounds,
    *,
    at_once: int,
) -> CommandResult | None:
    """Runs a plan on slices.

    Args:
        plan: what to run.
        parts: the slices, which together are the corpus; at most 16 for a merge.
        corpus: what they are cut from.
        sandbox: how programs are started.
        grant: the cores that the command holds.
        bounds: what ends it early.
        at_once: how many slices may run side by side, where so many cores are free.

    Returns:
        the command's result, or None where only one pass over the whole corpus can give it.

    Raises:
        SpawnFailed: a program could not be started; all others were stopped.
        BackendClosed: one of the cancellations was set.
        EngineFault: a program was killed from outside, or its exit status taken by somebody else.
    """
    run = _Merging if isinstance(plan.combiner, Merge) else _Folding
    once = run.once(plan)
    with sandbox.environment((*plan.mapped, *once)) as environment:
        threads = {"OMP_NUM_THREADS": "1"} if len(parts) > 1 else {}  # sort starts one a core by itself
        current = run(plan, parts, corpus, sandbox, {**environment, **threads}, grant, bounds, at_once)
        try:
            return current.run()
        except _OnlyWhole:
            return None
        finally:
            current.close()


class _OnlyWhole(Exception):
    """One pass over the whole corpus is needed to give this command's result."""


class _Run(ABC):
    """One command while it runs on slices."""

    def __init__(
        self,
        plan: Sliced,
        parts: Sequence[Part],
        corpus: Corpus,
        sandbox: Sandbox,
        environment: dict[str, str],
        grant: Grant,
        bounds: Bounds,
        at_once: int,
    ) -> None:
        self.plan = plan
        self.corpus = corpus
        self.sandbox = sandbox
        self.environment = environment
        self.grant = grant
        self.timeout = bounds.timeout
        self.at_once = at_once
        self.loop = Loop(bounds)
        self.output = Output(bounds.max_output_bytes)
        # Where the first output may be enough, the first slices get a moment to decide alone.
        bounded = bounds.max_output_bytes is not None and not plan.tail and _streams(plan.combiner)
        self.early = plan.early or bounded
        # Where the order of slices does not matter, the one that costs most to leave to the end goes first.
        self.waiting = deque((parts[-1], *parts[:-1]) if starts_last_first(plan.combiner) else parts)
        self.workers: deque[Worker] = deque()  # in the order started; the first is the one that is read
        argvs = self.once(plan)
        self.after = Once(self.loop, self.output, argvs, sandbox.limits.stderr_bytes) if argvs else None
        self.codes: list[int] = []  # of the last program on each slice that counts
        self.messages: tuple[bytes, ...] | None = None

    @staticmethod
    def once(plan: Sliced) -> tuple[tuple[str, ...], ...]:
        """Returns the programs that run once."""
        return plan.tail

    @abstractmethod
    def combine(self) -> None:
        """Runs everything to its end."""

    def run(self) -> CommandResult:
        timed_out = False
        try:
            self.combine()
        except OutOfTime:
            timed_out = True
        finally:
            self.stop()
        cut = self.output.cut
        done = not cut and not timed_out
        if self.after and not timed_out:
            self.after.check_not_killed()
        if self.messages is None and self.workers:  # the first slice never ended
            self.messages = self.workers[0].messages()
        messages = (*(self.messages or ()), *(self.after.messages() if self.after else ()))
        return CommandResult(
            stdout=self.output.value(),
            stderr=b"".join(messages),
            exit_code=self.exit_code() if done else None,
            output_truncated=cut,
            timed_out=timed_out and not cut,
        )

    def exit_code(self) -> int:
        return self.after.exit_code() if self.after else exit_code(self.plan.exits, self.codes)

    def pump(self) -> None:
        """Waits for anything to happen, deals with it, and starts what there is room for."""
        blind = [worker for worker in self.workers if worker.blind]
        alone = self.alone()
        once_blind = self.after is not None and self.after.blind
        self.loop.turn(alone if self.waiting and alone > 0 else math.inf, blind=bool(blind) or once_blind)
        for worker in blind:
            worker.look()
        if self.after is not None and once_blind:
            self.after.look()
        self.fill()

    def alone(self) -> float:
        """Returns for how many seconds from now slices run one at a time."""
        return self.loop.started + _NARROW_SECONDS - time.monotonic() if self.early else 0

    def fill(self) -> None:
        """Starts slices, as many as there are cores and memory for."""
        self.grant.yield_extra(self.busy())
        while self.waiting and self.may_start():
            self.start(self.waiting.popleft())

    def busy(self) -> int:
        return sum(worker.busy for worker in self.workers)

    def may_start(self) -> bool:
        if not self.workers:
            return True
        busy = self.busy()
        if self.alone() > 0 or busy >= self.at_once or sum(worker.held for worker in self.workers) >= _MOST_HELD:
            return False
        return busy < self.grant.widen(min(busy + 1, self.at_once))

    def start(self, part: Part) -> None:
        argvs = self.plan.mapped if part.folder is not None or self.plan.piped is None else self.plan.piped
        sorts = isinstance(self.plan.combiner, Merge)
        worker = Worker(self.loop, argvs, self.sandbox.limits.stderr_bytes, sorts=sorts)
        self.workers.append(worker)
        worker.start(part, self.corpus, self.sandbox, self.environment, self.timeout)

    def judge(self, worker: Worker) -> None:
        """Lets a slice that has ended count.

        Raises:
            EngineFault: a program was killed from outside, or its input could not be read.
            _OnlyWhole: it must not count.
        """
        if not worker.may_count():
            raise _OnlyWhole
        messages = worker.messages()
        if self.messages is None:
            self.messages = messages
        if self.messages != messages or any(place in text for text in messages for place in _PLACES):
            raise _OnlyWhole

    def stop(self) -> None:
        """Kills whatever still runs."""
        with contextlib.ExitStack() as stack:  # the others are stopped even if one cannot be
            if self.after is not None:
                stack.callback(self.after.stop)
            for worker in self.workers:
                stack.callback(worker.stop)

    def close(self) -> None:
        for worker in self.workers:
            worker.close()
        if self.after is not None:
            self.after.close()


class _Folding(_Run):
    """The outputs of the slices are combined here, in order."""

    def combine(self) -> None:
        with contextlib.suppress(Decided):
            if self.after is not None:
                self.after.start(self.sandbox, self.environment, self.timeout)
            self.fold()
        self.drop_workers()
        if self.after is not None:
            self.after.finish(self.pump)

    def fold(self) -> None:
        fold = folding(self.plan.combiner, self.corpus.bases)
        exists = isinstance(self.plan.combiner, Exists)
        while not fold.done and (worker := self.first()) is not None:
            if self.read(worker, fold):
                self.codes.append(0)  # what was wanted was found
                return
            self.judge(worker)
            self.codes.append(worker.chain.codes()[-1])
            self.workers.popleft()
            worker.close()
            self.emit(fold.end_slice())
            if exists and self.codes[-1] == 0:
                return
        self.emit(fold.finish())

    def read(self, worker: Worker, fold: Folding) -> bool:
        """Reads a slice to its end, or until all is decided; returns whether it is."""
        while (chunk := worker.take()) is not None:
            if not chunk:
                self.pump()
                continue
            self.emit(fold.feed(chunk))
            if fold.done:
                return True
        return False

    def first(self) -> Worker | None:
        """Returns the slice whose turn it is, None after the last."""
        self.fill()
        return self.workers[0] if self.workers else None

    def emit(self, data: bytes) -> None:
        """Passes on what is certain.

        Raises:
            Decided: nobody wants more.
        """
        if self.after is not None:
            self.after.write(data, self.pump)
        else:
            self.output.write(data)

    def drop_workers(self) -> None:
        """Kills the slices that are not needed any more."""
        self.waiting.clear()
        while self.workers:
            worker = self.workers[0]
            worker.stop()
            if self.messages is None:  # the first slice has decided
                self.messages = worker.messages()
            self.workers.popleft()
            worker.close()


class _Merging(_Run):
    """The slices sort, and sort merges what they wrote: it reads their pipes itself."""

    @staticmethod
    def once(plan: Sliced) -> tuple[tuple[str, ...], ...]:
        return (plan.combiner.argv, *plan.tail) if isinstance(plan.combiner, Merge) else plan.tail

    def combine(self) -> None:
        # Sort waits with its output until all of it is sorted, so a slice that has sorted holds no core.
        self.fill()
        while self.waiting or not all(worker.has_sorted for worker in self.workers):
            self.pump()
            if not all(worker.still_counts() for worker in self.workers):
                raise _OnlyWhole
        outputs = [out for out in (worker.hand_over() for worker in self.workers) if out is not None]
        after = self.after = self.reading(outputs)
        after.start(self.sandbox, self.environment, self.timeout, outputs)
        for worker in self.workers:
            worker.close_out()
        after.finish(self.pump)
        after.stop()
        if after.first_failed:  # bad keys, say; that a slice's sort failed too may not show yet
            raise _OnlyWhole
        while after.first_read_everything and not all(worker.ended for worker in self.workers):
            self.pump()
        for worker in self.workers:
            worker.stop()
            self.judge(worker)

    def reading(self, outputs: Sequence[int]) -> Once:
        """Returns the programs that run once, the first of them reading these descriptors."""
        merge, *tail = self.once(self.plan)
        names = tuple(f"/dev/fd/{out}" for out in outputs)
        return Once(self.loop, self.output, ((*merge, *names), *tail), self.sandbox.limits.stderr_bytes)


def starts_last_first(combiner: Combiner) -> bool:
    """Tells whether the last slice is started and read before the others: sums do not depend on the order."""
    return isinstance(combiner, Sum)


def _streams(combiner: Combiner) -> bool:
    return isinstance(combiner, (Concat, Head, HeadBytes, Offset, Uniq))
