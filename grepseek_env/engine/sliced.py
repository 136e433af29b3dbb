"""Runs a plan: its first programs on slices of the corpus side by side, the rest once on what the slices give.

One thread drives a command with one poll: it reads the slices in order, lets later ones work ahead as far as memory
allows, combines, and writes into the programs that run once. As soon as the answer is decided the rest is killed.

Nothing is told before the end, so whatever would show that there were slices (a program that failed, a message that
names a line or is not the same on all slices) makes `run_sliced` give up, and the command is run in one pass.
A slice's program that is killed from outside is a fault, never a smaller answer.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import math
import os
import select
import time
from collections import deque
from typing import TYPE_CHECKING

from grepseek_env.engine.combiners import folding
from grepseek_env.engine.executor import LARGE_READ, Chain, drain, milliseconds, stopped, widen
from grepseek_env.engine.feed import Feed, held_pipe, no_fork, release
from grepseek_env.engine.plan import Concat, Exists, Head, HeadBytes, Merge, Offset, Uniq, exit_code, failed
from grepseek_env.errors import EngineFault, SpawnFailed
from grepseek_env.types import CommandResult

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from grepseek_env.engine.combiners import Base
    from grepseek_env.engine.executor import Cancellation
    from grepseek_env.engine.feed import Part
    from grepseek_env.engine.interrupts import HeldSignals
    from grepseek_env.engine.plan import Argv, Sliced
    from grepseek_env.engine.sandbox import Sandbox
    from grepseek_env.engine.scheduler import Grant

__all__ = ["Bounds", "Corpus", "run_sliced"]

_HELD_A_SLICE = 32 << 20  # output that one slice may have waiting,
_HELD = 256 << 20  # and all together, before another is started
_NARROW_SECONDS = 0.02  # how long the first slice may decide alone
_MERGED_AT_ONCE = 16  # sort's own limit without temporary files
_KILLED, _PIPE_CLOSED = 128 + 9, 128 + 13
# What messages say about places in a stream, which are others on a slice.
_PLACES = (b"FNR=", b"(standard input)", b"<stdin>", b"-:")


@dataclasses.dataclass(frozen=True, slots=True)
class Corpus:
    """What slices are cut from.

    Attributes:
        path: the file.
        file: a descriptor of it, open for as long as the command runs.
        size: its bytes.
        bases: slice number -> lines and bytes before it.
    """

    path: Path
    file: int
    size: int
    bases: Callable[[int], Base]


@dataclasses.dataclass(frozen=True, slots=True)
class Bounds:
    """What ends a command early.

    Attributes:
        timeout: seconds it may run from now on.
        max_output_bytes: stdout is cut after this many bytes; None keeps all.
        cancels: any of them ends it.
        signals: its held signals.
    """

    timeout: float
    max_output_bytes: int | None
    cancels: Sequence[Cancellation]
    signals: HeldSignals


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
    once = (plan.combiner.argv, *plan.tail) if isinstance(plan.combiner, Merge) else plan.tail
    with sandbox.environment((*plan.mapped, *once)) as environment:
        threads = {"OMP_NUM_THREADS": "1"} if len(parts) > 1 else {}  # sort starts one a core by itself
        run = _Run(plan, parts, corpus, sandbox, {**environment, **threads}, grant, bounds, at_once)
        try:
            return run.run()
        except _OnlyWhole:
            return None
        finally:
            run.close()


class _Decided(Exception):
    """Nothing more is wanted from the slices."""


class _OutOfTime(Exception):
    """The deadline has passed."""


class _OnlyWhole(Exception):
    """One pass over the whole corpus is needed to give this command's result."""


class _Worker:
    """The programs of one slice."""

    __slots__ = ("argvs", "chain", "chunks", "ends", "feed", "held", "open", "paused")

    def __init__(self, chain: Chain, argvs: tuple[Argv, ...]) -> None:
        self.chain = chain
        self.argvs = argvs
        self.feed: Feed | None = None
        self.ends: dict[int, int] = {}  # a program that has not ended -> descriptor that its end makes readable, or -1
        self.chunks: deque[bytes] = deque()
        self.held = 0  # bytes in `chunks`
        self.open = True  # more may come
        self.paused = False

    @property
    def ended(self) -> bool:
        return not self.ends

    @property
    def upstream_ended(self) -> bool:
        return self.ends.keys() <= {len(self.chain.processes) - 1}


class _Run:
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
        self.bounds = bounds
        self.at_once = at_once
        # Where the first output may be enough, the first slice gets a moment to decide alone.
        self.early = plan.early or (bounds.max_output_bytes is not None and not plan.tail and _streams(plan))
        self.started = time.monotonic()
        self.deadline = self.started + bounds.timeout
        self.budget = math.inf if bounds.max_output_bytes is None else bounds.max_output_bytes
        self.merging = isinstance(plan.combiner, Merge)
        self.waiting = deque(parts)
        self.workers: deque[_Worker] = deque()  # in slice order; the first is the one that is read
        self.running = 0
        self.held = 0
        self.poller = select.poll()
        self.actions: dict[int, Callable[[int], object]] = {}
        self.stdout = io.BytesIO()
        self.size = 0
        self.once: Chain | None = None  # the programs that run once
        self.once_ended = False
        self.sink = -1  # their stdin
        self.codes: list[int] = []
        self.messages: tuple[bytes, ...] | None = None
        self.timed_out = False
        for cancel in bounds.cancels:
            self.watch(cancel.fileno(), self.cancelled)

    def run(self) -> CommandResult:
        try:
            if self.merging:
                self.merge()
            else:
                self.fold()
        except _OutOfTime:
            self.timed_out = True
        finally:
            self.stop()
        return self.result()

    # --- the two ways to combine

    def fold(self) -> None:
        fold = folding(self.plan.combiner, self.corpus.bases)
        exists = isinstance(self.plan.combiner, Exists)
        with contextlib.suppress(_Decided):
            if self.plan.tail:
                self.start_once(self.plan.tail)
            while not fold.done and (worker := self.first()) is not None:
                while (chunk := self.take(worker)) is not None:
                    self.emit(fold.feed(chunk))
                    if fold.done:
                        self.codes.append(0)  # what was wanted was found
                        raise _Decided
                self.account(worker)
                self.emit(fold.end_slice())
                if exists and self.codes[-1] == 0:
                    raise _Decided
            self.emit(fold.finish())
        self.cancel_workers()
        self.finish_once()

    def merge(self) -> None:
        """Lets every slice sort; sort waits with its output until all of it is sorted, so none holds a core then."""
        assert isinstance(self.plan.combiner, Merge)
        while self.waiting or not all(map(self.has_sorted, self.workers)):
            self.fill()
            self.pump()
        names = [f"/dev/fd/{worker.chain.out}" for worker in self.workers if worker.open]
        inherited = [worker.chain.out for worker in self.workers if worker.open]
        self.start_once((self.plan.combiner.argv + tuple(names), *self.plan.tail), inherited)
        for worker in self.workers:
            if worker.open:
                worker.open = False
                worker.chain.close_handle(worker.chain.out)
        with contextlib.suppress(_Decided):
            self.finish_once()
        assert self.once is not None
        self.once.stop()
        if self.once.codes()[0] == 0 and 0 not in self.once.killed:  # it has read everything
            with contextlib.suppress(_Decided):
                while not all(worker.ended for worker in self.workers):
                    self.pump()
        for worker in self.workers:
            worker.chain.stop()
            self.judge(worker)

    def has_sorted(self, worker: _Worker) -> bool:
        return worker.ended or (worker.paused and worker.upstream_ended)

    # --- slices

    def first(self) -> _Worker | None:
        """Returns the slice whose turn it is, None after the last."""
        self.fill()
        return self.workers[0] if self.workers else None

    def fill(self) -> None:
        """Starts slices, as many as there are cores and room for."""
        self.grant.yield_extra(self.running)
        while self.waiting and self.may_start():
            self.start(self.waiting.popleft())

    def may_start(self) -> bool:
        if not self.workers:
            return True
        if self.narrow() > 0 or self.held >= _HELD or self.running >= self.at_once:
            return False
        return self.running < self.grant.widen(min(self.running + 1, self.at_once))

    def narrow(self) -> float:
        """Returns for how many seconds from now the first slice runs alone."""
        return self.started + _NARROW_SECONDS - time.monotonic() if self.early and not self.codes else 0

    def start(self, part: Part) -> None:
        sandbox = self.sandbox if part.folder is None else dataclasses.replace(self.sandbox, view=part.folder)
        argvs = self.plan.mapped if part.folder is not None else self.plan.piped
        assert argvs is not None
        chain = Chain(self.sandbox.limits.stderr_bytes)
        worker = _Worker(chain, argvs)
        self.workers.append(worker)
        self.running += 1
        with no_fork():
            worker.feed = feed = Feed(part, self.corpus.path, self.corpus.file, self.corpus.size)
            chain.start(argvs, sandbox, self.environment, self.bounds.timeout, feed.source)
        feed.begin()
        self.watch(chain.out, lambda _: self.read(worker))
        self.watch_chain(chain)
        for number in range(len(argvs)):
            worker.ends[number] = end = chain.end if number == len(argvs) - 1 else chain.open_end(number)
            if end >= 0:
                self.watch(end, lambda _, number=number: self.end(worker, number))

    def end(self, worker: _Worker, number: int) -> None:
        """Notes that a program of a slice has ended."""
        handle = worker.ends.pop(number)
        if handle >= 0:
            self.unwatch(handle)
        if worker.ended:
            if not (self.merging and worker.paused):
                self.running -= 1
            worker.chain.stop()

    def read(self, worker: _Worker) -> None:
        out = worker.chain.out
        if self.merging:  # it has sorted: what it says is for the merge
            self.unwatch(out)
            worker.paused = True
            if not worker.ended:
                self.running -= 1
            return
        data = os.read(out, LARGE_READ)
        if not data:
            self.unwatch(out)
            worker.chain.close_handle(out)
            worker.open = False
            return
        worker.chunks.append(data)
        worker.held += len(data)
        self.held += len(data)
        if worker.held >= _HELD_A_SLICE:
            self.unwatch(out)
            worker.paused = True

    def take(self, worker: _Worker) -> bytes | None:
        """Returns the next chunk of a slice's output, None at its end."""
        while not worker.chunks:
            if not worker.open:
                if worker.ended:
                    return None
            elif worker.ended and not _readable(worker.chain.out):  # all that its programs wrote has been read
                self.unwatch(worker.chain.out)
                worker.chain.close_handle(worker.chain.out)
                worker.open = False
                continue
            elif worker.ended:
                self.read(worker)
                continue
            self.pump()
        chunk = worker.chunks.popleft()
        worker.held -= len(chunk)
        self.held -= len(chunk)
        if worker.paused and worker.open and worker.held < _HELD_A_SLICE:
            worker.paused = False
            self.watch(worker.chain.out, lambda _: self.read(worker))
        return chunk

    def account(self, worker: _Worker) -> None:
        """Closes the books on a slice that has been read to its end."""
        self.judge(worker)
        self.codes.append(worker.chain.codes()[-1])
        self.workers.popleft()
        self.retire(worker)

    def judge(self, worker: _Worker) -> None:
        """Decides whether a slice that has ended may count.

        Raises:
            EngineFault: a program was killed from outside, or its input could not be read.
            _OnlyWhole: it may not.
        """
        chain = worker.chain
        assert worker.feed is not None
        worker.feed.end()
        if worker.feed.fault:
            raise EngineFault(f"a slice was not read in full: {worker.feed.fault}")
        last = len(worker.argvs) - 1
        for number, (argv, code) in enumerate(zip(worker.argvs, chain.codes(), strict=True)):
            if number in chain.killed or (code == _PIPE_CLOSED and (self.merging or number < last)):
                continue
            if code == _KILLED:
                raise EngineFault(f"{argv[0]} was killed from outside while it ran on a slice: too little memory?")
            if failed(argv, code):
                raise _OnlyWhole
        drain(chain.handles & chain.messages.keys(), self.read_message(chain))
        messages = tuple(map(bytes, chain.messages.values()))
        if self.messages is None:
            self.messages = messages
        if self.messages != messages or any(place in text for text in messages for place in _PLACES):
            raise _OnlyWhole

    def cancel_workers(self) -> None:
        """Kills the slices that are not needed any more."""
        self.waiting.clear()
        if self.workers and self.messages is None:
            self.stop_worker(self.workers[0])
            self.messages = tuple(map(bytes, self.workers[0].chain.messages.values()))
        while self.workers:
            worker = self.workers.popleft()
            self.stop_worker(worker)
            self.retire(worker)
        self.running = 0

    def stop_worker(self, worker: _Worker) -> None:
        worker.chain.stop()
        if worker.feed is not None:
            worker.feed.end()
        drain(worker.chain.handles & worker.chain.messages.keys(), self.read_message(worker.chain))

    def retire(self, worker: _Worker) -> None:
        self.held -= worker.held
        for handle in worker.chain.handles & self.actions.keys():
            self.unwatch(handle)
        worker.chain.close()

    # --- the programs that run once

    def start_once(self, argvs: Sequence[Argv], inherited: Sequence[int] = ()) -> None:
        chain = self.once = Chain(self.sandbox.limits.stderr_bytes)
        with no_fork():
            source = _no_input() if self.merging else self.open_sink()
            chain.start(argvs, self.sandbox, self.environment, self.bounds.timeout, source, inherited=inherited)
        self.watch(chain.out, self.read_once)
        self.watch_chain(chain)
        if chain.end >= 0:
            self.watch(chain.end, self.end_once)

    def open_sink(self) -> int:
        try:
            source, self.sink = held_pipe()
        except OSError as error:
            raise SpawnFailed(f"no pipe can be made: {error}; too many open files?") from error
        widen(source)
        os.set_blocking(self.sink, False)
        return source

    def end_once(self, handle: int) -> None:
        if handle >= 0:
            self.unwatch(handle)
        self.once_ended = True
        raise _Decided

    def read_once(self, handle: int) -> int:
        data = os.read(handle, LARGE_READ)
        if not data:
            self.unwatch(handle)
            assert self.once is not None
            self.once.close_handle(handle)
        self.tell(data)
        return len(data)

    def emit(self, data: bytes) -> None:
        """Passes on what is certain.

        Raises:
            _Decided: nobody wants more.
        """
        if self.sink < 0:
            self.tell(data)
            return
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self.sink, view) :]
            except BlockingIOError:
                writable: list[int] = []
                self.watch(self.sink, writable.append, select.POLLOUT)
                try:
                    while not writable:
                        self.pump()
                finally:
                    self.unwatch(self.sink)
            except BrokenPipeError:
                raise _Decided from None

    def tell(self, data: bytes) -> None:
        self.size += self.stdout.write(data)
        if self.size > self.budget:
            raise _Decided

    def finish_once(self) -> None:
        """Ends the input of the programs that run once, and waits for them."""
        self.close_sink()
        if self.once is None:
            return
        with contextlib.suppress(_Decided):
            while not self.once_ended and self.size <= self.budget:
                self.pump()

    def close_sink(self) -> None:
        if self.sink >= 0:
            sink, self.sink = self.sink, -1
            release(sink)

    # --- waiting

    def watch(self, handle: int, action: Callable[[int], object], event: int = select.POLLIN) -> None:
        self.actions[handle] = action
        self.poller.register(handle, event)

    def unwatch(self, handle: int) -> None:
        if self.actions.pop(handle, None) is not None:
            self.poller.unregister(handle)

    def watch_chain(self, chain: Chain) -> None:
        read = self.read_message(chain)
        for handle in chain.messages:
            self.watch(handle, read)

    def read_message(self, chain: Chain) -> Callable[[int], int]:
        def read(handle: int) -> int:
            got = chain.read_messages(handle)
            if not got:
                self.unwatch(handle)
                chain.close_handle(handle)
            return got

        return read

    def cancelled(self, _handle: int) -> None:
        raise stopped()

    def pump(self) -> None:
        """Waits for anything to happen and deals with it.

        Raises:
            _OutOfTime: the deadline has passed.
            _Decided: the programs that run once have ended, or the output is enough.
            BackendClosed: the command was cancelled.
        """
        now = time.monotonic()
        if now >= self.deadline:
            raise _OutOfTime
        chains = [worker for worker in self.workers if -1 in worker.ends.values()]
        blind = bool(chains) or (self.once is not None and self.once.end < 0)
        wait = milliseconds(self.deadline - now, can_wait=not blind)
        if self.waiting and (alone := self.narrow()) > 0:
            wait = min(wait, math.ceil(alone * 1000))
        for handle, _ in self.bounds.signals.poll(self.poller, wait):
            if (action := self.actions.get(handle)) is not None:
                action(handle)
        for worker in chains:
            for number in [number for number in worker.ends if worker.chain.has_ended(number)]:
                self.end(worker, number)
        if blind and self.once is not None and self.once.has_ended():
            self.end_once(-1)
        self.fill()

    # --- the end

    def stop(self) -> None:
        """Kills whatever still runs."""
        self.close_sink()
        chains = [*(worker.chain for worker in self.workers), *([self.once] if self.once else [])]
        with contextlib.ExitStack() as stack:  # the others are stopped even if one cannot be
            for worker in self.workers:
                if worker.feed is not None:
                    stack.callback(worker.feed.end)
            for chain in chains:
                stack.callback(chain.stop)

    def result(self) -> CommandResult:
        once = self.once
        if once is not None:
            with contextlib.suppress(_Decided):
                drain(once.handles & {once.out}, self.read_once)
            drain(once.handles & once.messages.keys(), self.read_message(once))
        cut = self.size > self.budget
        if cut:
            self.stdout.truncate(int(self.budget))
        if once is None:
            code = exit_code(self.plan.exits, self.codes)
        else:
            code = once.codes()[-1]
            if code == _KILLED and len(once.processes) - 1 not in once.killed:
                raise EngineFault(f"{once.processes[-1].args[0]!r} was killed from outside: too little memory?")
        if self.messages is None and self.workers:  # the time ran out during the first slice
            chain = self.workers[0].chain
            drain(chain.handles & chain.messages.keys(), self.read_message(chain))
            self.messages = tuple(map(bytes, chain.messages.values()))
        messages = [*(self.messages or ()), *(map(bytes, once.messages.values()) if once is not None else ())]
        return CommandResult(
            stdout=self.stdout.getvalue(),
            stderr=b"".join(messages),
            exit_code=None if cut or self.timed_out else code,
            output_truncated=cut,
            timed_out=self.timed_out and not cut,
        )

    def close(self) -> None:
        for worker in self.workers:
            worker.chain.close()
        if self.once is not None:
            self.once.close()


def _streams(plan: Sliced) -> bool:
    return isinstance(plan.combiner, (Concat, Head, HeadBytes, Offset, Uniq))


def _no_input() -> int:
    try:
        return os.open(os.devnull, os.O_RDONLY)
    except OSError as error:
        raise SpawnFailed(f"{os.devnull} cannot be opened: {error}; too many open files?") from error


def _readable(handle: int) -> bool:
    poller = select.poll()
    poller.register(handle, select.POLLIN)
    return bool(poller.poll(0))
