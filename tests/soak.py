"""python -m tests.soak: many clients of one daemon for long, with faults at random; every answer right or a fault.

Programs, launchers and clients are killed and connections cut while commands run. At the end nothing may be left, and
memory and descriptors of the daemon must be where they were.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grepseek_env.backend import open_backend
from grepseek_env.daemon.client import DaemonClient
from grepseek_env.engine.local import LocalBackend
from grepseek_env.errors import BackendClosed, CommandRefused, EngineFault, GrepSeekError
from tests.support.daemons import Spawned, spawned, working_in, write_corpus
from tests.support.processes import below, is_launcher

if TYPE_CHECKING:
    from collections.abc import Iterator

    from grepseek_env.types import CommandResult

__all__ = ["Figures", "soak"]

_BUDGETS = (None, 300, 0)
_KINDS = ("program", "launcher", "connection", "client")
_CLIENT = """
import random, sys
from grepseek_env.daemon.client import DaemonClient
from grepseek_env.errors import GrepSeekError
from tests.soak import commands
rng = random.Random()
while True:
    try:
        with DaemonClient(sys.argv[1]) as client:
            for _ in range(50): client.run(rng.choice(commands()), max_output_bytes=1000)
    except (GrepSeekError, OSError):
        pass
"""


@dataclass
class Figures:
    """What came of it.

    Attributes:
        answers: commands that were answered, rightly.
        wrong: commands that were answered wrongly, with what came.
        faults: typed faults that clients were told, by kind.
        injected: what was done to whom.
        left: processes that were there in the end, and should not have been.
        memory: anonymous bytes of the daemon and its helpers, at the beginning, in the middle and at the end.
        descriptors: likewise.
        seconds: how long it took.
    """

    answers: int = 0
    wrong: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    injected: Counter[str] = field(default_factory=Counter)
    left: list[str] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)
    seconds: float = 0.0


def commands() -> list[str]:
    """Returns different commands of every kind of outcome."""
    found = []
    for number in range(0, 300, 11):
        found += [
            f"rg -F 'café {number}\"' corpus.jsonl",
            f"rg -c w{number % 9} corpus.jsonl",
            f"head -n {number} corpus.jsonl | tail -n 2",
            f"awk 'NR % {number + 2} == 0 {{ print NR, length($0) }}' corpus.jsonl | head -n 5",
            f"rg -F w{number % 7} corpus.jsonl | cut -c 1-{number + 1} | sort | uniq -c | head -n 3",
            f"sort -r corpus.jsonl | sed -n {number + 1}p",
            f"grep -n w{number % 7} corpus.jsonl | tail -n 3",
            f"rg -F nothing{number} corpus.jsonl",
            f"rg '({number}' corpus.jsonl",
            f"cat corpus.jsonl > {number}",
            f"awk '{{ for (i = 0; i < 2000; i++) x += i }} END {{ print NR, x % {number + 3} }}' corpus.jsonl | cat",
        ]
    return found


def _outcome(backend: Any, command: str, budget: int | None) -> tuple[object, ...]:
    try:
        result: CommandResult = backend.run(command, max_output_bytes=budget)
    except CommandRefused as refusal:
        return "refused", str(refusal)
    stderr = b"" if budget is not None else result.stderr  # how much is said before an early end is not certain
    return hashlib.sha256(result.stdout).hexdigest(), result.exit_code, result.output_truncated, stderr


class _Soak:
    def __init__(self, daemon: Spawned, view: Path, count: int, seed: int) -> None:
        self.daemon, self.view, self.count = daemon, view, count
        self.pid = daemon.pid
        self.figures = Figures()
        self.rng = random.Random(seed)
        self.lock = threading.Lock()
        self.begun = 0
        self.stop = threading.Event()
        self.clients: dict[int, DaemonClient] = {}

    def use(self, number: int, wanted: dict[tuple[str, int | None], tuple[object, ...]]) -> None:
        rng, items = random.Random(number), list(wanted.items())
        while not self.stop.is_set():
            try:
                with DaemonClient(self.daemon.address) as client:
                    self.clients[number] = client
                    for _ in range(rng.randrange(5, 200)):
                        with self.lock:
                            if self.begun >= self.count:
                                return
                            self.begun += 1
                        self._one(client, *rng.choice(items))
            except (GrepSeekError, OSError) as error:
                self._count(type(error).__name__)

    def _one(self, client: DaemonClient, asked: tuple[str, int | None], expected: tuple[object, ...]) -> None:
        try:
            got = _outcome(client, *asked)
        except BackendClosed:
            raise
        except EngineFault as fault:
            self._count(type(fault).__name__)
            return
        with self.lock:
            if got == expected:
                self.figures.answers += 1
            else:
                self.figures.wrong.append(f"{asked}: {got}, not {expected}")

    def _count(self, kind: str) -> None:
        with self.lock:
            self.figures.faults[kind] += 1

    def harm(self, pause: float) -> None:
        """Injects faults until it is told to stop."""
        other = self._other_clients()
        while not self.stop.wait(self.rng.expovariate(1 / pause)):
            kind = self.rng.choice(_KINDS)
            match kind:
                case "client":
                    other.kill()
                    other.wait()
                    other = self._other_clients()
                case "connection":
                    client = self.clients.get(self.rng.randrange(max(1, len(self.clients))))
                    if client is not None:
                        client.close()
                case "launcher":
                    self._kill([pid for pid in below(self.daemon.process.pid) if is_launcher(pid)])
                case _:
                    for _ in range(500):  # they are short-lived
                        # A launcher whose keeper was killed is the child of the daemon's guard.
                        found = below(self.daemon.process.pid) - {self.pid}
                        if programs := [pid for pid in found if not is_launcher(pid)]:
                            self._kill(programs)
                            break
                    else:
                        continue
            self.figures.injected[kind] += 1
        other.kill()
        other.wait()

    def _kill(self, pids: list[int]) -> None:
        with contextlib.suppress(ProcessLookupError, IndexError):
            os.kill(self.rng.choice(pids), signal.SIGKILL)

    def _other_clients(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-c", _CLIENT, str(self.daemon.address)], cwd=Path(__file__).parents[1]
        )

    def note(self) -> None:
        """Notes what the daemon has in use while it rests."""
        self.figures.memory.append(sum(map(_anonymous, below(self.daemon.process.pid))))
        self.figures.descriptors.append(_settled(lambda: len(os.listdir(f"/proc/{self.pid}/fd"))))  # noqa: PTH208


def _anonymous(pid: int) -> int:
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))
    return 0


def _settled(look: Any) -> int:
    last, same = -1, 0
    for _ in range(600):
        now = look()
        same = same + 1 if now == last else 0
        last = now
        if same == 20:
            break
        time.sleep(0.02)
    return last


@contextlib.contextmanager
def _running(target: Any, *args: Any) -> Iterator[None]:
    thread = threading.Thread(target=target, args=args)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def soak(count: int, *, clients: int, pause: float, seed: int = 0, folder: Path) -> Figures:
    """Runs commands of many clients through a daemon while faults are injected.

    Args:
        count: commands.
        clients: threads that send them, besides a process of others that is killed now and then.
        pause: mean seconds between faults.
        seed: of the random numbers.
        folder: an empty folder to work in.
    """
    corpus = write_corpus(folder)
    began = time.monotonic()
    with open_backend(corpus, mode="sequential", daemon=False) as local:
        assert isinstance(local, LocalBackend)
        view = local._store.view
        wanted = {(each, budget): _outcome(local, each, budget) for each in commands() for budget in _BUDGETS}
    with spawned(corpus, "--quiet", "--cache-bytes", "0", env={"TMPDIR": str(folder)}) as daemon:
        run = _Soak(daemon, view, count, seed)
        with DaemonClient(daemon.address) as client:
            for command in commands()[:60]:
                with contextlib.suppress(CommandRefused):
                    client.run(command)
        run.note()
        for part in (1, 2):
            run.count = count * part // 2
            run.stop.clear()
            with _running(run.harm, pause):
                threads = [threading.Thread(target=run.use, args=(n, wanted)) for n in range(clients)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                run.stop.set()
            _settled(lambda: len(working_in(view)))
            with DaemonClient(daemon.address) as client:  # launchers that were killed come back
                client.run("sort -r corpus.jsonl | cut -c 1-9 | tail -n 1")
            run.note()
        run.figures.left = [f"program {pid}" for pid in working_in(view)]
        pids = below(daemon.process.pid)
    run.figures.left += [f"helper {pid}" for pid in pids if _settled(lambda pid=pid: is_launcher(pid))]
    run.figures.left += [str(path) for path in folder.glob("grepseek-spill-*")]
    run.figures.seconds = time.monotonic() - began
    return run.figures


def main() -> int:
    """Returns 1 if an answer was wrong or something is left."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__, allow_abbrev=False)
    parser.add_argument("--commands", type=int, default=100_000, help="(default: 100000)")
    parser.add_argument("--clients", type=int, default=64, help="(default: 64)")
    parser.add_argument("--pause", type=float, default=0.1, metavar="S", help="mean time between faults (default: 0.1)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the figures there as JSON too")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        figures = soak(args.commands, clients=args.clients, pause=args.pause, seed=args.seed, folder=Path(folder))
    text = json.dumps({**vars(figures), "wrong": figures.wrong[:20], "wrong_count": len(figures.wrong)}, indent=1)
    print(text)
    if args.out is not None:
        args.out.write_text(text + "\n", encoding="utf-8")
    return 1 if figures.wrong or figures.left else 0


if __name__ == "__main__":
    sys.exit(main())
