"""Write trajectories into one HTML page that needs no network: to read, filter, compare and count them.

    grepseek view runs/keyword                    writes runs/keyword/view.html
    grepseek view evals/a evals/b --out ab.html   the same questions in two runs, side by side

A folder is a run of `grepseek rollout` or `grepseek eval`, or holds such folders; a .jsonl file will do too.
"""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

from grepseek_env.errors import ConfigError
from grepseek_env.view.page import Page, write_page
from grepseek_env.view.runs import Run, find_runs

if TYPE_CHECKING:
    import argparse

__all__ = ["Page", "Run", "add_arguments", "find_runs", "run", "write_page"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `grepseek view`."""
    parser.add_argument("runs", nargs="+", type=Path, metavar="DIR", help="a run's folder, or a file of trajectories")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the page (default: view.html in the first folder)")
    parser.add_argument("--limit", type=int, metavar="N", help="take the first N trajectories of each run")
    parser.add_argument("--title", help="the page's title (default: the folders' names)")
    parser.add_argument("--open", action="store_true", help="show it in a browser")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run(args: argparse.Namespace) -> int:
    """Runs `grepseek view`."""
    if args.limit is not None and args.limit < 1:
        raise ConfigError(f"--limit is {args.limit}; it must be at least 1")
    first: Path = args.runs[0]
    out: Path = args.out or (first if first.is_dir() else first.parent) / "view.html"
    title = args.title or ", ".join(path.resolve().name for path in args.runs)
    page = write_page(
        find_runs(args.runs), out, title=title, limit=args.limit, progress=not args.quiet and sys.stderr.isatty()
    )
    print(f"{page.trajectories:,} trajectories of {page.questions:,} questions, {page.bytes / 1e6:.1f} MB")
    if page.unfinished:
        print(f"grepseek: {page.unfinished} unfinished last lines were left out", file=sys.stderr)
    print(out)
    if args.open:
        webbrowser.open(out.resolve().as_uri())
    return 0
