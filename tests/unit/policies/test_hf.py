from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from grepseek_env.actions import get_action_format
from grepseek_env.errors import ConfigError
from grepseek_env.tokens import ChatTokens
from policies.budgets import Budget
from policies.chat import ModelError, Sampling, make_model
from policies.chat_policy import ChatPolicy
from policies.hf import HFModel
from tests.support.sampled import CHATS, STOP, Listening, check_completion, check_episode, play_episodes, recomputed
from tests.support.tiny_model import RULES, Taught, taught_model, tiny_model  # noqa: F401 - fixtures

if TYPE_CHECKING:
    from pathlib import Path

S = Sampling(max_tokens=12, seed=3, logprobs=True, stop=STOP)


@pytest.fixture(scope="module")
def model(tiny_model: Path) -> HFModel:  # noqa: F811
    return HFModel(str(tiny_model), device="cpu")


def test_text_ids_logprobs_and_stop_strings_agree(model: HFModel, tiny_model: Path) -> None:  # noqa: F811
    done = model.complete(CHATS * 3, S)
    assert {c.finish_reason for c in done} >= {"stop"}
    assert any(model.renderer.decode(c.token_ids or ()) != c.text for c in done)  # a stop string inside a token
    for completion in done:
        check_completion(model.renderer, completion, S.stop)
        assert completion.logprobs == pytest.approx(recomputed(tiny_model, completion), abs=1e-4)


def test_a_row_is_the_same_alone_and_in_a_batch(model: HFModel) -> None:
    samplings = [replace(S, seed=i, temperature=t) for i, t in enumerate((1.0, 0.7, 0.0, 2.0, 1.0))]
    together = model.complete(CHATS, samplings)
    for chat, sampling, completion in zip(CHATS, samplings, together, strict=True):
        [alone] = model.complete([chat], sampling)
        assert (alone.text, alone.token_ids) == (completion.text, completion.token_ids)
        assert alone.prompt_token_ids == completion.prompt_token_ids


def test_batches_are_cut_by_size_and_keep_their_order(model: HFModel, tiny_model: Path) -> None:  # noqa: F811
    small = HFModel(str(tiny_model), device="cpu", batch_size=2)
    texts = [c.text for c in small.complete(CHATS, S)]
    assert texts == [c.text for c in model.complete(CHATS, S)]


def test_seeds_decide(model: HFModel) -> None:
    def draw(**changes: Any) -> str:
        return model.complete(CHATS[:1], replace(S, stop=(), **changes))[0].text

    assert draw() == draw()
    assert draw(seed=4) != draw()
    assert draw(temperature=0.0) == draw(temperature=0.0, seed=9)
    assert draw(top_k=1, seed=5) == draw(temperature=0.0)
    assert draw(top_p=1e-9, seed=5) == draw(temperature=0.0)
    same = model.complete(CHATS[:1] * 3, S)
    assert len({c.text for c in same}) == 3


def test_draws_follow_the_model(model: HFModel) -> None:
    # The first token of many draws: the share of the likeliest is its probability, within five standard errors.
    one = replace(S, max_tokens=1, stop=())
    [greedy] = model.complete(CHATS[:1], replace(one, temperature=0.0))
    count = 200
    done = model.complete(CHATS[:1] * count, replace(one, temperature=0.25))
    hits = [c for c in done if c.token_ids == greedy.token_ids]
    import torch

    with torch.inference_mode():
        logits = model._model(torch.tensor([greedy.prompt_token_ids])).logits[0, -1]
    p = float(torch.softmax(logits / 0.25, -1)[greedy.token_ids])
    assert abs(len(hits) / count - p) < 5 * (p * (1 - p) / count) ** 0.5
    assert {c.logprobs for c in hits} == {greedy.logprobs} or hits[0].logprobs == pytest.approx(
        greedy.logprobs, abs=1e-4
    )


def test_a_context_that_is_full(tiny_model: Path) -> None:  # noqa: F811
    with make_model(f"hf:{tiny_model}", device="cpu", context_tokens=60) as model:
        short, long = model.complete([CHATS[0], CHATS[3]], replace(S, max_tokens=500, stop=()))
        assert long.finish_reason == "context"
        assert "60" in (long.error or "")
        assert (short.prompt_tokens or 0) + (short.completion_tokens or 0) <= 60
    with pytest.raises(ModelError, match="was closed"):
        model.complete(CHATS[:1], S)


@pytest.mark.parametrize("action_format", ["hermes", "plain"])
def test_an_episode_from_end_to_end(model: HFModel, action_format: str) -> None:
    listening = Listening(model)
    sampling = Sampling(max_tokens=8, logprobs=True)
    policy = ChatPolicy(listening, sampling)
    for record in play_episodes(policy, 2, action_format=action_format, max_turns=3):
        turns, listening.heard = listening.heard[: len(record.turns)], listening.heard[len(record.turns) :]
        check_episode(model.renderer, record, turns)
        for completion in turns:
            check_completion(model.renderer, completion, ())
    assert not listening.heard


@pytest.mark.slow
def test_a_model_that_has_learnt_an_episode_plays_it(taught_model: Taught) -> None:  # noqa: F811
    listening = Listening(HFModel(str(taught_model.folder), device="cpu"))
    policy = ChatPolicy(listening, Sampling(temperature=0.0, logprobs=True))
    [record] = play_episodes(policy, [taught_model.question], **RULES)
    check_episode(listening.renderer, record, listening.heard)
    assert [t.text for t in record.turns] == [t.text for t in taught_model.record.turns]
    assert [t.observation for t in record.turns] == [t.observation for t in taught_model.record.turns]
    assert (record.finish_reason, record.reward) == ("answer", pytest.approx(1.1))
    stop = get_action_format("hermes").stop_strings
    for completion in listening.heard:
        check_completion(listening.renderer, completion, stop)
        assert completion.text.endswith(stop)
        assert completion.token_ids[-1] != listening.renderer.end_token  # it was stopped, it did not stop


def test_the_same_episodes_again_and_asynchronously(model: HFModel) -> None:
    policy = ChatPolicy(model, Sampling(max_tokens=8))
    first = [r.to_json() for r in play_episodes(policy, 2, max_turns=2)]
    assert first == [r.to_json() for r in play_episodes(policy, 2, max_turns=2)]

    async def several() -> list[str]:
        done = await asyncio.gather(*(model.acomplete(chat, replace(S, seed=3 + i)) for i, chat in enumerate(CHATS)))
        return [c.text for c in done]

    assert asyncio.run(several()) == [c.text for c in model.complete(CHATS, S)]


def test_budgets_end_an_episode_as_truncated(model: HFModel) -> None:
    policy = ChatPolicy(model, Sampling(max_tokens=8), budget=Budget(episode_tokens=20, least_tokens=4))
    for record in play_episodes(policy, 2):
        assert record.finish_reason == "budget"
        assert record.reward_valid
        assert 16 < sum(len(t.token_ids or ()) for t in record.turns) <= 20
    start = len(model.renderer.trajectory(record).ids)
    cramped = ChatPolicy(model, Sampling(max_tokens=20), budget=Budget(context_tokens=start + 10))
    record = play_episodes(cramped, 1)[0]
    assert record.finish_reason == "budget"
    assert len(model.renderer.trajectory(record).ids) <= start + 10


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")  # peft asks transformers for it
def test_a_lora_adapter(tiny_model: Path, tmp_path: Path) -> None:  # noqa: F811
    peft = pytest.importorskip("peft")
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(tiny_model)
    config = peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False, task_type="CAUSAL_LM")
    peft.get_peft_model(base, config).save_pretrained(tmp_path)
    file = tmp_path / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"base_model_name_or_path": str(tiny_model)}))
    greedy = replace(S, temperature=0.0, stop=())
    plain = HFModel(str(tiny_model), device="cpu").complete(CHATS[:2], greedy)
    adapted = HFModel(str(tmp_path), device="cpu").complete(CHATS[:2], greedy)
    given = HFModel(str(tiny_model), adapter=str(tmp_path), device="cpu").complete(CHATS[:2], greedy)
    assert [c.logprobs for c in given] == [c.logprobs for c in adapted]
    assert [c.logprobs for c in plain] != [c.logprobs for c in adapted]


def test_templates(tiny_model: Path, tmp_path: Path) -> None:  # noqa: F811
    import shutil

    shutil.copytree(tiny_model, tmp_path / "m")
    template = tmp_path / "m" / "chat_template.jinja"
    strips = template.read_text().replace("message['content'] +", "message['content'].split('</think>')[-1] +")
    template.write_text(strips)
    with pytest.raises(ConfigError, match=r"not prefix-stable.*chat_template='chatml'"):
        HFModel(str(tmp_path / "m"), device="cpu")
    assert HFModel(str(tmp_path / "m"), device="cpu", token_prompts=False).renderer is None
    assert isinstance(HFModel(str(tmp_path / "m"), device="cpu", chat_template="chatml").renderer, ChatTokens)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "floaty"}, "dtype is 'floaty'"),
        ({"device": "toaster"}, "no model can be loaded"),
        ({"batch_size": 0}, "at least 1"),
    ],
)
def test_options_that_cannot_work(tiny_model: Path, options: dict[str, Any], message: str) -> None:  # noqa: F811
    with pytest.raises(ConfigError, match=message):
        HFModel(str(tiny_model), **options)


def test_no_model_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give the folder of a saved checkpoint"):
        HFModel(str(tmp_path))
