"""A GRPO run of some length on a CPU: the reward of `world:tiny` over the steps, as figures and as a picture.

    PYTHONPATH=tests/openrlhf:. python tests/openrlhf/long_run.py --steps 30 --out runs/openrlhf-long

Not part of CI. The start is a tiny model that half knows four questions, so that there is something to win in minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from conftest import ENVIRONMENT, HERE, SHIM
from tiny import SYSTEM, easy_questions, half_taught_model, oracle_episodes, untrained_model

from algos.openrlhf.data import grpo_rows, write_rows
from algos.openrlhf.grpo import PRESETS, GRPORecipe
from algos.openrlhf.recipe import preset
from algos.openrlhf.template import load_tokens
from grepseek_env.env import make_rules

LOGGED = (
    "rollout/reward_mean",
    "rollout/reward_std",
    "f1",
    "em",
    "format",
    "turns",
    "commands",
    "malformed",
    "vllm_kl",
)
_WIDTH, _HEIGHT, _MARGIN = 640, 280, 40


def make_start(out: Path) -> Path:
    records = oracle_episodes(easy_questions(8))
    tiny = untrained_model(out / "tiny", records)
    return half_taught_model(tiny, out / "half", records[:4], loss_below=0.03)


def train(model: Path, out: Path, steps: int, learning_rate: float) -> list[dict[str, float]]:
    system = out / "system.txt"
    system.write_text(SYSTEM, encoding="utf-8")
    rules = make_rules(max_turns=4, system_prompt=SYSTEM)
    rows = grpo_rows({"world": easy_questions(4)}, load_tokens(str(model)), rules).rows
    write_rows(out / "grpo.jsonl", rows)
    recipe = preset(
        GRPORecipe,
        PRESETS,
        "tiny-cpu",
        model=str(model),
        dataset="grpo.jsonl",
        out="out",
        checkpoints="state",
        tensorboard=None,
        system_prompt=str(system),
        episodes=steps,
        group=8,
        batch=32,
        max_len=512,
        turn_tokens=96,
        max_turns=4,
        max_observation_tokens=48,
        learning_rate=learning_rate,
        record=str(out / "record"),
        save_steps=-1,
        resume=False,
    )
    launch = recipe.launch()
    path = os.pathsep.join((str(SHIM), str(HERE.parents[1])))
    environ = {**os.environ, **ENVIRONMENT, **launch.environ, "PYTHONPATH": path}
    logged: list[dict[str, float]] = []
    command = [sys.executable, str(HERE / "shim/grpo.py"), *launch.argv[3:]]
    with (
        (out / "log").open("w", encoding="utf-8") as log,
        subprocess.Popen(
            command, env=environ, cwd=out, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            log.write(line)
            if not re.search(r"Global step \d+: ", line):
                continue
            numbers = dict(re.findall(r"'([\w/]+)': ([-+.\de]+)", line))
            logged.append({name: float(numbers[name]) for name in LOGGED})
            print(len(logged), logged[-1], flush=True)
            (out / "curve.json").write_text(json.dumps(logged, indent=1), encoding="utf-8")
    if process.returncode:
        raise SystemExit(f"OpenRLHF ended with exit code {process.returncode}; see {out / 'log'}")
    return logged


def picture(logged: list[dict[str, float]]) -> str:
    """Returns the mean reward over the steps as SVG, with its running mean over five steps."""
    rewards = [step["rollout/reward_mean"] for step in logged]
    running = [sum(part) / len(part) for i in range(len(rewards)) for part in [rewards[max(0, i - 4) : i + 1]]]
    top = 1.1

    def points(values: list[float]) -> str:
        across = (_WIDTH - 2 * _MARGIN) / max(1, len(values) - 1)
        up = (_HEIGHT - 2 * _MARGIN) / top
        return " ".join(f"{_MARGIN + i * across:.1f},{_HEIGHT - _MARGIN - v * up:.1f}" for i, v in enumerate(values))

    bottom, right = _HEIGHT - _MARGIN, _WIDTH - _MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}">',
            '<g font-family="sans-serif" font-size="12">',
            f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
            f'<path d="M{_MARGIN},{_MARGIN}V{bottom}H{right}" fill="none" stroke="black"/>',
            f'<text x="{_MARGIN}" y="{_MARGIN - 12}">mean reward of a step\'s rollouts (at most {top})</text>',
            f'<text x="{right}" y="{bottom + 24}" text-anchor="end">step {len(rewards)}</text>',
            f'<text x="{_MARGIN - 6}" y="{bottom}" text-anchor="end">0</text>',
            f'<text x="{_MARGIN - 6}" y="{_MARGIN + 4}" text-anchor="end">{top}</text>',
            f'<polyline points="{points(rewards)}" fill="none" stroke="#9ab" stroke-width="1"/>',
            f'<polyline points="{points(running)}" fill="none" stroke="#036" stroke-width="2"/>',
            "</g></svg>",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=30, help="updates (default: 30)")
    parser.add_argument("--learning-rate", type=float, default=3e-4, help="(default: 3e-4)")
    parser.add_argument("--model", type=Path, help="a checkpoint to start from (default: one is made)")
    parser.add_argument("--out", type=Path, default=Path("runs/openrlhf-long"), help="a new folder")
    args = parser.parse_args()
    out = args.out.absolute()
    out.mkdir(parents=True)
    model = make_start(out) if args.model is None else args.model.absolute()
    logged = train(model, out, args.steps, args.learning_rate)
    (out / "curve.svg").write_text(picture(logged), encoding="utf-8")
    fifth = max(1, len(logged) // 5)
    means = [sum(s["rollout/reward_mean"] for s in part) / fifth for part in (logged[:fifth], logged[-fifth:])]
    print(f"mean reward of the first and last {fifth} steps: {means[0]:.3f}, {means[1]:.3f}")


if __name__ == "__main__":
    main()
