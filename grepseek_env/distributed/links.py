"""How a backend reaches the hosts of its parts: in this process, with threads.

`ray_links` has the other way. A link never waits: what it is asked becomes a future.
"""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol

from grepseek_env.distributed.hosts import PartHost
from grepseek_env.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grepseek_env.distributed.hosts import HostOptions
    from grepseek_env.distributed.parts import PartFile

__all__ = ["HostGone", "Link", "Links", "LocalLinks"]


class HostGone(Exception):
    """What ran on a host is lost: it crashed, or cannot be reached.

    Attributes:
        number: of the part.
    """

    def __init__(self, number: int, why: str) -> None:
        super().__init__(why)
        self.number = number


class Link(Protocol):
    """The way to one part's host."""

    def call(self, method: str, *arguments: Any) -> Future[Any]:
        """Calls a method of `PartHost`; the future may fail with `HostGone`."""

    def tell(self, method: str, *arguments: Any) -> None:
        """Calls a method whose result does not matter, even if it is not to be had."""


class Links(Protocol):
    """The ways to all parts, in order."""

    where: str
    """In words, for `explain`."""

    def __getitem__(self, number: int) -> Link:
        """Returns the way to a part."""

    def __len__(self) -> int:
        """Returns the number of parts."""

    def revive(self, number: int) -> None:
        """Waits until a host that was lost is back.

        Raises:
            PartLost: it does not come back.
        """

    def close(self) -> None:
        """Ends the hosts, as far as they are this backend's own."""


class _LocalLink:
    def __init__(self, host: PartHost, threads: ThreadPoolExecutor) -> None:
        self._host = host
        self._threads = threads

    def call(self, method: str, *arguments: Any) -> Future[Any]:
        return self._threads.submit(getattr(self._host, method), *arguments)

    def tell(self, method: str, *arguments: Any) -> None:
        getattr(self._host, method)(*arguments)


class LocalLinks:
    """Hosts that are objects of this process.

    Args:
        parts: the files.
        options: how commands are run.
        at_once: commands under way at a time.

    Raises:
        ConfigError: a part is bound to a host.
    """

    def __init__(self, parts: Sequence[PartFile], options: HostOptions, at_once: int) -> None:
        for part in parts:
            if part.host:
                raise ConfigError(
                    f"{part.path} is on the host {part.host}: open the manifest as ray:///PATH, over a Ray cluster"
                )
        self._hosts = [PartHost(part, options) for part in parts]
        # All parts of all commands under way at once, so that no command waits for a thread that another one holds.
        self._threads = ThreadPoolExecutor(min(len(parts) * at_once, 256), "grepseek-part")
        self.where = f"in this process ({os.getpid()})"

    def __getitem__(self, number: int) -> Link:
        return _LocalLink(self._hosts[number], self._threads)

    def __len__(self) -> int:
        return len(self._hosts)

    def revive(self, number: int) -> None:
        """Does nothing: these hosts are not lost without this process."""

    def close(self) -> None:
        """Ends the hosts."""
        for host in self._hosts:
            host.close()
        self._threads.shutdown(cancel_futures=True)
