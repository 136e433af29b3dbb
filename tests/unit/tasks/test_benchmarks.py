from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any

import pytest

from grepseek_env.errors import ConfigError, QuestionsError, SourceUnavailable
from grepseek_env.tasks import BENCHMARKS, load_benchmark, load_question_set, resolve_questions, training_questions
from grepseek_env.tasks.benchmarks import DATASET, Benchmark

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GREPSEEK_CACHE", str(tmp_path))
    return tmp_path


def records(count: int) -> list[dict[str, Any]]:
    return [{"id": f"test_{i}", "question": f"Q{i}?", "golden_answers": ["a"]} for i in range(count)]


def test_the_table_has_the_seven_sets() -> None:
    assert {name: (b.split, b.count) for name, b in BENCHMARKS.items()} == {
        "nq": ("test", 3610),
        "triviaqa": ("test", 11313),
        "popqa": ("test", 14267),
        "hotpotqa": ("dev", 7405),
        "2wikimultihopqa": ("dev", 12576),
        "musique": ("dev", 2417),
        "bamboogle": ("test", 125),
    }


def test_loaded_once_then_taken_from_the_cache(cache: Path) -> None:
    calls = []

    def loader(name: str, split: str) -> list[dict[str, Any]]:
        calls.append((name, split))
        return records(125)

    first = load_benchmark("bamboogle", loader=loader)
    assert load_benchmark("bamboogle", loader=loader) == first
    assert calls == [("bamboogle", "test")]
    assert (cache / "benchmarks" / "bamboogle-test.jsonl").is_file()
    # One split: the environment's default split does not stand in the way, and neither does naming it.
    assert resolve_questions("bamboogle", limit=3) == resolve_questions("bamboogle/test", limit=3) == first[:3]


def test_questions_to_train_on_only_by_their_full_name(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"nq": Benchmark("nq", "test", 2, "one hop", train=4), "popqa": Benchmark("popqa", "test", 3, "one hop")}
    monkeypatch.setattr("grepseek_env.tasks.benchmarks.BENCHMARKS", small)
    counts = {"test": 2, "train": 4}
    monkeypatch.setattr("grepseek_env.tasks.benchmarks._from_hub", lambda _name, split: records(counts[split]))
    # A mere name is the evaluation's, whatever split an environment or a command has by default.
    assert [len(resolve_questions(name, split="train")) for name in ("nq", "nq/test", "nq/train")] == [2, 2, 4]
    names = {"nq": "nq/train", "nq/test": "nq/test", "world:tiny": "world:tiny"}
    assert {name: training_questions(name) for name in names} == names
    assert load_question_set("nq/train").name == "nq/train"
    assert sorted(path.name for path in (cache / "benchmarks").iterdir()) == ["nq-test.jsonl", "nq-train.jsonl"]
    with pytest.raises(ConfigError, match="popqa has no split 'train'; there are test"):
        load_benchmark("popqa", "train")
    with pytest.raises(ConfigError, match="there are test"):
        resolve_questions("popqa/train")
    with pytest.raises(ConfigError, match="there are test, train"):
        resolve_questions("nq/dev")


def test_a_wrong_count_is_noticed_and_not_kept(cache: Path) -> None:
    with pytest.raises(QuestionsError, match=r"124 questions, but bamboogle \(test\) has 125"):
        load_benchmark("bamboogle", loader=lambda _name, _split: records(124))
    assert not (cache / "benchmarks" / "bamboogle-test.jsonl").exists()


def test_a_broken_cached_file_is_named(cache: Path) -> None:
    path = cache / "benchmarks" / "nq-test.jsonl"
    path.parent.mkdir()
    path.write_text("{}\n")
    with pytest.raises(QuestionsError, match=r"nq-test\.jsonl, line 1"):
        load_benchmark("nq")


def test_unreachable_says_what_and_how_to_do_without(cache: Path) -> None:
    def loader(_name: str, _split: str) -> list[dict[str, Any]]:
        raise ConnectionError("no route to host")

    with pytest.raises(SourceUnavailable) as caught:
        load_benchmark("nq", loader=loader)
    for part in (
        "3,610",
        DATASET,
        "no route to host",
        "grepseek-env[hub]",
        str(cache / "benchmarks" / "nq-test.jsonl"),
    ):
        assert part in str(caught.value)


def test_without_the_package_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(SourceUnavailable, match="grepseek-env"):
        load_benchmark("nq")


def test_the_hub_is_asked_for_set_and_split(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def load_dataset(path: str, name: str, *, split: str) -> list[dict[str, Any]]:
        asked.append((path, name, split))
        return records(125)

    fake = types.ModuleType("datasets")
    monkeypatch.setattr(fake, "load_dataset", load_dataset, raising=False)
    monkeypatch.setitem(sys.modules, "datasets", fake)
    assert len(load_benchmark("bamboogle")) == 125
    assert asked == [(DATASET, "bamboogle", "test")]


def test_an_unknown_set_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="hotpotqa"):
        load_benchmark("squad")
