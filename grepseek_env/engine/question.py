"""What is asked of the lines of the corpus, from what was proven about a command."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from grepseek_env.engine.kernels.encode import USUAL, Needle, Program, Rule, drivers, encode
from grepseek_env.engine.kernels.state import MOST_DRIVERS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from grepseek_env.engine.literals.records import Clause, ExactFilter, Literal

__all__ = ["Question"]


class Question:
    """Which lines are wanted: those that pass all filters and satisfy all clauses.

    Args:
        filters: exact filters.
        extra: clauses beyond what the filters say.
        clauses: what an index may be asked: every wanted line satisfies all of them.
        frequencies: returns how common each byte is; asked when it is needed.

    Attributes:
        rules: filters and extra clauses, in the kernels' terms; a line passes if it passes all.
        clauses: as given.
    """

    def __init__(
        self,
        filters: Sequence[ExactFilter],
        extra: Sequence[Clause] = (),
        clauses: Sequence[Clause] = (),
        frequencies: Callable[[], Sequence[int]] = lambda: USUAL,
    ) -> None:
        self._filters = tuple(filters)
        self._extra = tuple(extra)
        self.clauses = tuple(clauses)
        self._frequencies = frequencies
        self.rules = (
            *(Rule(_needles(each.literals), each.invert, each.word, each.whole_line) for each in filters),
            *(Rule(_needles(clause)) for clause in extra),
        )

    @functools.cached_property
    def program(self) -> Program:
        """The rules as the kernels read them."""
        return encode(self.rules, self._frequencies())

    @property
    def fits(self) -> bool:
        """Whether the kernels can look for so many literals at once."""
        most = max((drivers(rule) for rule in self.rules if not rule.invert), default=0)
        return bool(self.rules) and most <= MOST_DRIVERS

    def wants(self, line: bytes) -> bool:
        """Returns whether a line, its newline not included, is wanted; exact, and slow."""
        return all(each.passes(line) for each in self._filters) and all(
            any(literal.within(line) for literal in clause) for clause in self._extra
        )


def _needles(literals: Sequence[Literal]) -> tuple[Needle, ...]:
    return tuple(Needle(each.text, each.fold, each.specials) for each in literals)
