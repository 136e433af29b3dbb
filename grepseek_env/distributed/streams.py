"""What a part's host gives of a command, as the thread that drives the command sees it."""

from __future__ import annotations

import contextlib
import os
import threading
import uuid
from typing import TYPE_CHECKING

from grepseek_env.distributed.hosts import Request
from grepseek_env.engine.loop import OutOfTime
from grepseek_env.engine.plan import failed
from grepseek_env.engine.worker import KILLED
from grepseek_env.errors import EngineFault

if TYPE_CHECKING:
    from concurrent.futures import Future

    from grepseek_env.distributed.hosts import Reply
    from grepseek_env.distributed.links import Link
    from grepseek_env.engine.plan import Argv

__all__ = ["OnePassOnly", "PartStream", "RawPart", "Wake"]

_RAW_BYTES = 4 << 20
_LIMIT_CODES = frozenset({KILLED, 128 + 24, 128 + 25})


class OnePassOnly(Exception):
    """What a part gave shows that there are parts: one pass over the whole corpus is needed."""


class Wake:
    """A descriptor that becomes readable when a future is done; futures may outlive it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.read, self._write = os.pipe()
        os.set_blocking(self.read, False)
        os.set_blocking(self._write, False)
        self._open = True

    def set(self, _future: object = None) -> None:
        """Makes it readable."""
        with self._lock:
            if self._open:
                with contextlib.suppress(BlockingIOError):  # it is readable
                    os.write(self._write, b"x")

    def clear(self, _handle: int) -> None:
        """Makes it unreadable."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.read, 4096)

    def close(self) -> None:
        """Frees it."""
        with self._lock:
            self._open = False
            os.close(self.read)
            os.close(self._write)


class PartStream:
    """One part's share of a command.

    Args:
        number: of the part.
        link: the way to its host.
        argvs: the programs that run there.
        request: what they are, for the host; each stream gets a key of its own.
        wake: told when there is something.

    Attributes:
        stderr: at the end, what the programs wrote there.
        code: at the end, the last one's exit code.
    """

    def __init__(self, number: int, link: Link, argvs: tuple[Argv, ...], request: Request, wake: Wake) -> None:
        self.number = number
        self.stderr = b""
        self.code = 0
        self._link = link
        self._argvs = argvs
        self._request = Request(uuid.uuid4().hex, request.command, request.timeout, request.window, request.streams)
        self._wake = wake
        self._taken = 0
        self._ended = self._late = False
        self._future: Future[Reply] | None = None

    def begin(self) -> None:
        """Asks the host to start."""
        self._ask(self._link.call("start", self._request))

    def take(self) -> bytes | None:
        """Returns the next bytes, empty if they have to be waited for, None at the end.

        Raises:
            OnePassOnly: the programs failed, so that this part must not count.
            EngineFault: a program was killed, or the part cannot be read.
            HostGone: the host was lost.
            OutOfTime: its time ran out there.
        """
        if self._ended:
            return None
        if self._late:
            raise OutOfTime
        if self._future is None or not self._future.done():
            return b""
        reply, self._future = self._future.result(), None
        if reply.error is not None:
            raise reply.error
        self._taken += len(reply.data)
        if reply.more:
            self._ask(self._link.call("more", self._request, self._taken))
        elif reply.timed_out:
            self._late = True
            self._wake.set()
        else:
            self._ended = True
            self.code, self.stderr = reply.code, reply.stderr
            self._judge(reply)
        return reply.data or (None if self._ended else b"")

    def stop(self) -> None:
        """Lets the host end what nobody waits for."""
        if not self._ended and self._future is not None:
            self._ended = True
            self._link.tell("stop", self._request.key)

    def _ask(self, future: Future[Reply]) -> None:
        self._future = future
        future.add_done_callback(self._wake.set)

    def _judge(self, reply: Reply) -> None:
        if reply.code in _LIMIT_CODES:
            program = self._argvs[-1][0]
            raise EngineFault(f"{program} was killed on part {self.number}, exit code {reply.code}: too little memory?")
        if reply.failed or failed(self._argvs[-1], reply.code):
            raise OnePassOnly


class RawPart:
    """A part's own bytes, in the manner of a `PartStream`.

    Args:
        link: the way to its host.
        size: of the part.
        wake: told when there is something.
    """

    def __init__(self, link: Link, size: int, wake: Wake) -> None:
        self._link = link
        self._left = size
        self._at = 0
        self._wake = wake
        self._future: Future[Reply] | None = None

    def begin(self) -> None:
        """Asks for the first bytes."""
        if self._left:
            self._future = self._link.call("read", self._at, min(self._left, _RAW_BYTES))
            self._future.add_done_callback(self._wake.set)

    def take(self) -> bytes | None:
        """Returns the next bytes, empty if they have to be waited for, None at the end.

        Raises:
            CorpusError: the part cannot be read, or is not what it was.
            HostGone: the host was lost.
        """
        if not self._left:
            return None
        if self._future is None or not self._future.done():
            return b""
        reply, self._future = self._future.result(), None
        if reply.error is not None:
            raise reply.error
        if not reply.data:
            raise EngineFault(f"a part ended {self._left} bytes too early")
        self._at += len(reply.data)
        self._left -= len(reply.data)
        self.begin()
        return reply.data
