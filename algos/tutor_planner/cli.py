"""Make and check verified, leak-free cold-start trajectories.

    grepseek tutor generate --questions world:tiny --limit 100 --out runs/demos
    grepseek tutor generate --questions nq.jsonl --corpus wiki18 --model openai:MODEL@URL --parallel 32 --out runs/nq
    grepseek tutor check runs/demos/trajectories.jsonl --replay --corpus world:tiny

`python -m algos.tutor_planner` takes the same arguments.
"""

from __future__ import annotations

import inspect
import json
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from algos.tutor_planner.card import write_card
from algos.tutor_planner.check import check_file
from algos.tutor_planner.endpoints import Endpoints
from algos.tutor_planner.export import export
from algos.tutor_planner.keyword import keyword_roles
from algos.tutor_planner.llm import Manner, llm_roles
from algos.tutor_planner.run import Prices, Tally, generate
from algos.tutor_planner.stages import Ground, Settings
from algos.tutor_planner.world import QUALITIES, WorldStyle, world_roles
from grepseek_env.backend import open_backend
from grepseek_env.cli_support import add_env_arguments, env_kwargs
from grepseek_env.env import make_rules
from grepseek_env.errors import ConfigError
from grepseek_env.tasks import load_question_set, training_questions
from grepseek_env.tasks.registry import parse_name
from policies.chat import make_model

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from algos.tutor_planner.protocols import Roles
    from algos.tutor_planner.records import Record
    from grepseek_env.episode import Rules
    from grepseek_env.types import SearchBackend

__all__ = ["add_arguments", "run"]

IMPLEMENTATIONS = ("world", "llm", "keyword")
_PARALLEL = {"world": 2, "keyword": 2, "llm": 16}
_WORLD_STEPS = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the two actions and their options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="{generate,check}")
    _generate_arguments(
        actions.add_parser("generate", help="make trajectories; the same command resumes a stopped run")
    )
    _check_arguments(actions.add_parser("check", help="check a trajectory file against the leak rules"))


def _generate_arguments(parser: argparse.ArgumentParser) -> None:
    add_env_arguments(parser)
    parser.set_defaults(corpus=None)
    parser.add_argument("--out", type=Path, required=True, help="run folder")
    parser.add_argument("--limit", type=int, help="number of questions (default: all); raise it later to go on")
    parser.add_argument("--seed", type=int, default=0, help="of everything that is drawn (default: 0)")
    parser.add_argument("--parallel", type=int, metavar="N", help="questions at once (default: 16 with models, else 2)")
    parser.add_argument("--overwrite", action="store_true", help="start over where the folder holds another run")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    parser.add_argument(
        "--implementation", choices=IMPLEMENTATIONS, help="of both roles (default: llm with --model, else world)"
    )
    limits = parser.add_argument_group("limits")
    limits.add_argument("--max-steps", type=int, help="sub-questions of a plan (default: 3; world: 5)")
    limits.add_argument("--refinements", type=int, help="commands tried for a step (default: 6; plain quality: 1)")
    limits.add_argument("--min-f1", type=float, default=0.0, help="an answer has to score above this (default: 0)")
    world = parser.add_argument_group("world implementation")
    world.add_argument(
        "--quality", choices=QUALITIES, default="strong", help="plain: one try a step, kept if it succeeds"
    )
    world.add_argument("--prose", choices=("full", "brief"), default="full", help="brief: for tiny models")
    world.add_argument("--shapes", default="", metavar="NAME,NAME", help="shapes of commands (default: all)")
    world.add_argument("--heads", default="3,5,8", metavar="N,N", help="caps of outputs in lines (default: 3,5,8)")
    world.add_argument(
        "--vague", type=float, default=0.8, help="plain: share of searches for a name alone (default: 0.8)"
    )
    models = parser.add_argument_group("llm implementation")
    models.add_argument(
        "--model", action="append", default=[], metavar="SPEC", help="of the Tutor; several: endpoints of one model"
    )
    models.add_argument("--planner-model", action="append", default=[], metavar="SPEC", help="(default: the Tutor's)")
    models.add_argument("--model-option", action="append", default=[], metavar="KEY=VALUE", help="of all models")
    models.add_argument("--in-flight", type=int, default=16, metavar="N", help="requests at one endpoint (default: 16)")
    models.add_argument("--temperature", type=float, default=0.3, help="of a first try; rises with each further one")
    models.add_argument("--tries", type=int, default=3, help="of a reply that cannot be read (default: 3)")
    models.add_argument("--max-calls", type=int, default=80, help="of a role for one question (default: 80)")
    models.add_argument("--reply-tokens", type=int, default=0, metavar="N", help="more, for models that think first")
    models.add_argument("--price", metavar="IN,OUT", help="of a million tokens read and written by the Tutor")
    models.add_argument("--planner-price", metavar="IN,OUT", help="(default: the Tutor's)")
    exports = parser.add_argument_group("exports")
    exports.add_argument("--validation", type=float, default=0.05, metavar="X", help="share of it (default: 0.05)")
    exports.add_argument("--tools", action="store_true", help="add the tool's schema to chat messages")
    exports.add_argument("--no-plots", action="store_true", help="a data card without plots")


def _check_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="trajectories, one a line")
    add_env_arguments(parser)
    parser.set_defaults(corpus=None)
    parser.add_argument("--replay", action="store_true", help="run every command again and compare byte for byte")
    parser.add_argument("--show", type=int, default=20, metavar="N", help="findings to print (default: 20)")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")


def run(args: argparse.Namespace) -> int:
    """Runs `grepseek tutor`."""
    return _check(args) if args.action == "check" else _generate(args)


def _corpus(args: argparse.Namespace) -> str:
    """Returns the corpus: what is given, else the world that the questions are of."""
    if args.corpus is not None:
        return str(args.corpus)
    if args.questions is None:
        return "world:tiny"
    parsed = None if Path(args.questions).exists() else parse_name(args.questions)
    if parsed is None or parsed.task.corpus is None:
        raise ConfigError(f"questions {args.questions!r} have no corpus of their own; pass --corpus besides")
    return str(args.questions)


def _accepted(function: Callable[..., Any], args: argparse.Namespace) -> dict[str, Any]:
    """Returns those of the environment's options that a function takes."""
    names = inspect.signature(function).parameters
    return {name: value for name, value in env_kwargs(args).items() if name in names}


def _rules(args: argparse.Namespace) -> Rules:
    return make_rules(**_accepted(make_rules, args))


def _backend(args: argparse.Namespace, corpus: str, *, progress: bool) -> SearchBackend:
    return open_backend(**{**_accepted(open_backend, args), "corpus": corpus, "progress": progress})


def _questions(args: argparse.Namespace) -> str | None:
    """Returns where the questions come from; demonstrations are trained on, so never from what is evaluated."""
    questions: str | None = args.questions
    return training_questions(questions) if questions is not None and args.split == "train" else questions


def _generate(args: argparse.Namespace) -> int:
    implementation = args.implementation or ("llm" if args.model else "world")
    if args.limit is not None and args.limit < 1:
        raise ConfigError(f"--limit is {args.limit}; it must be at least 1, or left out for all questions")
    stop, corpus = threading.Event(), _corpus(args)
    settings = Settings(
        max_steps=args.max_steps or (_WORLD_STEPS if implementation == "world" else 3),
        refinements=args.refinements or (1 if implementation == "world" and args.quality == "plain" else 6),
        min_f1=args.min_f1,
    )
    question_set = load_question_set(_questions(args), corpus=corpus, split=args.split)
    questions = question_set[: args.limit]
    roles, endpoints = _roles(args, implementation, settings, stop)
    prices = _prices(args)
    try:
        with _backend(args, corpus, progress=not args.quiet) as backend:
            records = generate(
                questions,
                roles,
                Ground(backend, _rules(args), settings),
                args.out,
                name=question_set.name,
                seed=args.seed,
                parallel=args.parallel or _PARALLEL[implementation],
                overwrite=args.overwrite,
                progress=not args.quiet,
                prices=prices,
                stop=stop,
                health=lambda: " ".join(e.health() for e in endpoints if len(e.models) > 1),
            )
    finally:
        for each in endpoints:
            each.close()
    export(records, args.out, validation=args.validation, tools=args.tools)
    manifest = json.loads((args.out / "manifest.json").read_bytes())
    card = write_card(records, manifest, args.out, prices=prices, plots=not args.no_plots)
    return _summary(records, len(questions), prices, card)


def _summary(records: Sequence[Record], asked: int, prices: dict[str, Prices], card: Path) -> int:
    tally = Tally(records)
    print(f"{tally.kept} of {asked} questions kept; {tally.line(prices)}\n{card.parent}: see {card.name}")
    if len(records) < asked:
        print(
            f"{asked - len(records)} questions are left, since the infrastructure failed; run the same command again",
            file=sys.stderr,
        )
        return 1
    return 0


def _roles(
    args: argparse.Namespace, implementation: str, settings: Settings, stop: threading.Event
) -> tuple[Roles, list[Endpoints]]:
    match implementation:
        case "world":
            return world_roles(_style(args)), []
        case "keyword":
            return keyword_roles(), []
    if not args.model:
        raise ConfigError("the llm implementation needs --model, such as --model openai:NAME@http://localhost:8000/v1")
    options = dict(_pair(text) for text in args.model_option)
    manner = Manner(
        temperature=args.temperature,
        hottest=max(1.0, args.temperature),
        tries=args.tries,
        max_calls=args.max_calls,
        reply_tokens=args.reply_tokens,
    )
    endpoints = [
        Endpoints([make_model(spec, **options) for spec in specs], in_flight=args.in_flight, stop=stop)
        for specs in (args.model, args.planner_model)
        if specs
    ]
    return llm_roles(endpoints[0], endpoints[-1], manner, max_steps=settings.max_steps), endpoints


def _style(args: argparse.Namespace) -> WorldStyle:
    try:
        heads = tuple(int(part) for part in args.heads.split(","))
    except ValueError:
        raise ConfigError(f"--heads is {args.heads!r}; it must be numbers with commas between, such as 3,5,8") from None
    shapes = tuple(part.strip() for part in args.shapes.split(",") if part.strip())
    return WorldStyle(quality=args.quality, prose=args.prose, shapes=shapes, heads=heads, vague=args.vague)


def _pair(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--model-option is {text!r}; write KEY=VALUE")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def _prices(args: argparse.Namespace) -> dict[str, Prices]:
    found = {}
    for role, text in (("tutor", args.price), ("planner", args.planner_price or args.price)):
        if text:
            try:
                read, written = map(float, text.split(","))
            except ValueError:
                raise ConfigError(f"a price is {text!r}; write IN,OUT for a million tokens, such as 0.2,0.8") from None
            found[role] = Prices(read, written)
    return found


def _check(args: argparse.Namespace) -> int:
    questions = {}
    if args.questions is not None:
        questions = {q.id: q for q in load_question_set(_questions(args), split=args.split)}
    progress = not args.quiet
    if args.replay:
        with _backend(args, _corpus(args), progress=progress) as backend:
            report = check_file(args.file, questions=questions, rules=_rules(args), backend=backend, progress=progress)
    else:
        report = check_file(args.file, questions=questions, progress=progress)
    for line in report.lines[: args.show]:
        print(line)
    if len(report.lines) > args.show:
        print(f"... and {len(report.lines) - args.show} more; --show N prints them")
    rules = ", ".join(f"{rule} {count}" for rule, count in report.rules.most_common()) or "no rule is broken"
    replayed = ", replayed byte for byte" if args.replay and not report.rules["replay"] else ""
    print(
        f"{report.clean} of {report.checked} trajectories are clean{replayed}; {rules}; {report.duplicates} duplicates"
    )
    return 0 if report.checked and report.clean == report.checked else 1
