"""`python -m algos.tutor_planner`: the actions of `grepseek tutor`."""

from __future__ import annotations

import argparse
import sys

from algos.tutor_planner import cli
from grepseek_env.errors import GrepSeekError


def main(argv: list[str] | None = None) -> int:
    """Reads the arguments and runs the action; a mistake of use is one line on stderr."""
    summary, _, rest = (cli.__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        "python -m algos.tutor_planner",
        description=summary,
        epilog=rest,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    cli.add_arguments(parser)
    try:
        return cli.run(parser.parse_args(argv))
    except GrepSeekError as e:
        print(f"tutor_planner: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("tutor_planner: interrupted; the same command goes on", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
