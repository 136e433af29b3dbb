"""The messages between a daemon and its clients, and how they become bytes.

A message is one msgpack array: a number that names its kind, then its fields in order. msgpack values delimit
themselves, so messages simply follow one another on the stream. Every message is checked against the types of its
record before anything looks at it, and nothing longer than `MAX_MESSAGE_BYTES` is ever collected.

    client                             daemon
    Hello                    ->
                             <-        Welcome, or Rejected and the end of the stream
    Run(7), Run(8)           ->                                        several commands may be under way
                             <-        Beat                            while a command of this client is
                             <-        Output(8), ..., Done(8)
    Cancel(7)                ->
                             <-        Failed(7)

`Hello`, `Welcome` and `Rejected` keep their form in all versions, so that different versions can say what is wrong.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
from dataclasses import dataclass, field
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeAlias, get_args, get_origin, get_type_hints

import msgpack

from grepseek_env import errors
from grepseek_env.errors import CommandRefused, EngineFault, GrepSeekError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from grepseek_env.config import Limits
    from grepseek_env.types import CommandResult

__all__ = [
    "CHUNK_BYTES",
    "HELLO_BYTES",
    "MAX_MESSAGE_BYTES",
    "PROTOCOL",
    "VERSION",
    "Beat",
    "Cancel",
    "Done",
    "Explain",
    "Failed",
    "Hello",
    "Message",
    "MessageReader",
    "Output",
    "ProtocolViolation",
    "Rejected",
    "Report",
    "Run",
    "Status",
    "Stop",
    "Text",
    "Welcome",
    "encode",
    "failure",
    "outputs",
    "settings_of",
    "to_error",
]

PROTOCOL = 1
VERSION = importlib.metadata.version("grepseek-env")
MAX_MESSAGE_BYTES = 4 << 20
HELLO_BYTES = 16 << 10  # what somebody who has not shown the token yet may make us keep
CHUNK_BYTES = 256 << 10
_MOST_ITEMS = 4096  # of an array or map; a few bytes must not ask for much memory
_MOST_TEXT = MAX_MESSAGE_BYTES // 8  # characters of an error's text; up to four bytes each


class ProtocolViolation(Exception):
    """The other side sent what is no message; the connection is of no more use. Never leaves this package."""


@dataclass(frozen=True, slots=True)
class Hello:
    """Opens a connection.

    Attributes:
        protocol: the sender's `PROTOCOL`.
        version: the sender's package version.
        token: the daemon's secret; empty where none is needed.
        digest: the corpus that is wanted; empty for whichever there is.
    """

    protocol: int
    version: str
    token: str = field(default="", repr=False)
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Welcome:
    """Accepts a connection.

    Attributes:
        protocol: the daemon's `PROTOCOL`.
        version: its package version.
        digest: the digest of its corpus.
        settings: what decides results; see `settings_of`.
        about: program_dir, corpus, pid, beat_seconds, window (commands under way that a client may have).
    """

    protocol: int
    version: str
    digest: str
    settings: dict[str, Any]
    about: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rejected:
    """Refuses a connection.

    Attributes:
        reason: "user", "token", "protocol", "version", "corpus", "stopping" or "busy".
        message: what to do about it.
    """

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Run:
    """Asks for a command to be run; `Output`s and `Done`, or `Failed`, answer it."""

    id: int
    command: str
    timeout: float | None
    max_output_bytes: int | None


@dataclass(frozen=True, slots=True)
class Explain:
    """Asks how a command would be run; `Text` or `Failed` answers it."""

    id: int
    command: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """Gives up a command; `Failed` answers it unless its answer is already on the way."""

    id: int


@dataclass(frozen=True, slots=True)
class Status:
    """Asks for the daemon's counters; `Report` answers it."""

    id: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Asks the daemon to stop; it answers with a last `Report`, ends what runs, and closes the connection."""

    id: int


@dataclass(frozen=True, slots=True)
class Beat:
    """Says that the daemon is alive while a command is waiting or running."""


@dataclass(frozen=True, slots=True)
class Output:
    """The next part of a command's stdout."""

    id: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Done:
    """Ends a command's output; the fields are those of `CommandResult`, `size` is the length of its stdout."""

    id: int
    size: int
    stderr: bytes
    exit_code: int | None
    output_truncated: bool
    timed_out: bool


@dataclass(frozen=True, slots=True)
class Failed:
    """The request failed.

    Attributes:
        kind: name of an exception of `grepseek_env.errors`, or "stopping": the daemon takes no more commands.
        message: its text.
        reason: with CommandRefused, its reason; else empty.
        start: with CommandRefused, its start.
        end: with CommandRefused, its end.
    """

    id: int
    kind: str
    message: str
    reason: str = ""
    start: int = 0
    end: int = 0


@dataclass(frozen=True, slots=True)
class Text:
    """Answers `Explain`."""

    id: int
    text: str


@dataclass(frozen=True, slots=True)
class Report:
    """Answers `Status`: nested counters, JSON values only."""

    id: int
    values: dict[str, Any]


Message: TypeAlias = (
    Hello | Welcome | Rejected | Run | Explain | Cancel | Status | Stop | Beat | Output | Done | Failed | Text | Report
)

# A kind keeps its number for ever.
_KINDS: dict[int, type[Message]] = {
    1: Hello,
    2: Welcome,
    3: Rejected,
    10: Run,
    11: Explain,
    12: Cancel,
    13: Status,
    14: Stop,
    20: Beat,
    21: Output,
    22: Done,
    23: Failed,
    24: Text,
    25: Report,
}
_NUMBERS = {kind: number for number, kind in _KINDS.items()}
_FIELDS = {kind: tuple(f.name for f in dataclasses.fields(kind)) for kind in _NUMBERS}


def _accepted(hint: Any) -> tuple[type, ...]:
    """Returns the exact types that a field may have: an int will do for a float, a bool will not for an int."""
    parts = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    accepted = {get_origin(part) or part for part in parts}
    return tuple(accepted | {int} if float in accepted else accepted)


def _types(kind: type) -> tuple[tuple[type, ...], ...]:
    hints = get_type_hints(kind)
    return tuple(_accepted(hints[name]) for name in _FIELDS[kind])


_TYPES = {kind: _types(kind) for kind in _NUMBERS}


def encode(message: Message) -> bytes:
    """Returns the bytes of a message.

    Raises:
        ProtocolViolation: it is longer than the other side would take.
    """
    kind = type(message)
    values = [_NUMBERS[kind], *(getattr(message, name) for name in _FIELDS[kind])]
    # A command may hold lone surrogates: that is for the command language to refuse, in its own words.
    data: bytes = msgpack.packb(values, use_bin_type=True, unicode_errors="surrogatepass")
    if len(data) > MAX_MESSAGE_BYTES:
        raise ProtocolViolation(f"a message of {len(data)} bytes; {MAX_MESSAGE_BYTES} is the most")
    return data


def _decode(value: object) -> Message:
    if not isinstance(value, list) or not value or type(value[0]) is not int or value[0] not in _KINDS:
        raise ProtocolViolation(f"not a message of protocol {PROTOCOL}: {str(value)[:80]}")
    kind = _KINDS[value[0]]
    types = _TYPES[kind]
    if len(value) != len(types) + 1 or any(type(v) not in t for v, t in zip(value[1:], types, strict=True)):
        raise ProtocolViolation(f"a {kind.__name__} message with wrong fields: {str(value)[:80]}")
    return kind(*value[1:])


class MessageReader:
    """Turns the bytes of a stream, in whatever pieces they come, into messages.

    Args:
        most: bytes of an unfinished message that are kept; it may be changed between two calls of `feed`.
    """

    __slots__ = ("_ended", "_fed", "_unpacker", "most")

    def __init__(self, most: int = MAX_MESSAGE_BYTES) -> None:
        self.most = most
        self._fed = 0  # bytes so far
        self._ended = 0  # where the last whole message ended
        self._unpacker = msgpack.Unpacker(
            # An unfinished message and whatever one read brings; `feed` holds `most` itself.
            max_buffer_size=2 * MAX_MESSAGE_BYTES,
            max_array_len=_MOST_ITEMS,
            max_map_len=_MOST_ITEMS,
            raw=False,
            unicode_errors="surrogatepass",
            strict_map_key=True,
        )

    def feed(self, data: bytes) -> Iterator[Message]:
        """Yields the messages that these bytes complete; exhaust it before feeding more.

        Raises:
            ProtocolViolation: this is no stream of messages, or one is too long.
        """
        try:
            self._unpacker.feed(data)
            self._fed += len(data)
            for value in self._unpacker:
                self._ended = self._unpacker.tell()
                yield _decode(value)
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise ProtocolViolation(f"not a stream of messages: {error!r}") from error
        if (kept := self._fed - self._ended) > self.most:
            raise ProtocolViolation(f"a message of more than {kept} bytes; {self.most} is the most")


def settings_of(mode: str, locale: str, limits: Limits) -> dict[str, Any]:
    """Returns what decides the results of an engine, for `Welcome.settings`.

    The limit of run time is not among them, since every command brings its own.
    """
    counted = dataclasses.asdict(limits)
    del counted["command_timeout"]
    return {"mode": mode, "locale": locale, "limits": counted}


def outputs(id_: int, result: CommandResult) -> Iterable[Output | Done]:
    """Yields the messages that carry a result, none of them large."""
    view = memoryview(result.stdout)
    for start in range(0, len(view), CHUNK_BYTES):
        yield Output(id_, bytes(view[start : start + CHUNK_BYTES]))
    yield Done(id_, len(view), result.stderr, result.exit_code, result.output_truncated, timed_out=result.timed_out)


def failure(id_: int, error: GrepSeekError) -> Failed:
    """Returns the message that carries an exception; one of a kind not known here is an `EngineFault`."""
    kind = next((base.__name__ for base in type(error).__mro__ if base.__name__ in errors.__all__), "EngineFault")
    message = str(error)[:_MOST_TEXT]
    if isinstance(error, CommandRefused):
        return Failed(id_, kind, message, error.reason, error.start, error.end)
    return Failed(id_, kind, message)


def to_error(failed: Failed) -> GrepSeekError:
    """Returns the exception that a message carries."""
    if failed.kind == "CommandRefused":
        return CommandRefused(failed.message, reason=failed.reason, start=failed.start, end=failed.end)
    if failed.kind not in errors.__all__:
        return EngineFault(f"{failed.kind}: {failed.message}")
    kind: type[GrepSeekError] = getattr(errors, failed.kind)
    return kind(failed.message)
