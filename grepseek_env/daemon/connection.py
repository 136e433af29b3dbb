"""One connection to a daemon that many threads share, without a thread of its own.

Of the threads that wait for answers one reads the connection and hands out what comes; when it has its own answer, it
passes the reading on to another. So there is nothing to stop at the end of the interpreter, and nothing runs beside an
idle client.
"""

from __future__ import annotations

import contextlib
import io
import socket
import threading
from typing import TYPE_CHECKING

from grepseek_env.daemon.address import same_user
from grepseek_env.daemon.protocol import (
    PROTOCOL,
    VERSION,
    Beat,
    Cancel,
    Done,
    Failed,
    Hello,
    Message,
    MessageReader,
    Output,
    ProtocolViolation,
    Rejected,
    Report,
    Text,
    Welcome,
    encode,
)

if TYPE_CHECKING:
    from grepseek_env.daemon.address import Address

__all__ = ["Answer", "Call", "Connection", "ConnectionLost", "ConnectionRejected"]

_READ_BYTES = 256 << 10
_HELLO_SECONDS = 10.0
_MISSED_BEATS = 15  # signs of life that may fail to come: the daemon's host may be very busy

Answer = Done | Failed | Text | Report


class ConnectionLost(Exception):
    """The connection broke, or the daemon is stopping; asking again elsewhere does no harm."""


class ConnectionRejected(Exception):
    """The daemon does not want this client."""

    def __init__(self, rejected: Rejected) -> None:
        super().__init__(rejected.message)
        self.reason = rejected.reason


class Call:
    """One request and what has come of its answer."""

    __slots__ = ("answer", "id", "output", "turn", "woken")

    def __init__(self, id_: int) -> None:
        self.id = id_
        self.output = io.BytesIO()
        self.answer: Answer | None = None
        self.woken = threading.Event()
        self.turn = False  # it is this one's waiter that reads


class Connection:
    """An open connection that has been introduced.

    Args:
        address: where the daemon listens.
        token: its secret; empty if it has none.
        digest: the corpus that is wanted; empty for whichever it has.

    Raises:
        OSError: nobody listens there.
        ConnectionLost: it ended before the introduction was over.
        ConnectionRejected: the daemon refuses.
    """

    def __init__(self, address: Address, token: str, digest: str) -> None:
        self._lock = threading.Lock()
        self._send_lock = threading.Lock()
        self._calls: dict[int, Call] = {}
        self._last_id = 0
        self._reading = False
        self._lost = ""
        self._messages = MessageReader()
        self._socket = address.connect()
        try:
            self.welcome = self._introduce(token, digest)
            self._socket.settimeout(max(_HELLO_SECONDS, _MISSED_BEATS * float(self.welcome.about["beat_seconds"])))
            self.window = threading.Semaphore(int(self.welcome.about["window"]))
        except (OSError, ProtocolViolation, KeyError, TypeError, ValueError) as error:
            self.drop()
            raise ConnectionLost(f"the daemon did not introduce itself: {error!r}") from error
        except BaseException:
            self.drop()
            raise

    def _introduce(self, token: str, digest: str) -> Welcome:
        if not same_user(self._socket):
            raise ConnectionRejected(Rejected("user", "this socket is another user's: start a daemon of your own"))
        self._socket.settimeout(_HELLO_SECONDS)
        self._socket.sendall(encode(Hello(PROTOCOL, VERSION, token, digest)))
        while data := self._socket.recv(_READ_BYTES):
            for message in self._messages.feed(data):
                match message:
                    case Welcome():
                        return message
                    case Rejected():
                        raise ConnectionRejected(message)
                    case _:
                        raise ProtocolViolation(f"{type(message).__name__} before Welcome")
        raise ProtocolViolation("the connection ended")

    @property
    def usable(self) -> bool:
        """Whether it has not been seen to be broken."""
        return not self._lost

    def call(self) -> Call:
        """Returns a new request; `send` a message with its id, then `wait`."""
        with self._lock:
            self._last_id += 1
            call = self._calls[self._last_id] = Call(self._last_id)
        return call

    def send(self, message: Message) -> None:
        """Sends a message.

        Raises:
            ConnectionLost: the connection broke.
        """
        data = encode(message)
        try:
            with self._send_lock:
                self._socket.sendall(data)
        except OSError as error:
            self._lose(repr(error))
            raise ConnectionLost(self._lost) from error
        except BaseException:  # interrupted in the middle of a message
            self._lose("interrupted")
            raise

    def wait(self, call: Call) -> Answer:
        """Waits for the answer of a request.

        Raises:
            ConnectionLost: the connection broke.
        """
        try:
            while not self._claim(call):
                call.woken.wait()
                call.woken.clear()
            while call.answer is None:
                self._read()
        except (OSError, ProtocolViolation) as error:
            self._lose(repr(error))
        except BaseException:
            if call.turn:  # bytes may be lost, so the connection is of no more use
                self._lose("interrupted")
            raise
        finally:
            self._forget(call)
        if call.answer is None:
            raise ConnectionLost(self._lost or "the connection was closed")
        return call.answer

    def wait_for_end(self) -> None:
        """Waits until the daemon ends the connection.

        Raises:
            ConnectionLost: it has.
        """
        self.wait(self.call())

    def give_up(self, call: Call) -> None:
        """Tells the daemon that nobody wants the answer of a request any more."""
        self._forget(call)
        if call.answer is None and self.usable:
            with contextlib.suppress(ConnectionLost):
                self.send(Cancel(call.id))

    def drop(self) -> None:
        """Closes the connection; whoever waits gets `ConnectionLost`."""
        self._lose("closed")

    def abandon(self) -> None:
        """Lets go of the descriptor only, in a forked child: the connection is the parent's."""
        self._socket.close()

    def _claim(self, call: Call) -> bool:
        """Returns True when the answer is there or this waiter is the one that reads."""
        with self._lock:
            if call.answer is not None:
                return True
            if self._lost:
                raise ProtocolViolation(self._lost)
            if not self._reading:
                self._reading = call.turn = True
            return call.turn

    def _forget(self, call: Call) -> None:
        """Removes a request; if now nobody reads, another waiter does."""
        was_reader = call.turn
        with self._lock:
            self._calls.pop(call.id, None)
            if call.turn:
                self._reading = call.turn = False
            if not self._reading:
                following = next((each for each in self._calls.values() if each.answer is None), None)
                if following is not None:
                    following.woken.set()
        if was_reader:
            self._release()

    def _read(self) -> None:
        data = self._socket.recv(_READ_BYTES)
        if not data:
            raise ProtocolViolation("the daemon has gone")
        for message in self._messages.feed(data):
            match message:
                case Output(id=number, data=part):
                    if number in self._calls:
                        self._calls[number].output.write(part)
                case Done(id=number) | Failed(id=number) | Text(id=number) | Report(id=number):
                    call = self._calls.get(number)
                    if call is not None:
                        call.answer = message
                        call.woken.set()
                case Beat():
                    pass
                case _:
                    raise ProtocolViolation(f"{type(message).__name__} is not for a client")

    def _lose(self, why: str) -> None:
        with self._lock:
            if self._lost:
                return
            self._lost = why
            waiting = list(self._calls.values())
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes whoever reads or sends, which closing would not
        self._release()
        for call in waiting:
            call.woken.set()

    def _release(self) -> None:
        """Closes a lost connection when nobody is using its descriptor.

        Its number is given away again at once: a thread on the way into a read would then wait for somebody else's
        bytes.
        """
        with self._lock:
            if not self._lost or self._reading:
                return  # whoever reads comes here when it stops
        with self._send_lock:
            self._socket.close()
