from __future__ import annotations

import builtins
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from algos.rollout import collect, run_episode
from grepseek_env.env import GrepSeekEnv
from grepseek_env.errors import ConfigError, TrajectoryError
from grepseek_env.trajectory import TrajectoryWriter, read_trajectories
from policies.base import make_policy
from policies.human import HumanPolicy
from policies.replay import ReplayMismatch, ReplayPolicy, check_replay

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from grepseek_env.trajectory import Trajectory


@pytest.fixture(scope="module")
def env() -> Iterator[GrepSeekEnv]:
    env = GrepSeekEnv(shuffle=False)
    yield env
    env.close()


@pytest.fixture(scope="module")
def runs(env: GrepSeekEnv, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    for name in ("oracle", "random", "malformed"):
        collect(env, make_policy(name), out / name, limit=5, samples=2, seed=3)
    return out


@pytest.mark.parametrize("name", ["oracle", "random", "malformed"])
def test_records_replay_byte_for_byte(env: GrepSeekEnv, runs: Path, tmp_path: Path, name: str) -> None:
    file = runs / name / "trajectories.jsonl"
    records = list(read_trajectories(file))
    assert check_replay(records, env.rules, env.backend) == 10
    policy = make_policy("replay", file=str(file))
    again = collect(env, policy, tmp_path, limit=5, samples=2, seed=3)
    key = lambda t: (t.question_id, t.metadata["sample"])  # noqa: E731
    for old, new in zip(sorted(records, key=key), sorted(again, key=key), strict=True):
        assert new == replace(old, metadata={**old.metadata, "policy": "replay"})


def altered(record: Trajectory, **changes: Any) -> Trajectory:
    first, *others = record.turns
    return replace(record, turns=(replace(first, **changes), *others))


def test_differences_are_told(env: GrepSeekEnv, runs: Path, tmp_path: Path) -> None:
    record = next(t for t in read_trajectories(runs / "oracle" / "trajectories.jsonl") if len(t.turns) > 1)
    seen = record.turns[0].observation
    wrong = altered(record, observation=seen.replace("e", "E", 1))
    with pytest.raises(ReplayMismatch, match=f"observation after turn 1 differs at character {seen.index('e')}"):
        check_replay([wrong], env.rules, env.backend)
    with pytest.raises(ReplayMismatch, match="reward differs"):
        check_replay([replace(record, reward=0.5)], env.rules, env.backend)
    with pytest.raises(ReplayMismatch, match="system prompt differs"):
        check_replay([replace(record, system_prompt="x")], env.rules, env.backend)
    assert check_replay([replace(wrong, reward_valid=False)], env.rules, env.backend) == 0
    with TrajectoryWriter(tmp_path / "t.jsonl") as writer:
        writer.write(wrong)
    with pytest.raises(ReplayMismatch, match="observation before turn 2"):
        run_episode(env, ReplayPolicy(tmp_path / "t.jsonl"), record.question_id)
    unchecked = run_episode(env, ReplayPolicy(tmp_path / "t.jsonl", check=False), record.question_id)
    assert unchecked.reward == record.reward
    other = next(q.id for q in env.question_set if q.id != record.question_id)
    with pytest.raises(TrajectoryError, match="has no episode of question"):
        run_episode(env, ReplayPolicy(tmp_path / "t.jsonl"), other)


def test_a_record_that_ended_early_ends_early(env: GrepSeekEnv, runs: Path, tmp_path: Path) -> None:
    record = next(t for t in read_trajectories(runs / "oracle" / "trajectories.jsonl") if len(t.turns) > 1)
    short = replace(record, turns=record.turns[:1], finish_reason="budget", reward=0.0, answer=None)
    assert check_replay([short], env.rules, env.backend) == 1
    with TrajectoryWriter(tmp_path / "t.jsonl") as writer:
        writer.write(short)
    again = run_episode(env, ReplayPolicy(tmp_path / "t.jsonl"), record.question_id)
    assert (again.finish_reason, again.turns) == ("budget", short.turns)


def test_a_person_types(env: GrepSeekEnv, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lines = iter(["", "rg -c e corpus.jsonl", "answer: <think>", " Answer:  Ulm "])
    monkeypatch.setattr(builtins, "input", lambda _: next(lines))
    record = run_episode(env, HumanPolicy(), env.question_set[0].id)
    assert [t.kind for t in record.turns] == ["tool_call", "final_answer"]
    assert (record.turns[0].command, record.answer) == ("rg -c e corpus.jsonl", "Ulm")
    assert record.breakdown["format_valid"]
    out, err = capsys.readouterr()
    assert record.prompt in out
    assert err.count("cannot be written") == 2


def test_a_person_gives_up(env: GrepSeekEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    def end(_: str) -> str:
        raise EOFError

    monkeypatch.setattr(builtins, "input", end)
    record = run_episode(env, HumanPolicy(), env.question_set[0].id)
    assert (record.finish_reason, record.turns) == ("budget", ())
    with pytest.raises(ConfigError, match="one episode at a time"):
        HumanPolicy().fork()
