"""Whether a running daemon can take the place of an engine in this process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from grepseek_env.config import Limits
from grepseek_env.daemon.address import default_socket
from grepseek_env.daemon.client import DaemonClient
from grepseek_env.daemon.protocol import settings_of
from grepseek_env.errors import ConfigError, CorpusChanged, EngineFault

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["find_daemon"]


def find_daemon(
    digest: str,
    *,
    address: str | os.PathLike[str] | None = None,
    token: str | None = None,
    mode: str = "auto",
    limits: Limits | None = None,
) -> DaemonClient | None:
    """Returns a client of a running daemon that does the same as an engine in this process would, else None.

    Args:
        digest: of the corpus.
        address: where to look; None for `$GREPSEEK_DAEMON`, and if that is unset for the corpus's usual socket.
        token: see `DaemonClient`.
        mode: wanted; "auto" is content with any, since none changes results.
        limits: wanted.

    Raises:
        ConfigError: an address was given, and the daemon there serves another corpus or has other limits or mode.
        EngineFault: an address was given here or by `$GREPSEEK_DAEMON`, and no daemon can be reached there.
    """
    limits = limits or Limits()
    named = os.environ.get("GREPSEEK_DAEMON") if address is None else address
    try:
        if named:
            client = DaemonClient(named, token=token, digest=digest, command_timeout=limits.command_timeout)
        else:
            usual = default_socket(digest)
            if not _is_socket(usual.path):
                return None
            client = DaemonClient(usual, token=token, digest=digest, command_timeout=limits.command_timeout)
    except CorpusChanged as error:
        if address is not None:
            raise ConfigError(str(error)) from error
        return None
    except (ConfigError, EngineFault):
        if named:
            raise
        return None
    wanted = settings_of(client.mode if mode == "auto" else mode, "C", limits)
    differences = [f"{key} {client.settings[key]!r}, not {wanted[key]!r}" for key in wanted
                   if client.settings[key] != wanted[key]]  # fmt: skip
    if not differences:
        return client
    client.close()
    if address is not None:
        raise ConfigError(
            f"the daemon at {client.address} has {'; '.join(differences)}: start another, or change these"
        )
    return None


def _is_socket(path: Path) -> bool:
    try:
        return path.is_socket()
    except OSError:  # in a folder that is closed to us
        return False
