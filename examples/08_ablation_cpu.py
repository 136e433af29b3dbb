"""SFT, GRPO and both on a CPU: the paper's ablation with a tiny policy. Takes some 40 minutes; `--quick` a few.

    python examples/08_ablation_cpu.py --out runs/ablation           # 2 fresh worlds x 3 seeds, two processes
    python examples/08_ablation_cpu.py --quick --out runs/quick      # one world, one seed, few steps: does it run?
    python examples/08_ablation_cpu.py --out runs/tuning --worlds 101 --seeds 0    # the world it was tuned on

A policy of half a million parameters with random weights (`policies.tiny_policy`) is fine-tuned on demonstrations of a
Tutor and a Planner (`algos.tutor_planner`), then trained by GRPO in the environment (`algos.sft`, `algos.grpo`), and
asked about countries that it has never seen: every entity of a test question is held out of training.

Two sets of demonstrations: `strong` is the Tutor/Planner's own, which refines a command until it is confirmed; `plain`
is one try a step, mostly for the name alone, kept if the question was answered. Arms, each a run folder:

    base                random weights
    grpo                GRPO from random weights, a third of the steps: its weights never change
    barely, barely+grpo SFT of a sixth of the steps, and GRPO after it
    plain, plain+grpo   SFT on the plain set, and GRPO after it
    strong, strong+grpo SFT on the strong set, and GRPO after it

Departures from the paper (arXiv 2605.29307): a tiny policy from random weights in place of Qwen3.5-9B; a generated
world of 11,600 one-fact passages in place of Wikipedia, so that an episode has some 100 tokens; 1-hop and 2-hop
questions; a world implementation of both roles in place of two LLMs; 16 questions a step and one update in place of 256
and 8; 30 steps in place of 200; learning rates a hundred times the paper's, as the model's size asks for; reward F1 +
0.1 x format in place of F1 gated by the format; 4 turns in place of 6.

Expected curve: GRPO after SFT on the plain set starts near F1 .5 and levels off above .8 after some 25 steps; from
random weights the reward stays at 0, since no episode ever earns anything and all groups are flat.

A stopped run goes on where it was (Ctrl-C is fine), and finished arms are skipped. The run folder gets `table.md`,
`results.json`, `curves.png` and `manifest.json`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import signal
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer

from algos import grpo, sft
from algos.study import evaluate, hacks, write_report
from algos.tutor_planner import Ground, Settings, WorldStyle, world_roles
from algos.tutor_planner.run import generate
from grepseek_env import open_backend
from grepseek_env.env import make_rules
from grepseek_env.errors import ConfigError, GrepSeekError
from grepseek_env.paths import atomic_file, atomic_write
from grepseek_env.tasks import load_question_set
from policies.tiny_policy import make_tiny_policy, make_world_tokenizer


@dataclass(frozen=True)
class Study:
    """What decides the numbers. Tuned on world 101, seed 0, and frozen before the reported run."""

    questions: int = 16_000  # that both searchers try to answer, and that GRPO draws from
    sft_steps: int = 600
    barely_steps: int = 100
    sft_batch: int = 12
    sft_rate: float = 2e-3
    grpo_steps: int = 30
    scratch_steps: int = 10
    grpo_questions: int = 16  # a step, each asked `group` times
    group: int = 5
    grpo_rate: float = 3e-4
    vocab: int = 720
    hidden: int = 128
    layers: int = 3
    context: int = 320  # tokens of an episode
    turn_tokens: int = 64
    turns: int = 4
    eval_questions: int = 200  # of the test split


FULL = Study()
QUICK = replace(FULL, questions=3_000, sft_steps=60, barely_steps=10, grpo_steps=3, scratch_steps=2, eval_questions=20)
STYLES = {
    "plain": WorldStyle(quality="plain", prose="brief", heads=(1,), vague=0.8),
    "strong": WorldStyle(quality="strong", prose="brief", heads=(1,), shapes=("phrase", "single")),
}
SHOWN = 60  # transcripts of each set from which the tokenizer learns the words that are no names
PROMPT = "Search."  # the tiny policy's template leaves the system prompt out


def world_name(study: Study, seed: int) -> str:
    """Returns a world's name; another seed is another world, with other names and facts."""
    return f"world:study?seed={seed}&questions={study.questions}"


def prepare(study: Study, out: Path, seed: int) -> None:
    """Makes a world's corpus, both sets of demonstrations and the tokenizer, as far as they are not there."""
    name, folder = world_name(study, seed), out / f"world-{seed}"
    if (folder / "tokenizer").is_dir():
        return
    questions = load_question_set(name)[:]
    names = {name for question in questions for step in question.evidence for name in (step.subject, step.answer)}
    # Every word of a name equally often, and few transcripts: syllables become tokens, and no name does.
    texts = sorted({word for name in names for word in name.split()}) * 4
    with open_backend(name) as backend:
        for label, style in STYLES.items():
            limits = Settings(max_steps=5, refinements=1 if style.quality == "plain" else 6)
            ground = Ground(backend, make_rules(system_prompt=PROMPT, max_turns=study.turns), limits)
            records = generate(questions, world_roles(style), ground, folder / label, name=name, progress=False)
            kept = [record.trajectory for record in records if record.trajectory is not None]
            print(f"world {seed}: {len(kept)} {label} demonstrations from {len(questions)} questions", flush=True)
            with atomic_file(folder / label / "trajectories.jsonl") as file:
                file.writelines(trajectory.to_json().encode() + b"\n" for trajectory in kept)
            texts += [trajectory.text() for trajectory in kept[:SHOWN]]
    tokenizer = make_world_tokenizer(texts, study.vocab)
    tokenizer.save_pretrained(folder / "tokenizer.new")
    (folder / "tokenizer.new").rename(folder / "tokenizer")


def random_policy(study: Study, out: Path, world: int, seed: int) -> Path:
    """Saves the policy that all arms of a world and seed start from."""
    path = out / f"world-{world}" / f"seed-{seed}" / "random"
    if not path.is_dir():
        tokenizer = AutoTokenizer.from_pretrained(str(out / f"world-{world}" / "tokenizer"))
        sizes: dict[str, int] = {"hidden": study.hidden, "layers": study.layers, "context": study.context}
        make_tiny_policy(path, tokenizer, **sizes, seed=seed)
    return path


def fine_tune(study: Study, model: Path, data: Path, run: Path, seed: int, steps: int) -> Path:
    """SFT with AdamW, a warm-up and a line down to a tenth of the rate."""
    return sft.main(
        sft.Args(
            model=str(model),
            data=data,
            out=run,
            steps=steps,
            batch_size=study.sft_batch,
            learning_rate=study.sft_rate,
            final_rate=0.1,
            warmup=40 / FULL.sft_steps,
            beta2=0.95,
            seed=seed,
            eval_every=100,
            save_every=200,
            keep=1,
            tensorboard=False,
            quiet=True,
        )
    )


def reinforce(study: Study, model: Path, world: int, run: Path, seed: int, steps: int) -> Path:
    """GRPO with one on-policy update a step."""
    return grpo.main(
        grpo.Args(
            model=str(model),
            out=run,
            corpus=world_name(study, world),
            steps=steps,
            questions_per_step=study.grpo_questions,
            mini_batch=study.grpo_questions,
            group_size=study.group,
            learning_rate=study.grpo_rate,
            warmup=5 / FULL.grpo_steps,
            beta2=0.95,
            turn_tokens=study.turn_tokens,
            context_tokens=study.context,
            max_turns=study.turns,
            system_prompt=PROMPT,
            seed=seed,
            save_every=10,
            keep=1,
            tensorboard=False,
            quiet=True,
        )
    )


ARMS = ("base", "grpo", "barely", "barely+grpo", "plain", "plain+grpo", "strong", "strong+grpo")


def train(study: Study, out: Path, world: int, seed: int, arm: str) -> Path:
    """Trains an arm, and before it the one that it starts from; returns its last checkpoint."""
    start, run = random_policy(study, out, world, seed), out / f"world-{world}" / f"seed-{seed}" / arm
    if arm == "base":
        return start
    if arm == "grpo":
        return reinforce(study, start, world, run, seed, study.scratch_steps)
    if arm.endswith("+grpo"):
        return reinforce(
            study, train(study, out, world, seed, arm.removesuffix("+grpo")), world, run, seed, study.grpo_steps
        )
    data = out / f"world-{world}" / ("strong" if arm == "strong" else "plain")
    steps = study.barely_steps if arm == "barely" else study.sft_steps
    return fine_tune(study, start, data, run, seed, steps)


def cell(study: Study, out: Path, world: int, seed: int, arms: tuple[str, ...]) -> tuple[int, int]:
    """Trains and evaluates the arms of one world and seed; what is there already is left as it is."""
    torch.set_num_threads(1)  # matrices this small gain nothing from a second thread
    for arm in arms:
        path = out / f"world-{world}" / f"seed-{seed}" / f"{arm}.json"
        if path.exists():
            continue
        began = time.perf_counter()
        model = train(study, out, world, seed, arm)
        trained = time.perf_counter()
        outcome = evaluate(
            model,
            corpus=world_name(study, world),
            count=study.eval_questions,
            rules={"system_prompt": PROMPT, "max_turns": study.turns},
            turn_tokens=study.turn_tokens,
            seed=seed,
        )
        times = {"train_seconds": trained - began, "eval_seconds": time.perf_counter() - trained}
        atomic_write(path, json.dumps({"world": world, "seed": seed, "arm": arm, **outcome, **times}, indent=1) + "\n")
        greedy, sampled = outcome["greedy"]["all"]["f1"], outcome["sampled"]["all"]["f1"]
        print(f"world {world} seed {seed} {arm:12} F1 {greedy:.3f}, sampled {sampled:.3f}", flush=True)
    return world, seed


def run(study: Study, args: argparse.Namespace) -> None:
    """Prepares the worlds, works on all cells, and writes the report."""
    began = time.perf_counter()
    args.out.mkdir(parents=True, exist_ok=True)
    same_study(study, args.out)
    jobs = max(1, min(args.jobs, len(args.worlds) * len(args.seeds)))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    spawn = multiprocessing.get_context("spawn")
    # Ctrl-C reaches this process alone, which ends the others.
    with ProcessPoolExecutor(jobs, spawn, signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool:
        try:
            for made in as_completed([pool.submit(prepare, study, args.out, world) for world in args.worlds]):
                made.result()
            # Worlds and seeds change together, so that a study that is stopped early has seen all of both.
            pairs = [
                (args.worlds[(i + j) % len(args.worlds)], s)
                for j in range(len(args.worlds))
                for i, s in enumerate(args.seeds)
            ]
            work = [pool.submit(cell, study, args.out, world, seed, args.arms) for world, seed in pairs]
            for number, done in enumerate(as_completed(work), 1):
                world, seed = done.result()
                print(f"world {world} seed {seed} is done ({number} of {len(work)})", flush=True)
                report(study, args, jobs, time.perf_counter() - began)
        except BaseException:
            for child in multiprocessing.active_children():
                child.terminate()  # whatever is cut off is done again: files appear whole
            pool.shutdown(cancel_futures=True)
            raise
    print(args.out / "table.md")


def report(study: Study, args: argparse.Namespace, jobs: int, seconds: float) -> None:
    """Writes table, results, curves and manifest of what there is by now."""
    digests = {}
    for world in args.worlds:
        with open_backend(world_name(study, world)) as backend:
            digests[str(world)] = backend.corpus_digest
    world = args.worlds[0]
    styles = {label: asdict(style) for label, style in STYLES.items()}
    chosen = {"worlds": args.worlds, "seeds": args.seeds, "arms": args.arms, "jobs": jobs}
    settings = {**asdict(study), "demonstrations": styles, **chosen}
    tokenizer = AutoTokenizer.from_pretrained(str(args.out / f"world-{world}" / "tokenizer"))
    paid = hacks(world_name(study, world), tokenizer, max_turns=study.turns, context=study.context)
    write_report(args.out, settings, digests, paid, seconds=seconds)


def same_study(study: Study, out: Path) -> None:
    """Makes sure that a folder holds runs of one set of settings."""
    path, ours = out / "study.json", json.loads(json.dumps(asdict(study)))
    if path.exists() and json.loads(path.read_bytes()) != ours:
        raise ConfigError(f"{out} holds a study of other settings (see {path}); choose another --out")
    atomic_write(path, json.dumps(ours, indent=1) + "\n")


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    numbers: Any = lambda text: [int(part) for part in text.split(",")]  # noqa: E731
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/ablation"), help="run folder (default: runs/ablation)")
    parser.add_argument("--quick", action="store_true", help="one world, one seed and few steps: shows that it runs")
    parser.add_argument("--worlds", type=numbers, metavar="N,N", help="seeds of worlds (default: 1,2)")
    parser.add_argument(
        "--seeds", type=numbers, metavar="N,N", help="of weights, data order, sampling (default: 1,2,3)"
    )
    parser.add_argument("--arms", type=lambda t: tuple(t.split(",")), default=ARMS, help=f"(default: {','.join(ARMS)})")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes, one thread each (default: 2)")
    args = parser.parse_args(argv)
    if unknown := [arm for arm in args.arms if arm not in ARMS]:
        parser.error(f"no arm is named {', '.join(unknown)}; there are {', '.join(ARMS)}")
    args.worlds = args.worlds or ([1] if args.quick else [1, 2])
    args.seeds = args.seeds or ([1] if args.quick else [1, 2, 3])
    return args


def main(argv: list[str] | None = None) -> int:
    """Runs the study."""
    args = arguments(argv)
    try:
        run(QUICK if args.quick else FULL, args)
    except GrepSeekError as e:
        print(f"{Path(__file__).name}: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{Path(__file__).name}: interrupted; the same command goes on", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
