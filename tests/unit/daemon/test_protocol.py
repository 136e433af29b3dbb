from __future__ import annotations

import pickle

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grepseek_env import errors
from grepseek_env.config import Limits
from grepseek_env.daemon import protocol
from grepseek_env.daemon.protocol import (
    CHUNK_BYTES,
    MAX_MESSAGE_BYTES,
    Beat,
    Cancel,
    Done,
    Explain,
    Failed,
    Hello,
    MessageReader,
    Output,
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
    to_error,
)
from grepseek_env.errors import CommandRefused, CorpusChanged, EngineFault, GrepSeekError, SpawnFailed
from grepseek_env.types import CommandResult

MESSAGES = [
    Hello(1, "0.1.0", "secret", "ab12"),
    Welcome(1, "0.1.0", "ab12", settings_of("auto", "C", Limits()), {"pid": 7, "beat_seconds": 0.5, "nothing": None}),
    Rejected("token", "wrong"),
    Run(1, "rg 'a\udc80\nb' corpus.jsonl", 1.5, None),
    Run(2, "", 3, 0),
    Explain(3, "ls"),
    Cancel(1),
    Status(4),
    Stop(5),
    Beat(),
    Output(1, b"\x00\xff\n"),
    Done(1, 3, b"rg: oops\n", None, output_truncated=True, timed_out=False),
    Done(1, 1 << 40, b"", 141, output_truncated=False, timed_out=True),
    Failed(1, "CommandRefused", "no", "unknown-flag", 3, 4),
    Text(3, "sequential"),
    Report(4, {"commands": {"total": 3}, "p50_ms": None}),
]


def test_every_kind_is_among_the_examples() -> None:
    assert {type(message) for message in MESSAGES} == set(protocol._KINDS.values())


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_a_message_comes_back_as_it_was(message: protocol.Message) -> None:
    assert list(MessageReader().feed(encode(message))) == [message]


@given(st.lists(st.integers(1, 40)))
def test_property_messages_may_come_in_any_pieces(sizes: list[int]) -> None:
    stream = b"".join(map(encode, MESSAGES))
    reader = MessageReader()
    got = []
    for size in sizes:
        got += reader.feed(stream[:size])
        stream = stream[size:]
    got += reader.feed(stream)
    assert got == MESSAGES


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        pickle.dumps(("run", "ls")),
        msgpack.packb([]),
        msgpack.packb([999, 1]),
        msgpack.packb([True, 1]),
        msgpack.packb({"id": 1}),
        msgpack.packb([12]),
        msgpack.packb([12, 1, 2]),
        msgpack.packb([12, "1"]),
        msgpack.packb([12, True]),
        msgpack.packb([10, 1, b"ls", None, None]),
        msgpack.packb([10, 1, "ls", "5", None]),
        msgpack.packb([[1], 1]),
        b"\xc1",
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\x91" * 3000,
        b"\xa2\xff\xff",
    ],
)
def test_what_is_no_message_is_a_violation(data: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        list(MessageReader().feed(data))


@given(st.binary(max_size=200))
def test_property_any_bytes_give_messages_or_a_violation(data: bytes) -> None:
    try:
        got = list(MessageReader().feed(data))
    except ProtocolViolation:
        return
    assert all(isinstance(each, protocol.Message) for each in got)


def test_an_unfinished_message_is_kept_up_to_the_bound() -> None:
    reader = MessageReader(1000)
    assert list(reader.feed(encode(Output(1, b"x" * 2000))[:900])) == []
    with pytest.raises(ProtocolViolation, match="1000 is the most"):
        list(reader.feed(b"x" * 200))


def test_the_bound_counts_elements_that_were_read_already() -> None:
    reader = MessageReader(1000)
    assert list(reader.feed(b"\xdc\x10\x00")) == []  # an array of 4096
    for _ in range(9):
        assert list(reader.feed(b"\x01" * 100)) == []
    with pytest.raises(ProtocolViolation, match="1000 is the most"):
        list(reader.feed(b"\x01" * 100))


def test_a_message_that_is_too_long_is_not_sent() -> None:
    with pytest.raises(ProtocolViolation, match="bytes"):
        encode(Run(1, "x" * MAX_MESSAGE_BYTES, None, None))


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES])
def test_output_travels_in_parts(size: int) -> None:
    result = CommandResult(b"x" * size, b"warning", 1)
    *parts, done = outputs(5, result)
    assert b"".join(part.data for part in parts if isinstance(part, Output)) == result.stdout
    assert all(len(part.data) <= CHUNK_BYTES for part in parts if isinstance(part, Output))
    assert done == Done(5, size, b"warning", 1, output_truncated=False, timed_out=False)


@pytest.mark.parametrize("name", errors.__all__)
def test_every_error_keeps_its_kind_and_text(name: str) -> None:
    error = getattr(errors, name)("what failed, and why")
    back = to_error(failure(3, error))
    assert type(back) is type(error)
    assert str(back) == str(error)


def test_a_refusal_keeps_everything() -> None:
    back = to_error(failure(3, CommandRefused("caret\n  ^", reason="unknown-flag", start=3, end=9)))
    assert isinstance(back, CommandRefused)
    assert (str(back), back.reason, back.start, back.end) == ("caret\n  ^", "unknown-flag", 3, 9)


class _OwnFault(SpawnFailed):
    pass


class _OwnError(GrepSeekError):
    pass


def test_kinds_that_are_not_known_become_their_nearest() -> None:
    assert type(to_error(failure(1, _OwnFault("x")))) is SpawnFailed
    assert type(to_error(failure(1, _OwnError("x")))) is GrepSeekError
    unknown = to_error(Failed(1, "FutureError", "text"))
    assert type(unknown) is EngineFault
    assert str(unknown) == "FutureError: text"
    assert type(to_error(failure(1, CorpusChanged("x")))) is CorpusChanged


def test_a_text_of_any_length_can_be_sent() -> None:
    failed = failure(1, EngineFault("é" * MAX_MESSAGE_BYTES))
    assert len(encode(failed)) < MAX_MESSAGE_BYTES


def test_a_token_is_not_shown() -> None:
    assert "secret" not in repr(Hello(1, "0", "secret"))
