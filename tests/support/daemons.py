"""Daemons for tests: in a thread of this process, or started as a user does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from grepseek_env.daemon.address import Address, TcpAddress, UnixAddress
from grepseek_env.daemon.client import DaemonClient
from grepseek_env.daemon.server import Server
from grepseek_env.engine.local import LocalBackend
from tests.support.processes import is_launcher

if TYPE_CHECKING:
    from collections.abc import Iterator

    from grepseek_env.config import Limits
    from grepseek_env.corpus.store import CorpusStore
    from grepseek_env.daemon.options import Options

FOREVER = "awk 'BEGIN { while (1); }'"


@dataclass
class Served:
    """A daemon in a thread of this process."""

    server: Server
    address: Address
    log: list[str]
    thread: threading.Thread

    def wait_for(self, text: str) -> None:
        """Waits for a line of the log."""
        eventually(lambda: any(text in line for line in self.log), f"{text!r} in the log {self.log}")


@contextlib.contextmanager
def serving(
    store: CorpusStore,
    address: Address | None = None,
    *,
    limits: Limits | None = None,
    cache_bytes: int = 0,
    options: Options | None = None,
) -> Iterator[Served]:
    """Serves a corpus, by default on a socket beside its sidecar folder."""
    address = address or UnixAddress(store.sidecar.parent / "d.sock")
    log: list[str] = []
    ready = threading.Event()
    with LocalBackend(store, limits, cache_bytes=cache_bytes) as backend:
        listener = address.listen()
        if isinstance(address, TcpAddress):
            address = TcpAddress(*listener.getsockname()[:2])
        server = Server(backend, [(address, listener)], options, about={"corpus": str(store.path)}, log=log.append)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(ready.set)))
        thread.start()
        try:
            assert ready.wait(30)
            yield Served(server, address, log, thread)
        finally:
            server.stop(now=True)
            thread.join()


@dataclass
class Spawned:
    """`grepseek serve` in processes of its own."""

    process: subprocess.Popen[str]
    address: UnixAddress
    ready_line: str
    log: Path

    @property
    def pid(self) -> int:
        """Of the process that serves, the child of the one that was started."""
        with DaemonClient(self.address) as client:
            return int(client.status()["pid"])


@contextlib.contextmanager
def spawned(corpus: Path, *args: str, env: dict[str, str] | None = None) -> Iterator[Spawned]:
    """Starts `grepseek serve` and waits until it is ready."""
    address = UnixAddress(corpus.parent / "d.sock")
    log = corpus.parent / "daemon.log"
    argv = [sys.executable, "-m", "grepseek_env.cli", "serve", "--corpus", str(corpus), "--socket", str(address.path)]
    with log.open("a") as errors:
        process = subprocess.Popen(
            [*argv, *args], stdout=subprocess.PIPE, stderr=errors, text=True, env={**os.environ, **(env or {})}
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("serving"), log.read_text()
        yield Spawned(process, address, line, log)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGTERM)
        process.wait(30)
        process.stdout.close()


def eventually(condition: object, what: str) -> None:
    """Waits until a condition holds; where it never does, the test fails instead of hanging."""
    for _ in range(6000):
        if condition():  # type: ignore[operator]
            return
        time.sleep(0.005)
    pytest.fail(f"never came true: {what}")


def descendants(pid: int, *, launchers: bool = False) -> set[int]:
    """Returns the ids of all processes under this one.

    Args:
        pid: its own.
        launchers: count those too that wait for the next command.
    """
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(folder.name)] = int((folder / "stat").read_bytes().rpartition(b")")[2].split()[1])
    found: set[int] = set()
    fresh = {pid}
    while fresh:
        fresh = {child for child, parent in parents.items() if parent in fresh} - found
        found |= fresh
    return {each for each in found if launchers or not is_launcher(each)}


def working_in(folder: Path) -> set[int]:
    """Returns the ids of all processes whose working folder is this one, such as the programs of commands."""
    found = set()
    for each in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (each / "cwd").resolve(strict=True) == folder:
                found.add(int(each.name))
    return found


def write_corpus(folder: Path, lines: int = 300) -> Path:
    """Writes a corpus whose lines differ."""
    path = folder / "corpus.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for number in range(lines):
            passage = {"id": str(number), "contents": f'"T{number}"\nalpha w{number % 7} café {number}'}
            file.write(json.dumps(passage, ensure_ascii=False) + "\n")
    return path
