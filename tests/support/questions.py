"""Draws questions about lines, and texts that hold what they ask for; answers them the slow way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

from grepseek_env.engine.literals.records import ExactFilter, Literal

if TYPE_CHECKING:
    from grepseek_env.engine.question import Question

PIECES = [b"a", b"b", b"K", b"k", b"s", b"i", b"_", b" ", b"\r", b"ab", b"Ab", "\u212a".encode(), "\u017f".encode()]
PIECES += ["\u0131".encode(), "\u0130".encode(), "é".encode(), "”".encode(), "語".encode(), b"\xc3", b"\x80", b"\xff"]
PIECES += [b"x" * 70]
SPECIALS = ("\u212a".encode(), "\u017f".encode(), "\u0131".encode())


def matching(question: Question, data: bytes) -> list[bytes]:
    """Returns the wanted lines by the slow way."""
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return [line + b"\n" for line in lines if question.wants(line)]


@st.composite
def literals(draw: st.DrawFn) -> Literal:
    fold = draw(st.booleans())
    text = b"".join(draw(st.lists(st.sampled_from(PIECES[:11]), min_size=1, max_size=3)))
    if fold:
        return Literal(text.lower(), fold=True, specials=draw(st.sampled_from([(), SPECIALS[:1], SPECIALS])))
    more = draw(st.sampled_from([b"", "é".encode(), "語".encode()]))
    return Literal(text + more)


@st.composite
def filters(draw: st.DrawFn) -> ExactFilter:
    manner = draw(st.sampled_from(["none", "none", "ascii", "unicode", "whole"]))
    chosen = draw(st.lists(literals(), min_size=1, max_size=3))
    if manner == "ascii":  # where words are ASCII, no other letter stands for one
        chosen = [Literal(each.text, each.fold) for each in chosen]
    return ExactFilter(
        literals=tuple(chosen),
        invert=draw(st.booleans()),
        word="none" if manner == "whole" else manner,  # type: ignore[arg-type] # one of the three
        whole_line=manner == "whole",
    )


texts = st.lists(
    st.lists(st.sampled_from(PIECES), max_size=6).map(b"".join), min_size=1, max_size=12
).map(b"\n".join)  # fmt: skip
