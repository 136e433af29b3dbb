"""Every recipe and preset through OpenRLHF's own parser and validation."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from algos.openrlhf import grpo, sft
from algos.openrlhf.recipe import preset


def parsed(module: str, argv: list[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the command's `__main__` block up to its last line, `train(args)`, and returns args."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).read_text(encoding="utf-8")
    head, call, rest = source.rpartition("\n    train(args)")
    assert call
    assert not rest.strip()
    monkeypatch.setattr(sys, "argv", [module, *argv])
    names: dict[str, Any] = {"__name__": "__main__", "__file__": spec.origin}
    exec(compile(head, spec.origin, "exec"), names)  # noqa: S102 - the parser lives in the block
    return names["args"]


def after_module(argv: list[str] | tuple[str, ...], module: str) -> list[str]:
    return list(argv[list(argv).index(module) + 1 :])


@pytest.mark.parametrize("name", sft.PRESETS)
def test_sft(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = preset(sft.SFTRecipe, sft.PRESETS, name)
    module = "openrlhf.cli.train_sft"
    args = parsed(module, after_module(recipe.launch().argv, module), monkeypatch)
    assert (args.train.max_epochs, args.train.batch_size, args.train.micro_batch_size) == (
        1,
        recipe.batch,
        recipe.micro_batch,
    )
    assert (args.adam.lr, list(args.adam.betas)) == (recipe.learning_rate, [0.9, 0.999])
    assert (args.lr_scheduler, args.lr_warmup_ratio, args.max_norm) == ("constant_with_warmup", 0.05, 1.0)
    assert (args.data.multiturn, args.data.apply_chat_template, args.data.input_key) == (True, True, "messages")
    assert "<|im_end|>" in args.data.tokenizer_chat_template
    assert args.data.max_len == recipe.max_len
    assert args.ds.attn_implementation == recipe.attention
    assert (args.ds.packing_samples, args.ds.ring_attn_size) == (recipe.packing, recipe.ring)


@pytest.mark.parametrize("ray", ["", "http://head:8265"])
@pytest.mark.parametrize("name", grpo.PRESETS)
def test_grpo(name: str, ray: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = preset(grpo.GRPORecipe, grpo.PRESETS, name, ray=ray)
    module = "openrlhf.cli.train_ppo_ray"
    args = parsed(module, after_module(recipe.launch().argv, module), monkeypatch)
    assert args.algo.advantage.estimator == "group_norm"
    assert not args.algo.advantage.no_std_norm
    assert args.algo.advantage.is_correction_level == "token"
    assert (args.algo.kl.init_coef, args.actor.entropy_coef, args.algo.kl.use_loss) == (0.0, None, False)
    assert list(args.actor.eps_clip_low_high) == [0.2, 0.2]
    assert (args.rollout.temperature, args.rollout.top_p) == (1.0, 1.0)
    assert args.rollout.n_samples_per_prompt == recipe.group
    assert args.rollout.batch_size == args.rollout.vllm_generate_batch_size == recipe.step_questions
    assert args.train.batch_size == recipe.batch
    assert (args.actor.adam.lr, list(args.actor.adam.betas)) == (recipe.learning_rate, [0.9, 0.999])
    assert (args.actor.lr_scheduler, args.actor.lr_warmup_ratio, args.actor.max_norm) == (
        "constant_with_warmup",
        0.05,
        1.0,
    )
    # What OpenRLHF's own validation changes, or leaves.
    assert args.reward.remote_url == ["agent"]
    assert args.critic.model_name_or_path is None
    assert (args.vllm.enable_sleep, args.ds.packing_samples) == (recipe.engine_sleep, recipe.packing)
    assert (args.train.colocate_all, args.ds.ring_attn_size) == (recipe.colocate, recipe.ring)
    assert Path(args.train.agent_func_path) == grpo.AGENT_FILE
    assert args.reward.clip_range[1] >= 1.1  # the largest reward of the presets


def test_the_paper_in_numbers_of_openrlhf(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = preset(grpo.GRPORecipe, grpo.PRESETS, "paper-9b")
    module = "openrlhf.cli.train_ppo_ray"
    args = parsed(module, after_module(recipe.launch().argv, module), monkeypatch)
    rollouts = args.rollout.batch_size * args.rollout.n_samples_per_prompt
    assert rollouts // args.train.batch_size == 8  # updates a step
    assert args.data.max_samples // args.rollout.batch_size == 200  # steps
    # As `prepare_datasets` counts the updates that the schedule is laid over.
    updates = args.data.max_samples * args.rollout.n_samples_per_prompt // args.train.batch_size
    assert updates == 200 * 8
    assert (args.data.max_len, args.actor.adam.lr, args.ds.ring_attn_size) == (16384, 5e-6, 2)
    agent = recipe.agent()
    assert (agent.max_turns, agent.max_observation_tokens, agent.command_timeout, agent.reward) == (
        6,
        2048,
        180.0,
        "paper",
    )


def test_the_environment_of_a_submitted_job(monkeypatch: pytest.MonkeyPatch) -> None:
    import json

    from grepseek_env.adapters.options import AgentOptions

    recipe = preset(grpo.GRPORecipe, grpo.PRESETS, "tiny-cpu", ray="http://head:8265", turn_tokens=77)
    argv = list(recipe.launch().argv)
    variables = json.loads(argv[argv.index("--runtime-env-json") + 1])["env_vars"]
    assert AgentOptions.from_environ(variables) == recipe.agent()
    assert recipe.agent().turn_tokens == 77
    monkeypatch.setenv("GREPSEEK_AGENT_TURN_TOKENS", "12")
    assert AgentOptions.from_environ().turn_tokens == 12
