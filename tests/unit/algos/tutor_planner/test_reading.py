from __future__ import annotations

import pytest

from algos.tutor_planner.reading import Hop, Meaning, Passage, meanings, passages, read, winner
from grepseek_env.tasks import load_question_set
from grepseek_env.tasks.world import World, world_config


@pytest.mark.parametrize(("name", "count"), [("tiny", 400), ("study", 200)])
def test_every_question_of_a_world_is_understood_and_its_passages_can_be_read(name: str, count: int) -> None:
    world = World(world_config(name, {}))
    lines = list(world.lines())
    for question in load_question_set(f"world:{name}")[:count]:
        texts = [passages(lines[int(step.passage_id)]) for step in question.evidence]
        assert _answers(meanings(question.question), texts) & set(question.golden_answers), question


def _answers(readings: tuple[Meaning, ...], texts: list[tuple[Passage, ...]]) -> set[str]:
    found = set()
    for meaning in readings:
        if len(meaning.subjects) > 1:
            pairs = zip(meaning.subjects, texts, strict=True)
            values = [read(meaning.hops[0], subject, text) for subject, text in pairs]
        else:
            values, entity = [], meaning.subjects[0]
            for hop, text in zip(meaning.hops, texts, strict=False):
                values.append(read(hop, entity, text))
                entity = values[-1] or ""
        if None not in values:
            found.add(winner(meaning, tuple(v for v in values if v)))
    return found


def test_a_question_that_no_world_asks_means_nothing() -> None:
    assert meanings("Why is the sky blue?") == ()


def test_values_are_read_of_the_asked_entity_only() -> None:
    output = '{"id": "1", "contents": "\\"Ada Bell\\"\\nAda Bell was a pilot born on 2 June 1928 in Port Orm."}'
    assert read(Hop("birthplace", "person"), "Ada Bell", passages(output)) == "Port Orm"
    assert read(Hop("birth", "person"), "ada bell", passages(output)) == "2 June 1928"
    assert read(Hop("birthplace", "person"), "Ida Bell", passages(output)) is None


def test_cut_lines_and_excerpts_are_read_too() -> None:
    cut = '{"id": "1", "contents": "\\"Ada Bell\\"\\nAda Bell was a pilot born on 2 June 1928 in Port Orm. She was ma'
    excerpt = 'Ada Bell\\"\\nAda Bell was a pilot born on 2 June 1928 in Port Orm.'
    for output in (cut, excerpt):
        assert read(Hop("occupation", "person"), "Ada Bell", passages(output)) == "pilot"


@pytest.mark.parametrize(
    ("rule", "values", "answer"),
    [
        ("smaller", ("2 June 1928", "June 1, 1928"), "B"),
        ("larger", ("2 June 1928", "1928-06-01"), "A"),
        ("smaller", ("1,200", "999"), "B"),
        ("same", ("Port Orm", "port orm"), "yes"),
        ("same", ("Port Orm", "Port Arm"), "no"),
        ("before", ("1815", "1816"), "yes"),
        ("after", ("1815", "1816"), "no"),
    ],
)
def test_comparisons(rule: str, values: tuple[str, str], answer: str) -> None:
    assert winner(Meaning(("A", "B"), (Hop("birth", "person"),), rule), values) == answer  # type: ignore[arg-type]
