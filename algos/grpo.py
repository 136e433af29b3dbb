"""GRPO: several rollouts a question, compared with one another, and a clipped policy gradient on the sampled tokens.

    python -m algos.grpo --model runs/sft/checkpoints/step-000600 --corpus world:study --out runs/grpo
    python -m algos.grpo --config grpo.json --learning-rate 4e-4

The defaults are the paper's (arXiv 2605.29307): 256 questions a step, 5 rollouts each, 8 updates of 32 questions,
advantages (r - mean) / std within the group, clip 0.2, no KL, no entropy term, temperature 1, AdamW with a linear
warm-up to 5e-6 over 5 % of 200 steps. Where it departs: reward is F1 + 0.1 x format unless `--reward paper` gates F1 by
the format; matrices are multiplied in float32 unless `--bf16 true`; a command may take 60 seconds, not 180; one device,
without sequence parallelism; and `algos.openrlhf` is what larger models are for.

Variants: `--advantage dr_grpo --aggregation constant` is Dr.GRPO, `--advantage rloo` RLOO, `--advantage
reinforce_baseline` REINFORCE++ with a group baseline, `--clip-high 0.28` clip-higher, `--filter-flat true --refills 3`
dynamic filtering. `METRICS` in `algos.grpo_metrics` explains every number that is logged.

What to expect: from a model that has learnt the format, the reward rises within some tens of steps; from random weights
it does not, since no turn is ever valid and every group is flat.
"""

from __future__ import annotations

import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 - `parse_args` reads the types of Args
from typing import TYPE_CHECKING, Literal

from tqdm import tqdm

from algos.base import run, save_config
from algos.grpo_metrics import METRICS
from algos.grpo_update import Updater
from algos.grpo_world import World
from algos.training import (
    RunLog,
    checkpoints,
    learning_rate,
    load_policy,
    make_optimizer,
    restore,
    save_checkpoint,
)
from grepseek_env.errors import ConfigError

if TYPE_CHECKING:
    from algos.rollout import Group

__all__ = ["METRICS", "Args", "main"]


@dataclass(frozen=True, slots=True)
class Args:
    """Settings of a run.

    Attributes:
        model: model to start from, a folder in the layout of the Hub or a name on it
        out: run folder; a stopped run in it goes on
        corpus: file, folder or name of a corpus
        questions: file or name of questions; none takes those of the corpus, where it is a generated world
        steps: training steps
        questions_per_step: questions a step; every one is asked once a pass
        group_size: rollouts a question
        mini_batch: questions an update; 256 a step and 32 here are 8 updates
        epochs: how often the rollouts of a step are gone through
        advantage: how rollouts of a question are compared
        aggregation: mean over tokens, mean over sequences of token means, or sum over a constant
        clip_low: the probability ratio counts down to 1 minus this
        clip_high: and up to 1 plus this
        kl: weight of the divergence from the starting model; 0 loads no reference
        entropy: weight of an entropy bonus
        old_logprobs: taken from the sampler, or computed once more by the trainer before the first update
        filter_flat: leave groups whose rewards are all equal out of the updates
        refills: batches of questions drawn at most to make up for flat groups that were left out
        learning_rate: peak
        warmup: share of the steps until the peak is reached; constant from there
        beta1: of AdamW
        beta2: of AdamW
        weight_decay: of AdamW, on matrices
        clip: largest norm of the gradient; 0 does not clip
        micro_tokens: tokens that are worked on at once, padding included; memory grows with it, results do not change
        bf16: multiply matrices in bfloat16; weights stay float32
        device: auto takes a GPU where there is one
        temperature: of sampling
        turn_tokens: sampled tokens of a turn at most
        context_tokens: tokens of an episode at most, prompt and observations included
        max_turns: policy turns, the answer included
        max_observation_tokens: a command's output is cut after this many tokens
        action_format: how turns are written
        reward: default is F1 plus 0.1 for the format, paper is F1 where the format is valid
        system_prompt: text in place of the package's own
        sandbox: what the operating system keeps programs from; require stops where a layer of it is missing
        seed: of questions and sampling
        eval_questions: questions of the test split that are played at an evaluation
        eval_every: steps between evaluations, the first before any step; 0 does none
        save_every: steps between checkpoints; 0 saves at the end alone
        keep: checkpoints that are left
        samples: transcripts written a step
        tensorboard: write tensorboard/ besides metrics.jsonl
        overwrite: start over where the folder holds a run
        quiet: no progress bar
    """

    model: str
    out: Path
    corpus: str = "world:tiny"
    questions: str | None = None
    steps: int = 200
    questions_per_step: int = 256
    group_size: int = 5
    mini_batch: int = 32
    epochs: int = 1
    advantage: Literal["grpo", "dr_grpo", "rloo", "reinforce_baseline"] = "grpo"
    aggregation: Literal["token", "sequence", "constant"] = "token"
    clip_low: float = 0.2
    clip_high: float = 0.2
    kl: float = 0.0
    entropy: float = 0.0
    old_logprobs: Literal["sampler", "trainer"] = "sampler"
    filter_flat: bool = False
    refills: int = 0
    learning_rate: float = 5e-6
    warmup: float = 0.05
    beta1: float = 0.9
    beta2: float = 0.999
    weight_decay: float = 0.0
    clip: float = 1.0
    micro_tokens: int = 16_384
    bf16: bool = False
    device: str = "auto"
    temperature: float = 1.0
    turn_tokens: int = 1024
    context_tokens: int = 16_384
    max_turns: int = 6
    max_observation_tokens: int = 2048
    action_format: Literal["hermes", "plain"] = "hermes"
    reward: Literal["default", "paper"] = "default"
    system_prompt: str | None = None
    sandbox: Literal["auto", "require", "off"] = "auto"
    seed: int = 0
    eval_questions: int = 100
    eval_every: int = 0
    save_every: int = 20
    keep: int = 2
    samples: int = 2
    tensorboard: bool = True
    overwrite: bool = False
    quiet: bool = False

    def __post_init__(self) -> None:
        for name in ("steps", "questions_per_step", "group_size", "mini_batch", "epochs", "turn_tokens"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)!r}; it must be at least 1")
        for name in ("clip_low", "clip_high", "learning_rate", "temperature"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} is {getattr(self, name)!r}; it must be above 0")
        if self.group_size == 1:
            raise ConfigError("group_size is 1; rollouts are compared within their group: give at least 2")
        if not 0 < self.clip_low < 1:
            raise ConfigError(f"clip_low is {self.clip_low!r}; it must lie between 0 and 1")
        if self.refills and not self.filter_flat:
            raise ConfigError(f"refills is {self.refills}, and filter_flat is off; pass --filter-flat true as well")


# What another sitting of the same run may have otherwise without changing its weights.
_CHANGEABLE = (
    "eval_questions",
    "eval_every",
    "save_every",
    "keep",
    "samples",
    "sandbox",
    "tensorboard",
    "overwrite",
    "quiet",
)


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
    step, state = restore(saved[-1][1], optimizer) if saved else (0, {"cursor": 0})
    reference = load_policy(args.model, device=args.device)[0] if args.kl else None
    updater = Updater(args, model, tokenizer, optimizer, device, reference)
    with (
        World(args, model, tokenizer, cursor=int(state["cursor"])) as world,
        RunLog(args.out, step=step, tensorboard=args.tensorboard) as log,
        tqdm(total=args.steps, initial=step, unit="step", disable=args.quiet) as bar,
    ):
        if step == 0 and args.eval_every:
            log.write(0, world.evaluate())
        while step < args.steps:
            rate = learning_rate(step, args.learning_rate, warmup=round(args.warmup * args.steps), total=args.steps)
            start = time.perf_counter()
            groups, sampled = world.sample()
            metrics = updater.update(groups, rate) | sampled
            metrics["seconds"] = time.perf_counter() - start
            step += 1
            last = step == args.steps
            if args.eval_every and (last or step % args.eval_every == 0):
                metrics |= world.evaluate()
            log.write(step, metrics)
            _show(log, step, groups, args.samples)
            bar.set_postfix({"reward": f"{metrics['reward_mean']:.3f}", "f1": f"{metrics['f1']:.3f}"}, refresh=False)
            bar.update()
            if last or (args.save_every and step % args.save_every == 0):
                own = {"cursor": world.cursor}
                save_checkpoint(args.out, step, model, tokenizer, optimizer, own, keep=args.keep)
    return checkpoints(args.out)[-1][1]


def _show(log: RunLog, step: int, groups: list[Group], count: int) -> None:
    """Writes the first rollout of some groups, to be read by people."""
    for group in groups[:count]:
        first = group.trajectories[0]
        told = f"{first.text()}\n[reward {first.reward:.3f}, golden answers {', '.join(first.golden_answers)}]"
        log.sample(step, group.question.id, told)


if __name__ == "__main__":
    sys.exit(run(sys.modules[__name__]))
