"""Runs a plan over parts: its first programs at the parts' hosts, the combination and the rest here.

One thread drives a command with one poll, as on slices (`engine.sliced`): parts are read in order, later ones work
ahead by one window, and as soon as the answer is decided the others are told to stop. Whatever shows that there are
parts (a failed program, a message that names a place or is not the same on all parts) ends in `OnePassOnly`.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from grepseek_env.distributed.hosts import Request
from grepseek_env.distributed.streams import OnePassOnly, PartStream, RawPart, Wake
from grepseek_env.engine.combiners import folding
from grepseek_env.engine.feed import held_pipe, no_fork, release
from grepseek_env.engine.loop import Decided, Loop, OutOfTime
from grepseek_env.engine.once import Once, Output
from grepseek_env.engine.plan import Concat, Exists, Head, HeadBytes, Merge, Offset, Uniq, exit_code
from grepseek_env.errors import SpawnFailed
from grepseek_env.types import CommandResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grepseek_env.distributed.links import Links
    from grepseek_env.engine.combiners import Base, Folding
    from grepseek_env.engine.loop import Bounds
    from grepseek_env.engine.plan import Argv, Sliced
    from grepseek_env.engine.sandbox import Sandbox

__all__ = ["MOST_MERGED", "run_on_parts", "run_through"]

MOST_MERGED = 48  # inputs of one sort: each program may hold 64 descriptors open
_WITHOUT_FILES = 16  # inputs that sort merges without being told to, and without temporary files
_WINDOW = 1 << 20
_ALONE_SECONDS = 0.1  # how long the first part may decide by itself
_PLACES = (b"FNR=", b"(standard input)", b"<stdin>", b"-:")


def run_on_parts(
    plan: Sliced, command: str, links: Links, bases: Sequence[Base], sandbox: Sandbox, bounds: Bounds
) -> CommandResult:
    """Runs a plan.

    Args:
        plan: what to run.
        command: its mapped programs as a command.
        links: the ways to the parts.
        bases: lines and bytes before each part.
        sandbox: how programs are started here.
        bounds: what ends the command early.

    Raises:
        OnePassOnly: one pass over the corpus is needed.
        HostGone: a host was lost.
        BackendClosed: one of the cancellations was set.
        EngineFault: a program could not be started here or there, or was killed.
    """
    once = (_merging(plan.combiner, len(links)), *plan.tail) if isinstance(plan.combiner, Merge) else plan.tail
    with sandbox.environment(once) as environment:
        run = _OnParts(plan, command, links, bases, sandbox, environment, bounds)
        try:
            return run.run()
        finally:
            run.close()


def run_through(
    argvs: tuple[Argv, ...], links: Links, sizes: Sequence[int], sandbox: Sandbox, bounds: Bounds
) -> CommandResult:
    """Runs programs here, once, the first of them reading all parts one after the other on its stdin.

    Raises:
        HostGone: a host was lost.
        CorpusError: a part cannot be read.
        BackendClosed: one of the cancellations was set.
        EngineFault: a program could not be started, or was killed.
    """
    with sandbox.environment(argvs) as environment:
        run = _Through(argvs, links, sizes, sandbox, environment, bounds)
        try:
            return run.run()
        finally:
            run.close()


class _Run(ABC):
    """What both ways share: the poll, the programs that run here, the end."""

    def __init__(self, argvs: tuple[Argv, ...], sandbox: Sandbox, environment: dict[str, str], bounds: Bounds) -> None:
        self.loop = Loop(bounds)
        self.wake = Wake()
        self.loop.watch(self.wake.read, self.wake.clear)
        self.output = Output(bounds.max_output_bytes)
        self.after = Once(self.loop, self.output, argvs, sandbox.limits.stderr_bytes) if argvs else None
        self.sandbox, self.environment, self.timeout = sandbox, environment, bounds.timeout
        self.stderr: bytes | None = None

    def run(self) -> CommandResult:
        timed_out = False
        try:
            self.drive()
        except OutOfTime:
            timed_out = True
        finally:
            self.stop()
        cut = self.output.cut
        done = not cut and not timed_out
        messages = self.after.messages() if self.after is not None else ()
        return CommandResult(
            stdout=self.output.value(),
            stderr=b"".join(((self.stderr or b""), *messages)),
            exit_code=self.exit_code() if done else None,
            output_truncated=cut,
            timed_out=timed_out and not cut,
        )

    @abstractmethod
    def drive(self) -> None:
        """Brings the whole output into `output`."""

    @abstractmethod
    def exit_code(self) -> int:
        """Returns the pipeline's exit code; asked only when all output is there."""

    def pump(self, most: float = math.inf) -> None:
        """Waits until something happens."""
        blind = self.after is not None and self.after.blind
        self.loop.turn(most, blind=blind)
        if self.after is not None and blind:
            self.after.look()

    def stop(self) -> None:
        if self.after is not None:
            self.after.stop()

    def close(self) -> None:
        if self.after is not None:
            self.after.close()
        self.loop.unwatch(self.wake.read)
        self.wake.close()


class _Through(_Run):
    def __init__(
        self,
        argvs: tuple[Argv, ...],
        links: Links,
        sizes: Sequence[int],
        sandbox: Sandbox,
        environment: dict[str, str],
        bounds: Bounds,
    ) -> None:
        super().__init__(argvs, sandbox, environment, bounds)
        self._links, self._sizes = links, sizes

    def drive(self) -> None:
        after = self.after
        assert after is not None  # noqa: S101 - there is a program
        with contextlib.suppress(Decided):
            after.start(self.sandbox, self.environment, self.timeout)
            for number, size in enumerate(self._sizes):
                part = RawPart(self._links[number], size, self.wake)
                part.begin()
                while (data := part.take()) is not None:
                    if data:
                        after.write(data, self.pump)
                    else:
                        self.pump()
        after.finish(self.pump)

    def exit_code(self) -> int:
        assert self.after is not None  # noqa: S101 - there is a program
        return self.after.exit_code()


class _OnParts(_Run):
    def __init__(
        self,
        plan: Sliced,
        command: str,
        links: Links,
        bases: Sequence[Base],
        sandbox: Sandbox,
        environment: dict[str, str],
        bounds: Bounds,
    ) -> None:
        self._merges = isinstance(plan.combiner, Merge)
        super().__init__(() if self._merges else plan.tail, sandbox, environment, bounds)
        self._plan, self._links, self._bases = plan, links, bases
        streams = _streams(plan)
        window = _WINDOW
        if bounds.max_output_bytes is not None and streams and not plan.tail:
            window = min(window, bounds.max_output_bytes + 1)
        sorts_all = self._merges and plan.mapped[0][0] in {"cat", "sort"}
        request = Request("", command, bounds.timeout, window, sorts_all)
        self._parts = [PartStream(n, links[n], plan.mapped, request, self.wake) for n in range(len(links))]
        self._begun = 0
        self._early = plan.early or (bounds.max_output_bytes is not None and streams and not plan.tail)
        self._codes: list[int] = []

    def drive(self) -> None:
        if self._merges:
            self._merge()
            return
        with contextlib.suppress(Decided):
            if self.after is not None:
                self.after.start(self.sandbox, self.environment, self.timeout)
            self._fold(folding(self._plan.combiner, self._bases.__getitem__))
        self._stop_parts()
        if self.after is not None:
            self.after.finish(self.pump)

    def exit_code(self) -> int:
        return self.after.exit_code() if self.after is not None else exit_code(self._plan.exits, self._codes)

    def stop(self) -> None:
        self._stop_parts()
        super().stop()

    def _begin(self, count: int) -> None:
        while self._begun < min(count, len(self._parts)):
            self._parts[self._begun].begin()
            self._begun += 1

    def _stop_parts(self) -> None:
        for part in self._parts[: self._begun]:
            part.stop()

    def _wait(self) -> None:
        """Waits for a part; where the first may decide, the others begin only after a moment."""
        alone = self.loop.started + _ALONE_SECONDS - time.monotonic() if self._early else 0
        if self._begun < len(self._parts) and alone > 0:
            self.pump(alone)
        else:
            self._begin(len(self._parts))
            self.pump()

    def _fold(self, fold: Folding) -> None:
        for number, part in enumerate(self._parts):
            if fold.done:
                return
            # Where an early end is likely, twice as many work each time that one has ended without it.
            self._begin(1 << number if self._early else len(self._parts))
            if self._read(part, fold):
                self._codes.append(0)  # what was wanted was found
                return
            self._judge(part)
            self._emit(fold.end_slice())
            if isinstance(self._plan.combiner, Exists) and part.code == 0:
                return
        self._emit(fold.finish())

    def _read(self, part: PartStream, fold: Folding) -> bool:
        """Reads a part to its end, or until all is decided; returns whether it is."""
        while (data := part.take()) is not None:
            if not data:
                self._wait()
                continue
            self._emit(fold.feed(data))
            if fold.done:
                return True
        return False

    def _judge(self, part: PartStream) -> None:
        self._codes.append(part.code)
        if self.stderr is None:
            self.stderr = part.stderr
        if part.stderr != self.stderr or any(place in part.stderr for place in _PLACES):
            raise OnePassOnly

    def _emit(self, data: bytes) -> None:
        if self.after is not None:
            self.after.write(data, self.pump)
        else:
            self.output.write(data)

    def _merge(self) -> None:
        sinks: dict[int, int] = {}  # part -> the pipe into sort
        sources: list[int] = []
        combiner = self._plan.combiner
        assert isinstance(combiner, Merge)  # noqa: S101 - asked before
        try:
            with no_fork():
                try:
                    for number in range(len(self._parts)):
                        source, sinks[number] = held_pipe()
                        sources.append(source)
                        os.set_blocking(sinks[number], False)
                except OSError as error:
                    raise SpawnFailed(f"the parts cannot be merged: {error}; too many open files?") from error
            names = tuple(f"/dev/fd/{source}" for source in sources)
            argvs = ((*_merging(combiner, len(self._parts)), *names), *self._plan.tail)
            after = self.after = Once(self.loop, self.output, argvs, self.sandbox.limits.stderr_bytes)
            self._begin(len(self._parts))
            with contextlib.suppress(Decided):
                after.start(self.sandbox, self.environment, self.timeout, sources)
                while sources:
                    os.close(sources.pop())
                self._feed_merge(sinks)
            after.finish(self.pump)
            self._stop_parts()
            after.stop()
            if after.first_failed:
                raise OnePassOnly
        finally:
            for handle in sources:
                os.close(handle)
            self.loop.unwatch(*sinks.values())
            for sink in sinks.values():
                release(sink)

    def _feed_merge(self, sinks: dict[int, int]) -> None:
        held: dict[int, memoryview] = {}

        def write(number: int) -> None:
            sink = sinks[number]
            try:
                held[number] = held[number][os.write(sink, held[number]) :]
            except BlockingIOError:
                pass
            except BrokenPipeError:  # sort has ended, for good or ill: its end tells
                held[number] = memoryview(b"")
            if held[number]:
                self.loop.watch(sink, lambda _: write(number), select.POLLOUT)
            else:
                del held[number]
                self.loop.unwatch(sink)

        while sinks:
            moved = False
            for number in [each for each in sinks if each not in held]:
                data = self._parts[number].take()
                if data is None:
                    self._judge(self._parts[number])
                    release(sinks.pop(number))
                elif data:
                    moved = True
                    held[number] = memoryview(data)
                    write(number)
            if sinks and not moved:
                self.pump()


def _merging(combiner: Merge, inputs: int) -> Argv:
    """Returns sort's arguments for so many inputs."""
    given = any(word.startswith("--batch-size") for word in combiner.argv)
    if inputs <= _WITHOUT_FILES or given:
        return combiner.argv
    return (*combiner.argv[:2], f"--batch-size={inputs}", *combiner.argv[2:])


def _streams(plan: Sliced) -> bool:
    return isinstance(plan.combiner, (Concat, Head, HeadBytes, Offset, Uniq))
