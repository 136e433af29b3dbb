"""`LiveModel`: samples from a model that is being trained, many conversations at once, with one KV cache.

A loop of one forward pass a token, and nothing else: for models so small that the bookkeeping of a general generator
costs more than their arithmetic. All rows of a call go together; a row that has ended leaves the batch.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from grepseek_env.errors import ConfigError
from grepseek_env.tokens import ChatTokens
from policies.chat import ChatModel, Completion, per_conversation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policies.chat import Message, Sampling

__all__ = ["LiveModel"]


@dataclass(slots=True)
class _Row:
    place: int
    prompt: Sequence[int]
    sampling: Sampling
    room: int
    draws: Any
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish: str = ""
    text: str = ""


class LiveModel(ChatModel):
    """A causal language model of transformers, used as it stands: its weights may change between calls.

    Every row has random numbers of its own, so that the same seed draws the same completion whatever else is in the
    batch, as far as rounding allows; the same call gives the same result bit for bit on a CPU.

    Args:
        model: in this process; its `train` or `eval` mode is put back after each call.
        tokenizer: with a prefix-stable chat template.
        name: shown in manifests.

    Raises:
        ConfigError: the chat template cannot be used turn by turn.
    """

    def __init__(self, model: Any, tokenizer: Any, *, name: str = "live") -> None:
        self.name = name
        self.renderer = ChatTokens(tokenizer)
        self.context_tokens = getattr(model.config, "max_position_embeddings", None)
        self._model = model
        self._end = self.renderer.end_token
        # Newer versions of transformers have renamed the argument.
        known = inspect.signature(model.forward).parameters
        self._cache = "cache" if "cache" in known else "past_key_values"
        self._closing: dict[str, frozenset[int]] = {}

    def complete(
        self,
        conversations: Sequence[Sequence[Message]],
        sampling: Sampling | Sequence[Sampling],
        *,
        prompt_ids: Sequence[Sequence[int]] | None = None,
    ) -> list[Completion]:
        """Completes all conversations together.

        Raises:
            ConfigError: a sampling asks for `top_p` or `top_k`, which this sampler does not know.
        """
        samplings = per_conversation(sampling, len(conversations))
        if any(s.top_p < 1 or s.top_k is not None for s in samplings):
            raise ConfigError("top_p or top_k is set; this sampler draws from all tokens: use temperature alone")
        if prompt_ids is None:
            prompt_ids = [self.renderer.opening(c) for c in conversations]
        rows = [
            _Row(place, prompt, own, self._room(len(prompt), own), _draws(own))
            for place, (prompt, own) in enumerate(zip(prompt_ids, samplings, strict=True))
        ]
        if live := [row for row in rows if row.room > 0]:
            self._sample(live)
        return [self._completion(row) for row in rows]

    def _room(self, prompt: int, sampling: Sampling) -> int:
        free = sampling.max_tokens if self.context_tokens is None else self.context_tokens - prompt
        return min(sampling.max_tokens, free)

    def _completion(self, row: _Row) -> Completion:
        length = len(row.prompt)
        if row.room < 1:
            error = f"the prompt has {length} tokens, the model's context {self.context_tokens}"
            return Completion("", "context", prompt_tokens=length, error=error)
        return Completion(
            row.text,
            "stop" if row.finish == "stop" else "length",
            token_ids=tuple(row.ids),
            logprobs=tuple(row.logprobs) if row.sampling.logprobs else None,
            prompt_token_ids=tuple(row.prompt),
            prompt_tokens=length,
            completion_tokens=len(row.ids),
        )

    def _sample(self, rows: list[_Row]) -> None:
        import torch  # noqa: PLC0415

        training = self._model.training
        self._model.eval()
        try:
            with torch.no_grad():
                self._loop(rows)
        finally:
            self._model.train(training)

    def _loop(self, rows: list[_Row]) -> None:
        import torch  # noqa: PLC0415
        from transformers import DynamicCache  # noqa: PLC0415

        device = self._model.device
        longest = max(len(row.prompt) for row in rows)
        ids = torch.tensor([[self._end] * (longest - len(r.prompt)) + list(r.prompt) for r in rows], device=device)
        attention = torch.tensor([[0] * (longest - len(r.prompt)) + [1] * len(r.prompt) for r in rows], device=device)
        positions = (attention.cumsum(-1) - 1).clamp(min=0)
        cache: Any = DynamicCache()
        while True:
            out = self._model(
                input_ids=ids,
                attention_mask=attention,
                position_ids=positions,
                **{self._cache: cache},
                use_cache=True,
                logits_to_keep=1,
            )
            chosen, logprobs = _draw(out.logits[:, -1], rows)
            keep = [
                place
                for place, (row, token, logprob) in enumerate(zip(rows, chosen, logprobs, strict=True))
                if not self._take(row, token, logprob)
            ]
            if not keep:
                return
            if len(keep) < len(rows):
                rows = [rows[i] for i in keep]
                index = torch.tensor(keep, device=device)
                cache.batch_select_indices(index)
                attention, positions = attention[index], positions[index]
            ids = torch.tensor([[row.ids[-1]] for row in rows], device=device)
            attention = torch.cat([attention, attention.new_ones(len(rows), 1)], dim=1)
            positions = positions[:, -1:] + 1

    def _take(self, row: _Row, token: int, logprob: float) -> bool:
        """Takes a sampled token; tells whether the row has ended."""
        row.ids.append(token)
        row.logprobs.append(logprob)
        if token == self._end:
            row.finish, row.text = "stop", self.renderer.decode(row.ids[:-1])
        elif stop := self._stopped(row, token):
            text = self.renderer.decode(row.ids)
            row.finish, row.text = "stop", text[: text.index(stop) + len(stop)]
        elif len(row.ids) >= row.room:
            row.finish, row.text = "length", self.renderer.decode(row.ids)
        return bool(row.finish)

    def _stopped(self, row: _Row, token: int) -> str | None:
        """Returns the stop string that the newest token completed."""
        for stop in row.sampling.stop:
            # Its last character is in the newest token, and it spans no more tokens than it has bytes.
            if token in self._tokens_with(stop[-1]):
                tail = self.renderer.decode(row.ids[-len(stop.encode()) - 1 :])
                if stop in tail:
                    return stop
        return None

    def _tokens_with(self, character: str) -> frozenset[int]:
        if character not in self._closing:
            size = len(self.renderer.tokenizer)
            texts = ((i, self.renderer.decode([i])) for i in range(size))
            # Part of a character decodes to a replacement mark: it may be what was asked for.
            self._closing[character] = frozenset(i for i, text in texts if character in text or "�" in text)
        return self._closing[character]


def _draws(sampling: Sampling) -> Any:
    return np.random.default_rng(sampling.seed).random(sampling.max_tokens)


def _draw(logits: Any, rows: Sequence[_Row]) -> tuple[list[int], list[float]]:
    """Draws a token a row by inverting the cumulative distribution; log-probabilities are the model's own."""
    import torch  # noqa: PLC0415

    logprobs = logits.float().log_softmax(-1)
    temperatures = [row.sampling.temperature for row in rows]
    chosen = logprobs.argmax(-1)
    if any(temperatures):
        scale = torch.tensor([t or 1.0 for t in temperatures], dtype=torch.float64, device=logits.device)
        shares = (logprobs.double() / scale[:, None]).softmax(-1).cumsum(-1)
        at = torch.tensor([row.draws[len(row.ids)] for row in rows], dtype=torch.float64, device=logits.device)
        drawn = (shares <= (at * shares[:, -1])[:, None]).sum(-1).clamp(max=logits.shape[-1] - 1)
        warm = torch.tensor([t > 0 for t in temperatures], device=logits.device)
        chosen = torch.where(warm, drawn, chosen)
    return chosen.tolist(), logprobs.gather(-1, chosen[:, None])[:, 0].tolist()
