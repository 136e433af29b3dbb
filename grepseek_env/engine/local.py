"""`LocalBackend`: the engine in this process, over one corpus."""

from __future__ import annotations

import functools
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from grepseek_env.commands import parse
from grepseek_env.config import Limits, closest
from grepseek_env.corpus.slices import find_slices
from grepseek_env.engine.cache import ResultCache
from grepseek_env.engine.executor import Cancellation
from grepseek_env.engine.index.index import ALL, TokenIndex
from grepseek_env.engine.modes import FEEDINGS, MODES, Engine
from grepseek_env.engine.narrowed import NarrowedRunner
from grepseek_env.engine.programs import open_programs
from grepseek_env.engine.sandbox import Sandbox
from grepseek_env.engine.scheduler import usable_cores
from grepseek_env.engine.together import Batch
from grepseek_env.errors import (
    BackendClosed,
    ConfigError,
    CorpusError,
    EngineFault,
    GrepSeekError,
    LauncherLost,
    SpawnFailed,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

    from grepseek_env.corpus.store import CorpusStore
    from grepseek_env.engine.cache import CacheStats
    from grepseek_env.engine.fastpath import Index
    from grepseek_env.engine.literals.records import Clause
    from grepseek_env.engine.modes import Feeding
    from grepseek_env.engine.sandbox import Confine
    from grepseek_env.engine.scanning import Spans
    from grepseek_env.engine.together import OnResult
    from grepseek_env.types import CommandResult

__all__ = ["DEFAULT_CACHE_BYTES", "MODES", "LocalBackend"]

DEFAULT_CACHE_BYTES = 64 << 20

_MOST_CANDIDATES = 0.2  # of the corpus: many small parts are read at a fifth of the speed of one large one


class LocalBackend:
    """Runs commands over a prepared corpus with the programs of this host; a `SearchBackend`.

    Any number of threads may use one backend. It can be pickled (by the store's path) and used after a fork. The
    store stays open when the backend is closed, since others may use it.

    Args:
        corpus_store: the corpus.
        limits: what one command may use.
        mode: an entry of `MODES`.
        locale: LC_ALL of the programs, "C" or "C.UTF-8".
        slices: how many slices of the corpus a command may work on side by side; None: as many as there are cores.
        feeding: how slices reach the programs: "file" takes the slice files that `build_slices` made, "pipe" needs
            none, "auto" takes the files where there are any.
        cache_bytes: about how much memory earlier results may take, for commands that come again; 0 keeps none, and
            then equal commands are also run side by side.
        index: use the corpus's index where there is one; `grepseek corpus build --index` makes it.
        sandbox: what the operating system keeps programs from: "auto" all that it can, with a warning where a layer
            is missing; "require" refuses to work without; "off" nothing but limits.

    Raises:
        ConfigError: no such mode, feeding, locale or sandbox, fewer than one slice, or a negative `cache_bytes`.
        CorpusError: feeding is "file" and there are no slice files.
        ProgramMissing: a program of the command language is not installed.
        SandboxMissing: sandbox is "require" and a layer of it is missing.
    """

    def __init__(
        self,
        corpus_store: CorpusStore,
        limits: Limits | None = None,
        mode: str = "auto",
        *,
        locale: str = "C",
        slices: int | None = None,
        feeding: Feeding = "auto",
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        index: bool = True,
        sandbox: Confine = "auto",
    ) -> None:
        if mode not in MODES:
            accepted = ", ".join(map(repr, MODES))
            raise ConfigError(f"no mode is named {mode!r}{closest(mode, list(MODES))}; modes are {accepted}")
        if slices is not None and slices < 1:
            raise ConfigError(f"slices is {slices!r}; it must be 1 or more, or None for one a core")
        if feeding not in FEEDINGS:
            raise ConfigError(f"feeding is {feeding!r}; it must be one of {', '.join(map(repr, FEEDINGS))}")
        if cache_bytes < 0:
            raise ConfigError(f"cache_bytes is {cache_bytes!r}; it must be 0 (no cache) or more")
        self._store = corpus_store
        self._mode = mode
        self._cache_bytes = cache_bytes
        self._slices = slices
        self._feeding: Feeding = feeding
        self._use_index = index
        slice_files = _slice_files(corpus_store, slices, feeding) if mode != "sequential" else ()
        folders = (corpus_store.view, *(folder for folder, _ in slice_files))
        self._sandbox = Sandbox(open_programs(), corpus_store.view, limits or Limits(), locale, sandbox, folders)
        if sandbox == "require":
            self._sandbox.report()
        self._engine = Engine(
            sandbox=self._sandbox,
            corpus=corpus_store.corpus_file,
            facts=corpus_store.facts,
            slice_files=slice_files,
            slices=slices,
            feeding=feeding,
            open_index=functools.partial(_open_index, corpus_store) if index else None,
        )
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        """Sets up what belongs to one process and does not survive a fork."""
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._closing = Cancellation()
        self._threads: ThreadPoolExecutor | None = None
        self._runner = MODES[self._mode](self._engine)
        self._cache = ResultCache(self._cache_bytes) if self._cache_bytes else None

    @property
    def program_dir(self) -> Path:
        """The folder that holds exactly the programs which commands run."""
        return self._sandbox.programs.folder

    @property
    def corpus_digest(self) -> str:
        """Hexadecimal SHA-256 of the corpus."""
        return self._store.digest

    @property
    def mode(self) -> str:
        """The mode that was asked for."""
        return self._mode

    @property
    def locale(self) -> str:
        """LC_ALL of the programs."""
        return self._sandbox.locale

    @property
    def sandbox(self) -> Confine:
        """What was asked for: "auto", "require" or "off"."""
        return self._sandbox.confine

    @property
    def limits(self) -> Limits:
        """What one command may use."""
        return self._sandbox.limits

    def cache_stats(self) -> CacheStats | None:
        """Returns the counters of the result cache; None if there is none."""
        return None if self._cache is None else self._cache.stats()

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
            max_output_bytes: stdout is cut after this many bytes; None returns all of it.
            cancel: ends the command when it is set; `BackendClosed` is raised then.

        Raises:
            ConfigError: `timeout` or `max_output_bytes` cannot work.
            CommandRefused: the command is outside the command language.
            CorpusChanged: the corpus is not the one that was opened.
            EngineFault: the infrastructure failed, or the backend is closed.
        """
        self._check_open()
        cancels = (self._closing,) if cancel is None else (self._closing, cancel)
        return self._run(command, self._checked(timeout, max_output_bytes), cancels)

    def run_many(
        self,
        commands: Sequence[str],
        *,
        timeout: float | None = None,
        max_output_bytes: int | None = None,
        cancel: Cancellation | None = None,
        on_result: OnResult | None = None,
    ) -> list[CommandResult | GrepSeekError]:
        """Runs several commands, as many at once as there are cores and equal ones only once.

        Commands that are answered in process share what they can: those that the index answers run one after the
        other, and those that need a pass over the corpus share it.

        Args:
            commands: text in the command language.
            timeout: seconds of run time of each; None takes the backend's own limit.
            max_output_bytes: stdout of each is cut after this many bytes; None returns all of it.
            cancel: ends them all when it is set; those that were not done have `BackendClosed` for a result then.
            on_result: called with each different command and its result, or its exception, as soon as that is there,
                in whatever thread that is.

        Returns:
            A result a command, in order; a refused or failed one is its exception.

        Raises:
            ConfigError: `timeout` or `max_output_bytes` cannot work.
            BackendClosed: the backend is closed.
        """
        self._check_open()
        bounds = self._checked(timeout, max_output_bytes)
        given_up = Cancellation()
        cancels = (self._closing, given_up) if cancel is None else (self._closing, given_up, cancel)
        batch = Batch(
            list(dict.fromkeys(commands)),
            runner=self._runner,
            run=lambda command: self._run(command, bounds, cancels),
            cache=self._cache,
            check=self._store.check_unchanged,
            timeout=bounds[0],
            max_output_bytes=bounds[1],
            cancels=cancels,
            on_result=on_result,
        )
        batch.run(self._pool, given_up)
        return [batch.results[command] for command in commands]

    def explain(self, command: str) -> str:
        """Says in words how the command would be executed.

        Raises:
            CommandRefused: the command is outside the command language.
            BackendClosed: the backend is closed.
        """
        self._check_open()
        return self._runner.explain(parse(command))

    def warm_up(self, announce: Callable[[], object] = lambda: None) -> None:
        """Loads beforehand what the first commands would wait for: compiled searches, the index.

        Args:
            announce: called before searches are compiled, which happens once on a machine and takes some ten seconds.
        """
        if isinstance(self._runner, NarrowedRunner):
            self._runner.warm_up(announce)

    def close(self) -> None:
        """Stops commands that still run (they raise `BackendClosed`) and frees everything; again does nothing."""
        if self._closed:
            return
        self._closed = True
        if self._process != os.getpid():  # the threads and descriptors are those of the process that forked
            return
        self._closing.set()
        with self._lock:
            threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __deepcopy__(self, _memo: dict[int, object]) -> LocalBackend:
        return self  # EnvSpec copies its keywords; one engine serves all copies

    def __reduce__(self) -> tuple[object, ...]:
        options = {
            "locale": self.locale,
            "slices": self._slices,
            "feeding": self._feeding,
            "cache_bytes": self._cache_bytes,
            "index": self._use_index,
            "sandbox": self.sandbox,
        }
        return _reopen, (self._store, self._sandbox.limits, self._mode, options)

    def __repr__(self) -> str:
        return f"LocalBackend({self._store!r}, mode={self._mode!r}{', closed' if self._closed else ''})"

    def _run(self, command: str, bounds: tuple[float, int | None], cancels: tuple[Cancellation, ...]) -> CommandResult:
        pipeline = parse(command)
        self._store.check_unchanged()
        timeout, most = bounds

        def compute() -> CommandResult:
            try:
                try:
                    result = self._runner.run(pipeline, timeout=timeout, max_output_bytes=most, cancels=cancels)
                except LauncherLost:  # somebody killed it, and all programs with it: nothing came of them
                    result = self._runner.run(pipeline, timeout=timeout, max_output_bytes=most, cancels=cancels)
            except SpawnFailed:
                self._store.check_unchanged()  # what could not be opened may be the corpus
                raise
            self._store.check_unchanged()
            return result

        if self._cache is None:
            return compute()
        return self._cache.run(pipeline.argv, compute, timeout=timeout, max_output_bytes=most, cancels=cancels)

    def _check_open(self) -> None:
        if self._closed:
            raise BackendClosed("this backend is closed: open another with open_backend()")
        if self._process != os.getpid():
            self._begin()

    def _checked(self, timeout: float | None, max_output_bytes: int | None) -> tuple[float, int | None]:
        if timeout is None:
            timeout = self._sandbox.limits.command_timeout
        elif not timeout > 0:
            raise ConfigError(f"timeout is {timeout!r}; it must be a positive number of seconds, or None")
        if max_output_bytes is not None and max_output_bytes < 0:
            raise ConfigError(f"max_output_bytes is {max_output_bytes!r}; it must be 0 or more, or None for all")
        return timeout, max_output_bytes

    def _pool(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._closed:
                raise BackendClosed("this backend was closed while a batch ran")
            if self._threads is None:
                self._threads = ThreadPoolExecutor(usable_cores(), thread_name_prefix="grepseek")
            return self._threads


def _reopen(store: CorpusStore, limits: Limits, mode: str, options: dict[str, Any]) -> LocalBackend:
    return LocalBackend(store, limits, mode, **options)


def _open_index(store: CorpusStore) -> Index | None:
    """Returns what gives the candidate parts of the corpus; None where there is no good index."""
    opened = TokenIndex.open(store)
    if opened is None:
        return None

    most = int(store.facts.bytes * _MOST_CANDIDATES)

    def parts(clauses: tuple[Clause, ...]) -> Spans | None:
        found = opened.candidates(clauses, limit_bytes=most)
        if found is ALL:
            return None
        try:
            return found.spans()
        except EngineFault:  # it was written to just now: it says nothing any more
            return None

    return parts


def _slice_files(store: CorpusStore, slices: int | None, feeding: Feeding) -> tuple[tuple[Path, int], ...]:
    if feeding == "pipe":
        return ()
    found = find_slices(store, slices)
    if found is None:
        if feeding == "file":
            count = slices or usable_cores()
            raise CorpusError(f"there are no slice files: grepseek corpus build {store.path} --slices {count}")
        return ()
    return tuple((each.folder, each.stamp.size) for each in found.files)
