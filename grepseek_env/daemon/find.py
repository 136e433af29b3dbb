"""Whether a running daemon can take the place of an engine in this process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from grepseek_env.config import Limits
from grepseek_env.daemon.address import default_socket
from grepseek_env.errors import ConfigError, CorpusChanged, EngineFault

if TYPE_CHECKING:
    from pathlib import Path

    from grepseek_env.daemon.client import DaemonClient

__all__ = ["find_daemon"]


def find_daemon(
    digest: str,
    *,
    address: str | os.PathLike[str] | None = None,
    token: str | None = None,
    mode: str = "auto",
    limits: Limits | None = None,
    sandbox: str = "auto",
) -> DaemonClient | None:
    """Returns a client of a running daemon that does the same as an engine in this process would, else None.

    Args:
        digest: of the corpus.
        address: where to look; None for `$GREPSEEK_DAEMON`, and if that is unset for the corpus's usual socket; "off"
            for nowhere.
        token: see `DaemonClient`.
        mode: wanted; "auto" is content with any, since none changes results.
        limits: wanted.
        sandbox: wanted; only "require" asks for a daemon that was started with it.

    Raises:
        ConfigError: an address was given, and the daemon there serves another corpus or has other limits or mode.
        EngineFault: an address was given here or by `$GREPSEEK_DAEMON`, and no daemon can be reached there.
    """
    limits = limits or Limits()
    named = address if address is not None else os.environ.get("GREPSEEK_DAEMON") or None
    if named == "off":
        return None
    where = _usual(digest) if named is None else named
    if where is None:
        return None
    from grepseek_env.daemon.client import DaemonClient  # noqa: PLC0415 - costs what a short command does not need

    try:
        client = DaemonClient(where, token=token, digest=digest, command_timeout=limits.command_timeout)
    except CorpusChanged as error:
        if address is not None:
            raise ConfigError(str(error)) from error
        return None
    except EngineFault:
        if named is not None:
            raise
        return None
    differences = _differences(client, mode, limits)
    if sandbox == "require" and client.sandbox != sandbox:
        differences.append(f"sandbox {client.sandbox!r}, not {sandbox!r}")
    if not differences:
        return client
    client.close()
    if address is not None:
        raise ConfigError(
            f"the daemon at {client.address} has {'; '.join(differences)}: start another, or change these"
        )
    return None


def _usual(digest: str) -> Path | None:
    """Returns the corpus's usual socket, if there is one."""
    try:
        path = default_socket(digest).path
        return path if path.is_socket() else None
    except (ConfigError, OSError):  # no folder for it, or one that is closed to us
        return None


def _differences(client: DaemonClient, mode: str, limits: Limits) -> list[str]:
    from grepseek_env.daemon.protocol import settings_of  # noqa: PLC0415 - loaded by now

    wanted = settings_of(client.mode if mode == "auto" else mode, "C", limits)
    known = client.settings
    return [f"{key} {known[key]!r}, not {wanted[key]!r}" for key in wanted if known[key] != wanted[key]]
