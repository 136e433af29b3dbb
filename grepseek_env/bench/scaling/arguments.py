"""Options of `grepseek bench scaling`; imports nothing that takes time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

__all__ = ["add_arguments"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options; their names are the fields of `ScalingBench`."""
    add = parser.add_argument
    add("--sizes", default="64MB,128MB,256MB", metavar="LIST", help="sizes of generated corpora (default: %(default)s)")
    add("--draws", type=int, default=5, metavar="N", help="choices of words (default: 5)")
    add("--rounds", type=int, default=5, metavar="N", help="timed runs of each command a contestant (default: 5)")
    add("--batch", type=int, default=64, metavar="N", help="different commands in a batch (default: 64)")
    add("--rebuild", action="store_true", help="build every index anew, so that building is measured")
    add("--workers", type=int, metavar="N", help="threads that build an index (default: one a core, 8 at most)")
    add("--seed", type=int, default=0, help="decides words and orders (default: 0)")
    add("--timeout", type=float, default=120.0, metavar="S", help="seconds a command may run (default: 120)")
    add("--out", type=Path, metavar="DIR", help="write scaling.json and scaling.png there")
    add("--quiet", action="store_true", help="no progress bars")
