"""What the sandbox costs a command: all its layers against none, in turn, in one run."""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import TYPE_CHECKING

from grepseek_env.backend import open_corpus
from grepseek_env.config import Limits
from grepseek_env.engine.confine.client import LAUNCHERS
from grepseek_env.engine.executor import execute
from grepseek_env.engine.programs import open_programs
from grepseek_env.engine.sandbox import Sandbox
from grepseek_env.errors import ConfigError
from grepseek_env.paths import atomic_write

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["COMMANDS", "bench_sandbox"]

# Small inputs: what is measured is the start and the end of programs, not their work.
COMMANDS: dict[str, tuple[tuple[str, ...], ...]] = {
    "one program": (("head", "-n", "1", "corpus.jsonl"),),
    "rg": (("rg", "-c", "-m", "1", "the", "corpus.jsonl"),),
    "three programs": (("head", "-n", "9", "corpus.jsonl"), ("grep", "the"), ("wc", "-l")),
    "with a sort": (("head", "-n", "9", "corpus.jsonl"), ("sort",)),
}
_WARM = 20


def bench_sandbox(*, count: int, corpus: str = "world:tiny", out: Path | None = None) -> int:
    """Prints medians over `count` commands of each kind, confined and not in turn; returns 0.

    Args:
        count: commands of each kind.
        corpus: see `open_backend`.
        out: a JSON file for the figures.

    Raises:
        ConfigError: `count` is below 1.
        SandboxMissing: programs cannot be confined here.
    """
    if count < 1:
        raise ConfigError(f"count is {count}; it must be at least 1")
    with open_corpus(corpus) as store:
        programs = open_programs()
        confined = Sandbox(programs, store.view, Limits(), confine="require")
        plain = Sandbox(programs, store.view, Limits(), confine="off")
        LAUNCHERS.close()
        began = time.perf_counter()
        report = confined.report()
        ready = time.perf_counter() - began
        rows = {}
        for kind, argvs in COMMANDS.items():
            pairs = []
            for number in range(-_WARM, count):
                order = (confined, plain) if number % 2 else (plain, confined)
                seconds = {sandbox.confine: _seconds(argvs, sandbox) for sandbox in order}
                if number >= 0:
                    pairs.append((seconds["require"], seconds["off"]))
            rows[kind] = _summary(pairs)
    print(f"{'':<16}{'confined':>10}{'not':>10}{'difference':>12}   ms, medians of {count} pairs (quartiles)")
    for kind, row in rows.items():
        quartiles = f"({row['difference_q1']:.2f} to {row['difference_q3']:.2f})"
        print(f"{kind:<16}{row['confined']:>10.2f}{row['plain']:>10.2f}{row['difference']:>12.2f}   {quartiles}")
    print(f"the first command waits {ready * 1e3:.0f} ms for the launcher, once a process and corpus")
    layers = {layer: value[0] for layer, value in report.items() if isinstance(value, tuple)}
    print(f"in force: {', '.join(layer for layer, there in layers.items() if there)}; {report['user']}")
    if out is not None:
        figures = {"ms": rows, "first_ms": ready * 1e3, "layers": layers, "count": count, "argv": sys.argv}
        atomic_write(out, json.dumps(figures, indent=1) + "\n")
    return 0


def _seconds(argvs: tuple[tuple[str, ...], ...], sandbox: Sandbox) -> float:
    began = time.perf_counter()
    execute(argvs, sandbox, timeout=60)
    return time.perf_counter() - began


def _summary(pairs: list[tuple[float, float]]) -> dict[str, float]:
    differences = sorted(1e3 * (confined - plain) for confined, plain in pairs)
    return {
        "confined": 1e3 * statistics.median(confined for confined, _ in pairs),
        "plain": 1e3 * statistics.median(plain for _, plain in pairs),
        "difference": statistics.median(differences),
        "difference_q1": differences[len(differences) // 4],
        "difference_q3": differences[len(differences) * 3 // 4],
    }
