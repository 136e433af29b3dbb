"""The daemon: one engine over one corpus, for any number of clients.

One event loop talks to the clients; commands run in threads of one `LocalBackend`, so that what bounds the work of a
process bounds the work of all clients together. A command whose client has gone is stopped. Memory stays bounded
because no more output than `Options.outbox_bytes` may wait for slow readers before the next command starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from grepseek_env.daemon.address import Address, UnixAddress, same_user
from grepseek_env.daemon.metrics import Metrics
from grepseek_env.daemon.options import Options
from grepseek_env.daemon.protocol import (
    CHUNK_BYTES,
    HELLO_BYTES,
    MAX_MESSAGE_BYTES,
    PROTOCOL,
    VERSION,
    Cancel,
    Explain,
    Failed,
    Message,
    MessageReader,
    ProtocolViolation,
    Rejected,
    Report,
    Run,
    Status,
    Stop,
    Text,
    Welcome,
    encode,
    failure,
    outputs,
    settings_of,
)
from grepseek_env.daemon.session import READ_BYTES, Client, Job, ended, first_message, identity, rejects
from grepseek_env.engine.scheduler import SCHEDULER
from grepseek_env.errors import BackendClosed, ConfigError, EngineFault, GrepSeekError
from grepseek_env.types import CommandResult

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from grepseek_env.engine.local import LocalBackend

__all__ = ["Server"]

_LARGE_BYTES = 16 << 20
# Until a connection that was just accepted has its handler: a server that is closed before would lose it.
_SETTLE_SECONDS = 0.01
_FLUSH_SECONDS = 1.0  # for the last answers at the end


class Server:
    """Serves one backend on sockets that already listen.

    Args:
        backend: runs the commands; it stays open when the server has stopped.
        listeners: where to serve, with the sockets; they are closed at the end.
        options: how to treat clients.
        about: more that clients are told: corpus and what starts this daemon again.
        log: is given one line an event.

    Raises:
        ConfigError: a TCP address without a token.
    """

    def __init__(
        self,
        backend: LocalBackend,
        listeners: Sequence[tuple[Address, socket.socket]],
        options: Options | None = None,
        *,
        about: dict[str, Any] | None = None,
        log: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.options = options or Options()
        if not self.options.token and any(not isinstance(address, UnixAddress) for address, _ in listeners):
            raise ConfigError("the token is empty; on a TCP port there must be one, since anybody can reach it")
        self.metrics = Metrics()
        self._backend = backend
        self._listeners = [(address, listener, identity(address)) for address, listener in listeners]
        self._log = log
        self._settings = settings_of(backend.mode, backend.locale, backend.limits)
        self._welcome = encode(
            Welcome(
                PROTOCOL,
                VERSION,
                backend.corpus_digest,
                self._settings,
                {
                    "program_dir": str(backend.program_dir),
                    "sandbox": backend.sandbox,
                    "pid": os.getpid(),
                    "window": self.options.window,
                    "beat_seconds": self.options.beat_seconds,
                    **(about or {}),
                },
            )
        )
        self._clients: set[Client] = set()
        self._handlers: dict[asyncio.Task[None], asyncio.StreamWriter] = {}  # of every connection
        self._answers: set[asyncio.Task[None]] = set()
        self._waiting = 0  # bytes of output that wait for their readers
        self._stopping = False
        self._threads: ThreadPoolExecutor | None = None

    async def serve(self, ready: Callable[[], None] = lambda: None) -> None:
        """Serves until `stop`; on return no command runs, no thread of ours is left and the sockets are gone.

        Args:
            ready: called when clients can connect.
        """
        self._loop = asyncio.get_running_loop()
        self._stop, self._now, self._room = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._room.set()
        self._large = asyncio.Semaphore(self.options.large_results or max(4, 2 * SCHEDULER.cores))
        self._threads = ThreadPoolExecutor(self.options.workers, thread_name_prefix="grepseek-serve")
        servers = []
        try:
            for address, listener, _ in self._listeners:
                start = asyncio.start_unix_server if isinstance(address, UnixAddress) else asyncio.start_server
                servers.append(await start(self._accept, sock=listener))
            ticker = asyncio.ensure_future(self._tick())
            ready()
            await self._stop.wait()
            self._stopping = True
            self._remove_sockets()
            for _, listener, _ in self._listeners:
                self._loop.remove_reader(listener)
            await asyncio.sleep(_SETTLE_SECONDS)
            for server in servers:
                server.close()
            self._log(f"stopping commands={self._under_way()} clients={len(self._clients)}")
            await self._finish()
            ticker.cancel()
            await asyncio.wait({ticker})
        finally:
            for _, listener, _ in self._listeners:
                listener.close()
            self._remove_sockets()
            self._give_up_all()
            await asyncio.to_thread(self._threads.shutdown)
        self._log("stopped")

    def stop(self, *, now: bool = False) -> None:
        """Ends `serve`; from any thread.

        Args:
            now: running commands are stopped at once instead of being given time.
        """

        def tell() -> None:
            self._stop.set()
            if now:
                self._now.set()

        with contextlib.suppress(RuntimeError):  # the loop has ended, and so has the server
            self._loop.call_soon_threadsafe(tell)

    def values(self) -> dict[str, Any]:
        """Returns the counters as JSON values."""
        jobs = [job for client in self._clients for job in client.jobs.values()]
        cache = self._backend.cache_stats()
        return {
            **self.metrics.values(),
            "pid": os.getpid(),
            "version": VERSION,
            "protocol": PROTOCOL,
            "digest": self._backend.corpus_digest,
            "settings": self._settings,
            "stopping": self._stopping,
            "clients": len(self._clients),
            "running": sum(job.started > 0 for job in jobs),
            "queued": sum(job.started == 0 for job in jobs),
            "waiting_for_a_core": SCHEDULER.waiting,
            "outbox_bytes": self._waiting,
            "cache": None if cache is None else asdict(cache),
        }

    # --- connections

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine of the loop is in one
        if len(self._handlers) >= 2 * self.options.max_clients:  # those who have not shown the token count too
            writer.transport.abort()
            return
        self._handlers[task] = writer
        messages = MessageReader(HELLO_BYTES)
        client = None
        try:
            client = await asyncio.wait_for(self._introduce(reader, writer, messages), self.options.hello_seconds)
            if client is not None and not self._stopping:
                self._clients.add(client)
                await self._converse(reader, messages, client)
        except (ProtocolViolation, asyncio.TimeoutError) as error:
            self.metrics.events["dropped"] += 1
            self._log(f"dropped client={client.name if client else 'unknown'} why={str(error) or 'silent'!r}")
        except OSError:  # it has gone
            pass
        finally:
            if client is not None:
                self._clients.discard(client)
                for job in client.jobs.values():
                    job.give_up()
                self._log(f"disconnected client={client.name} given_up={len(client.jobs)}")
            writer.close()
            with contextlib.suppress(OSError, asyncio.TimeoutError):
                await asyncio.wait_for(writer.wait_closed(), self.options.stall_seconds)
            writer.transport.abort()
            del self._handlers[task]

    async def _introduce(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, messages: MessageReader
    ) -> Client | None:
        """Reads the hello; returns None to a connection that is refused or ends."""
        peer = writer.get_extra_info("socket")
        # A host that vanished sends no end of the stream.
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        hello = await first_message(reader, messages)
        if hello is None:
            return None
        rejected = self._rejects(hello, ours=same_user(peer))
        if rejected is not None:
            self.metrics.events["rejected"] += 1
            self._log(f"rejected reason={rejected.reason}")
            writer.write(encode(rejected))
            await writer.drain()
            return None
        messages.most = MAX_MESSAGE_BYTES
        self.metrics.events["accepted"] += 1
        client = Client(writer, f"{self.metrics.events['accepted']}", self.options.stall_seconds)
        self._log(f"connected client={client.name}")
        writer.write(self._welcome)
        return client

    def _rejects(self, hello: Message, *, ours: bool) -> Rejected | None:
        return rejects(
            hello,
            ours=ours,
            token=self.options.token,
            digest=self._backend.corpus_digest,
            stopping=self._stopping,
            full=len(self._clients) >= self.options.max_clients,
        )

    async def _converse(self, reader: asyncio.StreamReader, messages: MessageReader, client: Client) -> None:
        while data := await reader.read(READ_BYTES):
            client.seen = time.monotonic()
            for message in messages.feed(data):
                match message:
                    case Run(id=number) | Explain(id=number):
                        # Twice: a client may know of an answer while we are still busy with having sent it.
                        if number in client.jobs or len(client.jobs) >= 2 * self.options.window:
                            raise ProtocolViolation(f"request {number} is a second one or one too many")
                        job = client.jobs[number] = Job()
                        self._start(client, job, message)
                    case Cancel(id=number):
                        if number in client.jobs:
                            client.jobs[number].give_up()
                    case Status(id=number):
                        await self._reply(client, Report(number, self.values()))
                    case Stop(id=number):
                        self._log(f"stop asked by client={client.name}")
                        await self._reply(client, Report(number, self.values()))
                        self._stop.set()
                    case _:
                        raise ProtocolViolation(f"{type(message).__name__} is not for the daemon")

    # --- commands

    def _start(self, client: Client, job: Job, message: Run | Explain) -> None:
        def ended(task: asyncio.Task[None]) -> None:
            self._answers.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                self._log(f"error client={client.name} error={error!r}")
                client.drop()  # it asks again, or tells its user, instead of waiting for ever

        task = asyncio.ensure_future(self._run(client, job, message))
        self._answers.add(task)
        task.add_done_callback(ended)

    async def _reply(self, client: Client, message: Message) -> None:
        with contextlib.suppress(ConnectionError):
            await client.send(encode(message))

    async def _run(self, client: Client, job: Job, message: Run | Explain) -> None:
        came = time.monotonic()
        try:
            async with self._large if _may_be_large(message) else contextlib.AsyncExitStack():
                await self._room.wait()
                outcome, answer = await self._answer(job, message)
                now = time.monotonic()
                started = job.started or now
                self.metrics.finished(outcome, started - came, now - started)
                if isinstance(answer, CommandResult):
                    await self._deliver(client, job, message.id, answer)
                else:
                    await self._reply(client, answer)
        finally:
            client.jobs.pop(message.id, None)
            client.seen = time.monotonic()

    async def _answer(self, job: Job, message: Run | Explain) -> tuple[str, CommandResult | Text | Failed]:
        """Returns how the request ended, in a word, and what to tell the client."""
        if self._stopping:
            return "stopping", Failed(message.id, "stopping", "the daemon is stopping")
        try:
            if isinstance(message, Explain):
                text: str = await self._in_thread(self._backend.explain, message.command)
                return "explained", Text(message.id, text)
            result = await self._execute(job, message)
        except GrepSeekError as error:
            return "cancelled" if job.given_up else type(error).__name__, self._failed(message.id, job, error)
        return "timed_out" if result.timed_out else "cut" if result.output_truncated else "ok", result

    async def _execute(self, job: Job, message: Run) -> CommandResult:
        cap = self.options.max_result_bytes
        wanted = message.max_output_bytes
        most = cap if wanted is None else min(cap, wanted) if wanted >= 0 else wanted
        result: CommandResult = await self._in_thread(job.run, self._backend, message.command, message.timeout, most)
        if result.output_truncated and most != wanted:
            raise EngineFault(
                f"the command's output is longer than the {cap} bytes that the daemon holds in memory: give "
                "max_output_bytes, narrow the command, start the daemon with a larger --max-result-bytes, or work in "
                "process with daemon=False"
            )
        return result

    async def _in_thread(self, function: Callable[..., Any], *args: Any) -> Any:
        assert self._threads is not None  # noqa: S101 - set before anybody connects
        return await self._loop.run_in_executor(self._threads, function, *args)

    async def _deliver(self, client: Client, job: Job, number: int, result: CommandResult) -> None:
        size = len(result.stdout)
        self._hold(size)
        try:
            parts: list[bytes] = []
            for part in outputs(number, result):
                if job.given_up:
                    parts = [encode(self._failed(number, job, BackendClosed("the command was given up")))]
                    break
                parts.append(encode(part))
                if len(parts) > 1 and size > CHUNK_BYTES:
                    await client.send(parts.pop(0))
            await client.send(b"".join(parts))
        except ConnectionError:
            job.give_up()
        finally:
            self._hold(-size)

    def _hold(self, size: int) -> None:
        self._waiting += size
        if self._waiting > self.options.outbox_bytes:
            self._room.clear()
        else:
            self._room.set()

    def _failed(self, number: int, job: Job, error: GrepSeekError) -> Failed:
        if job.given_up and self._stopping:
            return Failed(number, "stopping", "the daemon was stopped while the command ran")
        return failure(number, error)

    # --- housekeeping

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self.options.beat_seconds)
            now = time.monotonic()
            for client in list(self._clients):
                if client.jobs:
                    client.beat()
                elif now - client.seen > self.options.idle_seconds:
                    self.metrics.events["idle"] += 1
                    self._log(f"idle client={client.name}")
                    client.close()

    def _under_way(self) -> int:
        return sum(len(client.jobs) for client in self._clients)

    async def _finish(self) -> None:
        """Gives running commands their time, stops them, and closes every connection."""
        now = asyncio.ensure_future(self._now.wait())
        until = time.monotonic() + self.options.grace_seconds
        while self._answers and not now.done() and (left := until - time.monotonic()) > 0:
            await asyncio.wait({now, *self._answers}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        now.cancel()
        self._give_up_all()
        self._room.set()
        await ended(self._answers, _FLUSH_SECONDS)
        for writer in self._handlers.values():
            writer.close()
        await ended(self._handlers, _FLUSH_SECONDS)
        for writer in self._handlers.values():
            writer.transport.abort()
        await ended(self._handlers, None)
        await ended(self._answers, None)

    def _give_up_all(self) -> None:
        for client in self._clients:
            for job in list(client.jobs.values()):
                job.give_up()

    def _remove_sockets(self) -> None:
        for address, _, ours in self._listeners:
            if isinstance(address, UnixAddress) and ours is not None and identity(address) == ours:
                address.path.unlink(missing_ok=True)


def _may_be_large(message: Run | Explain) -> bool:
    return isinstance(message, Run) and (message.max_output_bytes is None or message.max_output_bytes > _LARGE_BYTES)
