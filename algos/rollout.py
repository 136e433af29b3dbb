"""Collect trajectories: run a policy over questions and write one JSONL line an episode.

    grepseek rollout --policy keyword --corpus world:tiny --limit 100 --out runs/keyword

A run folder holds `trajectories.jsonl` and `manifest.json`. Running the same command again goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from grepseek_env.cli_support import add_env_arguments, env_kwargs
from grepseek_env.env import GrepSeekEnv
from grepseek_env.errors import ConfigError, TrajectoryError
from grepseek_env.manifest import check_resume, run_manifest, write_manifest
from grepseek_env.prompts import prompt_hash
from grepseek_env.trajectory import Trajectory, TrajectoryWriter, read_trajectories
from policies.base import EpisodeStart, make_policy, policy_names

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from policies.base import Policy

__all__ = ["Summary", "collect", "run_episode", "summarize"]


def episode_seed(seed: int, question_id: str, sample: int) -> int:
    """Returns the policy's seed of one episode: a hash of run seed, question and sample, so order does not matter."""
    digest = hashlib.sha256(f"{seed}/{question_id}/{sample}".encode()).digest()
    return int.from_bytes(digest[:4], "big")


def run_episode(env: GrepSeekEnv, policy: Policy, question_id: str, *, seed: int = 0, sample: int = 0) -> Trajectory:
    """Plays one question to its end.

    Raises:
        GrepSeekError: the environment cannot start the episode. A fault in the middle is in the record instead.
    """
    observation, _ = env.reset(options={"question_id": question_id})
    own = episode_seed(seed, question_id, sample)
    policy.start(
        EpisodeStart(
            question=env.episode.question,
            observation=observation,
            system_prompt=env.system_prompt,
            action_format=env.rules.action_format,
            max_turns=env.rules.config.max_turns,
            seed=own,
        )
    )
    done = False
    while not done:
        observation, _, terminated, truncated, _ = env.step(policy.act(observation))
        done = terminated or truncated
    return env.trajectory({"policy": policy.name, "sample": sample, "seed": own})


def _earlier(path: Path) -> dict[tuple[str, int], Trajectory]:
    """Returns the results in a run's file by question and sample.

    A fault or an episode given up is no result: such an episode is played again.
    """
    done: dict[tuple[str, int], Trajectory] = {}
    for number, trajectory in enumerate(read_trajectories(path), 1):
        sample = trajectory.metadata.get("sample", 0)
        if not isinstance(sample, int):
            raise TrajectoryError(f"{path}, line {number}: sample is {sample!r}; was the line written by another tool?")
        if _is_result(trajectory):
            done[trajectory.question_id, sample] = trajectory
    return done


def _is_result(trajectory: Trajectory) -> bool:
    return trajectory.reward_valid and trajectory.finish_reason != "abandoned"


def collect(
    env: GrepSeekEnv,
    policy: Policy,
    out: Path,
    *,
    limit: int | None = None,
    samples: int = 1,
    seed: int = 0,
    overwrite: bool = False,
    progress: bool = False,
) -> list[Trajectory]:
    """Plays the environment's questions in their order and writes every episode as it ends.

    Args:
        env: questions, corpus and rules.
        policy: who plays.
        out: the run folder; a run of the same settings in it is resumed.
        limit: number of questions; None takes all.
        samples: episodes a question.
        seed: for the policy's random draws.
        overwrite: start over.
        progress: show a progress bar.

    Returns:
        All trajectories of the run, those of earlier sittings included.

    Raises:
        ConfigError: `limit` or `samples` cannot work, or the folder holds another run.
    """
    if limit is not None and limit < 1:
        raise ConfigError(f"limit is {limit}; it must be at least 1, or None for all questions")
    if samples < 1:
        raise ConfigError(f"samples is {samples}; it must be at least 1")
    out.mkdir(parents=True, exist_ok=True)
    path = out / "trajectories.jsonl"
    count = len(env.question_set) if limit is None else min(limit, len(env.question_set))
    manifest = run_manifest(_settings(env, policy, count, samples, seed), corpus_digest=env.backend.corpus_digest)
    if overwrite:
        path.unlink(missing_ok=True)
    elif not check_resume(out / "manifest.json", manifest) and path.exists():
        raise ConfigError(f"{path} exists without a manifest; choose another output folder, or pass --overwrite")
    write_manifest(out / "manifest.json", manifest)
    with TrajectoryWriter(path) as writer:
        done = _earlier(path)
        total = count * samples
        with tqdm(total=total, initial=len(done), unit="episode", disable=not progress) as bar:
            for i in range(count):
                question_id = env.question_set[i].id
                for sample in range(samples):
                    if (question_id, sample) in done:
                        continue
                    trajectory = run_episode(env, policy, question_id, seed=seed, sample=sample)
                    writer.write(trajectory)
                    done[question_id, sample] = trajectory
                    bar.update()
                    bar.set_postfix(f1=f"{_mean(t.breakdown['f1'] for t in done.values()):.3f}", refresh=False)
    return list(done.values())


def _settings(env: GrepSeekEnv, policy: Policy, count: int, samples: int, seed: int) -> dict[str, Any]:
    config, function = env.rules.config, env.rules.reward_function
    return {
        "policy": policy.name,
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


def _mean(values: Iterable[float]) -> float:
    items = list(values)
    return sum(items) / len(items) if items else 0.0


@dataclass(frozen=True, slots=True)
class Summary:
    """Averages over trajectories whose reward is valid.

    Attributes:
        episodes: number of them.
        faults: number of episodes left out because the infrastructure failed.
        f1: mean token F1.
        em: mean exact match.
        reward: mean reward.
        turns: mean policy turns.
        commands: mean commands run.
        format_valid: share of transcripts that keep to the format.
    """

    episodes: int
    faults: int
    f1: float
    em: float
    reward: float
    turns: float
    commands: float
    format_valid: float


def summarize(trajectories: Sequence[Trajectory]) -> Summary:
    """Returns the averages of a run."""
    valid = [t for t in trajectories if _is_result(t)]
    return Summary(
        episodes=len(valid),
        faults=len(trajectories) - len(valid),
        f1=_mean(t.breakdown["f1"] for t in valid),
        em=_mean(t.breakdown["em"] for t in valid),
        reward=_mean(t.reward for t in valid),
        turns=_mean(len(t.turns) for t in valid),
        commands=_mean(sum(turn.kind == "tool_call" for turn in t.turns) for t in valid),
        format_valid=_mean(float(t.breakdown["format_valid"]) for t in valid),
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `grepseek rollout`."""
    parser.add_argument("--policy", required=True, help=f"one of: {', '.join(policy_names())}")
    parser.add_argument("--out", type=Path, required=True, help="run folder; the same command resumes a stopped run")
    parser.add_argument("--limit", type=int, help="number of questions (default: all)")
    parser.add_argument("--samples", type=int, default=1, help="episodes a question (default: 1)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the policy's random draws (default: 0)")
    parser.add_argument("--overwrite", action="store_true", help="start over where the folder holds another run")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    add_env_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Runs `grepseek rollout`."""
    policy = make_policy(args.policy)
    env = GrepSeekEnv(shuffle=False, **env_kwargs(args))
    try:
        start = time.perf_counter()
        trajectories = collect(
            env,
            policy,
            args.out,
            limit=args.limit,
            samples=args.samples,
            seed=args.seed,
            overwrite=args.overwrite,
            progress=not args.quiet,
        )
        seconds = time.perf_counter() - start
    finally:
        env.close()
    s = summarize(trajectories)
    print(
        f"{s.episodes} episodes ({s.faults} faults): F1 {s.f1:.3f}  EM {s.em:.3f}  reward {s.reward:.3f}  "
        f"format {s.format_valid:.2f}  turns {s.turns:.1f}  commands {s.commands:.1f}  [{seconds:.1f} s]\n"
        f"{args.out / 'trajectories.jsonl'}"
    )
    return 0
