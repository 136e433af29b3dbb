"""The tiny policy: names split alike everywhere, the mask covers what was written, the checkpoint loads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from grepseek_env.actions import get_action_format
from grepseek_env.errors import ConfigError
from grepseek_env.tasks import load_question_set
from grepseek_env.tokens import ChatTokens, TokenContext
from policies.tiny_policy import make_tiny_policy, make_world_tokenizer

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    questions = load_question_set("world:study")[:400]
    format_ = get_action_format("hermes")
    turns = (
        format_.render_action(
            f"Find {q.evidence[0].subject}.", f"rg -F '{q.evidence[0].subject}' corpus.jsonl | head -n 1"
        )
        for q in questions
    )
    return make_world_tokenizer([*(q.question for q in questions), *turns], 640, min_frequency=5)


def test_a_name_is_the_same_tokens_wherever_it_stands(tokenizer: Any) -> None:
    def ids(text: str) -> list[int]:
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])

    name = ids("Bontur Works")
    for text in ("Where is Bontur Works headquartered?", "rg -F 'Bontur Works'", "<answer>Bontur Works</answer>"):
        got = ids(text)
        assert any(got[i : i + len(name)] == name for i in range(len(got))), text


def test_what_every_turn_repeats_is_one_token(tokenizer: Any) -> None:
    for text in ('{"name": "shell", "arguments": {"command": "', "<think>", "</answer>", '"}}'):
        assert len(tokenizer(text, add_special_tokens=False)["input_ids"]) == 1


@settings(max_examples=60, deadline=None)
@given(
    turns=st.lists(st.tuples(st.text(max_size=30), st.text(max_size=30)), min_size=1, max_size=4),
    length=st.integers(0, 400),
)
def test_masked_tokens_decode_to_what_the_policy_wrote(
    tokenizer: Any, turns: list[tuple[str, str]], length: int
) -> None:
    """For any transcript, and any budget cut: the mask holds the sampled tokens and nothing else."""
    tokens = ChatTokens(tokenizer)
    context = TokenContext(tokens)
    context.start([{"role": "system", "content": "."}, {"role": "user", "content": "Query: Who?"}])
    sampled: list[int] = []
    for text, observation in turns:
        own = tokens.assistant(text)
        sampled += own
        context.sampled(own)
        context.observed(observation)
    whole = context.trajectory()
    learnt = [i for i, m in zip(whole.ids, whole.mask, strict=True) if m]
    assert learnt == sampled
    assert tokens.decode(learnt).encode("utf-8", "replace") == "".join(t for t, _ in turns).encode("utf-8", "replace")
    cut = whole.cut(length)
    kept = [i for i, m in zip(cut.ids, cut.mask, strict=True) if m]
    assert kept == sampled[: len(kept)]
    assert len(cut.ids) == len(cut.mask) == min(length, len(whole.ids))


@pytest.mark.slow
def test_the_same_seed_gives_the_same_files_and_they_load(tokenizer: Any, tmp_path: Path) -> None:
    one, two, other = (make_tiny_policy(tmp_path / str(i), tokenizer, seed=i // 2) for i in range(3))
    assert (one / "model.safetensors").read_bytes() == (two / "model.safetensors").read_bytes()
    assert (one / "model.safetensors").read_bytes() != (other / "model.safetensors").read_bytes()
    model = AutoModelForCausalLM.from_pretrained(one)
    assert 3e5 < model.num_parameters() < 1e6
    again = AutoTokenizer.from_pretrained(one)
    ids = again("Query: Who founded Bontur Works?", return_tensors="pt")["input_ids"]
    assert ids.tolist() == [tokenizer("Query: Who founded Bontur Works?")["input_ids"]]
    with torch.no_grad():
        logits = model(input_ids=ids).logits
    assert logits.shape == (1, ids.shape[1], len(again))
    assert torch.isfinite(logits).all()


def test_mistakes_are_named(tokenizer: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="vocab is 100"):
        make_world_tokenizer([], 100)
    with pytest.raises(ConfigError, match="hidden is 100"):
        make_tiny_policy(tmp_path / "x", tokenizer, hidden=100)
    with pytest.raises(ConfigError, match="exists"):
        make_tiny_policy(tmp_path, tokenizer)
