"""Faults that careless or hostile use showed in environment, corpus, records and rollout, each named in its test."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import pytest

from algos.rollout import collect
from grepseek_env.backend import open_backend
from grepseek_env.config import EnvConfig, Limits, RewardConfig
from grepseek_env.env import GrepSeekEnv
from grepseek_env.errors import ConfigError, QuestionsError, TrajectoryError
from grepseek_env.manifest import check_resume, run_manifest
from grepseek_env.trajectory import Trajectory, TrajectoryWriter, Turn, read_trajectories
from policies.base import make_policy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LINES = b'{"id": "0", "contents": "Einstein was born in Ulm"}\n' * 3
QUESTIONS = [{"id": "1", "question": "Where was Einstein born?", "golden_answers": ["Ulm"]}]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "passages.jsonl"
    path.parent.mkdir()
    path.write_bytes(LINES)
    return path


@pytest.fixture
def env(corpus: Path) -> Iterator[GrepSeekEnv]:
    made = GrepSeekEnv(corpus=corpus, questions=QUESTIONS, shuffle=False)
    yield made
    made.close()


@pytest.mark.parametrize("name", ["manifest.json", "journal", "lock", "view/note.txt"])
@pytest.mark.parametrize("whole_folder", [False, True])
def test_a_users_folder_with_names_of_ours_is_no_sidecar(corpus: Path, name: str, whole_folder: bool) -> None:
    own = corpus.parent / name
    own.parent.mkdir(exist_ok=True)
    own.write_bytes(b'{"mine": 1}\n')
    with open_backend(corpus.parent if whole_folder else corpus, daemon=False) as backend:
        assert backend.run("wc -l").stdout == b"0\n"
        assert backend.run("rg -c Ulm corpus.jsonl").stdout == b"3\n"
    assert own.read_bytes() == b'{"mine": 1}\n'


@pytest.mark.parametrize(
    "options",
    [
        {"max_turns": 2.5},
        {"max_observation_chars": 10.5},
        {"max_observation_chars": float("inf")},
        {"action_format": None},
        {"action_format": ["hermes"]},
        {"mode": None},
        {"mode": []},
        {"slices": "2"},
        {"slices": 1.5},
        {"slices": True},
        {"limits": {}},
        {"limits": 3},
        {"backend": 3},
        {"reward": {"format_weight": float("inf")}},
        {"corpus": None},
        {"corpus": 3},
        {"corpus": b"passages.jsonl"},
    ],
)
def test_an_option_of_the_wrong_kind_is_named_at_once(corpus: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        GrepSeekEnv(**{"corpus": corpus, "questions": QUESTIONS, **options})
    (value,) = options.values()
    assert f" is {value.get('format_weight', value) if isinstance(value, dict) else value!r}" in str(caught.value)


@pytest.mark.parametrize("field", ["memory_bytes", "temp_file_bytes", "open_files", "stderr_bytes", "cpu_seconds"])
def test_limits_that_count_are_whole_numbers(field: str) -> None:
    with pytest.raises(ConfigError, match=f"Limits.{field} .* whole number"):
        Limits(**{field: 1e9})
    assert Limits(command_timeout=float("inf")).command_timeout > 0


def test_records_within_the_configuration_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"EnvConfig\.reward"):
        EnvConfig(reward="paper")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"EnvConfig\.limits"):
        EnvConfig(limits={})  # type: ignore[arg-type]
    assert EnvConfig(reward=RewardConfig(format="gate")).reward.format == "gate"


@pytest.mark.parametrize("options", [3, "abc", ["question_id"], {"question_id": ["1"]}, {"question_id": 1}])
def test_reset_options_of_the_wrong_kind_are_named(env: GrepSeekEnv, options: Any) -> None:
    with pytest.raises(ConfigError):
        env.reset(options=options)


def test_questions_that_are_no_list_are_named(corpus: Path) -> None:
    with pytest.raises(QuestionsError, match="questions is 3"):
        GrepSeekEnv(corpus=corpus, questions=3)  # type: ignore[arg-type]


def _record(**changes: Any) -> dict[str, Any]:
    made = Trajectory(
        question_id="1",
        question="q",
        golden_answers=("Ulm",),
        action_format="plain",
        system_prompt="",
        prompt="",
        turns=(Turn("answer: Ulm", "final_answer"),),
        finish_reason="answer",
        answer="Ulm",
        reward=1.1,
        reward_valid=True,
        breakdown={"f1": 1.0, "em": 1.0, "format_valid": True},
    )
    return {**json.loads(made.to_json()), **changes}


@pytest.mark.parametrize(
    "changes",
    [
        {"metadata": []},
        {"breakdown": None},
        {"question_id": ["1"]},
        {"reward": "1"},
        {"reward_valid": 1},
        {"golden_answers": [1]},
        {"answer": 3},
        {"turns": [{"text": 1, "kind": "malformed"}]},
        {"turns": [{"text": "x", "kind": "malformed", "exit_code": "0"}]},
    ],
)
def test_a_record_with_values_of_the_wrong_kind_is_named_with_its_line(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(f"{json.dumps(_record())}\n{json.dumps(_record(**changes))}\n", encoding="utf-8")
    with pytest.raises(TrajectoryError, match="line 2: fields do not fit"):
        list(read_trajectories(path))


@pytest.mark.parametrize("line", ["9" * 5000, "[" * 100_000, '{"a":' * 100_000])
def test_json_that_python_cannot_hold_is_named_with_its_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(f"{line}\n", encoding="utf-8")
    with pytest.raises(TrajectoryError, match="line 1: "):
        list(read_trajectories(path))


def test_two_writers_never_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    with TrajectoryWriter(path) as first:
        with pytest.raises(TrajectoryError, match="another run"):
            TrajectoryWriter(path)
        first.write(Trajectory.from_json(json.dumps(_record())))
    TrajectoryWriter(path).close()
    assert len(list(read_trajectories(path))) == 1


@pytest.mark.parametrize("text", ["[]", "{}", "3", '{"settings": null, "corpus_digest": ""}', "[" * 100_000, ""])
def test_a_manifest_of_something_else_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match="no manifest"):
        check_resume(path, run_manifest({}, corpus_digest=""))


def exact(answer: str | None, golden_answers: Any, format_valid: bool, /) -> float:
    return float(answer in golden_answers and format_valid)


def test_a_run_with_a_reward_of_ones_own_can_be_resumed(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    for _ in range(2):
        # An object, not a function, so that its `repr` holds an address, as it does in another process.
        reward = type("Exact", (), {"__call__": staticmethod(exact)})()
        env = GrepSeekEnv(corpus=corpus, questions=QUESTIONS, reward=reward)
        assert len(collect(env, make_policy("oracle"), out)) == 1
        env.close()
    assert len((out / "trajectories.jsonl").read_bytes().splitlines()) == 1


def test_another_tokenizer_is_another_run(corpus: Path, tmp_path: Path) -> None:
    class Words:
        name_or_path = "words"

        def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
            del add_special_tokens
            return list(range(len(text.split())))

    class Letters(Words):
        name_or_path = "letters"

    for tokenizer in (Words(), Words()):
        env = GrepSeekEnv(corpus=corpus, questions=QUESTIONS, tokenizer=tokenizer)
        collect(env, make_policy("oracle"), tmp_path / "run")
        env.close()
    env = GrepSeekEnv(corpus=corpus, questions=QUESTIONS, tokenizer=Letters())
    with pytest.raises(ConfigError, match="tokenizer"):
        collect(env, make_policy("oracle"), tmp_path / "run")
    env.close()


def test_an_abandoned_episode_in_a_run_is_played_again(env: GrepSeekEnv, tmp_path: Path) -> None:
    out = tmp_path / "run"
    (result,) = collect(env, make_policy("oracle"), out)
    left = dataclasses.replace(result, finish_reason="abandoned", breakdown={}, turns=())
    (out / "trajectories.jsonl").write_text(left.to_json() + "\n", encoding="utf-8")
    (again,) = collect(env, make_policy("oracle"), out)
    assert again == result


def test_a_sample_that_is_no_number_is_named(env: GrepSeekEnv, tmp_path: Path) -> None:
    out = tmp_path / "run"
    (result,) = collect(env, make_policy("oracle"), out)
    odd = dataclasses.replace(result, metadata={"sample": "first"})
    (out / "trajectories.jsonl").write_text(odd.to_json() + "\n", encoding="utf-8")
    with pytest.raises(TrajectoryError, match="line 1: sample is 'first'"):
        collect(env, make_policy("oracle"), out)
