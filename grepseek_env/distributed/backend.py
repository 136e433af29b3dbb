"""`PartsBackend`: a `SearchBackend` over a corpus in parts.

A command goes the first of these ways that gives its exact answer:

1. its first programs on every part, combined here in order, the rest once, here (`plan.Sliced`);
2. here, beside an empty or hollow file, where what it prints does not depend on what the corpus holds;
3. here, once, all parts streamed into its first program: exact, and as slow as the network between;
4. here, on a copy of the whole corpus that is made once, where it is no larger than `whole_bytes`; refused otherwise.
"""

from __future__ import annotations

import shlex
import time
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as TookTooLong
from dataclasses import replace
from typing import TYPE_CHECKING

from grepseek_env.commands import parse
from grepseek_env.distributed.links import HostGone
from grepseek_env.distributed.parts import joined_facts, whole_digest
from grepseek_env.distributed.runs import MOST_MERGED, run_on_parts, run_through
from grepseek_env.distributed.streams import OnePassOnly
from grepseek_env.distributed.through import through_stdin
from grepseek_env.distributed.whole import Views, complaint, reads_content
from grepseek_env.engine.executor import Cancellation, execute, stopped
from grepseek_env.engine.explain import explain_plan
from grepseek_env.engine.interrupts import HeldSignals
from grepseek_env.engine.loop import Bounds, Loop, OutOfTime
from grepseek_env.engine.plan import Merge, Sequential, Sliced
from grepseek_env.engine.planner import plan
from grepseek_env.engine.programs import open_programs
from grepseek_env.engine.sandbox import Sandbox
from grepseek_env.engine.scheduler import Scheduler
from grepseek_env.errors import (
    BackendClosed,
    CommandRefused,
    ConfigError,
    CorpusError,
    EngineFault,
    GrepSeekError,
    PartLost,
)
from grepseek_env.types import CommandResult

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

    from grepseek_env.commands import Pipeline
    from grepseek_env.config import Limits
    from grepseek_env.distributed.hosts import HostOptions, PartInfo
    from grepseek_env.distributed.links import Links
    from grepseek_env.distributed.parts import PartsManifest
    from grepseek_env.engine.plan import Plan

__all__ = ["AT_ONCE", "WHOLE_BYTES", "PartsBackend"]

AT_ONCE = 16
"""Commands of one backend under way at a time; others wait, and their deadlines with them."""
WHOLE_BYTES = 16 << 30
"""The largest corpus that is copied to one place for commands that need it whole."""

_PCRE = ("-P", "--perl-regexp", "--pcre2", "--engine", "--auto-hybrid-regex")
START_SECONDS = 120.0  # until every host must answer


class PartsBackend:
    """Runs commands over a corpus in parts; a `SearchBackend`. Any number of threads may use it.

    Args:
        manifest: the parts.
        connect: makes the links to the parts' hosts; also used where the backend is sent to another process.
        options: how hosts run commands.
        whole_bytes: up to this size the corpus is copied to `$GREPSEEK_CACHE` for commands that need it in one file;
            those are refused over a larger one.

    Raises:
        ConfigError: hosts have different programs, or cannot be reached as was asked.
        CorpusError: a part cannot be opened, is not what the manifest says, or ends inside a line.
        EngineFault: a host cannot be started.
    """

    def __init__(
        self,
        manifest: PartsManifest,
        connect: Callable[[PartsManifest, HostOptions, int], Links],
        options: HostOptions,
        *,
        whole_bytes: int = WHOLE_BYTES,
    ) -> None:
        self._manifest, self._connect, self._options = manifest, connect, options
        self._whole_bytes = whole_bytes
        self._closed = False
        self._links = connect(manifest, options, AT_ONCE)
        try:
            infos = self._open_parts()
            names = [part.path for part in manifest.parts]
            self._facts = joined_facts([info.facts for info in infos], names)
            self._digest = whole_digest(manifest, [info.digest for info in infos])
            self._programs = open_programs()
            self._check_programs(infos)
            self._sizes = [info.facts.bytes for info in infos]
            lines = [info.facts.lines for info in infos]
            self._bases = [(sum(lines[:n]), sum(self._sizes[:n])) for n in range(len(infos))]
            self._views = Views(self._digest, self._facts.bytes)
        except BaseException:
            self._links.close()
            raise
        folders = (self._views.stand_in, self._views.empty)
        self._sandbox = Sandbox(
            self._programs, self._views.stand_in, options.limits, options.locale, options.sandbox, folders
        )
        self._scheduler = Scheduler(AT_ONCE)
        self._closing = Cancellation()
        self._threads = ThreadPoolExecutor(AT_ONCE, "grepseek-parts")

    @property
    def program_dir(self) -> Path:
        """The folder that holds exactly the programs which commands run here."""
        return self._programs.folder

    @property
    def corpus_digest(self) -> str:
        """Hexadecimal SHA-256 of the corpus: that of the one file which was cut, where the manifest has it."""
        return self._digest

    @property
    def mode(self) -> str:
        """How hosts run commands over their parts."""
        return self._options.mode

    @property
    def locale(self) -> str:
        """LC_ALL of the programs."""
        return self._options.locale

    @property
    def limits(self) -> Limits:
        """What one command may use, here and on each host."""
        return self._options.limits

    @property
    def parts(self) -> int:
        """The number of parts."""
        return len(self._sizes)

    def run(
        self,
        command: str,
        *,
        timeout: float | None = None,
        max_output_bytes: int | None = None,
        cancel: Cancellation | None = None,
    ) -> CommandResult:
        """Runs one command; see `SearchBackend.run`.

        Args:
            command: text in the command language.
            timeout: seconds of run time; None takes the backend's own limit.
            max_output_bytes: stdout is cut after this many bytes, at the hosts where that can be; None returns all.
            cancel: ends the command when it is set; `BackendClosed` is raised then.

        Raises:
            ConfigError: `timeout` or `max_output_bytes` cannot work.
            CommandRefused: the command is outside the command language, or needs the whole of a corpus in one file
                that is too large for that.
            CorpusChanged: a part is not the one that was opened.
            PartLost: a host was lost under the command, and again under its repetition.
            EngineFault: the infrastructure failed, or the backend is closed.
        """
        if timeout is None:
            timeout = self.limits.command_timeout
        elif not timeout > 0:
            raise ConfigError(f"timeout is {timeout!r}; it must be a positive number of seconds, or None")
        if max_output_bytes is not None and max_output_bytes < 0:
            raise ConfigError(f"max_output_bytes is {max_output_bytes!r}; it must be 0 or more, or None for all")
        if self._closed:
            raise BackendClosed("this backend is closed: open another with open_backend()")
        pipeline = parse(command)
        cancels = (self._closing,) if cancel is None else (self._closing, cancel)
        with HeldSignals() as signals, self._scheduler.admit(signals, cancels):
            for last in (False, True):
                bounds = Bounds(timeout, max_output_bytes, cancels, signals)
                try:
                    return self._run(pipeline, bounds)
                except HostGone as gone:
                    if self._closed:
                        raise stopped() from gone
                    part = self._path(gone.number)
                    if last:
                        raise PartLost(
                            f"the host of part {gone.number} ({part}) was lost under {command!r:.200} and again when "
                            f"it was repeated ({gone}): look into that host's memory and Ray's logs"
                        ) from gone
                    self._links.revive(gone.number)
        raise AssertionError  # the second round returns or raises

    def run_many(
        self,
        commands: Sequence[str],
        *,
        timeout: float | None = None,
        max_output_bytes: int | None = None,
        cancel: Cancellation | None = None,
    ) -> list[CommandResult | GrepSeekError]:
        """Runs several commands side by side, equal ones once.

        Returns:
            A result a command, in order; a refused or failed one is its exception.

        Raises:
            BackendClosed: the backend is closed.
        """
        if self._closed:
            raise BackendClosed("this backend is closed: open another with open_backend()")
        given_up = Cancellation() if cancel is None else cancel

        def one(command: str) -> CommandResult | GrepSeekError:
            try:
                return self.run(command, timeout=timeout, max_output_bytes=max_output_bytes, cancel=given_up)
            except GrepSeekError as error:
                return error

        try:
            found = {command: self._threads.submit(one, command) for command in dict.fromkeys(commands)}
            return [found[command].result() for command in commands]
        except BaseException:
            given_up.set()
            raise

    def explain(self, command: str) -> str:
        """Says in words how the command would be executed.

        Raises:
            CommandRefused: the command is outside the command language.
        """
        pipeline = parse(command)
        where = f"parts:      {self.parts}, {self._links.where}"
        planned = self._plan(pipeline)
        if isinstance(planned, Sliced):
            return f"{explain_plan(planned)}\n{where}"
        if self._is_hollow(pipeline):
            how = "here, beside a file of the corpus's name and size: its content is not read"
        elif through_stdin(pipeline, self._facts) is not None:
            how = f"here, with all parts streamed into it: up to {self._facts.bytes:,} bytes over the network"
        elif self._facts.bytes <= self._whole_bytes:
            how = f"here, on a copy of all {self._facts.bytes:,} bytes, made once, in {self._views.whole}"
        else:
            how = "refused, unless it fails by itself: it needs the corpus in one file"
        return f"{explain_plan(planned)}\nwhere:      {how}\n{where}"

    def close(self) -> None:
        """Stops commands that still run (they raise `BackendClosed`) and the hosts; again does nothing."""
        if self._closed:
            return
        self._closed = True
        self._closing.set()
        self._threads.shutdown(cancel_futures=True)
        self._links.close()
        self._views.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __deepcopy__(self, _memo: dict[int, object]) -> PartsBackend:
        return self  # EnvSpec copies its keywords; one backend serves all copies

    def __reduce__(self) -> tuple[object, ...]:
        return _reopen, (self._manifest, self._connect, self._options, self._whole_bytes)

    def __repr__(self) -> str:
        state = ", closed" if self._closed else ""
        return f"PartsBackend({self.parts} parts, {self._facts.bytes} bytes, {self._links.where}{state})"

    def _open_parts(self) -> list[PartInfo]:
        for number, future in enumerate([self._links[n].call("ping") for n in range(len(self._links))]):
            try:
                future.result(timeout=START_SECONDS)
            except (HostGone, TookTooLong) as error:
                why = str(error) or f"it does not answer within {START_SECONDS:.0f} seconds; is there room for it?"
                raise EngineFault(
                    f"the host of part {number} ({self._path(number)}) cannot be started: {why}"
                ) from error
        infos = []
        for number, future in enumerate([self._links[n].call("open") for n in range(len(self._links))]):
            try:
                found = future.result()
            except HostGone as gone:
                raise EngineFault(f"the host of part {number} ({self._path(number)}) was lost: {gone}") from gone
            if isinstance(found, GrepSeekError):
                raise found
            infos.append(found)
        return infos

    def _path(self, number: int) -> Path:
        return self._manifest.parts[number].path

    def _check_programs(self, infos: Sequence[PartInfo]) -> None:
        for number, info in enumerate(infos):
            if info.versions != dict(self._programs.versions):
                differing = [
                    f"{name} {info.versions.get(name)} there, {version} here"
                    for name, version in self._programs.versions.items()
                    if info.versions.get(name) != version
                ]
                raise ConfigError(
                    f"the host of part {number} has other programs ({'; '.join(differing)}), whose answers may differ: "
                    "install the same everywhere"
                )

    def _plan(self, pipeline: Pipeline) -> Plan:
        planned = plan(pipeline, self._facts, locale=self.locale)
        if isinstance(planned, Sequential):
            return planned
        before_last = pipeline.stages[: len(planned.mapped) - 1]
        if any(stage.given("--no-messages", "-s") and stage.given(*_PCRE) for stage in before_last):
            return Sequential("a search that may give up half-way is silent about it")
        if isinstance(planned.combiner, Merge) and self.parts > MOST_MERGED:
            return Sequential(f"more than {MOST_MERGED} parts cannot be merged at once")
        return planned

    def _run(self, pipeline: Pipeline, bounds: Bounds) -> CommandResult:
        ends = time.monotonic() + bounds.timeout
        planned = self._plan(pipeline)
        if isinstance(planned, Sliced):
            command = _mapped(pipeline, planned)
            try:
                return run_on_parts(planned, command, self._links, self._bases, self._sandbox, bounds)
            except OnePassOnly:
                pass

        def left() -> Bounds:
            return replace(bounds, timeout=max(ends - time.monotonic(), 0.001))

        if self._is_hollow(pipeline):
            return self._execute(pipeline, self._sandbox, left())
        if (said := complaint(pipeline, replace(self._sandbox, view=self._views.empty), left())) is not None:
            return said
        argvs = through_stdin(pipeline, self._facts)
        if argvs is not None:
            result = run_through(argvs, self._links, self._sizes, self._sandbox, left())
            if not result.stderr or result.timed_out:  # a message may name what is read
                return result
        return self._on_whole(pipeline, planned, left)

    def _on_whole(self, pipeline: Pipeline, planned: Plan, left: Callable[[], Bounds]) -> CommandResult:
        if self._facts.bytes > self._whole_bytes:
            why = planned.reason if isinstance(planned, Sequential) else "a program complained half-way"
            raise CommandRefused(
                f"this command needs the corpus in one file, and it is kept in {self.parts} parts, too large to be put "
                f"together ({why}). Name corpus.jsonl once, in the first program, and read it line by line.",
                reason="needs-whole",
                start=0,
                end=len(pipeline.text),
            )
        bounds = left()
        loop = Loop(bounds)
        try:
            view = self._views.assembled(self._links, self._sizes, lambda: loop.turn(0))
        except OutOfTime:
            return CommandResult(b"", b"", None, timed_out=True)
        except OSError as error:
            raise CorpusError(f"the corpus cannot be copied to {self._views.whole}: {error}") from error
        return self._execute(pipeline, replace(self._sandbox, view=view, folders=(view,)), left())

    def _is_hollow(self, pipeline: Pipeline) -> bool:
        return not any(reads_content(stage, number) for number, stage in enumerate(pipeline.stages))

    def _execute(self, pipeline: Pipeline, sandbox: Sandbox, bounds: Bounds) -> CommandResult:
        return execute(
            pipeline.argv,
            sandbox,
            timeout=bounds.timeout,
            max_output_bytes=bounds.max_output_bytes,
            cancels=bounds.cancels,
            signals=bounds.signals,
        )


def _mapped(pipeline: Pipeline, planned: Sliced) -> str:
    """Returns what runs on a part as the text of a command."""
    count = len(planned.mapped)
    if planned.mapped == planned.written:
        return pipeline.text[: pipeline.stages[count - 1].span.end]
    before = pipeline.text[: pipeline.stages[count - 2].span.end] + " | " if count > 1 else ""
    return before + shlex.join(planned.mapped[-1])


def _reopen(
    manifest: PartsManifest,
    connect: Callable[[PartsManifest, HostOptions, int], Links],
    options: HostOptions,
    whole_bytes: int,
) -> PartsBackend:
    return PartsBackend(manifest, connect, options, whole_bytes=whole_bytes)
