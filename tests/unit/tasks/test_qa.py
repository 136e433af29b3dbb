from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grepseek_env.errors import ConfigError, QuestionsError
from grepseek_env.tasks import questions_from
from grepseek_env.tasks.qa import QuestionSet, load_questions, question_from_dict, question_to_dict, write_questions
from grepseek_env.types import EvidenceStep, Question

if TYPE_CHECKING:
    from pathlib import Path

GOOD = {"id": "q0", "question": "Who?", "golden_answers": ["Ann"]}


def write(folder: Path, *lines: object) -> Path:
    path = folder / "set.jsonl"
    path.write_bytes(b"".join((x if isinstance(x, bytes) else json.dumps(x).encode()) + b"\n" for x in lines))
    return path


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (b'{"id": "q1", "question"', "malformed JSON"),
        (b'{"id": "\xff"}', "not UTF-8 at byte 8"),
        (b"[" * 100_000, "malformed JSON"),
        ([1, 2], "expected an object"),
        ({"question": "Who?", "golden_answers": ["x"]}, "key 'id' is missing"),
        ({"id": "q1", "golden_answers": ["x"]}, "key 'question' is missing"),
        ({"id": "q1", "question": "Who?"}, "key 'golden_answers' is missing"),
        (GOOD | {"id": "q1", "golden_answers": []}, "golden_answers is []"),
        (GOOD | {"id": "q1", "golden_answers": None}, "golden_answers is None"),
        (GOOD | {"id": "q1", "golden_answers": ["x", " "]}, "golden_answers holds ' '"),
        (GOOD | {"id": "q1", "golden_answers": ["x", 3]}, "golden_answers holds 3"),
        (GOOD | {"id": "q1", "question": "  "}, "question is '  '"),
        (GOOD | {"id": True}, "id is True"),
        (GOOD, "id 'q0' was used before"),
        (GOOD | {"id": "q1", "evidence": [{"question": "x"}]}, "evidence[0] needs"),
        (GOOD | {"id": "q1", "metadata": "x"}, "metadata is 'x'"),
    ],
)
def test_an_error_names_file_and_line(tmp_path: Path, second: object, said: str) -> None:
    path = write(tmp_path, GOOD, second)
    with pytest.raises(QuestionsError) as caught:
        load_questions(path)
    assert f"{path}, line 2" in str(caught.value)
    assert said in str(caught.value)


def test_blank_lines_count_but_do_not_matter_and_a_bom_is_taken_off(tmp_path: Path) -> None:
    path = write(tmp_path, b"", GOOD, b"  ", GOOD | {"id": 7})
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert [q.id for q in load_questions(path)] == ["q0", "7"]
    path = write(tmp_path, b"", GOOD, b"x")
    with pytest.raises(QuestionsError, match="line 3"):
        load_questions(path)


@pytest.mark.parametrize("content", [b"", b"\n \n"])
def test_an_empty_file_and_a_missing_one_say_so(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "set.jsonl"
    with pytest.raises(QuestionsError, match="no such question file"):
        load_questions(path)
    path.write_bytes(content)
    with pytest.raises(QuestionsError, match="no questions in it"):
        load_questions(path)
    with pytest.raises(QuestionsError, match="cannot be read"):
        load_questions(tmp_path)


def test_other_keys_become_metadata_and_one_text_one_answer() -> None:
    question = question_from_dict(GOOD | {"golden_answers": "Ann", "level": "hard", "metadata": {"hops": 2}})
    assert question.golden_answers == ("Ann",)
    assert question.metadata == {"hops": 2, "level": "hard"}


text = st.text(min_size=1).filter(str.strip)
questions = st.builds(
    Question,
    text,
    text,
    st.lists(text, min_size=1, max_size=3).map(tuple),
    st.lists(st.builds(EvidenceStep, text, text, text, text, st.lists(text).map(tuple)), max_size=2).map(tuple),
    st.dictionaries(text, st.integers() | text | st.lists(st.booleans()), max_size=2),
)


@settings(max_examples=30)
@given(st.lists(questions, min_size=1, max_size=4, unique_by=lambda q: q.id))
def test_a_written_file_reads_back_equal(tmp_path_factory: pytest.TempPathFactory, made: list[Question]) -> None:
    path = tmp_path_factory.mktemp("qa") / "set.jsonl"
    write_questions(path, made)
    assert list(load_questions(path)) == made


@given(questions)
def test_a_record_survives_its_dict(question: Question) -> None:
    assert question_from_dict(question_to_dict(question)) == question


def test_lone_surrogates_are_written_as_escapes(tmp_path: Path) -> None:
    question = Question("q", "a\ud800b", ("x",))
    write_questions(tmp_path / "x.jsonl", [question])
    assert load_questions(tmp_path / "x.jsonl") == (question,)


@pytest.mark.parametrize("records", [[GOOD, GOOD], [{"id": 1}], []])
def test_lists_are_checked_like_files(records: list[Any]) -> None:
    with pytest.raises(QuestionsError, match="questions"):
        questions_from(records)


def test_lists_may_mix_dicts_and_records(tmp_path: Path) -> None:
    made = questions_from([GOOD, Question("q1", "What?", ("x",))])
    assert [q.id for q in made] == ["q0", "q1"]
    write_questions(tmp_path / "x.jsonl", made)
    assert questions_from(tmp_path / "x.jsonl") == made


def test_a_set_finds_ids_and_tells_its_content() -> None:
    made = questions_from([GOOD, GOOD | {"id": "q1"}])
    found = QuestionSet(made, "mine")
    assert found.by_id("q1") is made[1]
    assert found[-1] is made[1]
    assert found[:1] == made[:1]
    with pytest.raises(ConfigError, match=r"mine: no question has id 'q2'; ids look like 'q0', 'q1'"):
        found.by_id("q2")
    assert found.digest() == found.digest(2) != found.digest(1)
    assert found.digest(1) == QuestionSet(made[:1]).digest()
