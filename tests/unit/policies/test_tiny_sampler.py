"""Sampling from a live model: the trainer's own probabilities, seeds of one's own, stop strings and limits."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import torch

from algos.batches import Sample, collate, forward_tokens
from algos.training import load_policy
from grepseek_env.errors import ConfigError
from policies.chat import Sampling
from policies.tiny_sampler import LiveModel
from tests.support import tiny_training

if TYPE_CHECKING:
    from policies.chat import Completion

PROMPTS = ["Where was Ann born?", "Who?", "Query: corpus.jsonl and a longer one", "rg"]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    model, tokenizer, _ = load_policy(tiny_training.model(tmp_path_factory.mktemp("s") / "model"), device="cpu")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4)  # random weights are otherwise almost indifferent between tokens
    return model, tokenizer


@pytest.fixture(scope="module")
def live(loaded: tuple[Any, Any]) -> LiveModel:
    return LiveModel(*loaded)


def sample(live: LiveModel, prompts: list[str], **options: Any) -> list[Completion]:
    chats = [[{"role": "user", "content": p}] for p in prompts]
    return live.complete(chats, [Sampling(**{"seed": i, "logprobs": True, **options}) for i in range(len(chats))])


def test_log_probabilities_are_those_of_the_trainer(loaded: tuple[Any, Any], live: LiveModel) -> None:
    """Rows of different lengths, left padding and rows that end early do not change what the model thinks."""
    done = sample(live, PROMPTS, max_tokens=24, temperature=0.7)
    rows = [
        Sample((*c.prompt_token_ids, *c.token_ids), (*[False] * len(c.prompt_token_ids), *[True] * len(c.token_ids)))
        for c in done
    ]
    with torch.no_grad():
        logprobs, _ = forward_tokens(loaded[0], collate(rows, pad=0))
    assert torch.allclose(logprobs, torch.tensor([p for c in done for p in c.logprobs]), atol=1e-4)


def test_greedy_takes_the_most_likely_token_every_time(loaded: tuple[Any, Any], live: LiveModel) -> None:
    for completion in sample(live, PROMPTS, max_tokens=12, temperature=0.0):
        ids = torch.tensor([[*completion.prompt_token_ids, *completion.token_ids]])
        with torch.no_grad():
            best = loaded[0](input_ids=ids).logits[0].argmax(-1)[len(completion.prompt_token_ids) - 1 : -1]
        assert tuple(best.tolist()) == completion.token_ids


def test_a_row_depends_on_its_own_seed_alone(live: LiveModel) -> None:
    together = sample(live, PROMPTS, max_tokens=16)
    alone = [sample(live, [p], max_tokens=16, seed=i)[0] for i, p in enumerate(PROMPTS)]
    assert [c.token_ids for c in together] == [c.token_ids for c in alone]
    again = sample(live, PROMPTS, max_tokens=16)
    assert together == again
    assert sample(live, PROMPTS, max_tokens=16, seed=99) != together


@pytest.mark.slow
def test_tokens_are_drawn_as_often_as_they_are_likely(loaded: tuple[Any, Any], live: LiveModel) -> None:
    count = 3000
    [ids] = {c.prompt_token_ids for c in sample(live, ["Who?"], max_tokens=1)}
    drawn = Counter(c.token_ids[0] for c in sample(live, ["Who?"] * count, max_tokens=1, temperature=1.0))
    with torch.no_grad():
        likely = loaded[0](input_ids=torch.tensor([ids])).logits[0, -1].softmax(-1)
    for token in likely.topk(3).indices.tolist():
        share = float(likely[token])
        assert abs(drawn[token] / count - share) < 5 * (share * (1 - share) / count) ** 0.5


def test_a_stop_string_ends_the_text_even_inside_a_token(live: LiveModel) -> None:
    [free] = sample(live, ["Who?"], max_tokens=40, temperature=0.0)
    middle = free.text[5:7]
    assert middle
    [stopped] = sample(live, ["Who?"], max_tokens=40, temperature=0.0, stop=(middle,))
    assert stopped.text == free.text[: free.text.index(middle) + len(middle)]
    assert stopped.finish_reason == "stop"
    assert stopped.token_ids == free.token_ids[: len(stopped.token_ids)]
    assert len(stopped.token_ids) < len(free.token_ids)


def test_limits(live: LiveModel) -> None:
    [cut] = sample(live, ["Who?"], max_tokens=3, temperature=0.0)
    assert (cut.finish_reason, cut.completion_tokens) == ("length", 3)
    context = live.context_tokens
    full, other = live.complete([[], []], Sampling(max_tokens=5, seed=0), prompt_ids=[[7] * context, [7, 8]])
    assert full.finish_reason == "context"
    assert str(context) in (full.error or "")
    assert other.completion_tokens
    with pytest.raises(ConfigError, match="top_p or top_k"):
        sample(live, ["Who?"], top_p=0.9)


def test_the_mode_of_the_model_is_put_back(loaded: tuple[Any, Any], live: LiveModel) -> None:
    loaded[0].train()
    sample(live, ["Who?"], max_tokens=2)
    assert loaded[0].training
