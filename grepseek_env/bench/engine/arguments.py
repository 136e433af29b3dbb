"""Options of `grepseek bench engine`; imports nothing that takes time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

__all__ = ["add_arguments"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options; their names are the fields of `EngineBench`."""
    parser.epilog = "How fast an index is built, and in how much memory: grepseek bench scaling."
    add = parser.add_argument
    add("--size", default="256MB", help="bytes of the generated corpus, kept in the cache folder (default: 256MB)")
    add("--corpus", metavar="FILE|NAME", help="use this corpus instead")
    add("--draws", type=int, default=5, metavar="N", help="choices of words (default: 5)")
    add("--rounds", type=int, default=5, metavar="N", help="timed runs of each command a contestant (default: 5)")
    add("--contestants", "--modes", default="", metavar="LIST", help="such as sequential,sliced:2:file,narrowed:index")
    add("--pipelines", default="", metavar="LIST", help="numbers and ranges such as 1,4,7-9 (default: all)")
    add("--no-ceiling", dest="ceiling", action="store_false", help="leave out the copies on parts of the corpus")
    add("--seed", type=int, default=0, help="decides words and orders (default: 0)")
    add("--timeout", type=float, default=60.0, metavar="S", help="seconds a command may run (default: 60)")
    add("--out", type=Path, metavar="FILE", help="write everything measured as JSON")
    add("--quiet", action="store_true", help="no progress bars")
