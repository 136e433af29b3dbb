"""The commands of tests/cases: what the issues name, and an own catalogue with every hazard of slicing in it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

CASES = Path(__file__).parents[1] / "cases"


class Case(NamedTuple):
    """A command, and whether it has to run ("must") or may be refused ("may")."""

    kind: str
    command: str


def catalogue(*names: str) -> list[Case]:
    """Returns the cases of these files, of both without names, in file order."""
    found = []
    for name in names or ("commands.txt", "catalogue.txt"):
        for line in (CASES / name).read_text(encoding="utf-8").split("\n"):
            kind, tab, command = line.partition("\t")
            if tab and not line.startswith("#"):
                found.append(Case(kind, command.replace("␤", "\n")))
    return found
