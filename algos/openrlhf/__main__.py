"""`python -m algos.openrlhf`: see `algos.openrlhf.cli`."""

from __future__ import annotations

import sys

from algos.base import run_actions
from algos.openrlhf import cli


def main(argv: list[str] | None = None) -> int:
    """Reads the arguments and runs the action; a mistake of use is one line on stderr."""
    return run_actions(cli, argv)


if __name__ == "__main__":
    sys.exit(main())
