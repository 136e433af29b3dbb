"""Who takes part: bash, every mode of the engine, and the copies that show what the machine's cores could give."""

from __future__ import annotations

import contextlib
import io
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from grepseek_env.bench.engine.machine import check_room
from grepseek_env.config import closest
from grepseek_env.corpus.sidecar import CORPUS_NAME
from grepseek_env.corpus.slicer import cuts, ranges
from grepseek_env.corpus.slices import build_slices
from grepseek_env.corpus.store import CorpusStore
from grepseek_env.distributed.open import open_parts
from grepseek_env.distributed.parts import PartsManifest
from grepseek_env.distributed.parts import split_corpus as split_into_manifest
from grepseek_env.engine.index import build_index
from grepseek_env.engine.local import MODES, LocalBackend
from grepseek_env.engine.scheduler import usable_cores
from grepseek_env.errors import ConfigError, SpawnFailed
from grepseek_env.paths import cache_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

__all__ = [
    "BASH",
    "CEILING",
    "Answer",
    "Contestant",
    "Ready",
    "Runner",
    "ceiling",
    "default_names",
    "parse_contestants",
    "split_corpus",
]

BASH = "bash"
CEILING = "ceiling"
_READ = 256 << 10
_BLOCK = 8 << 20


@dataclass(frozen=True, slots=True)
class Answer:
    """What a contestant made of a command.

    Attributes:
        stdout: all of it.
        exit_code: of the pipeline; None after a time-out.
        timed_out: the deadline passed.
    """

    stdout: bytes
    exit_code: int | None
    timed_out: bool = False


class Runner(Protocol):
    """What a contestant does with a command."""

    def __call__(self, command: str, timeout: float) -> Answer:
        """Runs one command over the corpus, `timeout` seconds at most."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A contestant that can run commands.

    Attributes:
        run: runs one.
        files: what it reads beyond the corpus file itself.
        index_bytes: size of its token index, or of those of all parts; 0 if it uses none.
    """

    run: Runner
    files: tuple[Path, ...] = ()
    index_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Contestant:
    """A way to run a command.

    Attributes:
        name: in tables and on the command line.
        open: makes it ready for a corpus.
        checked: its answers must be those of bash.
    """

    name: str
    open: Callable[[CorpusStore], AbstractContextManager[Ready]]
    checked: bool = True


def default_names() -> tuple[str, ...]:
    """Returns the names that take part when none are given."""
    cores = max(usable_cores(), 2)
    return (BASH, "sequential", f"sliced:{cores}", f"sliced:{cores}:file", "narrowed", "narrowed:index", "auto:index")


def parse_contestants(names: tuple[str, ...]) -> tuple[Contestant, ...]:
    """Returns the contestants of these names, bash first: ``bash``, or ``MODE``, ``MODE:SLICES``, ``...:FEEDING``.

    Without FEEDING slices go through pipes, whether there are slice files or not. With "file" they are made, which
    takes the corpus's size again on the disk, and kept. An index is used only where the name ends in ``:index``; it is
    built where there is none, and kept. ``parts:PARTS`` is the corpus cut into files that one process searches,
    ``ray:PARTS`` the same with an actor each.

    Raises:
        ConfigError: no mode or feeding has this name, the number of slices is none, or a name comes twice.
    """
    if len(set(names)) < len(names):
        raise ConfigError(f"contestants are {','.join(names)}; each may come once")
    return tuple(_contestant(name) for name in dict.fromkeys((BASH, *names)))


def _contestant(name: str) -> Contestant:
    if name == BASH:
        return Contestant(BASH, _bash)
    if (parted := re.fullmatch(r"(parts|ray):([1-9]\d{0,2})(:index)?", name)) is not None:
        where, parts, index = parted[1], int(parted[2]), parted[3] is not None
        return Contestant(name, lambda store: _parts(store, where, parts, indexed=index))
    match = re.fullmatch(r"([a-z-]+)(?::([1-9]\d{0,2})(?::(pipe|file))?)?(:index)?", name)
    if match is None or match[1] not in MODES:
        hint = closest(name.partition(":")[0], [BASH, *MODES])
        raise ConfigError(
            f"no contestant is named {name!r}{hint}; there are {BASH}, and MODE, MODE:SLICES, MODE:SLICES:pipe and "
            f"MODE:SLICES:file where MODE is one of {', '.join(MODES)}, and parts:PARTS and ray:PARTS; each also with "
            ":index at the end"
        )
    slices = int(match[2]) if match[2] else None
    by_file, indexed = match[3] == "file", match[4] is not None
    return Contestant(name, lambda store: _engine(store, match[1], slices, by_file=by_file, indexed=indexed))


@contextlib.contextmanager
def _engine(store: CorpusStore, mode: str, slices: int | None, *, by_file: bool, indexed: bool) -> Iterator[Ready]:
    files: tuple[Path, ...] = ()
    if by_file and slices is not None:
        files = tuple(each.file for each in build_slices(store, slices).files)
    index_bytes = 0
    if indexed:
        index = build_index(store, progress=sys.stderr.isatty())
        files += (index.path,)
        index_bytes = index.bytes
    feeding: Literal["file", "pipe"] = "file" if by_file else "pipe"
    # Without the result cache, which would answer all rounds but the first.
    with LocalBackend(store, mode=mode, slices=slices, feeding=feeding, index=indexed, cache_bytes=0) as backend:

        def run(command: str, timeout: float) -> Answer:
            result = backend.run(command, timeout=timeout)
            return Answer(result.stdout, result.exit_code, result.timed_out)

        yield Ready(run, files, index_bytes)


@contextlib.contextmanager
def _parts(store: CorpusStore, where: str, parts: int, *, indexed: bool) -> Iterator[Ready]:
    folder = cache_dir() / "bench" / f"{store.digest[:16]}-{parts}.parts"
    if not folder.exists():
        check_room(cache_dir(), store.facts.bytes, "the corpus in parts")
    manifest = split_into_manifest(store, parts, folder, progress=sys.stderr.isatty())
    files, index_bytes = [], 0
    for part in PartsManifest.read(manifest).parts:
        with CorpusStore.open(part.path) as opened:
            files.append(opened.corpus_file)
            if indexed:
                built = build_index(opened, progress=sys.stderr.isatty())
                files.append(built.path)
                index_bytes += built.bytes
    name = f"ray://{manifest}" if where == "ray" else manifest
    with open_parts(name, index=indexed, memory=0, cache_bytes=0) as backend:

        def run(command: str, timeout: float) -> Answer:
            result = backend.run(command, timeout=timeout)
            return Answer(result.stdout, result.exit_code, result.timed_out)

        yield Ready(run, tuple(files), index_bytes)


@contextlib.contextmanager
def _bash(store: CorpusStore) -> Iterator[Ready]:
    shell = shutil.which("bash")
    if shell is None:
        raise ConfigError("bash is not installed, and everything is compared with it: install it")
    with tempfile.TemporaryDirectory(prefix="grepseek-home-") as home:
        with LocalBackend(store, cache_bytes=0) as backend:
            environment = {"PATH": str(backend.program_dir), "LC_ALL": backend.locale, "HOME": home}

        def run(command: str, timeout: float) -> Answer:
            deadline = time.monotonic() + timeout
            try:
                process = subprocess.Popen(
                    [shell, "--noprofile", "--norc", "-c", command],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    cwd=store.view,
                    env=environment,
                    start_new_session=True,
                )
            except OSError as error:
                raise SpawnFailed(f"bash was not started: {error}") from error
            with process:
                try:
                    stdout = _collect(process, deadline)
                    code = process.wait(max(deadline - time.monotonic(), 0))
                except BaseException as error:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    if isinstance(error, subprocess.TimeoutExpired):
                        return Answer(b"", None, timed_out=True)
                    raise
            return Answer(stdout, code if code >= 0 else 128 - code)

        yield Ready(run)


def _collect(process: subprocess.Popen[bytes], deadline: float) -> bytes:
    """Reads all that a process prints.

    Raises:
        subprocess.TimeoutExpired: the deadline passed.
    """
    assert process.stdout is not None  # noqa: S101 - it was given a pipe
    handle = process.stdout.fileno()
    poller = select.poll()
    poller.register(handle, select.POLLIN)
    output = io.BytesIO()
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not poller.poll(left * 1000):
            raise subprocess.TimeoutExpired(process.args, 0)
        if not (data := os.read(handle, _READ)):
            return output.getvalue()
        output.write(data)


def ceiling(cores: int, folder: Path) -> Contestant:
    """Returns the contestant that runs the pipeline once a core, each time over another part of the corpus.

    Nothing is combined, so no slicing into as many parts can be faster: it is the ceiling. Its answers are not
    looked at, apart from being whole.

    Args:
        cores: how many copies run.
        folder: where a folder for the parts is made; it is removed afterwards.
    """
    return Contestant(CEILING, lambda store: _copies(store, cores, folder), checked=False)


@contextlib.contextmanager
def _copies(store: CorpusStore, cores: int, folder: Path) -> Iterator[Ready]:
    with contextlib.ExitStack() as stack:
        parts = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="parts-", dir=folder)))
        backends, files = [], []
        for file in split_corpus(store.corpus_file, cores, parts):
            part = stack.enter_context(CorpusStore.open(file))
            files.append(part.corpus_file)
            backends.append(stack.enter_context(LocalBackend(part, mode="sequential", cache_bytes=0)))
        threads = stack.enter_context(ThreadPoolExecutor(len(backends), thread_name_prefix="grepseek-copy"))

        def run(command: str, timeout: float) -> Answer:
            futures = [threads.submit(backend.run, command, timeout=timeout) for backend in backends]
            results = [future.result() for future in futures]
            timed_out = any(result.timed_out for result in results)
            return Answer(b"".join(result.stdout for result in results), 0, timed_out)

        yield Ready(run, tuple(files))


def split_corpus(corpus: Path, parts: int, folder: Path) -> list[Path]:
    """Writes line-aligned parts of about equal size as ``NUMBER/corpus.jsonl``; small corpora may give fewer."""
    written = []
    with corpus.open("rb") as file:
        size = corpus.stat().st_size
        for number, (start, end) in enumerate(ranges(cuts(file.fileno(), size, parts), size)):
            path = folder / str(number) / CORPUS_NAME
            path.parent.mkdir()
            with path.open("wb") as out:
                for offset in range(start, end, _BLOCK):
                    out.write(os.pread(file.fileno(), min(_BLOCK, end - offset), offset))
            written.append(path)
    return written
