"""`PartHost`: runs commands over one part, where the part is. A Ray actor, or an object of this process.

A command is first run as any engine runs it, token index included, until it has given a window of output; most end
within. Where more is wanted, it is started again as plain programs, of which the first bytes are skipped, and whose
pipe is read no faster than the caller asks: the host never holds more than a chunk.
"""

from __future__ import annotations

import os
import select
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from grepseek_env.commands import parse
from grepseek_env.corpus.store import CorpusStore
from grepseek_env.engine.executor import LARGE_READ, Cancellation, Chain
from grepseek_env.engine.local import DEFAULT_CACHE_BYTES, LocalBackend
from grepseek_env.engine.plan import failed
from grepseek_env.engine.programs import open_programs
from grepseek_env.engine.sandbox import Sandbox
from grepseek_env.engine.scheduler import usable_cores
from grepseek_env.engine.worker import PIPE_CLOSED
from grepseek_env.errors import BackendClosed, CorpusChanged, GrepSeekError

if TYPE_CHECKING:
    from grepseek_env.config import Limits
    from grepseek_env.corpus.facts import CorpusFacts
    from grepseek_env.distributed.parts import PartFile
    from grepseek_env.engine.sandbox import Confine

__all__ = ["CHUNK_BYTES", "HostOptions", "PartHost", "PartInfo", "Reply", "Request"]

CHUNK_BYTES = 4 << 20  # of a long output, at a time
_GRACE = 5.0  # seconds that a stream may outlive its deadline, which is the caller's to keep
_MOST_STOPPED = 4096


@dataclass(frozen=True, slots=True)
class HostOptions:
    """How a host runs commands; see `LocalBackend`."""

    limits: Limits
    mode: str = "auto"
    locale: str = "C"
    sandbox: Confine = "auto"
    index: bool = True
    cache_bytes: int = DEFAULT_CACHE_BYTES


@dataclass(frozen=True, slots=True)
class PartInfo:
    """What a host says about its part.

    Attributes:
        digest: of the part's content.
        facts: of the part.
        versions: of the programs there.
        cores: that the host may use.
        pid: of the process.
    """

    digest: str
    facts: CorpusFacts
    versions: dict[str, str]
    cores: int
    pid: int


@dataclass(frozen=True, slots=True)
class Request:
    """A command to be run over a part.

    Attributes:
        key: tells requests apart.
        command: text in the command language.
        timeout: seconds it may run.
        window: bytes of output after which the caller is asked whether it wants more.
        streams: the output is likely to be long: start with plain programs at once.
    """

    key: str
    command: str
    timeout: float
    window: int
    streams: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """Some of a command's output, or its end.

    Attributes:
        data: the next bytes.
        more: there is more; ask for it.
        code: at the end, the last program's exit code.
        failed: at the end, that a program before the last one failed.
        stderr: at the end, what the programs wrote there.
        timed_out: time ran out on the host.
        error: the command could not be run.
    """

    data: bytes = b""
    more: bool = False
    code: int = 0
    failed: bool = False
    stderr: bytes = b""
    timed_out: bool = False
    error: GrepSeekError | None = None


class PartHost:
    """Runs commands over one part; any number of threads may use it.

    Args:
        part: the file.
        options: how commands are run.
    """

    def __init__(self, part: PartFile, options: HostOptions) -> None:
        self._part = part
        self._options = options
        self._lock = threading.Lock()
        self._opened: tuple[CorpusStore, LocalBackend, Sandbox] | None = None
        self._cancels: dict[str, Cancellation] = {}
        self._streams: dict[str, _Stream] = {}
        self._stopped: dict[str, None] = {}  # keys that were stopped, the newest last: a stop may overtake its start

    def open(self) -> PartInfo | GrepSeekError:
        """Opens the part, preparing it where that has not been done."""
        try:
            store, _, sandbox = self._open()
        except GrepSeekError as error:
            return error
        return PartInfo(store.digest, store.facts, dict(sandbox.programs.versions), usable_cores(), os.getpid())

    def ping(self) -> int:
        """Returns the process id."""
        return os.getpid()

    def start(self, request: Request) -> Reply:
        """Runs a command until it ends or has given `window` bytes."""
        cancel = Cancellation()
        with self._lock:
            if request.key in self._stopped:
                return Reply(error=BackendClosed("the command was stopped before it began"))
            self._cancels[request.key] = cancel
        try:
            store, backend, sandbox = self._open()
            if request.streams:
                return self._begin(request, sandbox, 0)
            run = backend.run(request.command, timeout=request.timeout, max_output_bytes=request.window, cancel=cancel)
            if run.output_truncated:
                return Reply(run.stdout, more=True)
            store.check_unchanged()
            return Reply(run.stdout, code=run.exit_code or 0, stderr=run.stderr, timed_out=run.timed_out)
        except GrepSeekError as error:
            return Reply(error=error)
        finally:
            with self._lock:
                self._cancels.pop(request.key, None)

    def more(self, request: Request, skip: int) -> Reply:
        """Returns the next chunk of a command whose output is longer than its window.

        Args:
            request: what `start` was given.
            skip: bytes that the caller has.
        """
        with self._lock:
            stream = self._streams.get(request.key)
        try:
            if stream is None:
                _, _, sandbox = self._open()
                return self._begin(request, sandbox, skip)
            return self._next(request.key, stream)
        except GrepSeekError as error:
            return Reply(error=error)

    def stop(self, key: str) -> None:
        """Ends a command that nobody waits for any more."""
        with self._lock:
            self._stopped[key] = None
            while len(self._stopped) > _MOST_STOPPED:
                del self._stopped[next(iter(self._stopped))]
            cancel, stream = self._cancels.get(key), self._streams.pop(key, None)
        if cancel is not None:
            cancel.set()
        if stream is not None:
            stream.close()

    def read(self, start: int, size: int) -> Reply:
        """Returns bytes of the part itself."""
        try:
            store, _, _ = self._open()
            with store.corpus_file.open("rb") as file:
                file.seek(start)
                data = file.read(size)
            store.check_unchanged()
        except GrepSeekError as error:
            return Reply(error=error)
        except OSError as error:
            return Reply(error=CorpusChanged(f"{self._part.path} cannot be read: {error}"))
        return Reply(data, more=True)

    def close(self) -> None:
        """Ends everything."""
        with self._lock:
            keys = [*self._cancels, *self._streams]
            opened, self._opened = self._opened, None
        for key in keys:
            self.stop(key)
        if opened is not None:
            opened[1].close()
            opened[0].close()

    def _open(self) -> tuple[CorpusStore, LocalBackend, Sandbox]:
        with self._lock:
            if self._opened is None:
                part, options = self._part, self._options
                store = CorpusStore.open(part.path)
                if part.digest and store.digest != part.digest:
                    store.close()
                    raise CorpusChanged(
                        f"{part.path} is not the part that its manifest speaks of (digest {store.digest[:12]}, "
                        f"expected {part.digest[:12]}): cut the corpus again, or correct the manifest"
                    )
                backend = LocalBackend(
                    store,
                    options.limits,
                    options.mode,
                    locale=options.locale,
                    sandbox=options.sandbox,
                    index=options.index,
                    cache_bytes=options.cache_bytes,
                )
                sandbox = Sandbox(open_programs(), store.view, options.limits, options.locale, options.sandbox)
                self._opened = store, backend, sandbox
            return self._opened

    def _begin(self, request: Request, sandbox: Sandbox, skip: int) -> Reply:
        self._reap()
        stream = _Stream(request, sandbox, skip)
        with self._lock:
            stopped = request.key in self._stopped
            if not stopped:
                self._streams[request.key] = stream
        if stopped:
            stream.close()
            return Reply(error=BackendClosed("the command was stopped before it began"))
        return self._next(request.key, stream)

    def _next(self, key: str, stream: _Stream) -> Reply:
        reply = stream.read()
        if not reply.more:
            with self._lock:
                self._streams.pop(key, None)
            stream.close()
        return reply

    def _reap(self) -> None:
        """Ends streams whose callers are gone."""
        now = time.monotonic()
        with self._lock:
            late = [key for key, stream in self._streams.items() if stream.ends + _GRACE < now]
        for key in late:
            self.stop(key)


class _Stream:
    """Programs whose output is read piece by piece."""

    def __init__(self, request: Request, sandbox: Sandbox, skip: int) -> None:
        self.ends = time.monotonic() + request.timeout
        self._skip = skip
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._argvs = parse(request.command).argv
        self._environment = sandbox.environment(self._argvs)
        self._chain = Chain(sandbox.limits.stderr_bytes)
        environment = self._environment.__enter__()
        try:
            source = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            self._chain.start(self._argvs, sandbox, environment, request.timeout, source)
        except BaseException:
            self.close()
            raise

    def read(self) -> Reply:
        """Waits for a chunk, or the end."""
        with self._lock:
            return self._read()

    def close(self) -> None:
        """Kills what runs."""
        self._closed.set()
        with self._lock:
            try:
                self._chain.stop()
            finally:
                self._chain.close()
                self._environment.__exit__(None, None, None)

    def _read(self) -> Reply:
        chunks: list[bytes] = []
        chain, size = self._chain, 0
        poller = select.poll()
        for handle in chain.handles & {chain.out, *chain.messages}:
            poller.register(handle, select.POLLIN)
        while size < CHUNK_BYTES and chain.out in chain.handles:
            if self._closed.is_set():
                return Reply(error=BackendClosed("the command was stopped"))
            if time.monotonic() > self.ends:
                return Reply(b"".join(chunks), timed_out=True)
            for handle, _ in poller.poll(100):
                data = b"" if handle != chain.out else os.read(handle, LARGE_READ)
                if not (data if handle == chain.out else chain.read_messages(handle)):
                    poller.unregister(handle)
                    chain.close_handle(handle)
                kept = data[self._skip :]
                self._skip -= len(data) - len(kept)
                if kept:
                    chunks.append(kept)
                    size += len(kept)
        if chain.out in chain.handles:
            return Reply(b"".join(chunks), more=True)
        return self._ended(b"".join(chunks))

    def _ended(self, data: bytes) -> Reply:
        """The last program has closed its output; what runs before it is of no more use."""
        chain = self._chain
        while not chain.has_ended():
            if self._closed.is_set() or time.monotonic() > self.ends:
                return Reply(data, timed_out=True)
            self._closed.wait(0.001)
        chain.stop()
        for handle in sorted(chain.handles & chain.messages.keys()):
            while select.select([handle], [], [], 0)[0] and chain.read_messages(handle):
                pass
        codes = chain.codes()
        wrong = any(
            failed(self._argvs[number], code)
            for number, code in enumerate(codes[:-1])
            if number not in chain.killed and code != PIPE_CLOSED
        )
        return Reply(data, code=codes[-1], failed=wrong, stderr=b"".join(map(bytes, chain.messages.values())))
