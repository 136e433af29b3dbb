"""`python -m algos.openrlhf`: see `algos.openrlhf.cli`."""

from __future__ import annotations

import argparse
import os
import sys

from algos.openrlhf import cli
from grepseek_env.errors import GrepSeekError


def main(argv: list[str] | None = None) -> int:
    """Reads the arguments and runs the action; a mistake of use is one line on stderr."""
    summary, _, rest = (cli.__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        "python -m algos.openrlhf",
        description=summary,
        epilog=rest,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    cli.add_arguments(parser)
    try:
        return cli.run(parser.parse_args(argv))
    except GrepSeekError as e:
        print(f"openrlhf: {e}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader of our output has gone, as in `... --print | head`; keep the interpreter's exit quiet.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as e:
        print(f"openrlhf: {f'{e.filename}: {e.strerror}' if e.filename and e.strerror else e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
