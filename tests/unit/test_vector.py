"""The vector environment against Gymnasium's own over single environments, and what it adds to them."""

from __future__ import annotations

import gc
import os
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

import grepseek_env
from grepseek_env import GrepSeekVectorEnv
from grepseek_env.backend import open_backend
from grepseek_env.env import GrepSeekEnv
from grepseek_env.errors import ConfigError, EngineFault, EpisodeError
from grepseek_env.spaces import FreeText

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from typing_extensions import Self

    from grepseek_env.types import SearchBackend

MODES = list(AutoresetMode)
CALL = '<think>t</think><tool_call>{"name": "shell", "arguments": {"command": "%s"}}</tool_call>'
ANSWER = "<think>t</think><answer>%s</answer>"
QUESTIONS = [{"id": f"q{i}", "question": f"What is {i}?", "golden_answers": [str(i)]} for i in range(11)]
ACTIONS = (
    CALL % "rg -c -F born corpus.jsonl",
    CALL % "rg -F the corpus.jsonl | head -n 2",
    CALL % "rg -F nothing-has-this corpus.jsonl",
    CALL % "rm -rf /",
    CALL % "cat corpus.jsonl",
    "no action",
    "",
    ANSWER % "3",
    ANSWER % "Paris",
)
# Ends are as likely as anything else, so that all ways to go on after one are met.
TURN = st.one_of(st.sampled_from(ACTIONS), st.sampled_from(ACTIONS[-2:]))


@pytest.fixture(scope="module")
def backend() -> Iterator[SearchBackend]:
    with open_backend("world:tiny") as backend:
        yield backend


def singles(backend: SearchBackend, n: int, *, disjoint: bool = True, **options: Any) -> list[Any]:
    shards = [(i, n) if disjoint else (0, 1) for i in range(n)]
    return [GrepSeekEnv(backend=backend, questions=QUESTIONS, shard=shard, **options) for shard in shards]


def vector(backend: SearchBackend, n: int, mode: AutoresetMode = AutoresetMode.NEXT_STEP, **options: Any) -> Any:
    return GrepSeekVectorEnv(n, autoreset_mode=mode, backend=backend, questions=QUESTIONS, **options)


def same(a: Any, b: Any) -> bool:
    """Compares infos down to the types of their arrays."""
    match a:
        case dict():
            return isinstance(b, dict) and list(a) == list(b) and all(same(a[key], b[key]) for key in a)
        case np.ndarray():
            return isinstance(b, np.ndarray) and (a.dtype, a.shape) == (b.dtype, b.shape) and same(list(a), list(b))
        case list() | tuple():
            return type(a) is type(b) and len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
        case _:
            return type(a) is type(b) and a == b


@given(st.data(), st.integers(1, 5), st.sampled_from(MODES), st.booleans())
@settings(max_examples=60)
def test_property_it_is_gymnasiums_own_over_single_environments(
    backend: SearchBackend, data: st.DataObject, n: int, mode: AutoresetMode, disjoint: bool
) -> None:
    seeds = data.draw(st.one_of(st.integers(0, 2**31), st.lists(st.integers(0, 99), min_size=n, max_size=n)))
    turns = data.draw(st.lists(st.lists(TURN, min_size=n, max_size=n), min_size=1, max_size=9))
    options = {"max_turns": data.draw(st.integers(1, 4)), "shuffle": data.draw(st.booleans())}
    made = singles(backend, n, disjoint=disjoint, **options)
    theirs = SyncVectorEnv([lambda env=env: env for env in made], autoreset_mode=mode)
    ours = vector(backend, n, mode, disjoint=disjoint, **options)
    assert same(ours.reset(seed=seeds), theirs.reset(seed=seeds))
    for actions in turns:
        mine, his = ours.step(actions), theirs.step(actions)
        assert same(mine, his)
        ended = mine[2] | mine[3]
        if mode is AutoresetMode.DISABLED and ended.any():
            again = data.draw(st.sampled_from((None, 5)))
            assert same(
                ours.reset(seed=again, options={"reset_mask": ended}),
                theirs.reset(seed=again, options={"reset_mask": ended}),
            )
        assert ours.np_random_seed == theirs.np_random_seed


@given(st.data(), st.integers(1, 6), st.integers(0, 2**31))
@settings(max_examples=20)
def test_property_each_plays_episode_for_episode_what_a_single_one_plays(
    backend: SearchBackend, data: st.DataObject, n: int, seed: int
) -> None:
    ours = vector(backend, n, AutoresetMode.SAME_STEP, max_turns=3)
    observations, infos = ours.reset(seed=seed)
    alone = singles(backend, n, max_turns=3)
    starts = [env.reset(seed=seed + i) for i, env in enumerate(alone)]
    assert observations == tuple(observation for observation, _ in starts)
    assert infos["question_id"].tolist() == [info["question_id"] for _, info in starts]
    for _ in range(8):
        actions = data.draw(st.lists(TURN, min_size=n, max_size=n))
        observations, rewards, terminated, truncated, infos = ours.step(actions)
        for i, (env, action) in enumerate(zip(alone, actions, strict=True)):
            seen, reward, end, cut, info = env.step(action)
            assert (rewards[i], terminated[i], truncated[i]) == (reward, end, cut)
            if not (end or cut):
                assert ours.envs[i].trajectory() == env.trajectory()
            else:
                assert infos["final_obs"][i] == seen
                assert infos["final_info"]["finish_reason"][i] == info["finish_reason"]
                assert infos["final_info"]["reward_breakdown"]["f1"][i] == info["reward_breakdown"]["f1"]
                seen, info = env.reset()
            assert (observations[i], infos["question_id"][i]) == (seen, info["question_id"])


@pytest.mark.parametrize("n", [2, 3, 11])
def test_question_streams_never_overlap_and_together_ask_everything(backend: SearchBackend, n: int) -> None:
    envs = vector(backend, n)
    asked: list[set[str]] = [set() for _ in range(n)]
    _, infos = envs.reset(seed=3)
    for _ in range(2 * len(QUESTIONS)):
        for own, question in zip(asked, infos["question_id"], strict=True):
            own.add(question)
        envs.step([ANSWER % "x"] * n)
        *_, infos = envs.step([""] * n)
    assert sum(map(len, asked)) == len(set.union(*asked)) == len(QUESTIONS)
    assert max(map(len, asked)) - min(map(len, asked)) <= 1


def test_more_environments_than_questions_and_shards_of_shards(backend: SearchBackend) -> None:
    envs = vector(backend, 13)
    _, infos = envs.reset(seed=0)
    assert set(infos["question_id"]) == {q["id"] for q in QUESTIONS}
    halves = [vector(backend, 2, shard=(part, 2), shuffle=False).reset()[1]["question_id"].tolist() for part in (0, 1)]
    assert halves == [["q0", "q2"], ["q1", "q3"]]
    everything = vector(backend, 4, disjoint=False, shuffle=False)
    assert everything.reset()[1]["question_id"].tolist() == ["q0"] * 4


@pytest.mark.parametrize("shard", [(2, 2), (-1, 2), (0, 0), (0,), "01", None, (0.0, 1)])
def test_a_shard_that_cannot_be_is_named(backend: SearchBackend, shard: Any) -> None:
    with pytest.raises(ConfigError, match="shard is"):
        GrepSeekEnv(backend=backend, questions=QUESTIONS, shard=shard)


@pytest.mark.parametrize("mode", MODES)
def test_make_vec_makes_it_and_its_spec_makes_it_again(mode: AutoresetMode) -> None:
    envs = gymnasium.make_vec("GrepSeek-v0", num_envs=3, autoreset_mode=mode, max_turns=2)
    again = gymnasium.make_vec(envs.spec)
    for each in (envs, again):
        assert isinstance(each, GrepSeekVectorEnv)
        assert (each.num_envs, each.metadata["autoreset_mode"]) == (3, mode)
        assert each.observation_space == gymnasium.spaces.Tuple([FreeText()] * 3)
        assert each.reset(seed=4)[0] in each.observation_space
        assert each.action_space.sample() in each.action_space
    actions = (ACTIONS[0], ACTIONS[5], ANSWER % "x")
    assert same(envs.step(actions), again.step(actions))
    for each in (envs, again):
        each.close()
        each.close()
    with pytest.raises(EngineFault, match="closed"):
        envs.backend.run("wc -l corpus.jsonl")


def test_gymnasiums_vector_wrappers_fit() -> None:
    envs = gymnasium.wrappers.vector.DictInfoToList(
        gymnasium.wrappers.vector.RecordEpisodeStatistics(gymnasium.make_vec("GrepSeek-v0", num_envs=2))
    )
    envs.reset(seed=0)
    *_, infos = envs.step((ANSWER % "x", "no action"))
    assert infos[0]["finish_reason"] == "answer"
    assert infos[0]["episode"]["l"] == 1
    assert "finish_reason" not in infos[1]
    envs.close()


def test_it_pickles_in_mid_episode_with_one_backend_for_all(backend: SearchBackend) -> None:
    envs = vector(backend, 3)
    envs.reset(seed=1)
    envs.step(ACTIONS[:3])
    twin = pickle.loads(pickle.dumps(envs))
    assert len({id(env.backend) for env in twin.envs} | {id(twin.backend)}) == 1
    actions = (ANSWER % "x", *ACTIONS[:2])
    assert same(envs.step(actions), twin.step(actions))
    assert same(envs.step(actions), twin.step(actions))


class Counting:
    """Counts the calls that reach a backend."""

    def __init__(self, inner: SearchBackend) -> None:
        self._inner = inner
        self.batches: list[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, command: str, **_: Any) -> Any:
        raise AssertionError(f"{command} was run alone")

    def run_many(self, commands: Sequence[str], **bounds: Any) -> Any:
        self.batches.append(list(commands))
        return self._inner.run_many(commands, **bounds)

    def explain(self, command: str) -> str:
        return command

    def close(self) -> None:
        pass

    program_dir = Path()
    corpus_digest = ""


def test_the_commands_of_a_step_are_run_together(backend: SearchBackend) -> None:
    counting = Counting(backend)
    envs = vector(counting, 4)
    envs.reset(seed=0)
    envs.step((ACTIONS[0], ANSWER % "x", ACTIONS[1], "no action"))
    assert counting.batches == [["rg -c -F born corpus.jsonl", "rg -F the corpus.jsonl | head -n 2"]]
    envs.step(("", "", "", ""))
    assert len(counting.batches) == 1


def test_other_bounds_are_kept_apart(backend: SearchBackend) -> None:
    counting = Counting(backend)
    envs = vector(counting, 3)
    short = GrepSeekEnv(backend=backend, questions=QUESTIONS, max_observation_chars=9).rules
    envs.set_attr("rules", [short, envs.envs[1].rules, short])
    envs.reset(seed=0)
    observations, *_, infos = envs.step([CALL % "head -n 3 corpus.jsonl"] * 3)
    assert sorted(map(len, counting.batches)) == [1, 2]
    assert infos["output_truncated"].tolist() == [True, False, True]
    assert observations[0] == observations[2] != observations[1]


class Failing(Counting):
    def run_many(self, commands: Sequence[str], **_: Any) -> Any:
        raise EngineFault(f"nobody runs {len(commands)} commands today")


def test_a_fault_of_the_backend_ends_the_episodes_it_hit_and_no_other(backend: SearchBackend) -> None:
    envs = vector(Failing(backend), 3)
    envs.reset(seed=0)
    _, rewards, terminated, truncated, infos = envs.step((ACTIONS[0], "no action", ACTIONS[1]))
    assert truncated.tolist() == [True, False, True]
    assert not terminated.any()
    assert rewards.tolist() == [0.0] * 3
    assert infos["reward_valid"].tolist() == [False, True, False]
    assert infos["error"][0].startswith("EngineFault: nobody runs 2 commands")


class Interrupted(Counting):
    def run_many(self, commands: Sequence[str], **bounds: Any) -> Any:
        if not self.batches:
            self.batches.append(list(commands))
            raise KeyboardInterrupt
        return self._inner.run_many(commands, **bounds)


def test_after_ctrl_c_in_a_step_it_can_be_reset(backend: SearchBackend) -> None:
    envs = vector(Interrupted(backend), 3)
    envs.reset(seed=0)
    with pytest.raises(KeyboardInterrupt):
        envs.step(ACTIONS[:3])
    with pytest.raises(EpisodeError, match=r"was interrupted.*reset\(\)"):
        envs.step(ACTIONS[:3])
    fresh = vector(backend, 3)
    assert same(envs.reset(seed=0), fresh.reset(seed=0))
    assert same(envs.step(ACTIONS[:3]), fresh.step(ACTIONS[:3]))


def test_questions_can_be_chosen_for_all_or_for_each(backend: SearchBackend) -> None:
    envs = vector(backend, 3)
    assert envs.reset(options={"question_id": "q4"})[1]["question_id"].tolist() == ["q4"] * 3
    observations, infos = envs.reset(seed=0, options={"question_id": ["q7", None, "q7"]})
    assert infos["question_id"].tolist()[::2] == ["q7"] * 2
    mask = np.array([False, True, False])
    after, infos = envs.reset(options={"question_id": "q9", "reset_mask": mask})
    assert infos["_question_id"].tolist() == mask.tolist()
    assert (after[0], after[2]) == (observations[0], observations[2])
    assert after[1].endswith("What is 9?")


BAD_RESETS: list[tuple[dict[str, Any], str]] = [
    ({"seed": [1, 2]}, "seed has 2 values for 3"),
    ({"options": 3}, "options are 3"),
    ({"options": {"reset_mask": [True, False, True]}}, "boolean array of shape"),
    ({"options": {"reset_mask": np.ones(3)}}, "boolean array of shape"),
    ({"options": {"reset_mask": np.ones(2, bool)}}, "boolean array of shape"),
    ({"options": {"reset_mask": np.zeros(3, bool)}}, "false everywhere"),
    ({"options": {"question_id": ["q1"]}}, "question_id has 1 values for 3"),
    ({"options": {"question_id": ["q1", None, "nope"]}}, "nope"),
    ({"options": {"what": 1}}, "no option 'what'"),
]


@pytest.mark.parametrize(("kwargs", "message"), BAD_RESETS)
def test_resets_that_cannot_work_are_named_and_change_nothing(
    backend: SearchBackend, kwargs: dict[str, Any], message: str
) -> None:
    envs = vector(backend, 3)
    envs.reset(seed=0)
    before = envs.call("trajectory")
    with pytest.raises(ConfigError, match=message):
        envs.reset(**kwargs)
    assert envs.call("trajectory") == before


@pytest.mark.parametrize(
    "actions", ["abc", (ACTIONS[0],) * 2, (ACTIONS[0], 3, ACTIONS[0]), (ACTIONS[0], None, ACTIONS[0])]
)
def test_actions_that_cannot_work_are_named_and_change_nothing(backend: SearchBackend, actions: Any) -> None:
    envs = vector(backend, 3)
    envs.reset(seed=0)
    with pytest.raises(ConfigError, match="action"):
        envs.step(actions)
    assert all(not t.turns for t in envs.call("trajectory"))
    envs.step(np.array(ACTIONS[:3], dtype=object))


def test_use_out_of_order_is_named(backend: SearchBackend) -> None:
    envs = vector(backend, 2, AutoresetMode.DISABLED)
    with pytest.raises(EpisodeError, match="reset"):
        envs.step(ACTIONS[:2])
    with pytest.raises(EpisodeError, match="without a reset_mask"):
        envs.reset(options={"reset_mask": np.array([True, False])})
    envs.reset(seed=0)
    envs.step((ACTIONS[0], ANSWER % "x"))
    with pytest.raises(EpisodeError, match=r"environments \[1\] have ended"):
        envs.step(ACTIONS[:2])
    envs.reset(options={"reset_mask": np.array([False, True])})
    envs.step(ACTIONS[:2])


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"num_envs": 0}, "num_envs is 0"),
        ({"num_envs": True}, "num_envs is True"),
        ({"autoreset_mode": "Sometimes"}, "'NextStep', 'SameStep', 'Disabled'"),
        ({"max_episode_steps": 3}, "max_turns"),
        ({"max_turns": 0}, "max_turns"),
    ],
)
def test_options_that_cannot_work_are_named(backend: SearchBackend, kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        GrepSeekVectorEnv(**{"num_envs": 2, "backend": backend, "questions": QUESTIONS, **kwargs})


def test_call_get_and_set(backend: SearchBackend) -> None:
    envs = vector(backend, 2, render_mode="ansi")
    envs.reset(seed=0)
    envs.step((ACTIONS[0], ANSWER % "x"))
    assert [len(t.turns) for t in envs.call("trajectory", {"a": 1})] == [1, 1]
    assert envs.get_attr("render_mode") == ("ansi", "ansi")
    envs.set_attr("note", [1, 2])
    assert envs.get_attr("note") == (1, 2)
    envs.set_attr("note", "both")
    assert envs.get_attr("note") == ("both", "both")
    with pytest.raises(ConfigError, match="note has 3 values for 2"):
        envs.set_attr("note", [1, 2, 3])
    with pytest.raises(AttributeError):
        envs.get_attr("nothing")
    assert repr(envs) == "GrepSeekVectorEnv(num_envs=2)"


def test_rendering(backend: SearchBackend, capsys: pytest.CaptureFixture[str]) -> None:
    ansi, human = (vector(backend, 2, render_mode=mode) for mode in ("ansi", "human"))
    for envs in (ansi, human):
        envs.reset(seed=0)
        envs.step((ACTIONS[0], ANSWER % "x"))
    texts = ansi.render()
    assert human.render() == (None, None)
    assert "rg -c -F born" in texts[0]
    assert "golden" in texts[1]
    printed = capsys.readouterr().out
    assert all(line in printed for text in texts for line in text.splitlines())


def test_timing_is_told_when_asked_for(backend: SearchBackend) -> None:
    envs = vector(backend, 2, timing=True)
    envs.reset(seed=0)
    *_, infos = envs.step((ACTIONS[0], "no action"))
    assert infos["_command_seconds"].tolist() == [True, False]
    assert infos["command_seconds"][0] > 0


def test_importing_the_package_does_not_load_it() -> None:
    assert grepseek_env.GrepSeekVectorEnv is GrepSeekVectorEnv
    assert "GrepSeekVectorEnv" in dir(grepseek_env)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
def test_256_environments_over_10000_commands_keep_memory_bounded_and_descriptors_constant() -> None:
    n = 256
    envs = gymnasium.make_vec("GrepSeek-v0", num_envs=n)
    envs.reset(seed=0)
    words = [w for i in range(400) for w in envs.question_set[i].question.split() if w.isalpha()]
    commands = 0
    seen: list[tuple[int, int]] = []
    for step in range(60):
        actions = []
        for i in range(n):
            at = (step * n + i) * 7919 % len(words)
            actions.append(CALL % f"rg -F {words[at]} corpus.jsonl | rg -F {words[at - 1]} | head -n {1 + at % 50}")
        *_, infos = envs.step(actions)
        ran = infos.get("_exit_code", np.zeros(n, bool)) | infos.get("output_truncated", np.zeros(n, bool))
        commands += int(ran.sum())
        if step % 10 == 9:
            gc.collect()
            seen.append((sum(1 for _ in Path("/proc/self/fd").iterdir()), _resident()))
    assert commands >= 10_000
    descriptors = [count for count, _ in seen]
    assert max(descriptors) == min(descriptors)
    # The result cache fills up to its bound meanwhile; nothing else may grow.
    assert seen[-1][1] - seen[0][1] < 96 << 20
    envs.close()
