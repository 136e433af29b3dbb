"""The executor with OpenRLHF's own loop and an engine that says what it is told."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from grepseek_env.adapters.openrlhf import executor_class, label_of
from grepseek_env.errors import ConfigError, EngineFault, SpawnFailed
from grepseek_env.types import Question
from policies.tiny_model import make_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator

QUESTION = Question("q", "Where?", ("Ulm",))
MAX_LENGTH = 4096


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return make_tokenizer(["Where was it? Ulm. line of word corpus.jsonl"] * 9, 600)


def call(command: str) -> str:
    arguments = json.dumps({"name": "shell", "arguments": {"command": command}})
    return f"<think>a</think>\n<tool_call>{arguments}</tool_call>"


ANSWER = "<think>a</think>\n<answer>Ulm</answer>"
WRONG = "<think>a</think>\n<answer>Bonn</answer>"


class Engine:
    def __init__(self, tokenizer: Any, turns: list[str], *, ends: bool = False) -> None:
        self.tokenizer, self.turns, self.ends = tokenizer, list(turns), ends
        self.asked: list[list[int]] = []
        self.caps: list[int] = []

    async def generate(self, ids: list[int], params: Any, multi_modal_data: Any = None) -> Any:
        assert multi_modal_data is None
        self.asked.append(list(ids))
        self.caps.append(params.max_tokens)
        assert params.include_stop_str_in_output
        assert "</tool_call>" in params.stop
        text = self.turns.pop(0)
        said = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        if self.ends:
            said.append(self.tokenizer.eos_token_id)
        logprobs = [{i: SimpleNamespace(logprob=-1.0)} for i in said]
        output = SimpleNamespace(token_ids=said, text=text, finish_reason="stop", logprobs=logprobs)
        return SimpleNamespace(outputs=[output])


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("GREPSEEK_AGENT_DAEMON", "off")
    monkeypatch.setenv("GREPSEEK_AGENT_MAX_OBSERVATION_TOKENS", "64")
    monkeypatch.setenv("GREPSEEK_AGENT_FAULT_RETRIES", "1")
    monkeypatch.setattr("grepseek_env.adapters.host._FIRST_WAIT", 0.0)
    made = executor_class()()
    yield made
    made.close()


def params() -> Any:
    from vllm import SamplingParams

    return SamplingParams(max_tokens=None, logprobs=1, skip_special_tokens=False)


def play(executor: Any, tokenizer: Any, *engines: Engine, max_length: int = MAX_LENGTH) -> list[dict[str, Any]]:
    async def all_of_them() -> list[dict[str, Any]]:
        shared = params()
        label = label_of(QUESTION)
        return await asyncio.gather(
            *(executor.execute("Where?", label, shared, max_length, tokenizer, engine) for engine in engines)
        )

    return asyncio.run(all_of_them())


@pytest.mark.parametrize("ends", [False, True])
def test_ids_equal_the_full_template(executor: Any, tokenizer: Any, ends: bool) -> None:
    engine = Engine(tokenizer, [call("rg -c Ulm corpus.jsonl"), ANSWER], ends=ends)
    [response] = play(executor, tokenizer, engine)
    assert response["reward"] == pytest.approx(1.1)
    rules = executor.host(tokenizer).rules
    observation = rules.action_format.render_observation
    record_text = tokenizer.decode(response["observation_tokens"])
    assert observation("") not in record_text
    [first, second] = response["action_ranges"]
    chat = [
        {"role": "system", "content": rules.system_prompt},
        {"role": "user", "content": "Query: Where?"},
        {"role": "assistant", "content": call("rg -c Ulm corpus.jsonl")},
    ]
    opening = tokenizer.apply_chat_template(chat[:2], tokenize=False, add_generation_prompt=True)
    assert response["observation_tokens"][: first[0]] == tokenizer(opening, add_special_tokens=False)["input_ids"]
    between = tokenizer.decode(response["observation_tokens"][first[1] : second[0]])
    seen = between.partition("<tool_response>")[2].partition("</tool_response>")[0]
    chat.append({"role": "user", "content": f"<tool_response>{seen}</tool_response>"})
    whole = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert engine.asked[1] == tokenizer(whole, add_special_tokens=False)["input_ids"]
    assert response["extra_logs"]["commands"] == 1
    assert not response["truncated"]


def test_a_turn_is_capped_and_so_is_the_episode(executor: Any, tokenizer: Any) -> None:
    executor.options = executor.options.__class__(daemon="off", turn_tokens=50)
    engine = Engine(tokenizer, ["no action"] * 6)
    [response] = play(executor, tokenizer, engine)
    assert set(engine.caps) == {50}
    assert (response["reward"], response["truncated"]) == (0.0, True)
    assert (response["extra_logs"]["malformed"], response["extra_logs"]["turns"]) == (6, 6)
    opening = response["action_ranges"][0][0]
    short = Engine(tokenizer, ["no action"] * 6)
    [cut] = play(executor, tokenizer, short, max_length=opening + 60)
    assert cut["extra_logs"]["budget"] == 1
    assert (cut["reward"], cut["truncated"]) == (0.0, True)
    assert len(cut["observation_tokens"]) <= opening + 60


def test_a_prompt_without_room_is_refused(executor: Any, tokenizer: Any) -> None:
    with pytest.raises(ConfigError, match=r"--data\.max_len is 100"):
        play(executor, tokenizer, Engine(tokenizer, []), max_length=100)


def fail_on(executor: Any, tokenizer: Any, word: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    host = executor.host(tokenizer)
    backend = host._opened()
    run, tried = backend.run, []

    def failing(command: str, **options: Any) -> Any:
        tried.append(command)
        if word in command:
            raise SpawnFailed("no process could be started")
        return run(command, **options)

    monkeypatch.setattr(backend, "run", failing)
    monkeypatch.setattr(host, "_drop", lambda _backend: None)
    return tried


def test_a_fault_gets_the_mean_of_its_group(executor: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = fail_on(executor, tokenizer, "broken", monkeypatch)
    engines = [
        Engine(tokenizer, [call("rg broken corpus.jsonl"), ANSWER]),
        Engine(tokenizer, [call("rg -c Ulm corpus.jsonl"), ANSWER]),
        Engine(tokenizer, [WRONG]),
    ]
    fault, right, wrong = play(executor, tokenizer, *engines)
    assert tried.count("rg broken corpus.jsonl") == 2  # once more, then it counts as a fault
    assert [r["extra_logs"]["fault"] for r in (fault, right, wrong)] == [1, 0, 0]
    assert (right["reward"], wrong["reward"]) == (pytest.approx(1.1), pytest.approx(0.1))
    assert fault["reward"] == pytest.approx((right["reward"] + wrong["reward"]) / 2)
    assert fault["extra_logs"]["f1"] == pytest.approx(0.5)
    assert not executor._groups


def test_a_group_of_faults_ends_training(executor: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_on(executor, tokenizer, "broken", monkeypatch)
    engines = [Engine(tokenizer, [call("rg broken corpus.jsonl")]) for _ in range(2)]
    with pytest.raises(EngineFault, match="no process could be started"):
        play(executor, tokenizer, *engines)
    assert not executor._groups


def test_a_label_that_is_none_is_explained(executor: Any, tokenizer: Any) -> None:
    with pytest.raises(ConfigError, match=r"--data\.label_key label"):
        asyncio.run(executor.execute("Where?", "Ulm", params(), MAX_LENGTH, tokenizer, Engine(tokenizer, [])))
