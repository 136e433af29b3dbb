"""How a daemon treats its clients; importing this costs nothing, so that a command line can show the defaults."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from grepseek_env.errors import ConfigError

__all__ = ["Options"]


@dataclass(frozen=True, slots=True)
class Options:
    """How a daemon treats its clients.

    Attributes:
        token: what clients must show; empty for none, which only a unix socket may have.
        workers: commands that are handed to the engine at once; its scheduler decides how many of them run.
        window: commands under way that one client may have.
        max_clients: connections at once.
        max_result_bytes: the longest output of one command, since it is held in memory.
        large_results: commands at once whose output may be longer than 16 MiB, until it is delivered; 0: two a core,
            at least 4.
        outbox_bytes: output that may wait for slow readers before no further command starts.
        hello_seconds: within which a client must introduce itself.
        idle_seconds: after which a client that asks nothing is disconnected; it may come again.
        stall_seconds: after which a client that does not read its output is disconnected.
        beat_seconds: between the signs of life that a waiting client is given.
        grace_seconds: that running commands are given when the daemon stops.

    Raises:
        ConfigError: a number cannot work.
    """

    token: str = field(default="", repr=False)
    workers: int = 128
    window: int = 256
    max_clients: int = 512
    max_result_bytes: int = 1 << 30
    large_results: int = 0
    outbox_bytes: int = 256 << 20
    hello_seconds: float = 10.0
    idle_seconds: float = 600.0
    stall_seconds: float = 60.0
    beat_seconds: float = 2.0
    grace_seconds: float = 10.0

    def __post_init__(self) -> None:
        for name in ("workers", "window", "max_clients", "max_result_bytes", "outbox_bytes"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)!r}; it must be at least 1")
        for name in ("large_results", "grace_seconds"):
            value = getattr(self, name)
            if math.isnan(value) or value < 0:
                raise ConfigError(f"{name} is {value!r}; it must be 0 or more")
        for name in ("hello_seconds", "idle_seconds", "stall_seconds", "beat_seconds"):
            value = getattr(self, name)
            if math.isnan(value) or value <= 0:
                raise ConfigError(f"{name} is {value!r}; it must be greater than 0")
