"""Collect trajectories: run a policy over questions, many episodes at once, and write one JSONL line an episode.

    grepseek rollout --policy keyword --corpus world:tiny --limit 100 --out runs/keyword

A run folder holds `trajectories.jsonl` and `manifest.json`. Running the same command again goes on where it stopped.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from algos.rollout_commands import run_command
from algos.rollout_many import check_bounds, play_many
from algos.rollout_play import Job, episode_seed, play
from algos.rollout_ray import play_on_ray
from algos.rollout_report import Progress, Summary, is_result, summarize
from grepseek_env.cli_support import add_env_arguments, env_kwargs
from grepseek_env.env import GrepSeekEnv
from grepseek_env.errors import ConfigError, TrajectoryError
from grepseek_env.manifest import check_resume, run_manifest, write_manifest
from grepseek_env.paths import atomic_file
from grepseek_env.prompts import prompt_hash
from grepseek_env.trajectory import Trajectory, TrajectoryWriter, read_trajectories
from grepseek_env.types import Question
from policies.options import add_policy_arguments, policy_from_args

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import gymnasium

    from policies.base import Policy

    AnyEnv = gymnasium.Env[Any, Any] | Callable[[], gymnasium.Env[Any, Any]]

__all__ = ["Group", "Summary", "collect", "episode_seed", "rollout_groups", "run_episode", "summarize"]

_Key = tuple[str, int]


def run_episode(env: GrepSeekEnv, policy: Policy, question_id: str, *, seed: int = 0, sample: int = 0) -> Trajectory:
    """Plays one question to its end, in this thread.

    Raises:
        GrepSeekError: the environment cannot start the episode. A fault in the middle is in the record instead.
    """
    job = Job(env.question_set.by_id(question_id), sample, seed)
    return play(env.rules, policy, job, partial(run_command, env.backend))


@dataclass(frozen=True, slots=True)
class Group:
    """All rollouts of one question, as group-relative algorithms compare them.

    Attributes:
        question: what was asked.
        trajectories: in the order of their samples; those that the infrastructure failed are among them.
    """

    question: Question
    trajectories: tuple[Trajectory, ...]

    @property
    def valid(self) -> tuple[Trajectory, ...]:
        """The trajectories to learn from."""
        return tuple(t for t in self.trajectories if is_result(t))

    @property
    def rewards(self) -> tuple[float, ...]:
        """The rewards of `valid`."""
        return tuple(t.reward for t in self.valid)


def rollout_groups(
    env: AnyEnv,
    policy: Policy,
    questions: Sequence[Question | str],
    group_size: int,
    *,
    seed: int = 0,
    parallel: int = 64,
    retries: int = 1,
    timing: bool = False,
    progress: bool = False,
) -> list[Group]:
    """Plays every question `group_size` times and keeps the records in memory.

    Args:
        env: an environment whose rules and backend are used, or a function that makes one, which is closed at the end.
        policy: who plays; with `parallel` above 1 forks of it do.
        questions: questions, or ids of the environment's own.
        group_size: rollouts a question.
        seed: for the policy's random draws; give every training step another one.
        parallel: episodes under way at a time.
        retries: how often an episode that the infrastructure failed is played again.
        timing: put seconds a turn into the records' metadata, as {"timing": {"model": [...], "tool": [...]}}.
        progress: show a progress bar.

    Returns:
        A group a question, in the order of the questions.

    Raises:
        ConfigError: a number cannot work, no question has an id, or a question comes twice.
        EngineFault: many episodes in a row failed.
    """
    if group_size < 1:
        raise ConfigError(f"group_size is {group_size}; it must be at least 1")
    check_bounds(parallel=parallel, retries=retries)
    with _opened(env) as own:
        asked = [q if isinstance(q, Question) else own.question_set.by_id(q) for q in questions]
        jobs = [Job(question, sample, seed) for question in asked for sample in range(group_size)]
        if len(done := {job.key for job in jobs}) < len(jobs):
            raise ConfigError(f"{len(jobs)} rollouts have only {len(done)} different ids; give every question once")
        records: dict[_Key, Trajectory] = {}
        with Progress(len(jobs), shown=progress) as bar:

            def keep(job: Job, record: Trajectory) -> None:
                records[job.key] = record
                bar.update(record)

            play_many(own, policy, jobs, keep, parallel=parallel, retries=retries, timing=timing)
    return [Group(q, tuple(records[q.id, sample] for sample in range(group_size))) for q in asked]


@contextlib.contextmanager
def _opened(env: AnyEnv) -> Iterator[GrepSeekEnv]:
    """Gives the environment below any wrappers, and closes it if it was made here."""
    made = env() if callable(env) else env
    try:
        own = made.unwrapped
        if not isinstance(own, GrepSeekEnv):
            raise ConfigError(f"env is a {type(own).__name__}; it must be a GrepSeekEnv or a function that makes one")
        yield own
    finally:
        if made is not env:
            made.close()


def collect(
    env: AnyEnv,
    policy: Policy,
    out: Path,
    *,
    limit: int | None = None,
    samples: int = 1,
    seed: int = 0,
    parallel: int = 1,
    retries: int = 1,
    timing: bool = False,
    overwrite: bool = False,
    progress: bool = False,
    ray: bool | int = False,
) -> list[Trajectory]:
    """Plays the environment's questions and writes every episode as it ends.

    What is complete is in the file when the run is stopped, by Ctrl-C or a crash; the same call goes on from there. At
    the end the file is in the order of the questions, whatever order the episodes ended in.

    Args:
        env: questions, corpus and rules; or a function that makes it, which is then closed at the end.
        policy: who plays; with `parallel` above 1 forks of it do.
        out: the run folder; a run of the same settings in it is resumed.
        limit: number of questions; None takes all.
        samples: episodes a question.
        seed: for the policy's random draws.
        parallel: episodes under way at a time. Each goes on as soon as its command has returned.
        retries: how often an episode that the infrastructure failed is played again at once. One that still fails is
            written with `reward_valid` false, and played again when the run is resumed.
        timing: put seconds a turn into the records' metadata, as {"timing": {"model": [...], "tool": [...]}}. Two
            runs then differ.
        overwrite: start over.
        progress: show a progress bar.
        ray: play in workers on the hosts of a Ray cluster, `parallel` episodes in each: True takes one worker a node,
            a number so many. `env` (best a function) and `policy` are sent there; the records are written here.

    Returns:
        All trajectories of the run, those of earlier sittings included, in the order of the questions.

    Raises:
        ConfigError: a number cannot work, or the folder holds another run.
        EngineFault: many episodes in a row failed.
    """
    if limit is not None and limit < 1:
        raise ConfigError(f"limit is {limit}; it must be at least 1, or None for all questions")
    if samples < 1:
        raise ConfigError(f"samples is {samples}; it must be at least 1")
    check_bounds(parallel=parallel, retries=retries)
    with _opened(env) as own:
        count = len(own.question_set) if limit is None else min(limit, len(own.question_set))
        path = _run_file(out, _settings(own, policy, count, samples, seed), own, overwrite=overwrite)
        with TrajectoryWriter(path) as writer:
            order, done = _earlier(path)
            jobs = (Job(own.question_set[i], sample, seed) for i in range(count) for sample in range(samples))
            with Progress(count * samples, done.values(), shown=progress) as bar:

                def keep(job: Job, record: Trajectory) -> None:
                    writer.write(record)
                    order.append(job.key)
                    done[job.key] = record
                    bar.update(record)

                left = (job for job in jobs if job.key not in done)
                bounds = {"parallel": parallel, "retries": retries, "timing": timing}
                if ray is False:
                    play_many(own, policy, left, keep, **bounds)
                else:
                    play_on_ray(env, own.rules, policy, left, keep, workers=None if ray is True else ray, **bounds)
            ids = (own.question_set[i].id for i in range(count))
            wanted = [(question_id, sample) for question_id in ids for sample in range(samples)]
            records = [done[key] for key in wanted]
            if order != wanted:
                with atomic_file(path) as file:
                    file.writelines((record.to_json() + "\n").encode() for record in records)
    return records


def _run_file(out: Path, settings: Mapping[str, Any], env: GrepSeekEnv, *, overwrite: bool) -> Path:
    """Makes the run folder and its manifest; returns where its trajectories belong."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / "trajectories.jsonl"
    manifest = run_manifest(settings, corpus_digest=env.backend.corpus_digest)
    if overwrite:
        path.unlink(missing_ok=True)
    elif not check_resume(out / "manifest.json", manifest) and path.exists():
        raise ConfigError(f"{path} exists without a manifest; choose another output folder, or pass --overwrite")
    write_manifest(out / "manifest.json", manifest)
    return path


def _earlier(path: Path) -> tuple[list[_Key], dict[_Key, Trajectory]]:
    """Returns whose lines a run's file holds, in their order, and the results among them by question and sample.

    A fault or an episode given up is no result: such an episode is played again.
    """
    order: list[_Key] = []
    done: dict[_Key, Trajectory] = {}
    for number, trajectory in enumerate(read_trajectories(path), 1):
        sample = trajectory.metadata.get("sample", 0)
        if not isinstance(sample, int):
            raise TrajectoryError(f"{path}, line {number}: sample is {sample!r}; was the line written by another tool?")
        key = trajectory.question_id, sample
        order.append(key)
        if is_result(trajectory):
            done[key] = trajectory
    return order, done


def _settings(env: GrepSeekEnv, policy: Policy, count: int, samples: int, seed: int) -> dict[str, Any]:
    config, function = env.rules.config, env.rules.reward_function
    own = {key: value for key, value in policy.describe().items() if key != "policy"}
    return {
        "policy": policy.name,
        **({"policy_options": own} if own else {}),
        "questions": count,
        "questions_digest": env.question_set.digest(count),
        "samples": samples,
        "seed": seed,
        "action_format": config.action_format,
        "prompt": prompt_hash(env.system_prompt),
        "max_turns": config.max_turns,
        "max_observation_tokens": config.max_observation_tokens if env.rules.tokenizer is not None else None,
        "max_observation_chars": config.max_observation_chars if env.rules.tokenizer is None else None,
        "command_timeout": config.limits.command_timeout,
        "tokenizer": _tokenizer_name(env.rules.tokenizer),
        "reward": repr(config.reward) if function is None else f"{function.__module__}.{_name(function)}",
    }


def _name(function: object) -> str:
    """Returns a name that is the same in every process, unlike `repr`."""
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def _tokenizer_name(counter: Any) -> str | None:
    """Tells tokenizers apart: by their content where it can be had, else by name."""
    if counter is None:
        return None
    tokenizer = getattr(counter, "tokenizer", counter)
    if (to_str := getattr(tokenizer, "to_str", None)) is not None:
        return hashlib.sha256(to_str().encode()).hexdigest()
    return str(getattr(tokenizer, "name_or_path", "") or _name(tokenizer))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `grepseek rollout`."""
    add_policy_arguments(parser)
    add = parser.add_argument
    add("--out", type=Path, required=True, help="run folder; the same command resumes a stopped run")
    add("--limit", type=int, help="number of questions (default: all)")
    add("--samples", type=int, default=1, help="episodes a question (default: 1)")
    add("--parallel", type=int, default=16, metavar="N", help="episodes under way at a time (default: 16)")
    add("--retries", type=int, default=1, metavar="N", help="times a failed episode is played again (default: 1)")
    add("--ray", type=int, nargs="?", const=True, default=False, metavar="WORKERS",
        help="play in workers of a Ray cluster, --parallel episodes in each (default: one worker a node)")  # fmt: skip
    add("--timing", action="store_true", help="write seconds a turn into the records; two runs then differ")
    add("--seed", type=int, default=0, help="seed of the policy's random draws (default: 0)")
    add("--overwrite", action="store_true", help="start over where the folder holds another run")
    add("--quiet", action="store_true", help="no progress bar")
    add_env_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Runs `grepseek rollout`."""
    policy = policy_from_args(args)
    start = time.perf_counter()
    try:
        trajectories = collect(
            lambda: GrepSeekEnv(shuffle=False, **env_kwargs(args)),
            policy,
            args.out,
            limit=args.limit,
            samples=args.samples,
            seed=args.seed,
            parallel=args.parallel,
            retries=args.retries,
            timing=args.timing,
            overwrite=args.overwrite,
            progress=not args.quiet,
            ray=args.ray,
        )
    except KeyboardInterrupt:
        print(f"\n{_kept(args.out)}; the same command goes on from there", file=sys.stderr)
        raise
    finally:
        policy.close()
    print(_report(trajectories, time.perf_counter() - start))
    print(args.out / "trajectories.jsonl")
    return _tell_faults(trajectories)


def _tell_faults(trajectories: Iterable[Trajectory]) -> int:
    """Says on stderr that episodes failed, and why one did; returns 1 then: the same command plays them again."""
    faults = [t for t in trajectories if not is_result(t)]
    if faults:
        reason = faults[0].error or faults[0].finish_reason
        print(f"grepseek: {len(faults)} failed, the first of them so: {reason}", file=sys.stderr)
    return int(bool(faults))


def _kept(out: Path) -> str:
    path = out / "trajectories.jsonl"
    count = len(_earlier(path)[1]) if path.exists() else 0
    return f"{count} episodes are complete in {path}"


def _report(trajectories: Iterable[Trajectory], seconds: float) -> str:
    """Returns a run's averages as one line."""
    s = summarize(list(trajectories))
    return (
        f"{s.episodes} episodes ({s.faults} faults): F1 {s.f1:.3f}  EM {s.em:.3f}  reward {s.reward:.3f}  "
        f"format {s.format_valid:.2f}  turns {s.turns:.1f}  commands {s.commands:.1f}  [{seconds:.1f} s]"
    )
