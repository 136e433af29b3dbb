"""Runs a narrowing as its records define it: lines chosen one by one in Python, programs by bash. Slow and plain."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
from typing import TYPE_CHECKING

from grepseek_env.commands import parse
from grepseek_env.engine.narrow import (
    CountBytes,
    CountLines,
    Everything,
    Exists,
    GrepCount,
    HeadLines,
    Rest,
    narrow,
)
from grepseek_env.engine.programs import open_programs
from grepseek_env.errors import CommandRefused
from tests.support.oracle import Outcome, oracle
from tests.support.plans import facts_of

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence
    from pathlib import Path

    from grepseek_env.commands import Pipeline
    from grepseek_env.engine.narrow import Clause, Narrowing
    from grepseek_env.engine.plan import Argv

PATIENCE = 20  # seconds; a few drawn patterns take grep for ever
BASH = shutil.which("bash") or "/bin/bash"


def satisfies(line: bytes, clauses: tuple[Clause, ...]) -> bool:
    return all(any(literal.within(line) for literal in clause) for clause in clauses)


def split_lines(data: bytes) -> list[bytes]:
    """Returns the lines with their newlines; the last may lack it."""
    *closed, last = data.split(b"\n")
    return [line + b"\n" for line in closed] + [last] * bool(last)


class Narrowed:
    """A corpus on which commands are run as they stand, and as their narrowing says.

    Args:
        folder: an empty folder to work in.
        data: the corpus.
        locale: LC_ALL of the programs.
    """

    def __init__(self, folder: Path, data: bytes, locale: str = "C") -> None:
        self.view = folder / "view"
        self.view.mkdir(parents=True)
        (self.view / "corpus.jsonl").write_bytes(data)
        self.empty = folder / "empty"
        self.empty.mkdir()
        self.lines = split_lines(data)
        self.facts = facts_of(data)
        self.locale = locale
        self.programs = open_programs().folder
        self.replayed = self.exact = 0

    def difference(self, command: str, rng: random.Random) -> str:
        """Returns what is not as bash has it; nothing where all is well, or nothing is known of the command."""
        try:
            pipeline = parse(command)
        except CommandRefused:
            return ""
        found = narrow(pipeline, self.facts, locale=self.locale)
        if found.replay is None and not found.filters:
            return ""
        try:
            return self._differs(command, pipeline, found, rng)
        except subprocess.TimeoutExpired:
            return ""

    def _differs(self, command: str, pipeline: Pipeline, found: Narrowing, rng: random.Random) -> str:
        want = oracle(command, self.view, self.programs, locale=self.locale, deadline=PATIENCE)
        wrong = ""
        if found.replay is not None:
            # Candidates come in blocks, so that lines which do not qualify come along.
            share = rng.choice((0.0, 0.3))
            chosen = [x for x in self.lines if satisfies(x.removesuffix(b"\n"), found.clauses) or rng.random() < share]
            self.replayed += 1
            wrong += self._compared("replayed", self._bash(found.replay, b"".join(chosen)), want)
        if found.filters:
            self.exact += 1
            wrong += self._compared("filtered", self._filtered(pipeline, found), want)
        return wrong and f"{command} {self.locale}\n  {found}\n{wrong}"

    def _compared(self, how: str, got: Outcome, want: Outcome) -> str:
        """Compares all but messages, which bash's programs write when they like, and some say `<stdin>` in."""
        if got[:2] == want[:2]:
            return ""
        return f"  {how} {got.exit_code} {got.stdout[:300]!r}\n  bash {want.exit_code} {want.stdout[:300]!r}\n"

    def _filtered(self, pipeline: Pipeline, found: Narrowing) -> Outcome:
        lines = [line.removesuffix(b"\n") for line in self.lines]
        for each in found.filters:
            lines = [line for line in lines if each.passes(line)]
        output = b"".join(line + b"\n" for line in lines)
        searched = 0 if lines else 1
        match found.sink:
            case Everything():
                return Outcome(output, searched, b"")
            case HeadLines(count, search):
                return Outcome(b"".join(line + b"\n" for line in lines[:count]), searched if search else 0, b"")
            case CountLines():
                return Outcome(b"%d\n" % len(lines), 0, b"")
            case CountBytes():
                return Outcome(b"%d\n" % len(output), 0, b"")
            case GrepCount(zero):
                return Outcome(b"%d\n" % len(lines) if lines or zero else b"", searched, b"")
            case Exists():
                return Outcome(b"", searched, b"")
            case Rest(number):
                return self._bash(pipeline.argv[number:], output)

    def _bash(self, argvs: Sequence[Argv], stdin: bytes) -> Outcome:
        """Runs programs in a folder without the corpus, which none of them may need."""
        process = subprocess.Popen(
            [BASH, "--noprofile", "--norc", "-c", "cat | " + " | ".join(map(shlex.join, argvs))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.empty,
            env={"PATH": str(self.programs), "LC_ALL": self.locale, "HOME": str(self.empty)},
            start_new_session=True,
        )
        with process:
            try:
                stdout, stderr = process.communicate(stdin, timeout=PATIENCE)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        code = process.returncode
        return Outcome(stdout, code if code >= 0 else 128 - code, stderr)
