"""Run the oracle and keyword policies on the bundled world; print a table and one transcript."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from algos.rollout import collect, summarize
from grepseek_env.env import GrepSeekEnv
from grepseek_env.errors import ConfigError
from grepseek_env.render import render_trajectory, use_color
from policies.base import make_policy

if TYPE_CHECKING:
    import argparse

__all__ = ["add_arguments", "run"]

_POLICIES = ("oracle", "keyword")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `grepseek demo`."""
    parser.add_argument("--limit", type=int, default=100, help="questions (default: 100)")
    parser.add_argument("--corpus", default="world:tiny", help="a generated world (default: world:tiny)")
    parser.add_argument("--quiet", action="store_true", help="no progress bars")


def run(args: argparse.Namespace) -> int:
    """Runs `grepseek demo`."""
    if args.limit < 1:
        raise ConfigError(f"--limit is {args.limit}; it must be at least 1")
    env = GrepSeekEnv(corpus=args.corpus, shuffle=False)
    rows = [f"{'policy':<10}{'F1':>8}{'EM':>8}{'reward':>8}{'turns':>8}{'commands/s':>12}"]
    shown = ""
    try:
        with tempfile.TemporaryDirectory(prefix="grepseek-demo-") as folder:
            for name in _POLICIES:
                start = time.perf_counter()
                out = Path(folder) / name
                trajectories = collect(env, make_policy(name), out, limit=args.limit, progress=not args.quiet)
                seconds = time.perf_counter() - start
                s = summarize(trajectories)
                rate = s.commands * s.episodes / seconds
                rows.append(f"{name:<10}{s.f1:>8.3f}{s.em:>8.3f}{s.reward:>8.3f}{s.turns:>8.2f}{rate:>12.0f}")
                if not shown:  # the oracle's longest episode shows several hops
                    longest = max(trajectories, key=lambda t: len(t.turns))
                    shown = render_trajectory(longest, color=use_color())
    finally:
        env.close()
    print("\nOne episode of the oracle policy\n")
    print(shown)
    print(f"{args.limit} questions of {args.corpus}, one at a time\n")
    print("\n".join(rows))
    return 0
