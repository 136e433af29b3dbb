"""Evaluate a policy on question sets: EM and F1 with intervals, what its episodes did, where the time went.

    grepseek eval --policy keyword --corpus world:small --limit 500 --out evals/keyword
    grepseek eval --policy hf --model checkpoints/sft --corpus wiki18 --questions nq,hotpotqa --out evals/sft
    grepseek eval --compare evals/keyword evals/sft
    grepseek eval --from runs/keyword --out evals/keyword       scores what `grepseek rollout` wrote

The folder gets predictions.jsonl, summary.json, table.txt and manifest.json, which are the same in every run of a
policy that repeats itself, and the times apart from them. Running the same command again goes on where it stopped.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from algos.evaluate.board import log_evaluation
from algos.evaluate.compare import compare
from algos.evaluate.runner import Evaluation, evaluate, score_recorded
from algos.evaluate.summary import RESAMPLES
from algos.evaluate.tables import comparison_table, latency_lines
from grepseek_env.cli_support import add_env_arguments, env_kwargs
from grepseek_env.errors import ConfigError
from grepseek_env.paths import atomic_write
from policies.options import add_policy_arguments, policy_from_args

if TYPE_CHECKING:
    import argparse

__all__ = ["Evaluation", "add_arguments", "compare", "evaluate", "log_evaluation", "run", "score_recorded"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `grepseek eval`."""
    add = parser.add_argument
    add("--out", type=Path, help="run folder; the same command resumes a stopped run")
    add("--limit", type=int, metavar="N", help="questions of each set (default: all)")
    add("--draw", type=int, metavar="SEED", help="with --limit: a random sample in place of the first N questions")
    add("--by", metavar="KEY", help="a row for each value of this metadata key of the questions, such as hops")
    add("--samples", type=int, default=1, metavar="N", help="episodes a question, for pass@k and means (default: 1)")
    add("--parallel", type=int, default=16, metavar="N", help="episodes under way at a time (default: 16)")
    add("--retries", type=int, default=1, metavar="N", help="times a failed episode is played again (default: 1)")
    add("--seed", type=int, default=0, help="seed of the policy's random draws (default: 0)")
    add("--yes-no-rule", action="store_true", help="HotpotQA's rule: yes, no, noanswer match only exactly")
    add("--resamples", type=int, metavar="N", help=f"draws of the bootstrap (default: {RESAMPLES}; 10000 to compare)")
    add("--tensorboard", type=Path, metavar="DIR", help="also log there; needs the extra [torch]")
    add("--step", type=int, default=0, metavar="N", help="the training step that TensorBoard shows (default: 0)")
    add("--overwrite", action="store_true", help="start over where the folder holds another run")
    add("--quiet", action="store_true", help="no progress bar")
    other = parser.add_argument_group("in place of playing").add_mutually_exclusive_group()
    other.add_argument(
        "--compare", nargs=2, type=Path, metavar=("A", "B"), help="compare two evaluations, question by question"
    )
    other.add_argument(
        "--from", dest="recorded", nargs="+", type=Path, metavar="RUN", help="score what grepseek rollout has written"
    )
    add_policy_arguments(parser, required=False)
    add_env_arguments(parser, split="test", many=True)


def run(args: argparse.Namespace) -> int:
    """Runs `grepseek eval`.

    Returns:
        0, or 1 where episodes are missing because the infrastructure failed them.
    """
    if args.compare:
        return _compare(args)
    if args.out is None:
        raise ConfigError("--out is missing; name the folder to write the evaluation into")
    resamples = RESAMPLES if args.resamples is None else args.resamples
    if args.recorded:
        result = score_recorded(args.recorded, args.out, yes_no_rule=args.yes_no_rule, resamples=resamples)
    else:
        result = _play(args, resamples)
    if args.tensorboard is not None:
        log_evaluation(result, args.tensorboard, step=args.step)
    print(result.table)
    if result.latency["all"]["episodes"]:
        print(f"\n{latency_lines(result.latency['all'])}")
    print(f"\n{args.out / 'summary.json'}")
    if result.faults:
        print(
            f"grepseek: the infrastructure failed {result.faults} episodes, which are left out; the same command plays "
            "them again",
            file=sys.stderr,
        )
        return 1
    return 0


def _play(args: argparse.Namespace, resamples: int) -> Evaluation:
    if args.policy is None:
        raise ConfigError("--policy is missing; name who plays, or use --from RUN or --compare A B")
    policy = policy_from_args(args)
    try:
        return evaluate(
            policy,
            args.out,
            limit=args.limit,
            draw=args.draw,
            by=args.by,
            samples=args.samples,
            seed=args.seed,
            parallel=args.parallel,
            retries=args.retries,
            yes_no_rule=args.yes_no_rule,
            resamples=resamples,
            overwrite=args.overwrite,
            progress=not args.quiet,
            **env_kwargs(args),
        )
    except KeyboardInterrupt:
        print(f"\nwhat is complete is kept in {args.out}; the same command goes on from there", file=sys.stderr)
        raise
    finally:
        policy.close()


def _compare(args: argparse.Namespace) -> int:
    found = compare(*args.compare, **({} if args.resamples is None else {"resamples": args.resamples}), seed=args.seed)
    print(comparison_table(found))
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
        path = args.out / "comparison.json"
        atomic_write(path, json.dumps(found, indent=2, ensure_ascii=False) + "\n")
        print(path)
    return 0
