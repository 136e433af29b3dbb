from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grepseek_env.engine.endings import is_ending, output_of
from grepseek_env.engine.literals.records import CountBytes, CountLines, Everything, HeadLines, Rest
from grepseek_env.engine.loop import Decided

pieces = st.lists(st.sampled_from([b"a\n", b"bc", b"\n", b"d\n\ne"]), max_size=8)


def written(ending: object, data: list[bytes], most: int | None = None) -> tuple[bytes, bool]:
    output = output_of(ending, most)  # type: ignore[arg-type] # a sink
    try:
        for piece in data:
            output.write(piece)
        output.finish()
    except Decided:
        assert output.full
    return output.value(), output.cut


@given(pieces, st.integers(1, 6))
def test_first_lines_are_those_of_head(data: list[bytes], lines: int) -> None:
    whole = b"".join(data)
    assert written(HeadLines(lines), data) == (b"".join(whole.splitlines(keepends=True)[:lines]), False)


@given(pieces)
def test_counts_are_those_of_wc(data: list[bytes]) -> None:
    whole = b"".join(data)
    assert written(CountLines(), data) == (b"%d\n" % whole.count(b"\n"), False)
    assert written(CountBytes(), data) == (b"%d\n" % len(whole), False)
    assert written(None, data) == (whole, False)


def test_nothing_is_kept_after_the_last_line() -> None:
    output = output_of(HeadLines(1), None)
    with pytest.raises(Decided):
        output.write(b"one\ntwo\n")
    with pytest.raises(Decided):
        output.write(b"three\n")
    assert output.value() == b"one\n"
    assert output.full
    assert output.exit_code == 0


def test_the_budget_holds_for_what_is_printed() -> None:
    assert written(HeadLines(2), [b"one\ntwo\nthree\n"], 5) == (b"one\nt", True)
    assert written(CountLines(), [b"x\n" * 100], 2) == (b"10", True)
    assert written(CountLines(), [b"x\n" * 100], 4) == (b"100\n", False)


def test_what_needs_no_program() -> None:
    assert is_ending(HeadLines(1))
    assert is_ending(CountBytes())
    assert not is_ending(HeadLines(0))
    assert not is_ending(Everything())
    assert not is_ending(Rest(1))
    assert not is_ending(None)
    assert output_of(None, None).exit_code is None
