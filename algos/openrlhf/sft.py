"""The cold start: supervised training on trajectories, loss on the assistant's tokens alone."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from algos.openrlhf.recipe import Launch, evaluation, flag, flags
from algos.openrlhf.template import template_of

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PRESETS", "SFTRecipe"]


@dataclass(frozen=True, slots=True)
class SFTRecipe:
    """One epoch over the trajectories, the paper's values where it gives any.

    The paper names neither the learning rate nor the batch of its cold start; those are ours. Unnamed fields are flags
    of `openrlhf.cli.train_sft`.

    Attributes:
        chat_template: empty for the recipes' own, "model" for the tokenizer's, or a file.
        gpus: processes on this host; 0 starts one process that needs no launcher.
        corpus: what the printed evaluation searches.
        extra: further flags of OpenRLHF.
    """

    model: str = flag("--model.model_name_or_path", "Qwen/Qwen3.5-9B")
    dataset: str = flag("--data.dataset", "data/sft.jsonl")
    out: str = flag("--ckpt.output_dir", "checkpoints/sft")
    checkpoints: str = flag("--ckpt.path", "checkpoints/sft-state")
    epochs: int = flag("--train.max_epochs", 1)
    batch: int = flag("--train.batch_size", 64)
    micro_batch: int = flag("--train.micro_batch_size", 1)
    max_len: int = flag("--data.max_len", 16384)
    learning_rate: float = flag("--adam.lr", 1e-5)
    betas: tuple[float, float] = flag("--adam.betas", (0.9, 0.999))
    weight_decay: float = flag("--adam.weight_decay", 0.0)
    schedule: str = flag("--lr_scheduler", "constant_with_warmup")
    warmup: float = flag("--lr_warmup_ratio", 0.05)
    gradient_clip: float = flag("--max_norm", 1.0)
    dtype: str = flag("--ds.param_dtype", "bf16")
    zero_stage: int = flag("--ds.zero_stage", 3)
    adam_offload: bool = flag("--ds.adam_offload", False)  # noqa: FBT003 - a flag's default
    attention: str = flag("--ds.attn_implementation", "flash_attention_2")
    packing: bool = flag("--ds.packing_samples", True)  # noqa: FBT003
    ring: int = flag("--ds.ring_attn_size", 1)
    gradient_checkpointing: bool = flag("--model.gradient_checkpointing_enable", True)  # noqa: FBT003
    seed: int = flag("--train.seed", 42)
    tensorboard: str | None = flag("--logger.tensorboard_dir", "runs/sft/tensorboard")
    chat_template: str = field(default="", metadata={"help": "file; empty: the recipes' own; model: the tokenizer's"})
    gpus: int = field(default=4, metadata={"help": "processes on this host"})
    corpus: str = field(default="wiki18", metadata={"help": "that the evaluation searches"})
    extra: tuple[str, ...] = ()

    def launch(self) -> Launch:
        """Returns the command that trains."""
        template = template_of(self.chat_template)
        shown = [] if template is None else ["--data.tokenizer_chat_template", template]
        started = ["deepspeed", "--num_gpus", str(self.gpus), "--module"] if self.gpus else [sys.executable, "-m"]
        argv = [
            *started,
            "openrlhf.cli.train_sft",
            *flags(self),
            "--data.multiturn",
            "--data.apply_chat_template",
            "--data.input_key",
            "messages",
            *shown,
            *self.extra,
        ]
        return Launch(argv, {}, evaluation(self.out, "sft", self.corpus, chatml=not self.chat_template))


PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "paper-9b": {"ring": 2},
        "1.7b-1gpu": {"model": "Qwen/Qwen3-1.7B", "gpus": 1, "max_len": 8192, "zero_stage": 2},
        "tiny-cpu": {
            "model": "checkpoints/tiny",
            "gpus": 0,
            "corpus": "world:tiny",
            "batch": 4,
            "micro_batch": 2,
            "max_len": 4096,
            "learning_rate": 1e-3,
            "zero_stage": 0,
            "attention": "eager",
            "packing": False,
            "gradient_checkpointing": False,
        },
    }
)


if __name__ == "__main__":
    from algos.openrlhf.__main__ import main

    sys.exit(main(["sft", *sys.argv[1:]]))
