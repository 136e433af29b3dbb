from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from grepseek_env.engine import lookups
from grepseek_env.engine.literals.records import Literal
from grepseek_env.engine.lookups import Lookups
from grepseek_env.engine.scanning import whole

if TYPE_CHECKING:
    from grepseek_env.engine.fastpath import Index
    from grepseek_env.engine.literals.records import Clause
    from grepseek_env.engine.scanning import Spans


class Asked:
    """An index that notes what it is asked."""

    def __init__(self, found: Spans | None) -> None:
        self.found = found
        self.opened = 0
        self.clauses: list[tuple[Clause, ...]] = []

    def open(self) -> Index:
        self.opened += 1
        return self.answer

    def answer(self, clauses: tuple[Clause, ...], /) -> Spans | None:
        self.clauses.append(clauses)
        return self.found


def clause(text: bytes) -> tuple[Clause, ...]:
    return ((Literal(text),),)


@pytest.mark.parametrize("found", [None, whole(100)])
def test_an_answer_is_asked_for_once(found: Spans | None) -> None:
    asked = Asked(found)
    made = Lookups(asked.open)
    assert asked.opened == 0
    for text in (b"one", b"two", b"one", b"one"):
        assert made(clause(text)) is found
    assert asked.opened == 1
    assert asked.clauses == [clause(b"one"), clause(b"two")]


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "_MOST_KEPT", 2)
    asked = Asked(whole(100))
    made = Lookups(asked.open)
    for text in (b"one", b"two", b"three", b"three", b"one"):
        made(clause(text))
    assert asked.clauses == [clause(text) for text in (b"one", b"two", b"three", b"one")]
    monkeypatch.setattr(lookups, "_MOST_ROWS", 0)  # a long answer is not kept
    made(clause(b"four"))
    made(clause(b"four"))
    assert len(asked.clauses) == 6


def test_nothing_is_known_without_an_index_or_clauses() -> None:
    assert Lookups(None)(clause(b"one")) is None
    assert Lookups(lambda: None).index is None
    asked = Asked(whole(100))
    assert Lookups(asked.open)(()) is None
    assert not asked.clauses
