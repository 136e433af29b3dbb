"""The updates of a GRPO step: from groups of rollouts to new weights."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from algos.batches import Sample, collate, forward_tokens, micro_batches
from algos.grpo_metrics import group_metrics, mean
from algos.losses import group_advantages, kl_to_reference, policy_terms, sequence_weights
from algos.training import autocast, optimizer_step
from grepseek_env.tokens import ChatTokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from algos.grpo import Args
    from algos.rollout import Group

__all__ = ["Updater"]


class Updater:
    """Learns from groups.

    Args:
        args: of the run.
        model: that is trained.
        tokenizer: of the model; its chat template renders episodes as they were sampled.
        optimizer: of the model.
        device: the model's.
        reference: a model that `args.kl` keeps near; None without.
    """

    def __init__(
        self, args: Args, model: Any, tokenizer: Any, optimizer: Any, device: Any, reference: Any = None
    ) -> None:
        self._args = args
        self._model = model
        self._optimizer = optimizer
        self._device = device
        self._reference = reference
        self._tokens = ChatTokens(tokenizer)
        pad = tokenizer.pad_token_id
        self._pad = self._tokens.end_token if pad is None else int(pad)

    def update(self, groups: Sequence[Group], rate: float) -> dict[str, float]:
        """Takes a step's updates and returns its metrics.

        Rollouts with `reward_valid` false are left out before anything is compared.
        """
        args = self._args
        rows = [[Sample.of(self._tokens.trajectory(t)) for t in group.valid] for group in groups]
        advantages = group_advantages(
            [group.rewards for group in groups], args.advantage, lengths=[[s.learnt for s in row] for row in rows]
        )
        metrics = group_metrics(groups, advantages)
        everything = [s for row in rows for s in row]
        metrics["episode_tokens"] = mean(len(s.ids) for s in everything)
        batch = [
            [replace(s, advantage=a) for s, a in zip(row, values, strict=True) if s.learnt]
            for row, values, flat in zip(rows, advantages.values, advantages.flat, strict=True)
            if not (flat and args.filter_flat)
        ]
        batch = [row for row in batch if row]
        tally = _Tally()
        if args.old_logprobs == "trainer":
            batch = [self._recomputed(row, tally) for row in batch]
        for _ in range(args.epochs):
            for at in range(0, len(batch), args.mini_batch):
                self._mini_batch([s for row in batch[at : at + args.mini_batch] for s in row], rate, tally)
        return {**metrics, **tally.metrics(), "learning_rate": rate}

    def _recomputed(self, row: list[Sample], tally: _Tally) -> list[Sample]:
        """Returns a group with log-probabilities of the trainer in place of the sampler's."""
        import torch  # noqa: PLC0415

        found = list(row)
        for part in micro_batches([len(s.ids) for s in row], self._args.micro_tokens):
            batch = collate([row[i] for i in part], pad=self._pad, device=self._device)
            with torch.no_grad(), autocast(self._device, bf16=self._args.bf16):
                logprobs, _ = forward_tokens(self._model, batch)
            tally.mismatch(logprobs, batch.old)
            values = iter(logprobs.tolist())
            for i in part:
                learnt = enumerate(row[i].mask)
                found[i] = replace(row[i], logprobs=tuple(next(values) if m and at else 0.0 for at, m in learnt))
        return found

    def _mini_batch(self, rows: list[Sample], rate: float, tally: _Tally) -> None:
        args = self._args
        if not (args.kl or args.entropy or any(s.advantage for s in rows)):
            return  # no gradient: a step would only repeat what the optimiser remembers of earlier ones
        weights = sequence_weights([s.learnt for s in rows], args.aggregation, most_tokens=args.context_tokens)
        self._model.train()
        total = 0.0
        for part in micro_batches([len(s.ids) for s in rows], args.micro_tokens):
            batch = collate([rows[i] for i in part], pad=self._pad, device=self._device)
            with autocast(self._device, bf16=args.bf16):
                logprobs, entropy = forward_tokens(self._model, batch)
            weight = logprobs.new_tensor([weights[i] for i in part])[batch.rows]
            advantage = logprobs.new_tensor([rows[i].advantage for i in part])[batch.rows]
            old = logprobs.detach() if batch.old is None else batch.old
            if not tally.updates and args.old_logprobs == "sampler":
                tally.mismatch(logprobs.detach(), batch.old)
            terms = policy_terms(logprobs, old, advantage, clip_low=args.clip_low, clip_high=args.clip_high)
            loss = terms.loss
            if args.entropy:
                loss = loss - args.entropy * entropy
            if self._reference is not None:
                divergence = self._divergence(batch, logprobs)
                tally.add("kl", divergence.detach())
                loss = loss + args.kl * divergence
            loss = (loss * weight).sum()
            loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
            tally.add("entropy", entropy.detach())
            tally.add("ratio", terms.ratio)
            tally.add("clip_fraction", terms.clipped.float())
        tally.updated(total, optimizer_step(self._model, self._optimizer, rate, args.clip))

    def _divergence(self, batch: Any, logprobs: Tensor) -> Tensor:
        import torch  # noqa: PLC0415

        with torch.no_grad(), autocast(self._device, bf16=self._args.bf16):
            reference, _ = forward_tokens(self._reference, batch)
        return kl_to_reference(logprobs, reference)


class _Tally:
    """Sums over the tokens and updates of a step."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, int]] = {}
        self._losses: list[float] = []
        self._norms: list[float] = []

    @property
    def updates(self) -> int:
        return len(self._losses)

    def add(self, name: str, values: Tensor) -> None:
        total, count = self._sums.get(name, (0.0, 0))
        self._sums[name] = (total + float(values.sum()), count + values.numel())

    def mismatch(self, trainer: Tensor, sampler: Tensor | None) -> None:
        if sampler is not None:
            self.add("sampler_mismatch", (trainer - sampler).abs())

    def updated(self, loss: float, norm: float) -> None:
        self._losses.append(loss)
        self._norms.append(norm)

    def metrics(self) -> dict[str, float]:
        means = {name: total / count for name, (total, count) in self._sums.items() if count}
        done = {"loss": mean(self._losses), "gradient_norm": mean(filter(math.isfinite, self._norms))}
        return {**means, **(done if self._losses else {}), "updates": self.updates}
