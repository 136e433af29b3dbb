"""Where a daemon listens: a unix socket that only its user can reach, or TCP with a token."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import struct
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from grepseek_env.errors import ConfigError, EngineFault
from grepseek_env.paths import cache_dir, file_lock

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Address", "TcpAddress", "UnixAddress", "default_socket", "parse_address", "same_user"]

# struct sockaddr_un has 108 bytes on Linux and 104 elsewhere, the last one a NUL.
_MOST_PATH_BYTES = 107 if os.uname().sysname == "Linux" else 103
_PEER = struct.Struct("3i")  # struct ucred: pid, uid, gid
_BACKLOG = 512
_CONNECT_SECONDS = 5.0
_PROBE_SECONDS = 0.2
_DYING_SECONDS = 5.0
# A full backlog, an interrupted call: somebody listens, so these say nothing about the socket being stale.
_BUSY = frozenset({errno.EAGAIN, errno.EWOULDBLOCK, errno.EINTR, errno.EINPROGRESS})


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """A socket in the file system.

    Raises:
        ConfigError: the path is too long for a socket.
    """

    path: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path).absolute())
        length = len(os.fsencode(self.path))
        if length > _MOST_PATH_BYTES:
            raise ConfigError(
                f"the socket path {self.path} has {length} bytes; {_MOST_PATH_BYTES} is the most this system takes. "
                "Give a shorter one with --socket, for instance in /tmp or $XDG_RUNTIME_DIR"
            )

    def __str__(self) -> str:
        return str(self.path)

    @property
    def option(self) -> str:
        """The option of `grepseek serve` that makes it listen here."""
        return f"--socket {self.path}"

    def connect(self) -> socket.socket:
        """Connects.

        Raises:
            OSError: nobody listens here.
        """
        return _connected(socket.AF_UNIX, str(self.path))

    def listen(self) -> socket.socket:
        """Starts to listen, with a socket file of mode 0600, in the place of one that nobody listens on any more.

        Raises:
            ConfigError: a daemon is at this address, or there is something that is no socket.
            EngineFault: the socket cannot be made.
        """
        try:
            _private_folder(self.path.parent)
            lock = self.path.with_name(f"{self.path.name}.lock")
            with file_lock(lock):
                self._clear()
                listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                try:
                    previous = os.umask(0o177)  # a chmod afterwards would leave a moment in between
                    try:
                        listener.bind(str(self.path))
                    finally:
                        os.umask(previous)
                    listener.listen(_BACKLOG)
                except BaseException:
                    listener.close()
                    raise
                lock.unlink(missing_ok=True)
        except OSError as error:
            raise EngineFault(f"cannot listen on {self.path}: {error}; give another path with --socket") from error
        return listener

    def _clear(self) -> None:
        """Removes a stale socket."""
        until = time.monotonic() + _DYING_SECONDS
        while True:
            try:
                mode = self.path.lstat().st_mode
            except FileNotFoundError:
                return
            if not stat.S_ISSOCK(mode):
                raise ConfigError(
                    f"{self.path} is there and is no socket; remove it or give another path with --socket"
                )
            try:
                with self.connect() as probe:
                    probe.settimeout(_PROBE_SECONDS)
                    dying = not probe.recv(1)  # a live daemon waits for us to speak
            except (ConnectionRefusedError, FileNotFoundError):
                self.path.unlink(missing_ok=True)
                return
            except ConnectionResetError:
                dying = True
            except OSError as error:
                if error.errno not in _BUSY and not isinstance(error, TimeoutError):
                    raise
                dying = False
            if not dying or time.monotonic() > until:
                raise ConfigError(
                    f"a daemon is already listening on {self.path}: use it, stop it with "
                    f"`grepseek serve --stop --socket {self.path}`, or give another path with --socket"
                )
            time.sleep(_PROBE_SECONDS)


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """A host and port. What travels is not encrypted: keep it on a network you trust, or in a tunnel."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"tcp://{_bracketed(self.host)}:{self.port}"

    @property
    def option(self) -> str:
        """The option of `grepseek serve` that makes it listen here."""
        return f"--tcp {_bracketed(self.host)}:{self.port}"

    def connect(self) -> socket.socket:
        """Connects.

        Raises:
            OSError: nobody listens here.
        """
        connection = socket.create_connection((self.host, self.port), timeout=_CONNECT_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A host that vanished sends no end of the stream.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return connection

    def listen(self) -> socket.socket:
        """Starts to listen.

        Raises:
            EngineFault: the port is taken or the host is not this machine's.
        """
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        try:
            return socket.create_server((self.host, self.port), family=family, backlog=_BACKLOG)
        except OSError as error:
            raise EngineFault(f"cannot listen on {self}: {error}; give another host or port with --tcp") from error


Address: TypeAlias = UnixAddress | TcpAddress


def parse_address(text: str | os.PathLike[str]) -> Address:
    """Reads ``tcp://HOST:PORT``, ``unix:PATH`` or a path.

    Raises:
        ConfigError: it is none of these, or the path is too long.
    """
    given = os.fspath(text)
    if not given.startswith("tcp://"):
        if not given:
            raise ConfigError("the daemon's address is empty; it must be a socket's path or tcp://HOST:PORT")
        return UnixAddress(Path(given.removeprefix("unix:")))
    host, colon, port = given.removeprefix("tcp://").rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"the daemon's address is {given!r}; it must be a socket's path or tcp://HOST:PORT")
    return TcpAddress(host.removeprefix("[").removesuffix("]"), int(port))


def default_socket(digest: str) -> UnixAddress:
    """Returns where the daemon of a corpus listens unless told otherwise, so that clients find it by themselves.

    It is in `$XDG_RUNTIME_DIR/grepseek`, else in the cache folder, else (when that makes the path too long) in a
    folder of this user's in the folder for temporary files.
    """
    name = f"{digest[:16]}.sock"
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    folders: list[Callable[[], Path]] = [
        lambda: cache_dir() / "run",
        lambda: Path(tempfile.gettempdir()) / f"grepseek-{os.getuid()}",
    ]
    if runtime.is_absolute():
        folders.insert(0, lambda: runtime / "grepseek")
    for folder in folders:
        with contextlib.suppress(ConfigError):  # too long, or there is no cache folder
            return UnixAddress(folder() / name)
    raise ConfigError(f"every default socket path is too long: set XDG_RUNTIME_DIR to a short one (tried {name})")


def _private_folder(folder: Path) -> None:
    """Makes the folder, for its user only; one that is there stays as it is.

    Whoever may write there could put a socket of theirs in our place: in a folder of all users only the sticky bit
    keeps them from it.
    """
    if not folder.exists():
        folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    status = folder.stat()
    if status.st_uid not in {os.getuid(), 0} or (status.st_mode & 0o002 and not status.st_mode & stat.S_ISVTX):
        raise ConfigError(
            f"others could replace a socket in {folder} (owner {status.st_uid}, mode {stat.filemode(status.st_mode)}): "
            "give a path in a folder of yours with --socket"
        )


def _connected(family: int, address: str) -> socket.socket:
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.settimeout(_CONNECT_SECONDS)
        connection.connect(address)
    except BaseException:
        connection.close()
        raise
    return connection


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def same_user(connection: socket.socket) -> bool:
    """Returns whether the other end is a process of our user, where that matters and the system can tell.

    The server asks because root may open any socket, the client because somebody else could have put one of theirs
    where ours is expected.
    """
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None or connection.family != socket.AF_UNIX:
        return True
    _, uid, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, option, _PEER.size))
    return bool(uid == os.getuid())
