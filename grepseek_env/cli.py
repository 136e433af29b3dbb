"""The console command `grepseek`.

Subcommands of this package are in `_OWN`; others come through the entry-point group `grepseek_env.subcommands`: a
module with `add_arguments(parser)` and `run(args) -> int`, whose docstring's first line is the help text.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grepseek_env
from grepseek_env.cli_support import add_corpus_argument, add_env_arguments, add_mode_arguments, env_kwargs
from grepseek_env.errors import CommandRefused, ConfigError, GrepSeekError, QuestionsError
from grepseek_env.serve import add_arguments as add_serve_arguments
from grepseek_env.serve import serve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["main"]

ENTRY_POINT_GROUP = "grepseek_env.subcommands"
_SCORED = ("id", "prediction", "golden_answers")  # the keys of a line that is scored


def _write_all(stream: Any, data: bytes) -> None:
    stream.buffer.write(data)
    stream.flush()


def _run_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell_command", metavar="COMMAND", help="one pipeline over corpus.jsonl, quoted as one word")
    add_corpus_argument(parser)
    add_mode_arguments(parser)
    parser.add_argument("--timeout", type=float, metavar="S", help="seconds it may run (default: 60)")
    parser.add_argument(
        "--max-output-bytes", type=int, metavar="N", help="cut stdout after N bytes (default: all of it)"
    )
    parser.add_argument("--explain", action="store_true", help="say how it would be executed, and do not run it")


def _run(args: argparse.Namespace) -> int:
    """Run one command: its raw output, messages and exit code."""
    from grepseek_env.backend import open_backend

    with open_backend(
        args.corpus, args.mode, slices=args.slices, sandbox=args.sandbox, progress=sys.stderr.isatty()
    ) as backend:
        if args.explain:
            print(backend.explain(args.shell_command))
            return 0
        result = backend.run(args.shell_command, timeout=args.timeout, max_output_bytes=args.max_output_bytes)
    _write_all(sys.stdout, result.stdout)
    _write_all(sys.stderr, result.stderr)
    if result.timed_out:
        print("grepseek: the command ran out of time; raise --timeout or narrow it", file=sys.stderr)
        return 124  # as timeout(1)
    if result.output_truncated:
        print(f"grepseek: output cut at {args.max_output_bytes} bytes", file=sys.stderr)
    return result.exit_code or 0


def _play(args: argparse.Namespace) -> int:
    """Play an episode yourself, in the terminal."""
    from grepseek_env.env import GrepSeekEnv
    from grepseek_env.render import render_trajectory, use_color

    env = GrepSeekEnv(**{**env_kwargs(args), "action_format": "plain"})
    options = {"question_id": args.question_id} if args.question_id else None
    try:
        env.reset(seed=args.seed, options=options)
        color = use_color()
        print("Type a command such as:  rg -F 'some words' corpus.jsonl | head -n 3")
        print("or finish with:          answer: your answer        (Ctrl-D gives up)\n")
        print(env.episode.prompt)
        done = False
        while not done:
            try:
                text = input(f"[turn {len(env.episode.turns) + 1} of {args.max_turns}] > ")
            except EOFError:
                print("\ngiven up")
                break
            observation, _, terminated, truncated, _ = env.step(text)
            done = terminated or truncated
            print(observation)
        print()
        print(render_trajectory(env.trajectory(), color=color), end="")
    finally:
        env.close()
    return 0


def _play_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, help="which question comes first")
    parser.add_argument("--question-id", help="play this question")
    add_env_arguments(parser)


def _predictions(path: Path) -> Iterator[tuple[str, str, list[str]]]:
    with path.open("rb") as f:
        for number, line in enumerate(f, 1):
            where = f"{path}, line {number}"
            try:
                item = json.loads(line)
            except (ValueError, RecursionError) as e:
                why = f"{e.msg} at character {e.pos + 1}" if isinstance(e, json.JSONDecodeError) else e
                raise QuestionsError(f"{where}: malformed JSON: {why}") from e
            if not isinstance(item, dict):
                raise QuestionsError(f"{where}: need a JSON object with {', '.join(_SCORED)}")
            if missing := [name for name in _SCORED if name not in item]:
                there = ", ".join(map(repr, item)) or "none"
                raise QuestionsError(f"{where}: key {missing[0]!r} is missing; there are {there}")
            key, prediction, golden = (item[name] for name in _SCORED)
            if not isinstance(prediction, str) or not isinstance(golden, list) or not golden:
                raise QuestionsError(f"{where}: prediction must be text and golden_answers a non-empty list")
            yield str(key), prediction, golden


def _score_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="JSONL with id, prediction, golden_answers")
    parser.add_argument(
        "--yes-no-rule", action="store_true", help="HotpotQA's rule: yes, no, noanswer match only exactly"
    )


def _score(args: argparse.Namespace) -> int:
    """Score predictions: one JSON line an item (id, em, f1), the averages on stderr."""
    from grepseek_env.reward import exact_match, f1_score

    ems, f1s = [], []
    for key, prediction, golden in _predictions(args.file):
        em = exact_match(prediction, golden, yes_no_rule=args.yes_no_rule)
        f1 = f1_score(prediction, golden, yes_no_rule=args.yes_no_rule)
        ems.append(em)
        f1s.append(f1)
        print(json.dumps({"id": key, "em": em, "f1": f1}, ensure_ascii=False))
    if not ems:
        raise QuestionsError(f"{args.file}: no lines to score")
    print(f"{len(ems)} items: EM {sum(ems) / len(ems):.4f}  F1 {sum(f1s) / len(f1s):.4f}", file=sys.stderr)
    return 0


def _corpus_arguments(parser: argparse.ArgumentParser) -> None:
    sub = parser.add_subparsers(dest="corpus_command", required=True, metavar="build|info|verify|fetch|split")
    build = sub.add_parser("build", help="check a file once and prepare it for searching")
    build.add_argument("path", metavar="FILE|NAME", help="a JSONL or text file, or the name of a generated world")
    build.add_argument("--into", type=Path, metavar="DIR", help="sidecar folder (default: FILE.grepseek beside it)")
    build.add_argument(
        "--slices", type=int, metavar="N", help="also cut it into N files: fastest to search, twice the room on disk"
    )
    build.add_argument("--index", action="store_true", help="also make its token index: searches take milliseconds")
    build.add_argument(
        "--workers", type=int, metavar="N", help="threads that make the index (default: one a core, 8 at most)"
    )
    info = sub.add_parser("info", help="what is known about a prepared corpus")
    info.add_argument("path", metavar="FILE|NAME")
    verify = sub.add_parser("verify", help="read it again and compare with what was recorded")
    verify.add_argument("path", metavar="FILE|NAME")
    verify.add_argument("--deep", action="store_true", help="parse every line as JSON and name the first bad one")
    split = sub.add_parser("split", help="cut it into part files, to be searched by several hosts")
    split.add_argument("path", metavar="FILE|NAME")
    split.add_argument("--parts", type=int, required=True, metavar="N", help="how many files; one actor searches each")
    split.add_argument("--into", type=Path, metavar="DIR", help="folder (default: FILE.parts beside it)")
    fetch = sub.add_parser("fetch", help="download a public corpus")
    fetch.add_argument("name", help="wiki18: the 14 GB reference corpus")
    fetch.add_argument("--into", type=Path, metavar="DIR", help="folder (default: the cache folder)")


def _corpus(args: argparse.Namespace) -> int:
    """Prepare, inspect, check, cut or download a corpus."""
    from grepseek_env.backend import open_corpus
    from grepseek_env.corpus.build import build_corpus
    from grepseek_env.corpus.fetch import fetch
    from grepseek_env.corpus.slices import build_slices, find_slices
    from grepseek_env.corpus.store import CorpusStore
    from grepseek_env.corpus.verify import info, verify
    from grepseek_env.distributed.parts import PartsManifest, is_manifest, split_corpus
    from grepseek_env.engine.index.build import build_index
    from grepseek_env.engine.index.index import index_info, verify_index
    from grepseek_env.engine.kernels.load import WORTH_COMPILING, load

    progress = sys.stderr.isatty()
    if args.corpus_command in {"build", "info", "verify"} and is_manifest(args.path):
        parts = PartsManifest.read(args.path).parts
        here = [part for part in parts if not part.host or part.path.exists()]
        for part in parts:
            if part not in here:
                print(f"{part.path.name:<14} is on {part.host}, not here", file=sys.stderr)
        if not here:
            raise ConfigError(f"no part of {args.path} is on this host: run this where they are")
        return max(_corpus(argparse.Namespace(**{**vars(args), "path": str(part.path)})) for part in here)
    match args.corpus_command:
        case "build":
            path = Path(args.path)
            if path.exists():
                store = build_corpus(path, into=args.into, progress=progress)
            else:
                store = open_corpus(args.path, progress=progress)
            print(info(store))
            if args.slices is not None:
                made = build_slices(store, args.slices, progress=progress)
                print(f"{'slices':<14} {len(made.files)} files in {made.folder}")
            if args.index or store.facts.bytes >= WORTH_COMPILING:
                load(lambda: print("compiling the search, once on this machine: about ten seconds", file=sys.stderr))
            if args.index:
                print(f"{'index':<14} {build_index(store, workers=args.workers, progress=progress)}")
        case "info":
            path = Path(args.path)
            store = CorpusStore.open(path, build=False) if path.exists() else open_corpus(args.path)
            print(info(store))
            if (cut := find_slices(store)) is not None:
                print(f"{'slices':<14} {len(cut.files)} files in {cut.folder}")
            if (index := index_info(store)) is not None:
                print(f"{'index':<14} {index}")
        case "verify":
            path = Path(args.path)
            store = CorpusStore.open(path, build=False) if path.exists() else open_corpus(args.path)
            report = verify(store, deep=args.deep, progress=progress)
            print(report)
            whole, text = verify_index(store) or (True, "")
            if text:
                print(text)
            return 0 if report.ok and whole else 1
        case "split":
            print(split_corpus(open_corpus(args.path, progress=progress), args.parts, args.into, progress=progress))
        case _:
            print(fetch(args.name, args.into, progress=progress))
    return 0


def _doctor_arguments(parser: argparse.ArgumentParser) -> None:
    add_corpus_argument(parser)


def _doctor(args: argparse.Namespace) -> int:
    """Say what is installed, which programs are used, and what confines them here."""
    from grepseek_env.doctor import doctor

    return doctor(args.corpus)


def _prompt_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--template", action="store_true", help="print it with places to fill in, to write one's own")
    add_env_arguments(parser)


def _prompt(args: argparse.Namespace) -> int:
    """Print the system prompt and its version hash."""
    from grepseek_env.env import make_rules
    from grepseek_env.prompts import TEMPLATE, prompt_hash

    keys = (
        "action_format",
        "max_turns",
        "max_observation_tokens",
        "max_observation_chars",
        "tokenizer",
        "system_prompt",
    )
    options = {k: v for k, v in env_kwargs(args).items() if k in keys}
    text = make_rules(**options).system_prompt
    print((options["system_prompt"] or TEMPLATE) if args.template else text)
    print(f"version {prompt_hash(text)}", file=sys.stderr)
    return 0


def _bench_arguments(parser: argparse.ArgumentParser) -> None:
    from grepseek_env.bench.engine.arguments import add_arguments
    from grepseek_env.bench.scaling.arguments import add_arguments as add_scaling_arguments
    from grepseek_env.bench.vector.arguments import add_arguments as add_vector_arguments

    sub = parser.add_subparsers(dest="bench_command", required=True, metavar="env|engine|sandbox|scaling|vector")
    env = sub.add_parser("env", help="time that a step costs beyond its command")
    env.add_argument("--steps", type=int, default=500, help="steps a repetition (default: 500)")
    env.add_argument("--repetitions", type=int, default=7, help="(default: 7)")
    add_arguments(sub.add_parser("engine", help="every way to run a command, against bash and side by side"))
    sandbox = sub.add_parser("sandbox", help="what confining programs costs a command, against none")
    add_corpus_argument(sandbox)
    sandbox.add_argument("--count", type=int, default=500, help="commands of each kind (default: 500)")
    sandbox.add_argument("--out", type=Path, metavar="FILE", help="write the figures there as JSON too")
    add_scaling_arguments(sub.add_parser("scaling", help="time of each class of query, and an index, as corpora grow"))
    add_vector_arguments(sub.add_parser("vector", help="many environments at once, against Gymnasium's own ways"))


def _bench(args: argparse.Namespace) -> int:
    """Measure this machine."""
    if args.bench_command == "engine":
        from grepseek_env.bench.engine.run import EngineBench, bench_engine

        names = EngineBench.__dataclass_fields__
        options = EngineBench(**{name: value for name, value in vars(args).items() if name in names})
        return bench_engine(options, command_line=sys.argv)

    if args.bench_command == "sandbox":
        from grepseek_env.bench.sandbox import bench_sandbox

        return bench_sandbox(count=args.count, corpus=args.corpus, out=args.out)

    if args.bench_command == "scaling":
        from grepseek_env.bench.scaling.run import ScalingBench, bench_scaling

        names = ScalingBench.__dataclass_fields__
        scaling = ScalingBench(**{name: value for name, value in vars(args).items() if name in names})
        return bench_scaling(scaling, command_line=sys.argv)

    if args.bench_command == "vector":
        from grepseek_env.bench.vector.run import VectorBench, bench_vector

        names = VectorBench.__dataclass_fields__
        chosen = VectorBench(**{name: value for name, value in vars(args).items() if name in names})
        return bench_vector(chosen, command_line=sys.argv)

    from grepseek_env.bench.env_overhead import bench_env

    return bench_env(steps=args.steps, repetitions=args.repetitions)


_OWN: dict[str, tuple[Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace], int]]] = {
    "run": (_run_arguments, _run),
    "play": (_play_arguments, _play),
    "score": (_score_arguments, _score),
    "corpus": (_corpus_arguments, _corpus),
    "prompt": (_prompt_arguments, _prompt),
    "bench": (_bench_arguments, _bench),
    "doctor": (_doctor_arguments, _doctor),
    "serve": (add_serve_arguments, serve),
}


def _parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="grepseek", description=(grepseek_env.__doc__ or "").partition("\n")[0], allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"grepseek-env {grepseek_env.__version__}")
    sub = parser.add_subparsers(dest="subcommand", required=True, metavar="COMMAND")

    def add(
        name: str,
        text: str,
        add_arguments: Callable[[argparse.ArgumentParser], None],
        run: Callable[[argparse.Namespace], int],
    ) -> None:
        first = text.strip().splitlines()[0]
        child = sub.add_parser(
            name,
            help=first,
            description=text,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        add_arguments(child)
        child.set_defaults(run=run)

    for name, (add_arguments, run) in _OWN.items():
        add(name, run.__doc__ or name, add_arguments, run)
    # A plug-in is imported only when it is asked for, or to be listed: imports would dominate a short command.
    wanted = argv[0] if argv and not argv[0].startswith("-") else None
    plugins = sorted(entry for entry in entry_points(group=ENTRY_POINT_GROUP) if entry.name not in _OWN)
    one = wanted in _OWN or wanted in {entry.name for entry in plugins}
    for entry in plugins:
        if entry.name == wanted or not one:
            module = entry.load()
            add(entry.name, module.__doc__ or entry.name, module.add_arguments, module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the console command and returns its exit code.

    0: done; 1: an error, told on stderr; 2: the command line or the search command is not allowed; 130: Ctrl-C.
    `grepseek run` passes on the pipeline's own exit code.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    args = _parser(argv).parse_args(argv)
    try:
        return int(args.run(args))
    except CommandRefused as e:
        print(e, file=sys.stderr)
        return 2
    except GrepSeekError as e:
        print(f"grepseek: {e}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader of our output has gone, as in `grepseek ... | head`; keep the interpreter's exit quiet.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        kept = "" if args.subcommand in {"run", "play"} else "; what was complete is kept"
        print(f"\ngrepseek: stopped{kept}", file=sys.stderr)
        return 130
    except OSError as e:
        told = f"{e.filename}: {e.strerror}" if e.filename and e.strerror else e
        print(f"grepseek: {told}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
