"""`grepseek bench env`: what a step costs beyond the command it runs."""

from __future__ import annotations

import statistics
import time

from grepseek_env.actions import ACTION_FORMATS
from grepseek_env.backend import open_corpus
from grepseek_env.bench.timed import TimedBackend
from grepseek_env.engine.local import LocalBackend
from grepseek_env.env import GrepSeekEnv
from grepseek_env.errors import ConfigError

__all__ = ["bench_env", "measure"]

_COMMANDS = (
    "rg -F 'the' corpus.jsonl | head -n 3",
    "rg -i -F 'was' corpus.jsonl | rg -F 'in' | head -n 5",
    "rg -c 'and' corpus.jsonl",
    "cat corpus.jsonl | head -n 8",
)


def measure(*, steps: int) -> list[tuple[float, float]]:
    """Returns (step seconds, command seconds) of `steps` tool-call steps of `GrepSeekEnv` on the default world."""
    # Without the result cache: the ratio is against commands that are run.
    backend = TimedBackend(LocalBackend(open_corpus("world:tiny"), cache_bytes=0))
    env = GrepSeekEnv(backend=backend, max_turns=steps + 1)
    write = ACTION_FORMATS["hermes"].render_action
    turns = [write("I look for a word.", command=c) for c in _COMMANDS]
    out = []
    try:
        env.reset(seed=0)
        for i in range(steps):
            backend.seconds = 0.0
            start = time.perf_counter()
            env.step(turns[i % len(turns)])
            out.append((time.perf_counter() - start, backend.seconds))
    finally:
        env.close()
        backend.close()
    return out


def bench_env(*, steps: int, repetitions: int) -> int:
    """Prints the median step, command and difference over `repetitions` runs of `steps` steps.

    Raises:
        ConfigError: a count is below 1.
    """
    if steps < 1 or repetitions < 1:
        raise ConfigError(f"steps is {steps} and repetitions is {repetitions}; both must be at least 1")
    medians = []
    for _ in range(repetitions):
        rows = measure(steps=steps)
        medians.append(
            (
                statistics.median(s for s, _ in rows),
                statistics.median(c for _, c in rows),
                statistics.median(s - c for s, c in rows),
            )
        )
    step, command, extra = (statistics.median(column) * 1e3 for column in zip(*medians, strict=True))
    spread = sorted(m[2] * 1e3 for m in medians)
    print(
        f"step {step:.3f} ms, of which the command {command:.3f} ms; beyond the command {extra:.4f} ms "
        f"({100 * extra / command:.1f} % of it)\n"
        f"medians of {repetitions} runs of {steps} tool-call steps on world:tiny, hermes format, character cap, "
        f"no result cache; beyond the command from {spread[0]:.4f} to {spread[-1]:.4f} ms over the runs"
    )
    return 0
