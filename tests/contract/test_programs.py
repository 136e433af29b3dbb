"""The programs that are found and those that the command language knows are the same."""

from __future__ import annotations

from grepseek_env.commands import COMMANDS
from grepseek_env.engine.programs import PROGRAMS


def test_every_program_of_the_language_is_looked_for_and_no_other() -> None:
    assert set(PROGRAMS) == set(COMMANDS)
