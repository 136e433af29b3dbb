"""The policy around a chat model, with models that are written down in the test."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from algos.rollout import run_episode
from algos.rollout_play import Job, aplay
from grepseek_env.actions import get_action_format
from grepseek_env.env import GrepSeekEnv, make_rules
from grepseek_env.errors import ConfigError
from grepseek_env.types import CommandResult, Question
from policies.base import EpisodeStart, PolicyStop, make_policy
from policies.budgets import Budget
from policies.chat import ChatModel, Completion, Message, ModelError, Sampling, per_conversation, run_async
from policies.chat_policy import ChatPolicy, turn_seed
from policies.reasoning import join_reasoning, without_thoughts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CALL = '<think>t</think>\n<tool_call>{"name": "shell", "arguments": {"command": "rg -c e corpus.jsonl"}}</tool_call>'
ANSWER = "<think>t</think>\n<answer>Ulm</answer>"


class Written(ChatModel):
    """Returns completions in order, the last again and again, and keeps what it was asked."""

    name = "written"

    def __init__(self, *completions: Completion | Exception) -> None:
        self._left = list(completions)
        self.asked: list[tuple[list[Message], Sampling]] = []

    async def acomplete(
        self, messages: Sequence[Message], sampling: Sampling, *, prompt_ids: Sequence[int] | None = None
    ) -> Completion:
        assert prompt_ids is None
        self.asked.append((list(messages), sampling))
        one = self._left[0] if len(self._left) == 1 else self._left.pop(0)
        if isinstance(one, Exception):
            raise one
        return one


def said(text: str, reason: Any = "stop", **fields: Any) -> Completion:
    return Completion(text, reason, **fields)


@pytest.fixture
def env() -> Iterator[GrepSeekEnv]:
    env = GrepSeekEnv(shuffle=False)
    yield env
    env.close()


def test_a_conversation_grows_turn_by_turn(env: GrepSeekEnv) -> None:
    model = Written(said(CALL), said(ANSWER))
    record = run_episode(env, ChatPolicy(model, Sampling(max_tokens=99)), env.question_set[0].id, seed=7)
    assert (record.finish_reason, record.answer) == ("answer", "Ulm")
    assert [t.finish_reason for t in record.turns] == ["stop", "stop"]
    (first, sampling), (second, later) = model.asked
    assert first == record.messages()[:2]
    assert second == record.messages()[:4]
    assert sampling.stop == get_action_format("hermes").stop_strings
    assert sampling.max_tokens == 99
    assert sampling.seed != later.seed
    assert sampling.seed == turn_seed(record.metadata["seed"], 0)


def test_a_models_failure_is_a_fault_and_a_full_context_is_none(env: GrepSeekEnv) -> None:
    question = env.question_set[0].id
    record = run_episode(env, ChatPolicy(Written(said(CALL), ModelError("down"))), question)
    assert (record.finish_reason, record.reward_valid, record.error) == ("fault", False, "ModelError: down")
    assert len(record.turns) == 1
    record = run_episode(env, ChatPolicy(Written(said(CALL), said("", "context", error="full"))), question)
    assert (record.finish_reason, record.reward_valid, record.reward) == ("budget", True, 0.0)


def test_budgets_count_what_was_sampled(env: GrepSeekEnv) -> None:
    model = Written(said(CALL, completion_tokens=30, prompt_tokens=100))
    policy = ChatPolicy(model, Sampling(max_tokens=40), budget=Budget(episode_tokens=80, least_tokens=10))
    record = run_episode(env, policy, env.question_set[0].id)
    assert [s.max_tokens for _, s in model.asked] == [40, 40, 20]
    assert record.finish_reason == "budget"
    sizes = {"completion_tokens": 30}
    model = Written(said(CALL, prompt_tokens=100, **sizes), said(CALL, prompt_tokens=140, **sizes))
    policy = ChatPolicy(model, Sampling(max_tokens=40), budget=Budget(context_tokens=150))
    run_episode(env, policy, env.question_set[0].id)
    assert [s.max_tokens for _, s in model.asked] == [40, 20]


@pytest.mark.parametrize(
    ("wanted", "sampled", "context", "expected"),
    [(50, 0, 0, 50), (50, 60, 0, 40), (50, 0, 170, 30), (50, 84, 184, 16), (5, 95, 0, 5)],
)
def test_what_a_turn_may_have(wanted: int, sampled: int, context: int, expected: int) -> None:
    budget = Budget(episode_tokens=100, context_tokens=200)
    assert budget.of_turn(wanted, sampled=sampled, context=context) == expected


@pytest.mark.parametrize(("sampled", "context", "what"), [(85, 0, "episode_tokens"), (0, 185, "context")])
def test_too_few_tokens_end_an_episode(sampled: int, context: int, what: str) -> None:
    budget = Budget(episode_tokens=100, context_tokens=200)
    with pytest.raises(PolicyStop, match=what):
        budget.of_turn(50, sampled=sampled, context=context)
    with pytest.raises(ConfigError, match="at least 1"):
        Budget(episode_tokens=0)


def test_forks_share_the_model_and_nothing_else() -> None:
    class Echo(ChatModel):
        def complete(self, conversations: Any, sampling: Any, *, prompt_ids: Any = None) -> list[Completion]:
            del sampling, prompt_ids
            sizes.append(len(conversations))
            made = [
                f"<think>t</think>\n<answer>{c[1]['content'].removeprefix('Query: ')}</answer>" for c in conversations
            ]
            return [said(m if len(c) > 2 else CALL) for c, m in zip(conversations, made, strict=True)]

    sizes: list[int] = []

    async def run(pending: Any) -> CommandResult:
        del pending
        await asyncio.sleep(0)
        return CommandResult(b"3\n", b"", 0)

    async def every() -> list[str | None]:
        policy, rules = ChatPolicy(Echo()), make_rules()
        jobs = [Job(Question(str(i), f"q{i}", ("x",))) for i in range(20)]
        return [r.answer for r in await asyncio.gather(*(aplay(rules, policy.fork(), j, run) for j in jobs))]

    assert asyncio.run(every()) == [f"q{i}" for i in range(20)]
    assert sum(sizes) == 40
    assert max(sizes) > 1  # turns that waited were asked for together


def test_a_format_without_thoughts_gets_none(env: GrepSeekEnv) -> None:
    model = Written(said("<think>hm\nhm</think>\n\nrg -c e corpus.jsonl"), said("answer: Ulm"))
    plain = GrepSeekEnv(shuffle=False, action_format="plain")
    record = run_episode(plain, ChatPolicy(model), env.question_set[0].id)
    assert [t.text for t in record.turns] == ["rg -c e corpus.jsonl", "answer: Ulm"]
    assert model.asked[0][1].stop == ()
    plain.close()


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a", "a"),
        ("<think>x</think> b", "b"),
        ("<think>cut", ""),
        ("</think>b", "b"),
        ("a <think>", "a <think>"),
        ("", ""),
    ],
)
def test_without_thoughts(text: str, left: str) -> None:
    assert without_thoughts(text) == left


def test_joining_reasoning_leaves_blank_reasoning_out() -> None:
    assert join_reasoning("x", " \n") == "x"
    assert join_reasoning("x", None) == "x"


def test_a_model_implements_one_of_two_methods() -> None:
    with pytest.raises(TypeError, match="must implement complete or acomplete"):

        class Neither(ChatModel):
            pass


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -1}, "temperature is -1"),
        ({"top_p": 0}, "top_p is 0"),
        ({"top_k": 0}, "top_k is 0"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"stop": ("",)}, "without empty strings"),
    ],
)
def test_sampling_is_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Sampling(**options)


def test_one_sampling_for_all_varies_its_seed() -> None:
    assert [s.seed for s in per_conversation(Sampling(seed=4), 3)] == [4, 5, 6]
    assert [s.seed for s in per_conversation(Sampling(), 2)] == [None, None]
    with pytest.raises(ConfigError, match="1 samplings for 2"):
        per_conversation([Sampling()], 2)


def test_failures_among_others_and_of_all() -> None:
    model = Written(said("a"), ModelError("x"), said("b"))
    done = model.complete([[{"role": "user", "content": "q"}]] * 3, Sampling())
    assert [c.finish_reason for c in done] == ["stop", "error", "stop"]
    with pytest.raises(ModelError, match="down"):
        Written(ModelError("down")).complete([[], []], Sampling())
    assert Written(said("a")).complete([], Sampling()) == []


def test_a_batch_that_fails_fails_for_all_who_wait() -> None:
    class Broken(ChatModel):
        def complete(self, conversations: Any, sampling: Any, *, prompt_ids: Any = None) -> list[Completion]:
            del sampling, prompt_ids
            raise ModelError(f"no memory for {len(conversations) > 0}")

    async def ask(model: ChatModel) -> list[Any]:
        return await asyncio.gather(*(model.acomplete([], Sampling()) for _ in range(5)), return_exceptions=True)

    model = Broken()
    for _ in range(2):
        assert [str(e) for e in asyncio.run(ask(model))] == ["no memory for True"] * 5


def test_waiting_for_oneself_is_told() -> None:
    async def inside() -> None:
        Written(said("a")).complete([[]], Sampling())

    with pytest.raises(ModelError, match="would wait for itself"):
        run_async(inside())


def test_chat_policies_by_name() -> None:
    policy = make_policy(
        "openai", model="m", base_url="http://localhost:1/v1", temperature=0.5, max_tokens=7, attempts=1
    )
    assert policy.describe() == {
        "policy": "openai:m",
        "model": "openai:m",
        "sampling": {
            "temperature": 0.5,
            "top_p": 1.0,
            "top_k": None,
            "max_tokens": 7,
            "stop": [],
            "seed": None,
            "logprobs": False,
        },
        "budget": {"episode_tokens": None, "context_tokens": None, "least_tokens": 16},
    }
    assert json.loads(json.dumps(policy.describe())) == policy.describe()
    policy.close()
    with pytest.raises(ConfigError, match="policy 'openai' has no option 'temprature' \\(did you mean 'temperature'"):
        make_policy("openai", model="m", temprature=1)
    with pytest.raises(ConfigError, match="policy 'hf' needs the option model"):
        make_policy("hf")
    with pytest.raises(ConfigError, match="temperature is -1"):
        make_policy("hf", model="nowhere", temperature=-1)


def test_aact_is_act(env: GrepSeekEnv) -> None:
    start = EpisodeStart(env.question_set[0], "Query: q", "s", get_action_format("hermes"), max_turns=6, seed=1)
    one, two = ChatPolicy(Written(said(ANSWER))), ChatPolicy(Written(said(ANSWER)))
    one.start(start)
    two.start(start)
    assert one.act("Query: q") == asyncio.run(two.aact("Query: q")) == ANSWER
    assert one.completion == two.completion == said(ANSWER)
    assert one.tokens() is None
