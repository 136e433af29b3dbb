"""`DaemonClient`: a SearchBackend whose commands run in a daemon."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from grepseek_env.commands import parse
from grepseek_env.config import Limits
from grepseek_env.daemon.address import Address, parse_address
from grepseek_env.daemon.connection import Answer, Call, Connection, ConnectionLost, ConnectionRejected
from grepseek_env.daemon.protocol import (
    MAX_MESSAGE_BYTES,
    Done,
    Explain,
    Failed,
    Message,
    Report,
    Run,
    Status,
    Stop,
    Text,
    to_error,
)
from grepseek_env.errors import BackendClosed, ConfigError, CorpusChanged, EngineFault, GrepSeekError
from grepseek_env.types import CommandResult

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from typing_extensions import Self

__all__ = ["DaemonClient"]

_Request: TypeAlias = "Callable[[int], Message]"
_Outcome: TypeAlias = "CommandResult | str | dict[str, Any] | GrepSeekError"

_AT_ONCE = (0.0,)
_BACK_OFF = (0.0, 0.1, 0.2, 0.4, 0.8)  # seconds: a daemon that is being restarted gets the time to listen
_ATTEMPTS = 2  # to have a command answered
_LONG_COMMAND = MAX_MESSAGE_BYTES // 8  # far more than the command language takes


class DaemonClient:
    """Runs commands in a daemon; a `SearchBackend`.

    Any number of threads may use one client: they share one connection, on which many commands can be under way. It
    can be pickled, token included (the copy connects by the address when it is first used), and used after a fork.
    When the daemon is gone or restarted, the client connects again and asks once more, since commands change nothing.

    Args:
        address: path of the daemon's socket, or ``tcp://HOST:PORT``.
        token: the daemon's secret; None takes `$GREPSEEK_DAEMON_TOKEN`, which may be unset for a socket.
        digest: the corpus that it must serve; empty for whichever it serves.
        command_timeout: seconds a command may run unless `run` says otherwise.

    Raises:
        ConfigError: the address cannot work.
        CorpusChanged: the daemon serves another corpus.
        EngineFault: no daemon is there, or it refuses; the message says how to start one.
    """

    def __init__(
        self,
        address: str | os.PathLike[str] | Address,
        *,
        token: str | None = None,
        digest: str = "",
        command_timeout: float = Limits().command_timeout,
    ) -> None:
        self._state(
            parse_address(address) if isinstance(address, (str, os.PathLike)) else address,
            os.environ.get("GREPSEEK_DAEMON_TOKEN", "") if token is None else token,
            digest,
            command_timeout,
            None,
            {},
        )
        self._connected(_AT_ONCE)

    def _state(
        self,
        address: Address,
        token: str,
        digest: str,
        command_timeout: float,
        settings: dict[str, Any] | None,
        about: dict[str, Any],
    ) -> None:
        self._address = address
        self._token = token
        self._digest = digest
        self._timeout = command_timeout
        self._settings = settings
        self._about = about
        self._closed = False
        self._connection: Connection | None = None
        self._begin()

    def _begin(self) -> None:
        """Sets up what belongs to one process and does not survive a fork."""
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._attempts = 0
        self._failure: GrepSeekError | None = None

    @property
    def address(self) -> str:
        """Where the daemon listens."""
        return str(self._address)

    @property
    def program_dir(self) -> Path:
        """The folder that holds exactly the programs which commands run, on the daemon's host."""
        return Path(self._about["program_dir"])

    @property
    def corpus_digest(self) -> str:
        """Hexadecimal SHA-256 of the corpus."""
        return self._digest

    @property
    def settings(self) -> dict[str, Any]:
        """Mode, locale and limits of the daemon."""
        return dict(self._settings or {})

    @property
    def mode(self) -> str:
        """The daemon's mode."""
        return str(self.settings["mode"])

    @property
    def locale(self) -> str:
        """LC_ALL of the programs."""
        return str(self.settings["locale"])

    @property
    def sandbox(self) -> str:
        """What the daemon's programs are kept from; see `open_backend`."""
        return str(self._about.get("sandbox", "off"))

    def run(self, command: str, *, timeout: float | None = None, max_output_bytes: int | None = None) -> CommandResult:
        """Runs one command; see `SearchBackend.run`.

        Raises:
            ConfigError: `timeout` or `max_output_bytes` cannot work.
            CommandRefused: the command is outside the command language.
            CorpusChanged: the corpus is not the one that was opened.
            EngineFault: the infrastructure failed, or the client is closed.
        """
        outcome = self._ask_one(self._run_request(command, timeout, max_output_bytes))
        if isinstance(outcome, CommandResult):
            return outcome
        raise _unexpected(outcome)

    def run_many(
        self, commands: Sequence[str], *, timeout: float | None = None, max_output_bytes: int | None = None
    ) -> list[CommandResult | GrepSeekError]:
        """Runs several commands, equal ones only once.

        Returns:
            A result a command, in order; a refused or failed one is its exception.

        Raises:
            ConfigError: `timeout` or `max_output_bytes` cannot work.
            BackendClosed: the client is closed.
        """
        outcomes: dict[str, _Outcome] = {}
        requests: dict[str, _Request] = {}
        for command in dict.fromkeys(commands):
            try:
                requests[command] = self._run_request(command, timeout, max_output_bytes)
            except ConfigError:
                raise
            except GrepSeekError as error:
                outcomes[command] = error
        outcomes.update(zip(requests, self._ask(list(requests.values())), strict=True))
        results: list[CommandResult | GrepSeekError] = []
        for command in commands:
            outcome = outcomes[command]
            if isinstance(outcome, ConfigError):
                raise outcome
            results.append(outcome if isinstance(outcome, (CommandResult, GrepSeekError)) else _unexpected(outcome))
        return results

    def explain(self, command: str) -> str:
        """Says in words how the daemon would execute the command.

        Raises:
            CommandRefused: the command is outside the command language.
            EngineFault: the infrastructure failed, or the client is closed.
        """
        _check_length(command)
        outcome = self._ask_one(partial(Explain, command=command))
        if isinstance(outcome, str):
            return outcome
        raise _unexpected(outcome)

    def status(self) -> dict[str, Any]:
        """Returns the daemon's settings and counters; see `Server.values`.

        Raises:
            EngineFault: the daemon cannot be reached, or the client is closed.
        """
        outcome = self._ask_one(Status)
        if isinstance(outcome, dict):
            return outcome
        raise _unexpected(outcome)

    def stop_daemon(self) -> None:
        """Asks the daemon to stop, and waits until it has ended this client's connection.

        Raises:
            EngineFault: the daemon cannot be reached, or the client is closed.
        """
        connection = self._connected(_AT_ONCE)
        with contextlib.suppress(ConnectionLost):
            call = connection.call()
            connection.send(Stop(call.id))
            connection.wait(call)
            connection.wait_for_end()

    def close(self) -> None:
        """Ends the connection (commands under way are stopped, and raise `BackendClosed`); again does nothing."""
        self._closed = True
        connection, self._connection = self._connection, None
        if connection is not None:
            if self._process == os.getpid():
                connection.drop()
            else:
                connection.abandon()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_connection", None) is not None:
            self.close()

    def __deepcopy__(self, _memo: dict[int, object]) -> DaemonClient:
        return self  # EnvSpec copies its keywords; one connection serves all copies

    def __reduce__(self) -> tuple[object, ...]:
        return _reopen, (self._address, self._token, self._digest, self._timeout, self._settings, self._about)

    def __repr__(self) -> str:
        return f"DaemonClient({self.address!r}, digest={self._digest[:12]!r}{', closed' if self._closed else ''})"

    # --- requests

    def _run_request(self, command: str, timeout: float | None, most: int | None) -> _Request:
        _check_length(command)
        timeout = self._timeout if timeout is None else float(timeout)
        # Plain numbers: those of numpy do not travel.
        return partial(Run, command=command, timeout=timeout, max_output_bytes=None if most is None else int(most))

    def _ask_one(self, request: _Request) -> _Outcome:
        (outcome,) = self._ask([request])
        if isinstance(outcome, GrepSeekError):
            raise outcome
        return outcome

    def _ask(self, requests: Sequence[_Request]) -> list[_Outcome]:
        """Returns what became of each request; if the connection breaks, the unanswered ones are asked once more."""
        outcomes: dict[int, _Outcome] = {}
        why: Exception | None = None
        for _ in range(_ATTEMPTS):
            connection = self._connected(_BACK_OFF)
            try:
                self._converse(connection, requests, outcomes)
                break
            except ConnectionLost as error:
                connection.drop()  # and so `_connected` opens another
                why = error
        else:
            fault = self._fault(f"went away twice while a command ran ({why})")
            fault.__cause__ = why
            for number in range(len(requests)):
                outcomes.setdefault(number, fault)
        return [outcomes[number] for number in range(len(requests))]

    def _converse(self, connection: Connection, requests: Sequence[_Request], outcomes: dict[int, _Outcome]) -> None:
        todo = deque(number for number in range(len(requests)) if number not in outcomes)
        flying: deque[tuple[int, Call]] = deque()
        try:
            while todo or flying:
                # Who has commands under way must not wait for room: it may be this thread's turn to read.
                if todo and connection.window.acquire(blocking=not flying):
                    call = connection.call()
                    flying.append((todo.popleft(), call))
                    connection.send(requests[flying[-1][0]](call.id))
                else:
                    number, call = flying[0]
                    answer = connection.wait(call)
                    if isinstance(answer, Failed) and answer.kind == "stopping":
                        raise ConnectionLost(answer.message)
                    flying.popleft()
                    connection.window.release()
                    outcomes[number] = _outcome(answer, call)
        finally:
            for _, call in flying:
                connection.give_up(call)
                connection.window.release()

    # --- the connection

    def _connected(self, delays: Sequence[float]) -> Connection:
        """Returns the connection; where there is none that works, tries to open one after each of these delays."""
        if self._process != os.getpid():
            inherited, self._connection = self._connection, None
            if inherited is not None:
                inherited.abandon()
            self._begin()
        before = self._attempts
        with self._lock:
            if self._closed:
                raise BackendClosed("this client is closed: open another with open_backend()")
            if self._connection is not None and self._connection.usable:
                return self._connection
            # Many threads wait here when a daemon dies; one attempt is enough for all of them.
            if self._attempts != before and self._failure is not None:
                raise self._failure
            try:
                self._connection, self._failure = self._open(delays), None
            except GrepSeekError as error:
                self._failure = error
                raise
            finally:
                self._attempts += 1
            return self._connection

    def _open(self, delays: Sequence[float]) -> Connection:
        why: Exception | None = None
        for delay in delays:
            time.sleep(delay)
            if self._closed:
                raise BackendClosed("this client was closed")
            try:
                connection = Connection(self._address, self._token, self._digest)
            except (OSError, ConnectionLost) as error:
                why = error
            except ConnectionRejected as error:
                if error.reason == "corpus":
                    raise CorpusChanged(f"{self._address}: {error}; {self._start()}") from error
                if error.reason not in {"stopping", "busy"}:
                    raise EngineFault(f"{self._address}: {error}") from error
                why = error
            else:
                self._check_settings(connection)
                return connection
        raise self._fault(f"cannot be reached ({why})") from why

    def _check_settings(self, connection: Connection) -> None:
        welcome = connection.welcome
        if self._settings is not None and welcome.settings != self._settings:
            connection.drop()
            raise EngineFault(
                f"the daemon at {self._address} was started again with other settings: {welcome.settings} instead of "
                f"{self._settings}; start it as before, or open the backend anew"
            )
        self._digest, self._settings, self._about = welcome.digest, welcome.settings, welcome.about

    def _fault(self, what: str) -> EngineFault:
        return EngineFault(f"the daemon at {self._address} {what}; {self._start()}")

    def _start(self) -> str:
        command = self._about.get("start") or f"grepseek serve --corpus FILE {self._address.option}"
        return f"start it with `{command}`, or work in process with open_backend(corpus, daemon=False)"


def _reopen(
    address: Address, token: str, digest: str, command_timeout: float, settings: dict[str, Any], about: dict[str, Any]
) -> DaemonClient:
    client = DaemonClient.__new__(DaemonClient)
    client._state(address, token, digest, command_timeout, settings, about)  # noqa: SLF001 - this module's own class
    return client


def _outcome(answer: Answer, call: Call) -> _Outcome:
    match answer:
        case Done(size=size):
            stdout = call.output.getvalue()
            if len(stdout) != size:
                raise ConnectionLost(f"{len(stdout)} of {size} bytes came")
            return CommandResult(stdout, answer.stderr, answer.exit_code, answer.output_truncated, answer.timed_out)
        case Failed():
            return to_error(answer)
        case Text(text=text):
            return text
        case Report(values=values):
            return values


def _unexpected(outcome: object) -> EngineFault:
    return EngineFault(f"the daemon answered something else: {str(outcome)[:80]}")


def _check_length(command: str) -> None:
    """Refuses, in the command language's own words, what is too long to be sent."""
    if len(command) > _LONG_COMMAND:
        parse(command)
        raise EngineFault(f"a command of {len(command)} characters cannot be sent to a daemon")
