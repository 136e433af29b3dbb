"""Every named task that works without a network keeps what a task promises."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from grepseek_env.reward import exact_match, f1_score
from grepseek_env.tasks import TASKS, load_question_set, resolve_corpus, resolve_questions
from grepseek_env.tasks.world import QUESTION_KINDS, WORLD_OPTIONS
from grepseek_env.tasks.world.facts import Date, date_forms

if TYPE_CHECKING:
    from pathlib import Path

    from grepseek_env.types import Question
    from tests.support.golden import Golden

# Names of large corpora are walked with fewer passages; everything else about them stays.
SMALLER = {"world:medium": "passages=3000", "world:large": "passages=15000", "world:bench": "bytes=500kB"}
HARD = "world:tiny?accents=0.6&aliases=0.6&paraphrase=1"
ESCAPED = f"{HARD}&escape_non_ascii=true"
VARIANTS = [HARD, ESCAPED, "world:tiny?titles=false&seed=4", "world:study?accents=0.3&paraphrase=1"]


CORPORA = [
    f"{name}?{SMALLER[name]}" if name in SMALLER else name
    for name, task in TASKS.items()
    if task.offline and task.corpus
]
WITH_EVIDENCE = [name for name in CORPORA if TASKS[name.split("?")[0]].questions] + VARIANTS
LIMIT = 300


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("cache")
    before = os.environ.get("GREPSEEK_CACHE")
    os.environ["GREPSEEK_CACHE"] = str(folder)
    yield folder
    if before is None:
        del os.environ["GREPSEEK_CACHE"]
    else:
        os.environ["GREPSEEK_CACHE"] = before


def of(name: str, split: str, limit: int = LIMIT) -> tuple[Question, ...]:
    return resolve_questions(name, split, limit)


def splits(name: str) -> tuple[str, ...]:
    return TASKS[name.split("?", maxsplit=1)[0]].splits


@pytest.mark.parametrize("name", [*CORPORA, *VARIANTS])
def test_the_corpus_is_one_json_object_a_line_with_ids_in_order(name: str) -> None:
    lines = resolve_corpus(name).read_bytes().split(b"\n")
    assert lines.pop() == b""
    assert len(lines) > 200
    for number, line in enumerate(lines):
        record = json.loads(line)
        assert list(record) == ["id", "contents"]
        assert record["id"] == str(number)
        assert b"\0" not in line


@pytest.mark.parametrize("name", WITH_EVIDENCE)
def test_questions_are_well_formed_and_their_answers_score(name: str) -> None:
    for split in splits(name):
        questions = of(name, split)
        assert len({question.id for question in questions}) == len(questions) == LIMIT
        for question in questions:
            assert question.question == question.question.strip()
            assert "{" not in question.question
            assert len(set(question.golden_answers)) == len(question.golden_answers) >= 1
            for answer in question.golden_answers:
                assert exact_match(answer, question.golden_answers) == f1_score(answer, question.golden_answers) == 1.0
            json.dumps(dict(question.metadata))  # JSON values only


@pytest.mark.parametrize("name", WITH_EVIDENCE)
def test_every_step_is_found_in_the_raw_line_of_its_passage(name: str) -> None:
    lines = resolve_corpus(name).read_bytes().split(b"\n")
    for split in splits(name):
        for question in of(name, split):
            assert question.evidence
            for step in question.evidence:
                line = lines[int(step.passage_id)]
                assert step.subject.encode() in line, (question, step, line)
                assert any(form.encode() in line for form in (step.answer, *step.aliases)), (question, step, line)
                assert step.question.endswith("?")


@pytest.mark.parametrize("name", [name for name in WITH_EVIDENCE if name != ESCAPED])  # subjects are escaped there
def test_chains_lead_from_hop_to_hop_to_the_answer(name: str) -> None:
    for split in splits(name):
        for question in of(name, split):
            steps = question.evidence
            assert question.metadata["hops"] == len(steps)
            if question.metadata["kind"] in {"comparison", "yes-no"}:
                continue
            for before, after in itertools.pairwise(steps):
                assert before.answer == after.subject
            assert steps[-1].answer == question.golden_answers[0]
            assert len({step.subject for step in steps}) == len(steps)
            # The question names where the chain starts, and gives away nothing that has to be found.
            assert steps[0].subject in question.question
            for step in steps[1:]:
                assert not re.search(rf"\b{re.escape(step.subject)}\b", question.question)


SMALLER_WINS = ("first", "older", "fewer", "before")
LARGER_WINS = ("later", "younger", "more", "after")
MONTHS = tuple(date_forms(Date(2000, month, 1))[0].split()[1] for month in range(1, 13))


def value(text: str) -> tuple[int, ...]:
    if match := re.fullmatch(r"(\d+) ([A-Z][a-z]+) (\d+)", text):
        return int(match[3]), MONTHS.index(match[2]), int(match[1])
    return (int(text.replace(",", "")),)


@pytest.mark.parametrize("name", [name for name in WITH_EVIDENCE if "study" not in name and name != ESCAPED])
def test_comparisons_and_yes_no_follow_from_the_two_facts(name: str) -> None:
    judged = 0
    for split in splits(name):
        for question in of(name, split):
            kind = question.metadata["kind"]
            if kind not in {"comparison", "yes-no"}:
                continue
            first, second = question.evidence
            words = set(re.findall(r"[a-z]+", question.question))
            if not words & {*SMALLER_WINS, *LARGER_WINS}:
                assert question.golden_answers == (("yes",) if first.answer == second.answer else ("no",))
            else:
                left_wins = (value(first.answer) < value(second.answer)) == bool(words & set(SMALLER_WINS))
                assert value(first.answer) != value(second.answer)
                winner = (first if left_wins else second).subject
                assert question.golden_answers[0] == (winner if kind == "comparison" else "yes" if left_wins else "no")
            judged += 1
    assert judged > 50


@pytest.mark.parametrize("name", WITH_EVIDENCE)
def test_train_and_test_share_no_entity(name: str) -> None:
    def entities(split: str) -> set[str]:
        found = set()
        for question in of(name, split):
            steps = question.evidence
            found |= {step.subject for step in steps}
            if question.metadata["answer_type"] not in {"date", "year", "number", "text", "yes-no"}:
                found.add(question.golden_answers[0])
        return found

    train, test = entities("train"), entities("test")
    assert min(len(train), len(test)) > 30
    assert not train & test


@pytest.mark.parametrize("name", WITH_EVIDENCE)
def test_all_kinds_appear_and_distractors_are_other_passages(name: str) -> None:
    corpus = resolve_corpus(name).read_bytes().split(b"\n")
    kinds = set(QUESTION_KINDS[:2] if "study" in name else QUESTION_KINDS)
    distracted = 0
    for split in splits(name):
        questions = of(name, split)
        assert {question.metadata["kind"] for question in questions} == kinds
        for question in questions:
            assert question.metadata["split"] == split
            distractors = question.metadata["distractors"]
            distracted += bool(distractors)
            assert not set(distractors) & {step.passage_id for step in question.evidence}
            assert all(0 <= int(passage) < len(corpus) - 1 for passage in distractors)
    assert distracted > LIMIT / 3


DESCRIBE = """
import hashlib, json, sys
from grepseek_env.tasks import load_question_set, resolve_corpus
names, evidence = json.loads(sys.argv[1])
print(json.dumps({
    **{name: hashlib.sha256(resolve_corpus(name).read_bytes()).hexdigest() for name in names},
    **{
        f"{name}/{split}": load_question_set(name, split=split).digest(40)
        for name in evidence
        for split in ("train", "test")
    },
}))
"""


@pytest.mark.slow
def test_another_process_with_another_hash_seed_makes_the_same_bytes(tmp_path: Path) -> None:
    made = []
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "GREPSEEK_CACHE": str(tmp_path / seed)}
        argv = [sys.executable, "-c", DESCRIBE, json.dumps([CORPORA, WITH_EVIDENCE])]
        made.append(json.loads(subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stdout))
    assert made[0] == made[1]
    assert len(set(made[0].values())) == len(made[0])


def test_worlds_do_not_change_unnoticed(golden: Golden) -> None:
    """A difference here needs a new GENERATOR_VERSION, which cached corpora carry in their folders' names."""

    def describe(row: dict[str, Any]) -> Any:
        path = resolve_corpus(row["name"])
        asked = {split: load_question_set(row["name"], split=split) for split in row["splits"]}
        return {
            "corpus": hashlib.sha256(path.read_bytes()).hexdigest(),
            "folder": path.parent.name,
            **{split: found.digest(40) for split, found in asked.items()},
            "questions": [question.question for found in asked.values() for question in found[:3]],
        }

    golden.check("tasks/worlds.jsonl", describe)


def test_every_option_is_documented() -> None:
    from grepseek_env.tasks import WorldConfig

    documented = re.findall(r"^        (\w+): ", WorldConfig.__doc__ or "", re.MULTILINE)
    assert tuple(documented) == WORLD_OPTIONS
