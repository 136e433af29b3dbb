from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import numpy as np
import pytest

from grepseek_env.env import GrepSeekEnv
from grepseek_env.errors import ConfigError, EpisodeError
from grepseek_env.token_view import TokenIds, TokensWrapper
from policies.tiny_model import make_tokenizer
from tests.support.tiny_model import TEXTS

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKENIZER = make_tokenizer(TEXTS * 3, 700)
CALL = '<think>t</think>\n<tool_call>{"name": "shell", "arguments": {"command": "rg -c e corpus.jsonl"}}</tool_call>'


@pytest.fixture
def env() -> Iterator[TokensWrapper]:
    env = TokensWrapper(GrepSeekEnv(shuffle=False), TOKENIZER)
    yield env
    env.close()


def encode(text: str) -> list[int]:
    return list(TOKENIZER(text)["input_ids"])


def test_sampled_ids_are_the_episode_and_their_text_is_played(env: TokensWrapper) -> None:
    first, info = env.reset(seed=0)
    assert first.dtype == np.int64
    assert not info["mask"].any()
    base = env.unwrapped
    opening = TOKENIZER.apply_chat_template(
        [{"role": "system", "content": base.system_prompt}, {"role": "user", "content": base.episode.prompt}],
        tokenize=False,
        add_generation_prompt=True,
    )
    assert TOKENIZER.decode(first) == opening
    # What follows the stop string, here in ids of its own, is no part of the turn, yet it was sampled.
    sampled = encode(CALL) + encode(" more")
    second, reward, terminated, truncated, info = env.step(sampled)
    assert (reward, terminated, truncated, info["exit_code"]) == (0.0, False, False, 0)
    assert base.episode.turns[0].text == CALL
    assert list(second[: len(first)]) == list(first)
    assert list(second[info["mask"]]) == sampled
    last, _, terminated, _, info = env.step("<think>t</think>\n<answer>Ulm</answer>")
    assert terminated
    assert [s.writer for s in info["spans"]] == ["environment", "policy", "environment", "policy"]
    assert [s.turn for s in info["spans"]] == [-1, 0, 0, 1]
    assert last[-1] == TOKENIZER.eos_token_id
    assert env.tokens().ids == tuple(last)
    assert env.observation_space.contains(last)


def test_steps_out_of_order_and_actions_that_are_none(env: TokensWrapper) -> None:
    with pytest.raises(EpisodeError, match="reset"):
        env.step([1])
    env.reset(seed=0)
    before = env.tokens()
    for action in ([len(TOKENIZER)], [-1], [1.5], [[1]], None):
        with pytest.raises(ConfigError, match="must be token ids"):
            env.step(action)  # type: ignore[arg-type]
    assert env.tokens() == before
    _, _, _, _, info = env.step([])
    assert info["action"] == "malformed"


def test_a_template_that_cannot_work_is_told_when_it_is_made() -> None:
    bad = make_tokenizer(TEXTS, 300, chat_template="{{ messages | length }}")
    with pytest.raises(ConfigError, match="prefix-stable"):
        TokensWrapper(GrepSeekEnv(), bad)
    TokensWrapper(GrepSeekEnv(), bad, chat_template="chatml").close()


def test_the_space_of_ids() -> None:
    space = TokenIds(10, 5, seed=1)
    samples = [space.sample() for _ in range(50)]
    assert all(space.contains(s) for s in samples)
    assert {len(s) for s in samples} == set(range(6))
    assert not any(map(space.contains, ([10], [-1], [0.5], [[1]], 1, "1", None, [1] * 6, np.zeros((0, 2)))))
    assert space.contains(())
    again = space.from_jsonable(space.to_jsonable(samples))
    assert all(np.array_equal(a, b) for a, b in zip(samples, again, strict=True))
    assert pickle.loads(pickle.dumps(space)) == space
    assert (space == TokenIds(10, 6), hash(space) == hash(TokenIds(10, 5))) == (False, True)
    assert repr(space) == "TokenIds(10, 5)"
    with pytest.raises(ConfigError, match="neither mask nor probability"):
        space.sample(mask=1)
    with pytest.raises(ConfigError, match="at least 1"):
        TokenIds(0)
