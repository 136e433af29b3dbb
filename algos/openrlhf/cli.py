"""Train with OpenRLHF on vLLM: data, the cold start, GRPO.

    python -m algos.openrlhf prepare sft runs/demos/trajectories.jsonl --model MODEL --out data/sft.jsonl
    python -m algos.openrlhf prepare grpo nq hotpotqa --model checkpoints/sft --out data/grpo.jsonl
    python -m algos.openrlhf sft --preset paper-9b --print
    python -m algos.openrlhf grpo --preset paper-9b --ray http://HOST:8265

Run it in the environment of OpenRLHF; with --print it runs anywhere. docs/openrlhf.md maps every value.
"""

from __future__ import annotations

import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from algos.openrlhf import grpo, sft
from algos.openrlhf.data import grpo_rows, sft_rows, write_rows
from algos.openrlhf.recipe import add_options, given_options, preset
from algos.openrlhf.template import load_tokens
from grepseek_env.env import make_rules
from grepseek_env.errors import ConfigError
from grepseek_env.tasks import load_question_set, training_questions
from grepseek_env.trajectory import read_trajectories

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

__all__ = ["add_arguments", "run"]

_RECIPES: dict[str, tuple[type, Any, str]] = {
    "sft": (sft.SFTRecipe, sft.PRESETS, "supervised training on trajectories"),
    "grpo": (grpo.GRPORecipe, grpo.PRESETS, "GRPO on the corpus"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the actions and their options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="{prepare,sft,grpo}")
    _prepare_arguments(actions.add_parser("prepare", help="make a data set, and count what is left out"))
    for name, (cls, presets, what) in _RECIPES.items():
        one = actions.add_parser(name, help=what)
        one.add_argument("--preset", choices=list(presets), default="paper-9b", help="(default: paper-9b)")
        one.add_argument("--print", action="store_true", help="show the command and what comes after it; start nothing")
        add_options(one, cls)


def _prepare_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=("sft", "grpo"), help="sft: from trajectories; grpo: from questions")
    parser.add_argument("sources", nargs="+", help="trajectory files, or FlashRAG files and names such as nq")
    parser.add_argument("--model", required=True, help="folder or name whose tokenizer counts")
    parser.add_argument("--out", type=Path, required=True, help="the data set, JSON lines")
    parser.add_argument("--max-len", type=int, default=16384, help="sft: tokens of a sample (default: 16384)")
    parser.add_argument("--min-f1", type=float, default=0.0, help="sft: an answer scores above this (default: 0)")
    parser.add_argument("--max-prompt", type=int, default=1024, help="grpo: tokens of a prompt (default: 1024)")
    parser.add_argument("--max-turns", type=int, default=6, help="grpo: as in training (default: 6)")
    parser.add_argument("--system-prompt", metavar="FILE", help="grpo: as in training")
    parser.add_argument("--split", choices=("train", "test"), default="train", help="(default: train)")
    parser.add_argument("--limit", type=int, help="grpo: rows (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="grpo: of the order (default: 0)")
    parser.add_argument("--chat-template", default="", metavar="FILE", help="(default: the recipes' own)")


def run(args: argparse.Namespace) -> int:
    """Runs the action; returns the exit code."""
    match args.action:
        case "prepare":
            return _prepare(args)
        case _:
            return _train(args)


def _prepare(args: argparse.Namespace) -> int:
    tokens = load_tokens(args.model, args.chat_template)
    makers: dict[str, Callable[[], Any]] = {
        "sft": lambda: sft_rows(
            chain.from_iterable(read_trajectories(path) for path in args.sources),
            tokens,
            max_len=args.max_len,
            min_f1=args.min_f1,
        ),
        "grpo": lambda: grpo_rows(
            {name: load_question_set(_named(name, args.split), split=args.split) for name in args.sources},
            tokens,
            make_rules(
                max_turns=args.max_turns,
                tokenizer=tokens.tokenizer,
                system_prompt=Path(args.system_prompt).read_text(encoding="utf-8") if args.system_prompt else None,
            ),
            max_prompt=args.max_prompt,
            limit=args.limit,
            seed=args.seed,
        ),
    }
    prepared = makers[args.what]()
    print(prepared.report())
    if not prepared.rows:
        raise ConfigError(f"nothing is left for {args.out}: see the reasons above")
    write_rows(args.out, prepared.rows)
    print(f"written to {args.out}")
    return 0


def _named(source: str, split: str) -> str:
    return training_questions(source) if split == "train" else source


def _train(args: argparse.Namespace) -> int:
    cls, presets, _ = _RECIPES[args.action]
    recipe = preset(cls, presets, args.preset, **given_options(args, cls))
    launch = recipe.launch()
    if args.print:
        print(launch.text())
    else:
        load_tokens(recipe.model, recipe.chat_template)  # a template that cannot work is refused before anything starts
        _check_rows(args.action, recipe)
        sys.stdout.flush()
        code = launch.run()
        if code:
            print(f"OpenRLHF ended with exit code {code}; its last lines say why", file=sys.stderr)
            return code
    print("\n# then, in two shells:")
    print("\n".join(launch.after))
    return 0


def _check_rows(action: str, recipe: Any) -> None:
    """Says how many steps the data set makes, and what is left over at its end."""
    path = Path(recipe.dataset)
    if not path.is_file():
        if path.suffix in {".json", ".jsonl"}:
            raise ConfigError(f"{path} is not there; make it with `python -m algos.openrlhf prepare {action} ...`")
        return
    with path.open("rb") as file:
        rows = sum(1 for _ in file)
    size = recipe.batch
    if action == "grpo":
        rows, size = min(rows, recipe.questions), recipe.step_questions
    steps, rest = divmod(rows, size)
    if not steps:
        raise ConfigError(f"{path} has {rows} rows, fewer than the {size} of one step")
    print(f"{path}: {rows} rows, {steps} steps of {size}; {rest} rows make no whole step")
