"""Samples side by side: masks, padding, micro-batches; nothing outside the mask has a gradient."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from algos.batches import Sample, bucketed, collate, forward_tokens, micro_batches
from algos.losses import sequence_weights
from grepseek_env.errors import ConfigError


class Table(torch.nn.Module):
    """A bigram model: the logits of the next token are a row of a table, so that gradients can be read off."""

    def __init__(self, vocab: int = 7) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(vocab, vocab, generator=torch.Generator().manual_seed(0)))

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, *, use_cache: bool) -> Any:
        assert not use_cache
        assert attention_mask.shape == input_ids.shape
        return SimpleNamespace(logits=self.table[input_ids])


def sample(*tokens: tuple[int, bool]) -> Sample:
    return Sample(tuple(t for t, _ in tokens), tuple(m for _, m in tokens), logprobs=tuple(-0.5 * m for _, m in tokens))


A = sample((1, False), (2, True), (3, False), (4, True), (5, True))
B = sample((6, True), (5, False), (1, True))


def test_collate_by_hand() -> None:
    batch = collate([A, B], pad=0)
    assert batch.ids.tolist() == [[1, 2, 3, 4, 5], [6, 5, 1, 0, 0]]
    assert batch.attention.tolist() == [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]
    assert batch.targets.tolist() == [2, 4, 5, 1]  # the first token of B is never learnt: nothing stands before it
    assert batch.rows.tolist() == [0, 0, 0, 1]
    assert batch.old is not None
    assert batch.old.tolist() == [-0.5] * 4
    assert [A.learnt, B.learnt] == [3, 1]


def test_log_probabilities_are_those_of_the_next_token() -> None:
    model = Table()
    logprobs, entropy = forward_tokens(model, collate([A, B], pad=0))
    rows = torch.log_softmax(model.table, -1)
    wanted = torch.stack([rows[1, 2], rows[3, 4], rows[4, 5], rows[5, 1]])
    assert torch.allclose(logprobs, wanted)
    assert torch.allclose(entropy[0], -(rows[1].exp() * rows[1]).sum())


def test_the_gradient_outside_the_mask_is_zero() -> None:
    """Learnt positions follow tokens 1, 3, 4 and 5; the rows of 2 and 6 stay as they are."""
    model = Table()
    logprobs, _ = forward_tokens(model, collate([A, B], pad=0))
    logprobs.sum().backward()
    grad = model.table.grad
    assert grad is not None
    moved = [i for i in range(7) if grad[i].abs().max() > 0]
    assert moved == [1, 3, 4, 5]


def test_the_gradient_of_the_supervised_loss_is_softmax_minus_one_hot() -> None:
    model = Table()
    weights = sequence_weights([A.learnt, B.learnt])
    logprobs, _ = forward_tokens(model, batch := collate([A, B], pad=0))
    (-(logprobs * torch.tensor(weights)[batch.rows]).sum()).backward()
    wanted = torch.zeros(7, 7)
    for before, after in ((1, 2), (3, 4), (4, 5), (5, 1)):
        wanted[before] += torch.softmax(model.table[before].detach(), -1) / 4
        wanted[before, after] -= 1 / 4
    assert torch.allclose(model.table.grad, wanted, atol=1e-6)


@pytest.mark.parametrize("aggregation", ["token", "sequence", "constant"])
def test_micro_batches_add_up_to_the_whole_batch(aggregation: str) -> None:
    draw = random.Random(3)
    rows = [sample(*((draw.randrange(7), draw.random() < 0.5) for _ in range(draw.randint(2, 9)))) for _ in range(12)]
    weights = sequence_weights([s.learnt for s in rows], aggregation, most_tokens=9)
    grads = []
    for most in (10**6, 20, 1):
        model = Table().double()
        for part in micro_batches([len(s.ids) for s in rows], most):
            batch = collate([rows[i] for i in part], pad=0)
            logits = model.table[batch.ids][:, :-1][batch.learnt]
            chosen = logits.log_softmax(-1).gather(-1, batch.targets[:, None])[:, 0]
            (chosen * torch.tensor([weights[i] for i in part]).double()[batch.rows]).sum().backward()
        grads.append(model.table.grad)
    assert torch.allclose(grads[0], grads[1])
    assert torch.allclose(grads[0], grads[2])


@given(st.lists(st.integers(1, 50), max_size=30), st.integers(1, 200))
def test_micro_batches_hold_every_row_once_within_bounds(lengths: list[int], most: int) -> None:
    parts = micro_batches(lengths, most)
    assert sorted(i for part in parts for i in part) == list(range(len(lengths)))
    assert all(len(part) == 1 or len(part) * max(lengths[i] for i in part) <= most for part in parts)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.integers(1, 9))
def test_an_epoch_holds_every_row_once_and_is_the_same_for_the_same_seed(lengths: list[int], size: int) -> None:
    batches = bucketed(lengths, size, "0/1", window=3)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    assert max(map(len, batches)) <= size
    assert batches == bucketed(lengths, size, "0/1", window=3)


def test_another_epoch_has_another_order() -> None:
    assert bucketed([1] * 40, 4, "0/0") != bucketed([1] * 40, 4, "0/1")


def test_micro_tokens_must_be_positive() -> None:
    with pytest.raises(ConfigError, match="micro_tokens is 0"):
        micro_batches([1], 0)
