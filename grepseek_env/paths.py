"""Where this package keeps what it can make again, and how it writes files that are whole or absent."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
from pathlib import Path
from typing import IO, TYPE_CHECKING

from grepseek_env.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["atomic_file", "atomic_write", "cache_dir", "file_lock", "sync_dir"]

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def cache_dir() -> Path:
    """Returns the absolute cache folder; it may not exist yet and everything in it can be made again.

    The first that is set counts: `$GREPSEEK_CACHE`, `$XDG_CACHE_HOME/grepseek-env`, `~/.cache/grepseek-env`.

    Raises:
        ConfigError: none is set and there is no home folder.
    """
    if own := os.environ.get("GREPSEEK_CACHE"):
        return Path(own).absolute()
    shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if shared.is_absolute():  # the XDG rule: an empty or relative value is to be ignored
        return shared / "grepseek-env"
    try:
        return Path.home() / ".cache" / "grepseek-env"
    except RuntimeError as error:
        raise ConfigError("there is no home folder to keep a cache in: set GREPSEEK_CACHE to a writable one") from error


def sync_dir(folder: Path) -> None:
    """Makes renames in `folder` durable, where the file system can."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # some network file systems refuse fsync on a folder
            os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def atomic_file(path: Path, *, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """Opens a temporary file beside `path` that becomes `path` when the block ends well, and vanishes otherwise.

    Readers and other processes see the old file or the whole new one. Links at `path` are replaced, not followed.

    Args:
        path: the file to be; its folder must exist.
        mode: permission bits before the umask, as for `open(2)`.

    Raises:
        OSError: the folder cannot be written or the disk is full; `path` is as it was.
    """
    temp = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        handle = os.open(temp, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(handle, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temp.replace(path)
    except BaseException as e:
        temp.unlink(missing_ok=True)
        if isinstance(e, OSError) and e.filename is None and e.errno in _NO_ROOM:
            e.filename = str(path)  # the system does not say which file
        raise
    sync_dir(path.parent)


def atomic_write(path: Path, data: bytes | str, *, mode: int = 0o666) -> None:
    """Writes the whole file or nothing (see `atomic_file`); text becomes UTF-8."""
    with atomic_file(path, mode=mode) as file:
        file.write(data.encode() if isinstance(data, str) else data)


@contextlib.contextmanager
def file_lock(path: Path, *, on_wait: Callable[[], object] | None = None) -> Iterator[None]:
    """Holds an exclusive lock on the file `path`, making it and its folder if need be.

    It keeps threads and processes apart, and ends with the process, so that a killed one blocks nobody. The holder
    may, as the last thing it does, remove the file and its folder: whoever waited starts over with new ones.

    Args:
        path: the lock file; its content means nothing.
        on_wait: called once if somebody else holds the lock.

    Raises:
        OSError: the folder or file cannot be made.
    """
    handle = -1
    try:
        while True:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except FileExistsError:
                if path.parent.exists() and not path.parent.is_dir():
                    raise
                continue  # it was there, and has been removed by its last holder since
            with contextlib.suppress(FileNotFoundError):  # removed by its last holder in the meantime
                handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if on_wait is not None:
                        on_wait()
                        on_wait = None
                    fcntl.flock(handle, fcntl.LOCK_EX)
                if os.path.samestat(os.fstat(handle), path.stat()):
                    break
            if handle >= 0:
                os.close(handle)
                handle = -1
        yield
    finally:
        if handle >= 0:
            os.close(handle)
