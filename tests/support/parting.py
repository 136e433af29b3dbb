"""Corpora in parts, and what bash makes of commands over the whole."""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING

from grepseek_env.distributed.parts import PartFile, PartsManifest
from grepseek_env.engine.programs import open_programs
from grepseek_env.errors import CommandRefused
from tests.support.oracle import DEADLINE, oracle
from tests.support.slicing import difference

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from grepseek_env.distributed.backend import PartsBackend
    from tests.support.oracle import Outcome


class Parted:
    """A corpus as a manifest of parts, and as one file for bash.

    Args:
        folder: an empty folder to work in.
        data: the corpus.
        cuts: where it is cut.
        locale: LC_ALL of the programs.
    """

    def __init__(self, folder: Path, data: bytes, cuts: Sequence[int], locale: str = "C") -> None:
        self.locale = locale
        self.view = folder / "view"
        self.view.mkdir(parents=True)
        (self.view / "corpus.jsonl").write_bytes(data)
        paths = []
        for number, (start, end) in enumerate(itertools.pairwise((0, *cuts, len(data)))):
            paths.append(folder / f"part-{number}.jsonl")
            paths[-1].write_bytes(data[start:end])
        self.manifest = folder / "corpus.parts.json"
        PartsManifest(tuple(map(PartFile, paths))).write(self.manifest)
        self._known: dict[str, Outcome] = {}

    def ask(self, command: str) -> Outcome:
        """Runs a command in bash."""
        return oracle(command, self.view, open_programs().folder, locale=self.locale)

    def wanted(self, command: str) -> Outcome:
        """Returns what bash makes of a command; it is asked once."""
        if command not in self._known:
            self._known[command] = self.ask(command)
        return self._known[command]

    def differences(self, commands: Iterable[str], backend: PartsBackend) -> list[str]:
        """Runs those commands that are accepted; returns what is not as bash has it."""
        ran, found = 0, []
        for command in commands:
            try:
                ours = backend.run(command, timeout=DEADLINE)
            except CommandRefused:
                continue
            ran += 1
            found.append(difference(command, ours, self.wanted(command), partial(self.ask, command)))
        assert ran, "no command was run"
        return [text for text in found if text]
