from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grepseek_env.errors import ConfigError, CorpusNotFound, QuestionsError
from grepseek_env.tasks import (
    TASKS,
    World,
    WorldConfig,
    load_question_set,
    register_task,
    resolve_corpus,
    resolve_questions,
    write_questions,
)
from grepseek_env.tasks.registry import parse_name
from grepseek_env.types import Question

MINE = Question("m0", "Who?", ("Ann",))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GREPSEEK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in TASKS:
        monkeypatch.setitem(TASKS, name, TASKS[name])
    for name in ("mine", "world:mine"):  # so that registrations vanish with the test
        monkeypatch.setitem(TASKS, name, TASKS["world:tiny"])
        monkeypatch.delitem(TASKS, name)


@pytest.mark.parametrize(
    ("name", "options", "split"),
    [
        ("world:tiny", {}, None),
        ("world:tiny/test", {}, "test"),
        ("world:tiny?seed=3", {"seed": "3"}, None),
        ("world:tiny?seed=3&paraphrase=0.5/train", {"seed": "3", "paraphrase": "0.5"}, "train"),
        ("world:tiny?", {}, None),
        ("nq", {}, None),
        ("nq/test", {}, "test"),
    ],
)
def test_names(name: str, options: dict[str, str], split: str | None) -> None:
    parsed = parse_name(name)
    assert parsed is not None
    assert parsed.task.name == name.split("?", maxsplit=1)[0].split("/", maxsplit=1)[0]
    assert (parsed.options, parsed.split) == (options, split)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("world:tiny?sead=3", "did you mean 'seed'"),
        ("world:tiny?seed", "has no value"),
        ("world:tiny?seed=x", "option seed is 'x'; it must be an integer"),
        ("world:tiny?paraphrase=2", "WorldConfig.paraphrase is 2.0"),
        ("world:tiny?titles=maybe", "true or false"),
        ("world:tiny/dev", "has no split 'dev'; there are train, test"),
        ("world:tiny?kinds=5-hop", "1-hop"),
        ("nq?seed=1", "known: none"),
        ("popqa/train", "there are test"),
        ("world:bench?bytes=big", "is no size"),
        ("world:bench?bytes=2000", "at least 16384"),
        ("world:bench?seed=-1", "option seed is '-1'"),
    ],
)
def test_what_is_wrong_with_a_name_is_said(name: str, said: str) -> None:
    with pytest.raises((ConfigError, QuestionsError)) as caught:
        (resolve_corpus if "bench" in name else resolve_questions)(name)
    assert said in str(caught.value)


def test_a_world_is_written_once_into_the_cache(cache: Path) -> None:
    path = resolve_corpus("world:tiny")
    assert path.is_relative_to(cache / "worlds")
    assert path.read_text(encoding="utf-8") == "".join(f"{line}\n" for line in World().lines())
    before = path.stat()
    assert resolve_corpus("world:tiny").stat() == before
    assert resolve_corpus("world:tiny?seed=1") != path
    assert resolve_corpus("world:tiny?questions=7") == path  # the questions are no part of the text


def test_options_reach_the_world() -> None:
    (one, *_) = resolve_questions("world:tiny?seed=3&kinds=2-hop+date/test", limit=1)
    assert one == World(WorldConfig(seed=3, kinds=("2-hop", "date"))).question("test", 0)
    assert len(resolve_questions("world:tiny?questions=12")) == 12


def test_bench_corpora_have_the_size_asked_for() -> None:
    size = resolve_corpus("world:bench?bytes=0.2MB&seed=2").stat().st_size
    assert 190_000 < size <= 200_000


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(CorpusNotFound, match=r"neither a file nor a name.*did you mean 'world:tiny'"):
        resolve_corpus("world:tinny")
    with pytest.raises(QuestionsError, match="bamboogle"):
        resolve_questions("nothing")
    with pytest.raises(CorpusNotFound, match="wiki18 is the reference corpus"):
        resolve_corpus("nq")
    with pytest.raises(CorpusNotFound, match="grepseek corpus fetch wiki18"):
        resolve_corpus("wiki18")
    with pytest.raises(QuestionsError, match="without questions of its own"):
        resolve_questions("world:bench")


def test_a_fetched_public_corpus_is_found(cache: Path) -> None:
    path = cache / "corpora" / "wiki-18.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("x\n")
    assert resolve_corpus("wiki18") == path


def test_files_win_over_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_questions("nq", [MINE])
    assert resolve_questions("nq") == (MINE,)
    assert resolve_corpus("nq") == Path("nq")


def test_questions_of_the_corpus_are_the_default() -> None:
    found = load_question_set(None, corpus="world:tiny?seed=2", split="test")
    assert found[0] == World(WorldConfig(seed=2)).question("test", 0)
    assert found.by_id(found[5].id) == found[5]
    for corpus in ("wiki18", "world:bench", "no/such/file.jsonl", None):
        with pytest.raises(ConfigError, match="questions is None"):
            load_question_set(None, corpus=corpus)


@pytest.mark.usefixtures("tasks")
def test_ones_own_task_works_everywhere(tmp_path: Path) -> None:
    corpus = tmp_path / "text.jsonl"
    corpus.write_text("x\n")
    write_questions(tmp_path / "test.jsonl", [MINE])
    task = register_task(
        "mine",
        questions={"train": [{"id": 1, "question": "?", "golden_answers": "x"}], "test": tmp_path / "test.jsonl"},
        corpus=corpus,
    )  # fmt: skip
    assert task.splits == ("train", "test")
    assert resolve_questions("mine/test") == resolve_questions("mine", "test") == (MINE,)
    assert load_question_set(None, corpus="mine")[0].id == "1"
    assert resolve_corpus("mine") == corpus
    with pytest.raises(ConfigError, match="registered already"):
        register_task("mine", corpus=corpus)
    register_task("mine", questions=lambda split: [MINE] if split == "dev" else [], splits=["dev"], replace=True)
    assert resolve_questions("mine") == (MINE,)
    register_task("world:mine", questions=[MINE], corpus="world:tiny")
    assert resolve_corpus("world:mine") == resolve_corpus("world:tiny")


@pytest.mark.usefixtures("tasks")
@pytest.mark.parametrize(("name", "more"), [("a b", {"corpus": "x"}), ("", {"corpus": "x"}), ("mine", {})])
def test_a_task_needs_a_name_and_something_to_name(name: str, more: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        register_task(name, **more)
