"""python -m tests.fuzz: random commands against bash, random turns against the parsers; findings go to the output."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.fuzzing import Report, fuzz_commands, fuzz_turns


def main() -> int:
    """Returns 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__, allow_abbrev=False)
    parser.add_argument("--commands", type=int, default=200_000, help="(default: 200000)")
    parser.add_argument("--seconds", type=float, default=600.0, help="for turns (default: 600)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    began = time.monotonic()

    def tell(report: Report) -> None:
        sys.stderr.write(f"\r{report.tried:,} commands, {len(report.findings)} findings")
        sys.stderr.flush()

    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        view = Path(folder) / "view"
        view.mkdir()
        (view / "corpus.jsonl").write_text("{}\n", encoding="ascii")
        commands = fuzz_commands(args.commands, view, args.seed, tell if sys.stderr.isatty() else lambda _: None)
    turns = fuzz_turns(10**12, args.seed, until=time.monotonic() + args.seconds)
    for name, report in (("commands", commands), ("turns", turns)):
        print(f"{name}: {report.tried:,} tried, {len(report.findings)} findings")
        for outcome, count in report.outcomes.most_common():
            print(f"  {count:>9,}  {outcome}")
        for finding in report.findings[:50]:
            print(f"  FOUND {finding}")
    print(f"seed {args.seed}, {time.monotonic() - began:.0f} s")
    return 1 if commands.findings or turns.findings else 0


if __name__ == "__main__":
    sys.exit(main())
