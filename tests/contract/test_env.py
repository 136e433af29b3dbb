"""Every registered environment meets Gymnasium's contract and ours."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import subprocess
import sys
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from grepseek_env.backend import open_corpus

IDS = sorted(i for i, spec in gymnasium.registry.items() if str(spec.entry_point).startswith("grepseek_env"))
CALL = '<think>t</think><tool_call>{"name": "shell", "arguments": {"command": "%s"}}</tool_call>'
ANSWER = "<think>t</think><answer>%s</answer>"
TURNS = [CALL % "rg -c . corpus.jsonl", "no action at all", CALL % "rm -rf /", ANSWER % "Paris"]


def test_the_documented_id_is_registered() -> None:
    assert IDS == ["GrepSeek-v0"]


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("render_mode", [None, "ansi", "human"])
def test_check_env_has_nothing_to_say(env_id: str, render_mode: str | None) -> None:
    env = gymnasium.make(env_id, render_mode=render_mode)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)


@pytest.mark.parametrize("env_id", IDS)
def test_module_prefix_form_registers_by_itself(env_id: str) -> None:
    code = f"import gymnasium; e = gymnasium.make('grepseek_env:{env_id}'); print(e.reset(seed=1)[1]['question_id'])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    env = gymnasium.make(env_id)
    assert out.stdout.strip() == env.reset(seed=1)[1]["question_id"]
    assert out.stderr == ""
    env.close()


def episode(env: gymnasium.Env[str, str], seed: int) -> list[Any]:
    out: list[Any] = [env.reset(seed=seed)]
    for turn in TURNS:
        out.append(env.step(turn))
        if out[-1][2] or out[-1][3]:
            break
    return out


def test_same_seed_same_episode_and_other_seeds_differ() -> None:
    a, b = gymnasium.make("GrepSeek-v0"), gymnasium.make("GrepSeek-v0")
    assert episode(a, 3) == episode(b, 3) == episode(a, 3)
    assert len({episode(a, s)[0][0] for s in range(12)}) > 6
    a.close()
    b.close()


def test_close_twice_and_after_use() -> None:
    env = gymnasium.make("GrepSeek-v0")
    env.reset(seed=0)
    env.close()
    env.close()


def test_spec_round_trips_and_deep_copies() -> None:
    env = gymnasium.make("GrepSeek-v0", corpus=open_corpus("world:tiny"), questions="world:tiny", max_turns=3)
    again = gymnasium.make(copy.deepcopy(env.spec))
    assert episode(env, 5) == episode(again, 5)
    env.close()
    again.close()


def test_pickle_in_mid_episode_goes_on_the_same() -> None:
    env = gymnasium.make("GrepSeek-v0").unwrapped
    env.reset(seed=2)
    env.step(TURNS[0])
    twin = pickle.loads(pickle.dumps(env))
    assert env.step(TURNS[3]) == twin.step(TURNS[3])
    assert env.reset() == twin.reset()
    env.close()
    twin.close()


def _in_child(env: Any, queue: Any) -> None:
    queue.put(episode(env, 7))


def test_env_survives_spawn() -> None:
    env = gymnasium.make("GrepSeek-v0").unwrapped
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(env, queue))
    child.start()
    assert queue.get(timeout=120) == episode(env, 7)
    child.join(60)
    assert child.exitcode == 0
    env.close()


def _make() -> gymnasium.Env[str, str]:
    return gymnasium.make("grepseek_env:GrepSeek-v0")


@pytest.mark.parametrize("kind", ["sync", "async", pytest.param("async-spawn", marks=pytest.mark.slow)])
def test_vector_envs_play_the_same_episodes_as_single_ones(kind: str) -> None:
    n, seed = 3, 11
    match kind:
        case "sync":
            vector: Any = SyncVectorEnv([_make] * n, autoreset_mode=AutoresetMode.DISABLED)
        case "async":
            vector = AsyncVectorEnv([_make] * n, shared_memory=False, autoreset_mode=AutoresetMode.DISABLED)
        case _:
            vector = AsyncVectorEnv(
                [_make] * n, shared_memory=False, context="spawn", autoreset_mode=AutoresetMode.DISABLED
            )
    singles = [_make() for _ in range(n)]
    observations, infos = vector.reset(seed=seed)
    first = [env.reset(seed=seed + i) for i, env in enumerate(singles)]
    assert tuple(observations) == tuple(o for o, _ in first)
    assert list(infos["question_id"]) == [i["question_id"] for _, i in first]
    for turn in TURNS:
        observations, rewards, terminated, truncated, infos = vector.step((turn,) * n)
        steps = [env.step(turn) for env in singles]
        assert tuple(observations) == tuple(s[0] for s in steps)
        assert np.allclose(rewards, [s[1] for s in steps])
        assert list(terminated) == [s[2] for s in steps]
        assert list(truncated) == [s[3] for s in steps]
        assert list(infos["action"]) == [s[4]["action"] for s in steps]
    assert terminated.all()
    vector.close()
    for env in singles:
        env.close()


def test_gymnasium_1164_default_shared_memory_is_refused_not_wrong() -> None:
    with pytest.raises(ValueError, match="shared_memory"):
        AsyncVectorEnv([_make], shared_memory=True)


def test_next_step_autoreset_ignores_the_action_after_the_end() -> None:
    vector = SyncVectorEnv([_make])
    vector.reset(seed=0)
    _, _, terminated, _, _ = vector.step((ANSWER % "x",))
    assert terminated[0]
    observation, reward, terminated, truncated, info = vector.step(("ignored",))
    assert observation[0].startswith("Query: ")
    assert (reward[0], terminated[0], truncated[0]) == (0.0, False, False)
    assert "finish_reason" not in info
    vector.close()


def test_gymnasium_1132_same_step_autoreset_keeps_final_obs_and_info() -> None:
    vector = SyncVectorEnv([_make, _make], autoreset_mode=AutoresetMode.SAME_STEP)
    vector.reset(seed=0)
    observation, _, terminated, _, info = vector.step((ANSWER % "x", CALL % "rg -c . corpus.jsonl"))
    assert list(terminated) == [True, False]
    assert observation[0].startswith("Query: ")
    assert list(info["_final_info"]) == [True, False]
    assert info["final_info"]["finish_reason"][0] == "answer"
    vector.close()


def test_importing_the_package_stays_cheap() -> None:
    code = "import sys, grepseek_env; print(sorted(m for m in sys.modules if '.' not in m))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    heavy = {"torch", "transformers", "tokenizers", "datasets", "ray", "numba", "vllm", "pandas", "tqdm", "scipy"}
    assert not heavy & set(eval(out))  # noqa: S307  a list we printed ourselves
