"""The examples in docs/tutor_planner.md are what the code makes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from algos.tutor_planner.card import card_text
from algos.tutor_planner.shapes import SHAPES
from grepseek_env.render import render_trajectory
from tests.support.tutoring import demonstrations

if TYPE_CHECKING:
    from tests.support.golden import Golden

DOC = Path(__file__).parents[4] / "docs" / "tutor_planner.md"
_BLOCK = re.compile(r"(<!-- (trajectory|card) (\S+) -->\n```text\n)(.*?)(```\n)", re.DOTALL)


def shown(kind: str, name: str) -> str:
    if kind == "card":
        card = card_text(demonstrations(int(name)), {})
        return card[: card.index("\n## Made with")]
    record = next(r for r in demonstrations(60) if r.question_id == name)
    assert record.trajectory
    return render_trajectory(record.trajectory)


def test_golden_examples_in_the_docs(golden: Golden) -> None:
    text = DOC.read_text(encoding="utf-8")
    true = _BLOCK.sub(lambda m: f"{m[1]}{shown(m[2], m[3])}{m[5]}", text)
    if golden.update:
        DOC.write_text(true, encoding="utf-8")
        return
    assert text == true
    assert len(_BLOCK.findall(text)) == 4


def test_the_docs_count_the_shapes() -> None:
    drawn = sum(shape.weight > 0 for shape in SHAPES.values())
    assert f"in {drawn} shapes" in DOC.read_text(encoding="utf-8")
