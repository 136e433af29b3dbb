"""Supervised fine-tuning on trajectories: the loss is on the tokens that the policy wrote, and on nothing else.

    grepseek tutor generate --questions world:tiny --limit 1000 --out runs/demos
    python -m algos.sft --model MODEL --data runs/demos --out runs/sft

The run folder gets `config.json`, `metrics.jsonl`, `tensorboard/` and `checkpoints/step-N/`, each checkpoint a model in
the layout of the Hub. The same command goes on from the newest one, and ends with the same weights as if it had never
been stopped. Rows of like length share a batch, and a batch is worked through in micro-batches of so many tokens.
"""

from __future__ import annotations

import hashlib
import math
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 - `parse_args` reads the types of Args
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from algos.base import run, save_config
from algos.batches import Sample, bucketed, collate, forward_tokens, micro_batches
from algos.losses import sequence_weights
from algos.training import (
    RunLog,
    autocast,
    checkpoints,
    learning_rate,
    load_policy,
    make_optimizer,
    optimizer_step,
    restore,
    save_checkpoint,
)
from grepseek_env.errors import ConfigError
from grepseek_env.tokens import ChatTokens
from grepseek_env.trajectory import read_trajectories

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["METRICS", "Args", "Examples", "load_examples", "main"]

METRICS: Mapping[str, str] = {
    "loss": "mean negative log-probability of the policy tokens of the step's batch, in nats",
    "learning_rate": "of the step",
    "gradient_norm": "before clipping; a step whose norm is not finite is left out",
    "tokens": "policy tokens of the batch",
    "epoch": "passes over the data so far, as a fraction",
    "tokens_per_second": "tokens read, padding left out, since the last line",
    "eval_loss": "as loss, over the held-out trajectories, before the first step and every `eval_every` steps",
    "eval_accuracy": "share of held-out policy tokens that are the most likely ones",
}


@dataclass(frozen=True, slots=True)
class Args:
    """Settings of a run.

    Attributes:
        model: model to start from, a folder in the layout of the Hub or a name on it
        data: trajectories, a JSONL file or a folder that holds trajectories.jsonl
        out: run folder; a stopped run in it goes on
        epochs: passes over the data
        steps: optimiser steps at most, in place of what the epochs give
        batch_size: trajectories an optimiser step
        micro_tokens: tokens that are worked on at once, padding included; memory grows with it, results do not change
        max_length: a trajectory is cut after this many tokens
        held_out: share of the questions whose trajectories are for evaluation alone, chosen by a hash of their ids
        learning_rate: peak
        final_rate: learning rate of the last step as a share of the peak, on a line; 1 is constant
        warmup: share of the steps until the peak is reached
        beta1: of AdamW
        beta2: of AdamW
        weight_decay: of AdamW, on matrices
        clip: largest norm of the gradient; 0 does not clip
        bf16: multiply matrices in bfloat16; weights stay float32
        device: auto takes a GPU where there is one
        seed: of the order of the data
        eval_every: steps between evaluations; 0 evaluates at the end alone
        save_every: steps between checkpoints; 0 saves at the end alone
        keep: checkpoints that are left
        tensorboard: write tensorboard/ besides metrics.jsonl
        overwrite: start over where the folder holds a run
        quiet: no progress bar
    """

    model: str
    data: Path
    out: Path
    epochs: int = 1
    steps: int | None = None
    batch_size: int = 16
    micro_tokens: int = 16_384
    max_length: int = 16_384
    held_out: float = 0.02
    learning_rate: float = 1e-5
    final_rate: float = 1.0
    warmup: float = 0.05
    beta1: float = 0.9
    beta2: float = 0.999
    weight_decay: float = 0.01
    clip: float = 1.0
    bf16: bool = False
    device: str = "auto"
    seed: int = 0
    eval_every: int = 100
    save_every: int = 200
    keep: int = 2
    tensorboard: bool = True
    overwrite: bool = False
    quiet: bool = False

    def __post_init__(self) -> None:
        for name, fits, rule in (
            ("epochs", self.epochs >= 1, "at least 1"),
            ("steps", self.steps is None or self.steps >= 1, "at least 1, or none"),
            ("batch_size", self.batch_size >= 1, "at least 1"),
            ("max_length", self.max_length >= 2, "at least 2"),
            ("held_out", 0 <= self.held_out < 1, "at least 0 and below 1"),
            ("learning_rate", self.learning_rate > 0, "above 0"),
            ("warmup", 0 <= self.warmup <= 1, "from 0 to 1"),
            ("final_rate", 0 <= self.final_rate <= 1, "from 0 to 1"),
        ):
            if not fits:
                raise ConfigError(f"{name} is {getattr(self, name)!r}; it must be {rule}")


# What another sitting of the same run may have otherwise without changing its weights.
_CHANGEABLE = ("eval_every", "save_every", "keep", "tensorboard", "overwrite", "quiet")


@dataclass(frozen=True, slots=True)
class Examples:
    """Trajectories as samples.

    Attributes:
        train: to learn from.
        held_out: for evaluation alone; no question is on both sides.
        cut: how many were longer than allowed.
    """

    train: tuple[Sample, ...]
    held_out: tuple[Sample, ...]
    cut: int


def load_examples(path: Path, tokens: ChatTokens, *, held_out: float, max_length: int) -> Examples:
    """Reads trajectories and renders them as tokens.

    Those that the infrastructure failed are left out, and those in which the policy wrote nothing.

    Raises:
        ConfigError: nothing to learn from is there.
    """
    file = path / "trajectories.jsonl" if path.is_dir() else path
    if not file.is_file():
        raise ConfigError(f"{file} does not exist; make it by `grepseek tutor generate --out {path}`")
    train: list[Sample] = []
    held: list[Sample] = []
    cut = 0
    for trajectory in read_trajectories(file):
        if not trajectory.reward_valid:
            continue
        whole = tokens.trajectory(trajectory)
        sample = Sample.of(whole, most=max_length)
        cut += len(sample.ids) < len(whole.ids)
        if sample.learnt:
            (held if _place(trajectory.question_id) < held_out else train).append(sample)
    if not train:
        raise ConfigError(f"{file} holds no trajectory to learn from")
    return Examples(tuple(train), tuple(held), cut)


def _place(question_id: str) -> float:
    """Returns a number from 0 to 1: the same question falls on the same side however the data grow."""
    return int.from_bytes(hashlib.sha256(f"split/{question_id}".encode()).digest()[:6], "big") / 2**48


def main(args: Args) -> Path:
    """Trains a model.

    Returns:
        The last checkpoint.

    Raises:
        ConfigError: a setting cannot work, or the folder holds another run.
    """
    if args.overwrite and args.out.exists():
        shutil.rmtree(args.out)
    save_config(args, args.out, changeable=_CHANGEABLE, overwrite=args.overwrite)
    saved = checkpoints(args.out)
    model, tokenizer, device = load_policy(saved[-1][1] if saved else args.model, device=args.device)
    optimizer = make_optimizer(model, beta1=args.beta1, beta2=args.beta2, weight_decay=args.weight_decay)
    step = restore(saved[-1][1], optimizer)[0] if saved else 0
    examples = load_examples(args.data, ChatTokens(tokenizer), held_out=args.held_out, max_length=args.max_length)
    if examples.cut and not args.quiet:
        print(f"{examples.cut} trajectories are longer than {args.max_length} tokens and were cut", file=sys.stderr)
    run_ = _Run(args, model, optimizer, device, examples, pad=_pad(tokenizer))
    with (
        RunLog(args.out, step=step, tensorboard=args.tensorboard) as log,
        tqdm(total=run_.total, initial=step, unit="step", disable=args.quiet) as bar,
    ):
        if step == 0:
            log.write(0, run_.evaluate())
        while step < run_.total:
            metrics = run_.step(step)
            step += 1
            last = step == run_.total
            if last or (args.eval_every and step % args.eval_every == 0):
                metrics |= run_.evaluate()
            log.write(step, metrics)
            bar.set_postfix({"loss": f"{metrics['loss']:.3f}"}, refresh=False)
            bar.update()
            if last or (args.save_every and step % args.save_every == 0):
                save_checkpoint(args.out, step, model, tokenizer, optimizer, {}, keep=args.keep)
    return checkpoints(args.out)[-1][1]


def _pad(tokenizer: Any) -> int:
    pad = tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    return 0 if pad is None else int(pad)


class _Run:
    """The model with its data; every step depends on its number and the weights alone."""

    def __init__(self, args: Args, model: Any, optimizer: Any, device: Any, examples: Examples, *, pad: int) -> None:
        self._args = args
        self._model = model
        self._optimizer = optimizer
        self._device = device
        self._examples = examples
        self._pad = pad
        self._lengths = [len(s.ids) for s in examples.train]
        self._per_epoch = len(self._order(0))
        self._epoch = (0, self._order(0))
        self.total = self._per_epoch * args.epochs if args.steps is None else args.steps

    def _order(self, epoch: int) -> list[list[int]]:
        return bucketed(self._lengths, self._args.batch_size, f"{self._args.seed}/{epoch}")

    def step(self, step: int) -> dict[str, Any]:
        """Takes one optimiser step and returns its metrics."""
        epoch, place = divmod(step, self._per_epoch)
        if self._epoch[0] != epoch:
            self._epoch = (epoch, self._order(epoch))
        rows = [self._examples.train[i] for i in self._epoch[1][place]]
        start = time.perf_counter()
        args = self._args
        self._model.train()
        weights = sequence_weights([s.learnt for s in rows])
        total = 0.0
        for part in micro_batches([len(s.ids) for s in rows], args.micro_tokens):
            batch = collate([rows[i] for i in part], pad=self._pad, device=self._device)
            weight = batch.targets.new_tensor([weights[i] for i in part], dtype=_float32())[batch.rows]
            with autocast(self._device, bf16=args.bf16):
                logprobs, _ = forward_tokens(self._model, batch)
            loss = -(logprobs * weight).sum()
            loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
        rate = learning_rate(
            step, args.learning_rate, warmup=round(args.warmup * self.total), total=self.total, final=args.final_rate
        )
        norm = optimizer_step(self._model, self._optimizer, rate, args.clip)
        read = sum(len(s.ids) for s in rows)
        return {
            "loss": total,
            "learning_rate": rate,
            "gradient_norm": norm,
            "tokens": sum(s.learnt for s in rows),
            "epoch": (step + 1) / self._per_epoch,
            "tokens_per_second": read / (time.perf_counter() - start),
        }

    def evaluate(self) -> dict[str, Any]:
        """Returns loss and accuracy over the held-out trajectories; nothing where there are none."""
        import torch  # noqa: PLC0415

        rows = self._examples.held_out
        if not rows:
            return {}
        self._model.eval()
        loss, right, tokens = [], 0, 0
        with torch.no_grad(), autocast(self._device, bf16=self._args.bf16):
            for part in micro_batches([len(s.ids) for s in rows], self._args.micro_tokens):
                batch = collate([rows[i] for i in part], pad=self._pad, device=self._device)
                logits = self._model(input_ids=batch.ids, attention_mask=batch.attention, use_cache=False).logits
                logits = logits[:, :-1][batch.learnt].float()
                chosen = logits.log_softmax(-1).gather(-1, batch.targets.unsqueeze(-1))
                loss.append(-float(chosen.sum()))
                right += int((logits.argmax(-1) == batch.targets).sum())
                tokens += len(batch.targets)
        return {"eval_loss": math.fsum(loss) / tokens, "eval_accuracy": right / tokens}


def _float32() -> Any:
    import torch  # noqa: PLC0415

    return torch.float32


if __name__ == "__main__":
    sys.exit(run(sys.modules[__name__]))
