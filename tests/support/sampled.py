"""Checks that what a model sampled, its text, its log-probabilities and the masks of an episode agree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from algos.rollout_play import Job, play
from grepseek_env.backend import open_backend
from grepseek_env.env import make_rules
from grepseek_env.tasks import load_question_set
from policies.chat import ChatModel, Completion

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from grepseek_env.tokens import ChatTokens
    from grepseek_env.trajectory import Trajectory
    from grepseek_env.types import Question
    from policies.chat import Message, Sampling
    from policies.chat_policy import ChatPolicy

__all__ = ["CHATS", "STOP", "Listening", "check_completion", "check_episode", "play_episodes", "recomputed"]

# Prompts of several lengths, and stop strings so short that a model with random weights meets them, inside tokens too.
CHATS = [[{"role": "user", "content": "Who was born in Ulm? " * n}] for n in (1, 4, 2, 9, 1)]
STOP = ("e", "an")


class Listening(ChatModel):
    """Passes requests on to a model and keeps what it returned."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model
        self.name, self.renderer, self.context_tokens = model.name, model.renderer, model.context_tokens
        self.heard: list[Completion] = []

    def complete(
        self,
        conversations: Sequence[Sequence[Message]],
        sampling: Sampling | Sequence[Sampling],
        *,
        prompt_ids: Sequence[Sequence[int]] | None = None,
    ) -> list[Completion]:
        done = self._model.complete(conversations, sampling, prompt_ids=prompt_ids)
        self.heard += done
        return done


def play_episodes(policy: ChatPolicy, questions: int | Sequence[Question], **rules: Any) -> list[Trajectory]:
    """Plays questions of the tiny world: the first ones, or those given."""
    made = make_rules(**rules)
    every = load_question_set("world:tiny")
    asked = [every[i] for i in range(questions)] if isinstance(questions, int) else questions
    with open_backend("world:tiny") as backend:

        def run(pending: Any) -> Any:
            bounds = {"timeout": pending.timeout, "max_output_bytes": pending.max_output_bytes}
            return backend.run_many([pending.command], **bounds)[0]

        return [play(made, policy, Job(question), run) for question in asked]


def check_completion(tokens: ChatTokens, completion: Completion, stop: Sequence[str]) -> None:
    """Compares text and ids: equal, but for what a stop string cut off inside the last token."""
    ids = completion.token_ids
    assert ids
    assert completion.completion_tokens == len(ids)
    assert completion.logprobs is None or len(completion.logprobs) == len(ids)
    ended = ids[-1] == tokens.end_token
    decoded = tokens.decode(ids)
    met = [s for s in stop if s in completion.text]
    if met and not ended:
        assert completion.finish_reason == "stop"
        assert decoded.startswith(completion.text)
        assert any(completion.text.endswith(s) for s in met)
        assert not any(s in tokens.decode(ids[:-1]) for s in stop)
    else:
        assert decoded == completion.text
        assert (completion.finish_reason == "stop") == (ended or bool(met) or _other_end(tokens, ids))


def _other_end(tokens: ChatTokens, ids: Sequence[int]) -> bool:
    return ids[-1] == tokens.tokenizer.pad_token_id


def check_episode(tokens: ChatTokens, record: Trajectory, heard: Sequence[Completion]) -> None:
    """Compares a record, its token view and the completions it was made of."""
    assert record.reward_valid
    assert record.finish_reason in {"answer", "turn_limit", "budget"}
    assert len(heard) == len(record.turns) > 0
    view = tokens.trajectory(record)
    assert len(view.ids) == len(view.mask) == len(view.logprobs or ())
    sampled = [i for c in heard for i in c.token_ids or ()]
    assert [i for i, m in zip(view.ids, view.mask, strict=True) if m] == sampled
    assert [p for p, m in zip(view.logprobs or (), view.mask, strict=True) if m] == [
        p for c in heard for p in c.logprobs or ()
    ]
    turns = [s for s in view.spans if s.writer == "policy"]
    for turn, completion, span in zip(record.turns, heard, turns, strict=True):
        assert turn.token_ids == completion.token_ids
        assert turn.text == completion.text
        assert turn.finish_reason == completion.finish_reason
        # Each turn was sampled after exactly the tokens that the view shows before it.
        assert completion.prompt_token_ids == view.ids[: span.start]


def recomputed(folder: Path, completion: Completion) -> list[float]:
    """Returns the log-probabilities of a completion by one pass of the model over prompt and completion."""
    torch = pytest.importorskip("torch")
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder)
    prompt, ids = completion.prompt_token_ids or (), completion.token_ids or ()
    with torch.inference_mode():
        logits = model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1]
    values = logits.log_softmax(-1).gather(1, torch.tensor(ids)[:, None])[:, 0]
    return [float(v) for v in values]
