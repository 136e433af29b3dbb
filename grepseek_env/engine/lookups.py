"""What an index leaves of the corpus: it is opened when it is first needed, and what it said last is kept.

A batch asks once to sort its commands and once more to run them; an answer takes a fraction of a millisecond.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from grepseek_env.engine.fastpath import Index
    from grepseek_env.engine.literals.records import Clause
    from grepseek_env.engine.scanning import Spans

__all__ = ["Lookups"]

_MOST_KEPT = 128
_MOST_ROWS = 4096  # of an answer that is kept


class Lookups:
    """An index of one content, so that its answers never change; any number of threads may ask.

    Args:
        opener: returns the index if there is a good one; None: there is none.
    """

    def __init__(self, opener: Callable[[], Index | None] | None) -> None:
        self._opener = opener
        self._lock = threading.Lock()
        self._opened: tuple[Index | None] | None = None  # None: not opened yet
        self._kept: OrderedDict[tuple[Clause, ...], Spans | None] = OrderedDict()

    @property
    def index(self) -> Index | None:
        """The index, opened now if that has not been done."""
        if self._opened is None:
            with self._lock:
                if self._opened is None:
                    self._opened = (None if self._opener is None else self._opener(),)
        return self._opened[0]

    def __call__(self, clauses: tuple[Clause, ...], /) -> Spans | None:
        """Returns the parts of the corpus that may satisfy clauses; None where that is all of it, or not known."""
        index = self.index
        if index is None or not clauses:
            return None
        with self._lock:
            if clauses in self._kept:
                return self._kept[clauses]
        found = index(clauses)
        if found is None or len(found) <= _MOST_ROWS:
            with self._lock:
                self._kept[clauses] = found
                while len(self._kept) > _MOST_KEPT:
                    self._kept.popitem(last=False)
        return found
