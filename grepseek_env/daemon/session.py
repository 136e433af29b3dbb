"""What a server knows of one client and its commands, and small helpers of its event loop."""

from __future__ import annotations

import asyncio
import hmac
import threading
import time
from typing import TYPE_CHECKING

from grepseek_env.daemon.address import Address, UnixAddress
from grepseek_env.daemon.protocol import (
    PROTOCOL,
    VERSION,
    Beat,
    Hello,
    Message,
    MessageReader,
    ProtocolViolation,
    Rejected,
    encode,
)
from grepseek_env.engine.executor import Cancellation
from grepseek_env.errors import BackendClosed, EngineFault

if TYPE_CHECKING:
    from collections.abc import Collection

    from grepseek_env.engine.local import LocalBackend
    from grepseek_env.types import CommandResult

__all__ = ["READ_BYTES", "Client", "Job", "ended", "first_message", "identity", "rejects"]

READ_BYTES = 64 << 10
_BEAT = encode(Beat())


class Job:
    """One command of a client."""

    __slots__ = ("_cancel", "_lock", "given_up", "started")

    def __init__(self) -> None:
        self.given_up = False
        self.started = 0.0
        self._lock = threading.Lock()
        self._cancel: Cancellation | None = None

    def run(self, backend: LocalBackend, command: str, timeout: float | None, most: int) -> CommandResult:
        """Runs it, in a worker thread."""
        self.started = time.monotonic()
        with self._lock:
            if self.given_up:
                raise BackendClosed("the command was given up before it started")
            try:
                self._cancel = Cancellation()
            except OSError as error:
                raise EngineFault(f"the daemon is out of file descriptors: {error}; raise `ulimit -n`") from error
        return backend.run(command, timeout=timeout, max_output_bytes=most, cancel=self._cancel)

    def give_up(self) -> None:
        """Stops it; from any thread."""
        with self._lock:
            if not self.given_up:
                self.given_up = True
                if self._cancel is not None:
                    self._cancel.set()


class Client:
    """One connection that has introduced itself."""

    def __init__(self, writer: asyncio.StreamWriter, name: str, stall_seconds: float) -> None:
        self.name = name
        self.jobs: dict[int, Job] = {}
        self.seen = time.monotonic()
        self._writer = writer
        self._stall_seconds = stall_seconds
        self._lock = asyncio.Lock()

    async def send(self, data: bytes) -> None:
        """Sends; returns when the connection takes more.

        Raises:
            ConnectionError: the client is gone, or does not read.
        """
        async with self._lock:
            if self._writer.is_closing():
                raise ConnectionResetError("the client has gone")
            self._writer.write(data)
            if self._writer.transport.get_write_buffer_size() > READ_BYTES:
                try:
                    await asyncio.wait_for(self._writer.drain(), self._stall_seconds)
                except asyncio.TimeoutError as error:  # its own class before Python 3.11
                    self.drop()
                    raise ConnectionAbortedError("the client does not read its output") from error

    def beat(self) -> None:
        """Gives a sign of life, unless output is on its way, which is one."""
        if not self._writer.is_closing() and not self._writer.transport.get_write_buffer_size():
            self._writer.write(_BEAT)

    def close(self) -> None:
        """Closes the connection when everything has been sent."""
        self._writer.close()

    def drop(self) -> None:
        """Closes the connection at once."""
        self._writer.transport.abort()


async def ended(tasks: Collection[asyncio.Task[None]], timeout: float | None) -> None:
    """Waits until all tasks have ended, for so many seconds at most."""
    if tasks:
        await asyncio.wait(set(tasks), timeout=timeout)


async def first_message(reader: asyncio.StreamReader, messages: MessageReader) -> Message | None:
    """Returns the first message of a stream, None at its end."""
    while data := await reader.read(READ_BYTES):
        for message in messages.feed(data):
            return message
    return None


def identity(address: Address) -> tuple[int, int] | None:
    """Returns which file a socket is, since another daemon may have put its own in the place of ours."""
    if not isinstance(address, UnixAddress):
        return None
    try:
        status = address.path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def rejects(hello: Message, *, ours: bool, token: str, digest: str, stopping: bool, full: bool) -> Rejected | None:
    """Returns why a client is refused, None if it is not.

    Args:
        hello: what it said first.
        ours: its process is our user's.
        token: that it must show.
        digest: of the corpus that is served.
        stopping: the daemon is.
        full: there are as many clients as may be.

    Raises:
        ProtocolViolation: it said something else.
    """
    if not isinstance(hello, Hello):
        raise ProtocolViolation(f"{type(hello).__name__} before Hello")
    # These two first: others learn nothing.
    if not ours:
        return Rejected("user", "the daemon serves the user who started it only: start another")
    if not hmac.compare_digest(hello.token.encode("utf-8", "surrogatepass"), token.encode()):
        return Rejected(
            "token", "the daemon wants another token: set GREPSEEK_DAEMON_TOKEN to the one it was started with"
        )
    if hello.protocol != PROTOCOL or hello.version != VERSION:
        return Rejected(
            "protocol" if hello.protocol != PROTOCOL else "version",
            f"the daemon runs grepseek-env {VERSION} (protocol {PROTOCOL}), the client {hello.version} "
            f"(protocol {hello.protocol}): install one version and restart the daemon",
        )
    if hello.digest and hello.digest != digest:
        return Rejected("corpus", f"the daemon serves the corpus {digest[:12]}, not {hello.digest[:12]}")
    if stopping:
        return Rejected("stopping", "the daemon is stopping")
    return Rejected("busy", "the daemon has all the clients it takes: raise --max-clients") if full else None
