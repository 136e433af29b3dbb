"""Collecting many episodes at once gives what playing them one by one gives, whatever goes wrong meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import gymnasium
import pytest

from algos.rollout import Group, collect, rollout_groups, run_episode
from grepseek_env.env import GrepSeekEnv
from grepseek_env.errors import ConfigError, EngineFault, TrajectoryError
from grepseek_env.trajectory import Trajectory, read_trajectories
from grepseek_env.wrappers import MessagesWrapper
from policies.base import EpisodeStart, Policy, PolicyStop, make_policy
from policies.chat import ChatModel, Completion, ModelError
from policies.chat_policy import ChatPolicy

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from grepseek_env.types import CommandResult
    from policies.chat import Message, Sampling

LIMIT = 12


@pytest.fixture(scope="module")
def env() -> Iterator[GrepSeekEnv]:
    env = GrepSeekEnv(shuffle=False)
    yield env
    env.close()


def lines(folder: Path) -> list[str]:
    return (folder / "trajectories.jsonl").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("name", ["keyword", "oracle", "random", "malformed"])
@pytest.mark.parametrize("parallel", [2, 7, 64])
def test_many_at_once_write_the_same_file_as_one_by_one(
    env: GrepSeekEnv, tmp_path: Path, name: str, parallel: int
) -> None:
    one = collect(env, make_policy(name), tmp_path / "one", limit=LIMIT, samples=2, seed=3)
    many = collect(env, make_policy(name), tmp_path / "many", limit=LIMIT, samples=2, seed=3, parallel=parallel)
    assert one == many
    assert lines(tmp_path / "one") == lines(tmp_path / "many")
    assert [(t.question_id, t.metadata["sample"]) for t in many] == [
        (env.question_set[i].id, sample) for i in range(LIMIT) for sample in range(2)
    ]
    assert many[5] == run_episode(env, make_policy(name), env.question_set[2].id, seed=3, sample=1)


class Gated(Policy):
    """Answers at once, but for the first question, which waits until all others have been answered."""

    name = "gated"
    left = threading.Semaphore(0)

    def begin(self, start: EpisodeStart) -> None:
        self.start_ = start

    def act(self, observation: str) -> str:
        del observation
        if self.start_.question.question == self.slow:
            for _ in range(LIMIT - 1):
                assert self.left.acquire(timeout=60)
        else:
            self.left.release()
        return self.start_.action_format.render_action("t", answer="x")


def test_nobody_waits_for_the_slowest(env: GrepSeekEnv, tmp_path: Path) -> None:
    policy = Gated()
    policy.slow = env.question_set[0].question
    # With two places and batches in step the first episode would wait for episodes that wait for its place.
    assert len(collect(env, policy, tmp_path, limit=LIMIT, parallel=2)) == LIMIT


class Flaky(Policy):
    """Its model fails the first `failures` times that an episode is played."""

    name = "flaky"

    def __init__(self, failures: int, error: type[Exception] = ModelError) -> None:
        self.failures = failures
        self.error = error
        self.tries: dict[int, int] = {}

    def begin(self, start: EpisodeStart) -> None:
        self.start_ = start
        self.calls = 0

    def act(self, observation: str) -> str:
        del observation
        self.calls += 1
        if self.calls == 1:
            return self.start_.action_format.render_action("t", command="wc -l corpus.jsonl")
        tries = self.tries[self.start_.seed] = self.tries.get(self.start_.seed, 0) + 1
        if tries <= self.failures and self.start_.seed % 2:
            raise self.error("no answer")
        return self.start_.action_format.render_action("t", answer="x")


@pytest.mark.parametrize("parallel", [1, 5])
def test_a_failed_episode_is_flagged_alone_and_played_again_within_the_budget(
    env: GrepSeekEnv, tmp_path: Path, parallel: int
) -> None:
    run = partial(collect, env, limit=LIMIT, parallel=parallel)
    odd = [t.metadata["seed"] % 2 == 1 for t in run(Flaky(0), tmp_path / "good")]
    assert any(odd)
    failed = run(Flaky(2), tmp_path / "failed", retries=1)
    assert [not t.reward_valid for t in failed] == odd
    first = next(t for t in failed if not t.reward_valid)
    assert (first.finish_reason, first.reward, first.error) == ("fault", 0.0, "ModelError: no answer")
    assert len(first.turns) == 1
    retried = run(Flaky(2), tmp_path / "retried", retries=2)
    assert all(t.reward_valid for t in retried)
    # A later sitting plays what failed, and nothing else; the lines of failures are gone then.
    again = Flaky(0)
    assert run(again, tmp_path / "failed") == retried
    assert sum(again.tries.values()) == sum(odd)
    assert lines(tmp_path / "failed") == lines(tmp_path / "good") == lines(tmp_path / "retried")


@pytest.mark.parametrize("parallel", [1, 3])
def test_a_policy_without_tokens_left_truncates_its_episode(env: GrepSeekEnv, tmp_path: Path, parallel: int) -> None:
    records = collect(env, Flaky(1, PolicyStop), tmp_path, limit=LIMIT, parallel=parallel)
    assert {t.finish_reason for t in records} == {"answer", "budget"}
    assert all(t.reward_valid for t in records)


class Broken:
    """A backend that fails every command."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def run(self, command: str, **_: Any) -> CommandResult:
        raise EngineFault(f"no programs today for {command[:5]}")


@pytest.mark.parametrize("parallel", [1, 4])
def test_a_run_in_which_everything_fails_stops_early_and_goes_on_later(
    env: GrepSeekEnv, tmp_path: Path, parallel: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(env, "backend", Broken(env.backend))
        with pytest.raises(EngineFault, match="16 episodes all failed, the newest with EngineFault: no programs today"):
            collect(env, make_policy("keyword"), tmp_path, limit=40, parallel=parallel)
        assert all(not t.reward_valid for t in read_trajectories(tmp_path / "trajectories.jsonl"))
    whole = collect(env, make_policy("keyword"), tmp_path, limit=40, parallel=parallel)
    assert all(t.reward_valid for t in whole)
    assert len(lines(tmp_path)) == 40


class Buggy(Policy):
    name = "buggy"

    def begin(self, start: EpisodeStart) -> None:
        self.start_ = start

    def act(self, observation: str) -> str:
        del observation
        if self.start_.question.question == self.bad:
            raise KeyError("a bug, not a fault")
        return self.start_.action_format.render_action("t", answer="x")


@pytest.mark.parametrize("parallel", [1, 4])
def test_a_bug_in_a_policy_is_raised_and_what_was_complete_is_kept(
    env: GrepSeekEnv, tmp_path: Path, parallel: int
) -> None:
    policy = Buggy()
    policy.bad = env.question_set[9].question
    with pytest.raises(KeyError, match="a bug"):
        collect(env, policy, tmp_path, limit=LIMIT, parallel=parallel)
    assert len(lines(tmp_path)) >= 9 - parallel
    policy.bad = ""
    assert len(collect(env, policy, tmp_path, limit=LIMIT, parallel=parallel)) == LIMIT


class Batches(ChatModel):
    """A model that completes a batch at a time and notes the batches."""

    name = "batches"

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def complete(self, conversations: Sequence[Sequence[Message]], sampling: Any, **_: Any) -> list[Completion]:
        del sampling
        self.sizes.append(len(conversations))
        for _ in range(1000 if len(self.sizes) == 1 else 0):  # the first batch lasts until others wait
            if self.sizes[0] + len(self._gatherer()._waiting) == 20:
                break
            threading.Event().wait(0.01)
        return [completion(messages) for messages in conversations]


class Requests(ChatModel):
    """A model that answers each request by itself."""

    name = "requests"

    def __init__(self) -> None:
        self.now = self.most = 0

    async def acomplete(self, messages: Sequence[Message], sampling: Sampling, **_: Any) -> Completion:
        del sampling
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.002)
        self.now -= 1
        return completion(messages)


def completion(messages: Sequence[Message]) -> Completion:
    answered = any("corpus.jsonl" in m["content"] for m in messages[1:] if m["role"] == "assistant")
    call = '<tool_call>{"name": "shell", "arguments": {"command": "wc -l corpus.jsonl"}}</tool_call>'
    text = "<think>t</think>" + ("<answer>x</answer>" if answered else call)
    return Completion(text, "stop", token_ids=(1, 2, 3), logprobs=(-0.5, -0.25, 0.0))


def test_waiting_turns_are_batched_and_their_tokens_are_recorded(env: GrepSeekEnv, tmp_path: Path) -> None:
    model = Batches()
    records = collect(env, ChatPolicy(model), tmp_path / "many", limit=40, parallel=20)
    assert sum(model.sizes) == 80
    assert max(model.sizes[:2]) >= 10  # all 20 together, or those that came while the first batch ran
    assert all(len(t.turns) == 2 for t in records)
    turn = records[0].turns[0]
    assert (turn.token_ids, turn.logprobs, turn.finish_reason) == ((1, 2, 3), (-0.5, -0.25, 0.0), "stop")
    assert records == collect(env, ChatPolicy(Requests(), name=model.name), tmp_path / "one", limit=40)
    assert records == list(read_trajectories(tmp_path / "many/trajectories.jsonl"))


def test_requests_of_an_asyncio_model_overlap_within_the_bound(env: GrepSeekEnv, tmp_path: Path) -> None:
    model = Requests()
    records = collect(env, ChatPolicy(model), tmp_path, limit=40, parallel=8)
    assert len(records) == 40
    assert 1 < model.most <= 8


def test_records_of_policies_without_a_model_stay_as_they_were(env: GrepSeekEnv, tmp_path: Path) -> None:
    collect(env, make_policy("keyword"), tmp_path, limit=2)
    [turn, *_] = json.loads(lines(tmp_path)[0])["turns"]
    assert not {"token_ids", "logprobs", "finish_reason"} & turn.keys()


@pytest.mark.parametrize("bad", [{"token_ids": ["1"]}, {"token_ids": 3}, {"logprobs": [None]}, {"finish_reason": 1}])
def test_sampled_tokens_of_another_kind_are_refused(env: GrepSeekEnv, bad: dict[str, Any]) -> None:
    record = json.loads(run_episode(env, make_policy("keyword"), env.question_set[0].id).to_json())
    record["turns"][0] |= bad
    with pytest.raises(TrajectoryError, match="fields do not fit"):
        Trajectory.from_json(json.dumps(record))


@pytest.mark.parametrize("parallel", [1, 3])
def test_timing_is_recorded_a_turn_when_asked_for(env: GrepSeekEnv, tmp_path: Path, parallel: int) -> None:
    [record] = collect(env, make_policy("oracle"), tmp_path, limit=1, timing=True, parallel=parallel)
    timing = record.metadata["timing"]
    assert len(timing["model"]) == len(timing["tool"]) == len(record.turns)
    assert all(seconds >= 0 for seconds in timing["model"])
    assert [seconds > 0 for seconds in timing["tool"]] == [turn.command is not None for turn in record.turns]


def test_groups_hold_all_rollouts_of_a_question(env: GrepSeekEnv) -> None:
    ids = [env.question_set[i].id for i in (4, 1, 3)]
    groups = rollout_groups(env, make_policy("random"), [env.question_set[4], *ids[1:]], 5, seed=7, parallel=6)
    assert [g.question.id for g in groups] == ids
    for group in groups:
        assert [t.metadata["sample"] for t in group.trajectories] == list(range(5))
        assert {t.question_id for t in group.trajectories} == {group.question.id}
        assert group.rewards == tuple(t.reward for t in group.trajectories)
    alone = run_episode(env, make_policy("random"), ids[1], seed=7, sample=2)
    assert groups[1].trajectories[2] == alone
    assert rollout_groups(env, make_policy("random"), ids, 5, seed=7, parallel=1) == groups
    assert rollout_groups(env, make_policy("random"), ids, 5, seed=8, parallel=3) != groups


def test_groups_leave_failed_rollouts_out_of_the_rewards(env: GrepSeekEnv) -> None:
    [group] = rollout_groups(env, Flaky(9), [env.question_set[0]], 8, retries=0)
    assert isinstance(group, Group)
    assert 0 < len(group.valid) < 8
    assert len(group.rewards) == len(group.valid)


def test_a_factory_is_closed_and_wrappers_are_looked_through(tmp_path: Path) -> None:
    made: list[GrepSeekEnv] = []

    def factory() -> GrepSeekEnv:
        made.append(GrepSeekEnv(shuffle=False))
        return made[-1]

    first = collect(factory, make_policy("keyword"), tmp_path / "a", limit=3)
    with pytest.raises(EngineFault, match="closed"):
        made[0].backend.run("wc -l corpus.jsonl")
    wrapped = MessagesWrapper(gymnasium.make("GrepSeek-v0", shuffle=False))
    assert collect(wrapped, make_policy("keyword"), tmp_path / "b", limit=3) == first
    wrapped.close()
    with pytest.raises(ConfigError, match="CartPole"):
        collect(gymnasium.make("CartPole-v1"), make_policy("keyword"), tmp_path / "c")


def test_it_works_where_an_event_loop_is_running(env: GrepSeekEnv, tmp_path: Path) -> None:
    async def notebook() -> int:
        return len(collect(env, make_policy("keyword"), tmp_path, limit=5, parallel=3))

    assert asyncio.run(notebook()) == 5


@pytest.mark.parametrize(
    ("kwargs", "message"), [({"parallel": 0}, "parallel is 0"), ({"retries": -1}, "retries is -1")]
)
def test_numbers_that_cannot_work_are_refused(
    env: GrepSeekEnv, tmp_path: Path, kwargs: dict[str, int], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        collect(env, make_policy("keyword"), tmp_path, **kwargs)
    with pytest.raises(ConfigError, match="group_size"):
        rollout_groups(env, make_policy("keyword"), [], 0)
    with pytest.raises(ConfigError, match="once"):
        rollout_groups(env, make_policy("keyword"), [env.question_set[0]] * 2, 2)


_SLOW = """
import sys, threading, time
from pathlib import Path
from algos.rollout import collect
from grepseek_env.env import GrepSeekEnv
from policies.base import Policy

class Slow(Policy):
    name = "slow"
    def begin(self, start):
        self.start_ = start
        self.turns = 0
    def act(self, observation):
        self.turns += 1
        sample = self.start_.seed % 3
        if self.turns == 1:
            # Some episodes end quickly, and some wait for a command that never ends by itself.
            command = "wc -l corpus.jsonl" if sample else "awk 'BEGIN { while (1) x++ }'"
            return self.start_.action_format.render_action("t", command=command)
        return self.start_.action_format.render_action("t", answer="x")

env = GrepSeekEnv(shuffle=False)
print("ready", flush=True)
try:
    collect(env, Slow(), Path(sys.argv[1]), limit=60, parallel=12)
except KeyboardInterrupt:
    env.close()
    print("stopped", [t.name for t in threading.enumerate() if t.name.startswith("grepseek-rollout")], flush=True)
"""


def test_ctrl_c_ends_running_commands_and_keeps_what_is_complete(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", _SLOW, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        path = tmp_path / "trajectories.jsonl"
        for _ in range(600):
            if path.exists() and path.read_bytes().count(b"\n") >= 3:
                break
            threading.Event().wait(0.1)
        os.kill(child.pid, signal.SIGINT)
        out, _ = child.communicate(timeout=60)
    finally:
        child.kill()
    assert out == "stopped []\n"
    assert child.returncode == 0
    kept = list(read_trajectories(path))
    assert 3 <= len(kept) < 60
    assert all(t.finish_reason == "answer" for t in kept)


def test_a_stopped_run_goes_on_to_the_same_file(env: GrepSeekEnv, tmp_path: Path) -> None:
    policy = Buggy()
    policy.bad = env.question_set[20].question
    with pytest.raises(KeyError):
        collect(env, policy, tmp_path / "a", limit=30, parallel=5)
    policy.bad = ""
    resumed = collect(env, policy, tmp_path / "a", limit=30, parallel=3)
    assert resumed == collect(env, policy, tmp_path / "b", limit=30)
    assert lines(tmp_path / "a") == lines(tmp_path / "b")
