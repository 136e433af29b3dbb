"""Options of `grepseek bench vector`; imports nothing that takes time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

__all__ = ["add_arguments"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options; their names are the fields of `VectorBench`."""
    add = parser.add_argument
    add("--size", default="64MB", help="bytes of the generated corpus, kept in the cache folder (default: 64MB)")
    add("--corpus", metavar="FILE|NAME", help="use this corpus instead")
    add("--envs", default="1,8,64,256", metavar="LIST", help="numbers of environments (default: 1,8,64,256)")
    add("--contestants", default="", metavar="LIST", help="KIND:MODE, such as vector:auto,sync:auto,async:sequential")
    add("--baseline", default="", metavar="NAME", help="what ratios are taken against (default: async:sequential)")
    add("--seconds", type=float, default=5.0, metavar="S", help="a measurement, in whole steps (default: 5)")
    add("--rounds", type=int, default=3, metavar="N", help="measurements of each contestant and number (default: 3)")
    add("--no-index", dest="index", action="store_false", help="do not make the corpus's token index if there is none")
    add("--seed", type=int, default=0, help="decides commands and orders (default: 0)")
    add("--out", type=Path, metavar="FILE", help="write everything measured as JSON")
    add("--plot", type=Path, metavar="FILE", help="draw commands/s as PNG or SVG (needs matplotlib: the extra 'plots')")
    add("--quiet", action="store_true", help="no progress bars")
