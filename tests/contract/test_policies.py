"""Every installed policy meets the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from algos.rollout import collect, episode_seed, run_episode, summarize
from grepseek_env.actions import ACTION_FORMATS
from grepseek_env.env import GrepSeekEnv
from grepseek_env.errors import ConfigError
from policies.base import EpisodeStart, Policy, make_policy, policy_names

if TYPE_CHECKING:
    from pathlib import Path

    from grepseek_env.types import Question

# Those that play by themselves; the others need a model, a file or a person, and have tests of their own.
NAMES = [n for n in policy_names() if n not in {"hf", "human", "openai", "replay", "vllm"}]


@pytest.fixture(scope="module")
def env() -> GrepSeekEnv:
    return GrepSeekEnv(shuffle=False)


def test_the_documented_policies_are_installed() -> None:
    assert {"oracle", "keyword", "random", "malformed"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_trajectories_and_no_fault(env: GrepSeekEnv, name: str) -> None:
    ids = [env.question_set[i].id for i in range(12)]
    runs = [[run_episode(env, make_policy(name), i, seed=5).to_json() for i in ids] for _ in range(2)]
    assert runs[0] == runs[1]
    for i in ids:
        t = run_episode(env, make_policy(name), i, seed=5)
        assert t.reward_valid
        assert t.finish_reason in {"answer", "turn_limit"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("action_format", sorted(ACTION_FORMATS))
@pytest.mark.parametrize("max_turns", [1, 2])
def test_works_in_every_format_and_in_few_turns(name: str, action_format: str, max_turns: int) -> None:
    env = GrepSeekEnv(shuffle=False, action_format=action_format, max_turns=max_turns)
    for i in range(4):
        assert run_episode(env, make_policy(name), env.question_set[i].id).reward_valid
    env.close()


@pytest.mark.parametrize("name", [n for n in NAMES if not make_policy(n).privileged])
def test_unprivileged_policies_never_see_answers(name: str) -> None:
    seen: list[Question] = []

    class Spy(type(make_policy(name))):  # type: ignore[misc]
        def begin(self, start: EpisodeStart) -> None:
            seen.append(start.question)
            super().begin(start)

    env = GrepSeekEnv(shuffle=False)
    run_episode(env, Spy(), env.question_set[0].id)
    assert seen[0].question == env.question_set[0].question
    assert (seen[0].golden_answers, seen[0].evidence, dict(seen[0].metadata)) == ((), (), {})
    env.close()


def test_oracle_scores_one_on_every_kind_of_question(env: GrepSeekEnv, tmp_path: Path) -> None:
    trajectories = collect(env, make_policy("oracle"), tmp_path, limit=60)
    assert {t.breakdown["f1"] for t in trajectories} == {1.0}
    assert {t.reward for t in trajectories} == {1.1}


def test_keyword_beats_random_and_malformed_gets_no_bonus(env: GrepSeekEnv, tmp_path: Path) -> None:
    scores = {n: summarize(collect(env, make_policy(n), tmp_path / n, limit=60, seed=1)) for n in NAMES}
    assert scores["keyword"].f1 > scores["random"].f1
    assert scores["malformed"].format_valid == 0.0
    assert scores["malformed"].reward == scores["malformed"].f1


def test_unknown_policy_lists_the_installed_ones() -> None:
    with pytest.raises(ConfigError, match="did you mean 'oracle'"):
        make_policy("orcale")


def test_seeds_of_episodes_differ_and_do_not_depend_on_order() -> None:
    seeds = {episode_seed(s, q, n) for s in range(3) for q in "abc" for n in range(3)}
    assert len(seeds) == 27
    assert episode_seed(1, "q", 2) == episode_seed(1, "q", 2)


class Failing(Policy):
    name = "failing"

    def __init__(self) -> None:
        self.left = 5

    def begin(self, start: EpisodeStart) -> None:
        self.start_ = start

    def act(self, observation: str) -> str:
        del observation
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        return self.start_.action_format.render_action("t", answer="x")


def test_interrupted_and_resumed_gives_the_same_set(env: GrepSeekEnv, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        collect(env, Failing(), tmp_path / "a", limit=12)
    patient = Failing()
    patient.left = 100
    resumed = collect(env, patient, tmp_path / "a", limit=12)
    assert patient.left == 100 - 7
    whole = Failing()
    whole.left = 100
    assert resumed == collect(env, whole, tmp_path / "b", limit=12)
    assert (tmp_path / "a/trajectories.jsonl").read_bytes() == (tmp_path / "b/trajectories.jsonl").read_bytes()


def test_a_run_with_other_settings_is_not_mixed_in(env: GrepSeekEnv, tmp_path: Path) -> None:
    collect(env, make_policy("random"), tmp_path, limit=3, seed=1)
    with pytest.raises(ConfigError, match="seed = 1, this one has 2"):
        collect(env, make_policy("random"), tmp_path, limit=3, seed=2)
    assert len(collect(env, make_policy("random"), tmp_path, limit=3, seed=2, overwrite=True)) == 3


def test_samples_play_each_question_several_times(env: GrepSeekEnv, tmp_path: Path) -> None:
    trajectories = collect(env, make_policy("random"), tmp_path, limit=2, samples=3)
    assert [t.metadata["sample"] for t in trajectories] == [0, 1, 2] * 2


@pytest.mark.parametrize("kwargs", [{"limit": 0}, {"samples": 0}])
def test_counts_that_cannot_work_are_refused(env: GrepSeekEnv, tmp_path: Path, kwargs: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        collect(env, make_policy("random"), tmp_path, **kwargs)
