"""Runs commands on slices with given cuts and compares with bash."""

from __future__ import annotations

import itertools
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from grepseek_env.commands import parse
from grepseek_env.config import Limits
from grepseek_env.engine.modes import Engine, SlicedRunner
from grepseek_env.engine.plan import Sliced
from grepseek_env.engine.planner import plan
from grepseek_env.engine.programs import open_programs
from grepseek_env.engine.sandbox import Sandbox
from grepseek_env.errors import CommandRefused
from tests.support.oracle import DEADLINE, oracle
from tests.support.plans import facts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from grepseek_env.engine.modes import Feeding
    from grepseek_env.types import CommandResult
    from tests.support.oracle import Outcome

FEEDINGS: tuple[Feeding, ...] = ("pipe", "file")


def line_ends(data: bytes) -> list[int]:
    """Returns every offset just after a newline."""
    return [at + 1 for at, byte in enumerate(data) if byte == 10]


def even_cuts(data: bytes, slices: int) -> tuple[int, ...]:
    """Returns cuts that part the lines of `data` into about equal counts, fewer where there are too few lines."""
    ends = [at for at in line_ends(data) if at < len(data)]
    places = {len(ends) * number // slices for number in range(1, slices)}
    return tuple(ends[place] for place in sorted(places) if place < len(ends))


class Sliceable:
    """A corpus that commands are run on in slices, and what bash makes of them.

    Args:
        folder: an empty folder to work in.
        data: the corpus.
        locale: LC_ALL of the programs.
    """

    def __init__(self, folder: Path, data: bytes, locale: str = "C") -> None:
        self.folder = folder
        self.data = data
        self.facts = facts_of(data)
        self.view = folder / "view"
        self.view.mkdir(parents=True)
        self.file = self.view / "corpus.jsonl"
        self.file.write_bytes(data)
        self.sandbox = Sandbox(open_programs(), self.view, Limits(), locale)
        self._known: dict[str, Outcome] = {}
        self._sets = itertools.count()

    def runner(self, cuts: Sequence[int], feeding: Feeding = "pipe") -> SlicedRunner:
        """Returns what runs commands on slices that end at `cuts`, and at the corpus's end."""
        files: tuple[tuple[Path, int], ...] = ()
        if feeding == "file":
            files = tuple(self._write(self.data[a:b]) for a, b in itertools.pairwise((0, *cuts, len(self.data))))
        return SlicedRunner(
            Engine(self.sandbox, self.file, self.facts, slice_files=files, feeding=feeding, cuts=tuple(cuts))
        )

    def ask(self, command: str) -> Outcome:
        """Runs a command in bash."""
        return oracle(command, self.view, self.sandbox.programs.folder, locale=self.sandbox.locale)

    def wanted(self, command: str) -> Outcome:
        """Returns what bash makes of a command; it is asked once."""
        if command not in self._known:
            self._known[command] = self.ask(command)
        return self._known[command]

    def differences(self, commands: Iterable[str], runner: SlicedRunner) -> list[str]:
        """Runs those commands that are accepted and sliced; returns what is not as bash has it."""
        found = []
        for command in commands:
            try:
                pipeline = parse(command)
            except CommandRefused:
                continue
            if isinstance(plan(pipeline, self.facts, locale=self.sandbox.locale), Sliced):
                ours = runner.run(pipeline, timeout=DEADLINE)
                found.append(difference(command, ours, self.wanted(command), partial(self.ask, command)))
        assert found, "no command was sliced"
        return [text for text in found if text]

    def _write(self, part: bytes) -> tuple[Path, int]:
        folder = self.folder / "slices" / str(next(self._sets))
        folder.mkdir(parents=True)
        (folder / "corpus.jsonl").write_bytes(part)
        return folder, len(part)


def _same_messages(command: str, ours: CommandResult, bash: Outcome) -> bool:
    """Compares messages as bags of bytes: in bash several programs write into one another's lines.

    A program that is cancelled since the last one has ended may not come to write its own.
    """
    mine, its = Counter(ours.stderr), Counter(bash.stderr)
    return mine <= its if "|" in command else mine == its


_TRIES = 30


def difference(command: str, ours: CommandResult, bash: Outcome, ask: Callable[[], Outcome] | None = None) -> str:
    """Returns what is not as bash has it, or nothing.

    Where the last program ends early, bash's own first one may or may not come to write its messages: bash is asked
    again, by `ask`, until it says what we say.
    """
    same = _same(command, ours, bash)
    if not same and ask is not None and "|" in command and ours.stderr:
        same = any(_same(command, ours, ask()) for _ in range(_TRIES))
    if same:
        return ""
    return (
        f"{command}\n  ours {ours.exit_code} {ours.stdout[:200]!r} {ours.stderr[:200]!r}"
        f"\n  bash {bash.exit_code} {bash.stdout[:200]!r} {bash.stderr[:200]!r}"
    )


def _same(command: str, ours: CommandResult, bash: Outcome) -> bool:
    return (
        ours.stdout == bash.stdout
        and ours.exit_code == bash.exit_code
        and _same_messages(command, ours, bash)
        and not ours.timed_out
        and not ours.output_truncated
    )
