"""GRPO on the corpus: groups of rollouts by vLLM, rewards by the environment, updates by DeepSpeed."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from algos.openrlhf.recipe import Launch, evaluation, flag, flags
from algos.openrlhf.template import TEMPLATE_FILE
from grepseek_env.adapters.options import AgentOptions
from grepseek_env.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["AGENT_FILE", "PRESETS", "GRPORecipe"]

AGENT_FILE = Path(__file__).with_name("agent.py")


@dataclass(frozen=True, slots=True)
class GRPORecipe:
    """The paper's GRPO.

    OpenRLHF counts batches in rollouts: a mini-batch of 32 questions with 5 rollouts each is a `batch` of 160, and 256
    questions a step make 8 updates. Unnamed fields are flags of `openrlhf.cli.train_ppo_ray`.

    Attributes:
        chat_template: empty for the recipes' own, "model" for the tokenizer's, or a file; as in the cold start.
        ray: address of a Ray cluster's dashboard that the job is submitted to; empty starts Ray on this host.
        corpus: what rollouts search; the same path or name on every host.
        daemon: see `AgentOptions`.
        max_turns: policy turns of an episode.
        max_observation_tokens: cap on tool output.
        turn_tokens: cap on one turn.
        reward: name of a reward preset.
        command_timeout: seconds.
        system_prompt: file with a template of the system message; empty for the package's own.
        record: folder for the trajectories of all rollouts; empty for none.
        extra: further flags of OpenRLHF.

    Raises:
        ConfigError: the batches do not fit together.
    """

    model: str = flag("--actor.model_name_or_path", "checkpoints/sft")
    dataset: str = flag("--data.prompt_dataset", "data/grpo.jsonl")
    out: str = flag("--ckpt.output_dir", "checkpoints/grpo")
    checkpoints: str = flag("--ckpt.path", "checkpoints/grpo-state")
    save_steps: int = flag("--ckpt.save_steps", 20)
    resume: bool = flag("--ckpt.load_enable", True)  # noqa: FBT003 - a flag's default
    questions: int = flag("--data.max_samples", 200 * 256)
    episodes: int = flag("--train.num_episodes", 1)
    epochs: int = flag("--train.max_epochs", 1)
    step_questions: int = flag("--rollout.batch_size", 256)
    group: int = flag("--rollout.n_samples_per_prompt", 5)
    batch: int = flag("--train.batch_size", 160)
    micro_batch: int = flag("--train.micro_batch_size", 1)
    rollout_micro_batch: int = flag("--rollout.micro_batch_size", 1)
    max_len: int = flag("--data.max_len", 16384)
    temperature: float = flag("--rollout.temperature", 1.0)
    top_p: float = flag("--rollout.top_p", 1.0)
    estimator: str = flag("--algo.advantage.estimator", "group_norm")
    clip: float = flag("--actor.eps_clip", 0.2)
    kl: float = flag("--algo.kl.init_coef", 0.0)
    entropy: float | None = flag("--actor.entropy_coef", None)
    correction: str = flag("--algo.advantage.is_correction_level", "token")
    learning_rate: float = flag("--actor.adam.lr", 5e-6)
    betas: tuple[float, float] = flag("--actor.adam.betas", (0.9, 0.999))
    weight_decay: float = flag("--actor.adam.weight_decay", 0.0)
    schedule: str = flag("--actor.lr_scheduler", "constant_with_warmup")
    warmup: float = flag("--actor.lr_warmup_ratio", 0.05)
    gradient_clip: float = flag("--actor.max_norm", 1.0)
    dtype: str = flag("--ds.param_dtype", "bf16")
    zero_stage: int = flag("--ds.zero_stage", 3)
    adam_offload: bool = flag("--ds.adam_offload", True)  # noqa: FBT003
    attention: str = flag("--ds.attn_implementation", "flash_attention_2")
    packing: bool = flag("--ds.packing_samples", True)  # noqa: FBT003
    ring: int = flag("--ds.ring_attn_size", 2)
    gradient_checkpointing: bool = flag("--actor.gradient_checkpointing_enable", True)  # noqa: FBT003
    nodes: int = flag("--actor.num_nodes", 1)
    gpus: int = flag("--actor.num_gpus_per_node", 4)
    engines: int = flag("--vllm.num_engines", 4)
    tensor_parallel: int = flag("--vllm.tensor_parallel_size", 1)
    gpu_memory: float = flag("--vllm.gpu_memory_utilization", 0.6)
    colocate: bool = flag("--train.colocate_all", True)  # noqa: FBT003
    engine_sleep: bool = flag("--vllm.enable_sleep", True)  # noqa: FBT003
    trainer_sleep: bool = flag("--ds.enable_sleep", True)  # noqa: FBT003
    prefix_caching: bool = flag("--vllm.enable_prefix_caching", True)  # noqa: FBT003
    eager: bool = flag("--vllm.enforce_eager", False)  # noqa: FBT003
    seed: int = flag("--train.seed", 42)
    tensorboard: str | None = flag("--logger.tensorboard_dir", "runs/grpo/tensorboard")
    chat_template: str = field(default="", metadata={"help": "file; empty: the recipes' own; model: the tokenizer's"})
    ray: str = field(default="", metadata={"help": "dashboard of a Ray cluster, such as http://HOST:8265"})
    corpus: str = field(default="wiki18", metadata={"help": "path or name, the same on every host"})
    daemon: str = field(default="start", metadata={"help": "start, find, off or an address"})
    sandbox: str = field(default="auto", metadata={"help": "auto, require or off: what the system keeps programs from"})
    max_turns: int = field(default=6, metadata={"help": "policy turns of an episode"})
    max_observation_tokens: int = field(default=2048, metadata={"help": "cap on tool output"})
    turn_tokens: int = field(default=2048, metadata={"help": "cap on one turn"})
    reward: str = field(default="paper", metadata={"help": "reward preset: paper or default"})
    command_timeout: float = field(default=180.0, metadata={"help": "seconds"})
    system_prompt: str = field(default="", metadata={"help": "file"})
    record: str = field(default="", metadata={"help": "folder for all trajectories"})
    extra: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        rollouts = self.step_questions * self.group
        if rollouts % self.batch:
            raise ConfigError(
                f"{self.step_questions} questions with {self.group} rollouts each are {rollouts} rollouts a step, "
                f"which a batch of {self.batch} does not divide: OpenRLHF would leave the rest out of training"
            )
        ranks = self.nodes * self.gpus // self.ring
        if not ranks or self.batch % (self.micro_batch * ranks):
            raise ConfigError(
                f"a batch of {self.batch} cannot be shared by {self.nodes * self.gpus} GPUs in rings of {self.ring} "
                f"with micro-batches of {self.micro_batch}: make it a multiple of {self.micro_batch * max(1, ranks)}"
            )
        if self.colocate and self.nodes * self.gpus != self.engines * self.tensor_parallel:
            raise ConfigError(
                f"with colocate the engines use the GPUs of the trainer: {self.engines} x {self.tensor_parallel} is "
                f"not {self.nodes} x {self.gpus}"
            )

    def agent(self) -> AgentOptions:
        """Returns how rollouts are played."""
        template = {"": str(TEMPLATE_FILE), "model": ""}.get(self.chat_template, self.chat_template)
        return AgentOptions(
            corpus=_absolute(self.corpus),
            daemon=self.daemon,
            sandbox=self.sandbox,
            max_turns=self.max_turns,
            max_observation_tokens=self.max_observation_tokens,
            turn_tokens=self.turn_tokens,
            reward=self.reward,
            command_timeout=self.command_timeout,
            chat_template=template if template in {"", "chatml"} else _absolute(template),
            system_prompt=_absolute(self.system_prompt),
            record=str(Path(self.record).absolute()) if self.record else "",
        )

    def _anywhere(self) -> GRPORecipe:
        """Returns the recipe with full paths: a job of a cluster does not run in this folder."""
        return replace(
            self,
            model=_absolute(self.model),
            dataset=_absolute(self.dataset),
            out=str(Path(self.out).absolute()),
            checkpoints=str(Path(self.checkpoints).absolute()),
            tensorboard=str(Path(self.tensorboard).absolute()) if self.tensorboard else None,
        )

    def launch(self) -> Launch:
        """Returns the command that trains, here or as a job of a Ray cluster."""
        argv = [
            "-m",
            "openrlhf.cli.train_ppo_ray",
            *flags(self._anywhere() if self.ray else self),
            "--train.agent_func_path",
            str(AGENT_FILE),
            "--data.input_key",
            "prompt",
            "--data.label_key",
            "label",
            *self.extra,
        ]
        environ = self.agent().to_environ()
        rules = [
            *("--max-turns", str(self.max_turns)),
            *("--max-observation-tokens", str(self.max_observation_tokens)),
            *("--max-tokens", str(self.turn_tokens)),
            *("--reward", self.reward),
            *("--sandbox", self.sandbox),
            *(["--system-prompt", _absolute(self.system_prompt)] if self.system_prompt else []),
        ]
        after = evaluation(self.out, "grpo", self.corpus, chatml=not self.chat_template, rules=rules)
        if not self.ray:
            return Launch([sys.executable, *argv], environ, after)
        runtime = json.dumps({"env_vars": environ}, sort_keys=True)
        submit = ["ray", "job", "submit", "--address", self.ray, "--runtime-env-json", runtime, "--"]
        return Launch([*submit, "python3", *argv], {}, after)


def _absolute(value: str) -> str:
    """Returns a path that is there in full, since the workers of Ray have another current folder; else the value."""
    return str(Path(value).absolute()) if value and Path(value).exists() else value


PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "paper-9b": {},
        "1.7b-1gpu": {
            "gpus": 1,
            "engines": 1,
            "ring": 1,
            "zero_stage": 2,
            "max_len": 8192,
            "questions": 200 * 64,
            "step_questions": 64,
            "batch": 80,
            "gpu_memory": 0.5,
            "max_observation_tokens": 1024,
            "turn_tokens": 1024,
        },
        "tiny-cpu": {
            "gpus": 1,
            "engines": 1,
            "ring": 1,
            "zero_stage": 0,
            "adam_offload": False,
            "attention": "eager",
            "packing": False,
            "gradient_checkpointing": False,
            "colocate": False,
            "engine_sleep": False,
            "trainer_sleep": False,
            "eager": True,
            "corpus": "world:tiny",
            "questions": 8,
            "step_questions": 4,
            "group": 4,
            "batch": 16,
            "micro_batch": 4,
            "rollout_micro_batch": 4,
            "max_len": 2048,
            "learning_rate": 1e-4,
            "max_observation_tokens": 64,
            "turn_tokens": 128,
            "reward": "default",
        },
    }
)


if __name__ == "__main__":
    from algos.openrlhf.__main__ import main

    sys.exit(main(["grpo", *sys.argv[1:]]))
