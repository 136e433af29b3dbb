"""`grepseek serve`: a daemon that keeps one corpus warm for many clients, and what tells and stops it."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import resource
import secrets
import shlex
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from grepseek_env.cli_support import add_corpus_argument, add_mode_arguments
from grepseek_env.config import Limits, from_dict
from grepseek_env.daemon.options import Options
from grepseek_env.errors import ConfigError, GrepSeekError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

    from grepseek_env.corpus.store import CorpusStore
    from grepseek_env.daemon.address import Address
    from grepseek_env.daemon.server import Server

__all__ = ["add_arguments", "daemon", "serve"]

_DEFAULTS = Options()
_WARM_SHARE = 0.7  # of the memory that is free; a larger corpus would only push out its own beginning
_WARM_BYTES = 8 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `grepseek serve`."""
    add_corpus_argument(parser)
    parser.add_argument("--socket", metavar="PATH", help="where to listen (default: where clients of the corpus look)")
    parser.add_argument(
        "--tcp", metavar="HOST:PORT", help="listen here too, for clients that show the token ($GREPSEEK_DAEMON_TOKEN)"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--status", action="store_true", help="print the counters of the running daemon as JSON")
    what.add_argument("--stop", action="store_true", help="stop the running daemon")
    add_mode_arguments(parser)
    parser.add_argument(
        "--limit",
        action="append",
        default=[],
        metavar="NAME=N",
        help="what one command may use, such as memory_bytes=8000000000; clients must want the same",
    )
    parser.add_argument(
        "--cache-bytes", type=int, metavar="N", help="for earlier results; 0 keeps none (default: 64 MiB)"
    )
    parser.add_argument(
        "--max-result-bytes",
        type=int,
        default=_DEFAULTS.max_result_bytes,
        metavar="N",
        help="the longest output of one command (default: %(default)s)",
    )
    parser.add_argument("--max-clients", type=int, default=_DEFAULTS.max_clients, help="(default: %(default)s)")
    parser.add_argument("--idle-seconds", type=float, default=_DEFAULTS.idle_seconds, metavar="S",
                        help="disconnect clients that ask nothing for so long (default: %(default)s)")  # fmt: skip
    parser.add_argument("--grace-seconds", type=float, default=_DEFAULTS.grace_seconds, metavar="S",
                        help="for running commands when it is stopped (default: %(default)s)")  # fmt: skip
    parser.add_argument("--no-warm", action="store_true", help="do not read the corpus into memory at the start")
    parser.add_argument("--quiet", action="store_true", help="no log on stderr")


def serve(args: argparse.Namespace) -> int:
    """Keep a corpus warm and run the commands of many clients, until it is stopped.

    Clients find it by themselves: open_backend(CORPUS) uses a daemon that serves this corpus. SIGTERM and Ctrl-C give
    running commands some time to end; a second one stops them at once.
    """
    if args.status or args.stop:
        return _control(args)
    options = {key: value for key, value in vars(args).items() if not callable(value)}
    from grepseek_env.daemon.guard import supervise

    # Not by -m: that puts the current folder first, and a file there would be imported for a module of its name.
    code = f"import sys; sys.path[:] = {sys.path!r}; from grepseek_env.serve import daemon; sys.exit(daemon(sys.argv))"
    return supervise([sys.executable, "-c", code, "{guard}", json.dumps(options)])


def _control(args: argparse.Namespace) -> int:
    from grepseek_env.backend import open_corpus
    from grepseek_env.daemon.address import default_socket, parse_address
    from grepseek_env.daemon.client import DaemonClient

    if args.socket:
        address = parse_address(args.socket)
    elif args.tcp:
        address = _tcp(args.tcp)
    else:
        with open_corpus(args.corpus) as store:
            address = default_socket(store.digest)
    with DaemonClient(address) as client:
        if args.stop:
            client.stop_daemon()
            print(f"the daemon at {address} has stopped")
        else:
            print(json.dumps(client.status(), indent=2))
    return 0


def _limits(given: list[str]) -> Limits:
    values: dict[str, float] = {}
    for text in given:
        name, _, value = text.partition("=")
        try:
            values[name] = json.loads(value)
        except ValueError as error:
            raise ConfigError(f"--limit is {text!r}; it must be NAME=NUMBER, such as open_files=64") from error
    return from_dict(Limits, values)


def _tcp(text: str) -> Address:
    from grepseek_env.daemon.address import parse_address

    return parse_address(f"tcp://{text.removeprefix('tcp://')}")


def _serve(guard: int, args: argparse.Namespace) -> int:
    from grepseek_env.backend import open_corpus
    from grepseek_env.daemon.address import TcpAddress, UnixAddress, default_socket
    from grepseek_env.daemon.server import Server
    from grepseek_env.engine.local import DEFAULT_CACHE_BYTES, LocalBackend

    os.set_inheritable(guard, False)  # noqa: FBT003 - it takes no names
    with contextlib.suppress(ValueError, OSError):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard if soft != hard else soft, hard))
    log = _quiet if args.quiet else _log
    token = (os.environ.get("GREPSEEK_DAEMON_TOKEN") or secrets.token_urlsafe(32)) if args.tcp else ""
    options = Options(
        token=token,
        max_clients=args.max_clients,
        max_result_bytes=args.max_result_bytes,
        idle_seconds=args.idle_seconds,
        grace_seconds=args.grace_seconds,
    )
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(open_corpus(args.corpus, progress=sys.stderr.isatty()))
        cache_bytes = DEFAULT_CACHE_BYTES if args.cache_bytes is None else args.cache_bytes
        backend = stack.enter_context(
            LocalBackend(
                store,
                _limits(args.limit),
                args.mode,
                slices=args.slices,
                cache_bytes=cache_bytes,
                sandbox=args.sandbox,
            )
        )
        backend.warm_up(lambda: print("compiling the search, once on this machine: about ten seconds", file=sys.stderr))
        unix = UnixAddress(Path(args.socket)) if args.socket else default_socket(store.digest)
        listeners: list[tuple[Address, socket.socket]] = []
        if args.tcp:
            listener = _tcp(args.tcp).listen()
            host, port, *_ = listener.getsockname()
            listeners.append((TcpAddress(host, port), listener))
        listeners.insert(0, (unix, unix.listen()))  # last to be made: it leaves a file, should another one fail
        server = Server(
            backend,
            listeners,
            options,
            about={
                "corpus": str(store.path),
                "start": f"grepseek serve --corpus {shlex.quote(args.corpus)} {unix.option}",
            },
            log=log,
        )
        usual = unix == default_socket(store.digest)
        how = f"open_backend({args.corpus!r}) finds it" if usual else f"set GREPSEEK_DAEMON={unix}"
        lines = [f"serving {args.corpus} ({store.digest[:12]}) on {unix}: {how}"]
        lines += [f"- and on {address}: set GREPSEEK_DAEMON={address}" for address, _ in listeners[1:]]
        if token and token != os.environ.get("GREPSEEK_DAEMON_TOKEN"):
            lines.append(f"and GREPSEEK_DAEMON_TOKEN={token}")
        if not args.no_warm:
            stack.enter_context(_warmed(store, log))
        asyncio.run(_until_stopped(server, guard, lambda: print(" ".join(lines), flush=True)))
    return 0


async def _until_stopped(server: Server, guard: int, ready: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    stopped = False

    def stop() -> None:
        nonlocal stopped
        server.stop(now=stopped)
        stopped = True

    def orphaned() -> None:
        loop.remove_reader(guard)
        server.stop(now=True)

    from grepseek_env.daemon.guard import ending_signals

    for number in ending_signals():
        loop.add_signal_handler(number, stop)
    loop.add_reader(guard, orphaned)
    await server.serve(ready)


@contextlib.contextmanager
def _warmed(store: CorpusStore, log: Callable[[str], None]) -> Iterator[None]:
    """Reads the corpus in the background, so that the first commands find it in memory."""
    stop = threading.Event()

    def read() -> None:
        began, buffer = time.monotonic(), bytearray(_WARM_BYTES)
        with store.corpus_file.open("rb", buffering=0) as file:
            while not stop.is_set() and file.readinto(buffer):
                pass
        log(f"warm bytes={store.facts.bytes} seconds={time.monotonic() - began:.3f}")

    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") + store.facts.bytes
    if store.facts.bytes > _WARM_SHARE * free:
        log(f"cold bytes={store.facts.bytes} why='too large for the memory of this host'")
        yield
        return
    thread = threading.Thread(target=read, name="grepseek-warm")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _log(event: str) -> None:
    with contextlib.suppress(OSError):  # whoever read the log has gone
        print(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {event}", file=sys.stderr, flush=True)


def _quiet(_event: str) -> None:
    pass


def daemon(argv: list[str]) -> int:
    """Is the daemon, in the process that `serve` starts; returns its exit code.

    Args:
        argv: a name, the descriptor that ends with the parent, and the options as JSON.
    """
    try:
        return _serve(int(argv[1]), argparse.Namespace(**json.loads(argv[2])))
    except GrepSeekError as error:
        print(f"grepseek: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
