"""Episodes as rows to learn from: what a sample is, how samples are put side by side, and which go together."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from algos.losses import logprobs_and_entropy
from grepseek_env.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from grepseek_env.tokens import TokenTrajectory

__all__ = ["Batch", "Sample", "bucketed", "collate", "forward_tokens", "micro_batches"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One episode.

    Attributes:
        ids: all its tokens.
        mask: whether the policy wrote a token; the first token is never learnt, nothing stands before it.
        advantage: of all its policy tokens.
        logprobs: one a token, as sampled; None where they are not known.
    """

    ids: tuple[int, ...]
    mask: tuple[bool, ...]
    advantage: float = 0.0
    logprobs: tuple[float, ...] | None = None

    @classmethod
    def of(cls, tokens: TokenTrajectory, *, advantage: float = 0.0, most: int | None = None) -> Sample:
        """Makes a sample of an episode's tokens, cut after `most` of them."""
        tokens = tokens if most is None else tokens.cut(most)
        return cls(tokens.ids, tokens.mask, advantage, tokens.logprobs)

    @property
    def learnt(self) -> int:
        """How many tokens are learnt."""
        return sum(self.mask[1:])


@dataclass(frozen=True, slots=True)
class Batch:
    """Samples side by side, padded on the right.

    Attributes:
        ids: [rows, length], padding included.
        attention: [rows, length], 1 for tokens, 0 for padding.
        learnt: [rows, length - 1], True where the next token is learnt.
        targets: [tokens], the ids of learnt tokens, row by row.
        rows: [tokens], the row of each.
        old: [tokens], their log-probabilities as sampled; None where a sample has none.
    """

    ids: Tensor
    attention: Tensor
    learnt: Tensor
    targets: Tensor
    rows: Tensor
    old: Tensor | None


def collate(samples: Sequence[Sample], *, pad: int, device: Any = "cpu") -> Batch:
    """Puts samples side by side.

    Args:
        samples: at least one.
        pad: token id of padding.
        device: where the tensors are to be.
    """
    import torch  # noqa: PLC0415

    length = max(len(s.ids) for s in samples)
    ids = torch.tensor([[*s.ids, *[pad] * (length - len(s.ids))] for s in samples])
    attention = torch.tensor([[1] * len(s.ids) + [0] * (length - len(s.ids)) for s in samples])
    mask = torch.tensor([[*s.mask, *[False] * (length - len(s.mask))] for s in samples])
    learnt = mask[:, 1:]
    old = None
    if all(s.logprobs is not None for s in samples):
        logprobs = torch.tensor([[*(s.logprobs or ()), *[0.0] * (length - len(s.ids))] for s in samples])
        old = logprobs[:, 1:][learnt].to(device)
    return Batch(
        ids.to(device),
        attention.to(device),
        learnt.to(device),
        ids[:, 1:][learnt].to(device),
        learnt.nonzero()[:, 0].to(device),
        old,
    )


def forward_tokens(model: Any, batch: Batch) -> tuple[Tensor, Tensor]:
    """Returns log-probability and entropy of every learnt token, two tensors [tokens].

    Only learnt positions get past the softmax, so nothing outside the mask can have a gradient.
    """
    logits = model(input_ids=batch.ids, attention_mask=batch.attention, use_cache=False).logits
    return logprobs_and_entropy(logits[:, :-1][batch.learnt], batch.targets)


def micro_batches(lengths: Sequence[int], most_tokens: int) -> list[list[int]]:
    """Splits rows into micro-batches of at most `most_tokens` tokens, padding included.

    Rows of like length go together; a row that is longer by itself goes alone.

    Returns:
        Places in `lengths`, every one in exactly one micro-batch.

    Raises:
        ConfigError: `most_tokens` is below 1.
    """
    if most_tokens < 1:
        raise ConfigError(f"micro_tokens is {most_tokens}; it must be at least 1")
    out: list[list[int]] = []
    for place in sorted(range(len(lengths)), key=lambda i: (lengths[i], i)):
        if out and (len(out[-1]) + 1) * lengths[place] <= most_tokens:
            out[-1].append(place)
        else:
            out.append([place])
    return out


def bucketed(lengths: Sequence[int], size: int, seed: str, *, window: int = 8) -> list[list[int]]:
    """Returns an epoch's batches in random order, each of rows of like length.

    Rows are shuffled, sorted by length within windows of `window` batches, and cut; the same seed gives the same.

    Args:
        lengths: of the rows.
        size: rows a batch; the last of a window may have fewer.
        seed: any text, such as the run's seed and the epoch.
        window: batches that are sorted together.
    """
    draw = random.Random(seed)  # noqa: S311 - a reproducible order
    order = list(range(len(lengths)))
    draw.shuffle(order)
    out: list[list[int]] = []
    for at in range(0, len(order), size * window):
        near = sorted(order[at : at + size * window], key=lambda i: lengths[i])
        out += [near[i : i + size] for i in range(0, len(near), size)]
    draw.shuffle(out)
    return out
