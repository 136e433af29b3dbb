"""`evaluate`: plays question sets with one policy, scores them, and writes what there is to know into one folder."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from algos.evaluate.measures import measure
from algos.evaluate.sets import load_sets
from algos.evaluate.summary import RESAMPLES, summarize
from algos.evaluate.tables import result_table
from algos.evaluate.timing import latency, read_seconds, split_timing
from algos.rollout import collect
from algos.rollout_report import is_result
from grepseek_env.env import GrepSeekEnv
from grepseek_env.errors import ConfigError
from grepseek_env.manifest import check_resume, run_manifest, write_manifest
from grepseek_env.paths import atomic_file, atomic_write
from grepseek_env.trajectory import read_trajectories

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from algos.evaluate.measures import Episode
    from algos.evaluate.sets import EvalSet
    from algos.evaluate.timing import Seconds
    from grepseek_env.observation import TokenCounter
    from grepseek_env.trajectory import Trajectory
    from policies.base import Policy

__all__ = ["Evaluation", "evaluate", "score_recorded"]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What an evaluation found.

    Attributes:
        out: its folder.
        policy: who played.
        summary: the content of `summary.json`.
        latency: the content of `timing.json`: the whole run, and each set.
        episodes: what is in `predictions.jsonl`.
    """

    out: Path
    policy: str
    summary: dict[str, Any]
    latency: dict[str, Any]
    episodes: tuple[Episode, ...]

    @property
    def faults(self) -> int:
        """Episodes left out because the infrastructure failed them."""
        return sum(s["faults"] for s in self.summary["sets"].values())

    @property
    def table(self) -> str:
        """The table of scores, the paper's rows beside ours where sets match."""
        return result_table(self.summary, self.policy)


@dataclass(frozen=True, slots=True)
class _Played:
    """One set's records, with what is needed to score them."""

    name: str
    trajectories: Sequence[Trajectory]
    seconds: Sequence[Seconds]
    row: Callable[[str], str]


def evaluate(
    policy: Policy,
    out: Path,
    *,
    questions: str | Sequence[str] | None = None,
    limit: int | None = None,
    draw: int | None = None,
    by: str | None = None,
    samples: int = 1,
    seed: int = 0,
    parallel: int = 16,
    retries: int = 1,
    yes_no_rule: bool = False,
    resamples: int = RESAMPLES,
    overwrite: bool = False,
    progress: bool = False,
    corpus: str = "world:tiny",
    split: str = "test",
    **env: Any,
) -> Evaluation:
    """Plays every question and scores the answers; the same call resumes a run that was stopped.

    The folder gets `predictions.jsonl`, `summary.json`, `table.txt`, `manifest.json`, a folder a set with its
    trajectories, and the times apart from all that, in `timing.json` and `timing.jsonl`: for a policy that repeats
    itself, everything else is the same in every run.

    Args:
        policy: who plays.
        out: the run folder.
        questions: names or FlashRAG files, as a list or with commas between; None takes the corpus's own.
        limit: questions a set; None takes all.
        draw: seed of a random sample of `limit` questions; None takes the first.
        by: a metadata key of the questions whose values become the rows of the table in place of the sets.
        samples: episodes a question.
        seed: of the policy's random draws.
        parallel: episodes under way at a time.
        retries: how often an episode that the infrastructure failed is played again at once.
        yes_no_rule: HotpotQA's rule for EM and F1.
        resamples: draws of the bootstrap.
        overwrite: start over.
        progress: show a progress bar a set.
        corpus: what is searched.
        split: of named sets that have several.
        env: other keywords of `GrepSeekEnv`.

    Raises:
        ConfigError: an option cannot work, or the folder holds another run.
        QuestionsError: a set cannot be found or read.
        EngineFault: many episodes in a row failed.
    """
    _check_resamples(resamples)
    sets = load_sets(questions, corpus=str(corpus), split=split, limit=limit, draw=draw)
    out.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        envs: list[GrepSeekEnv] = []
        for one in sets:
            shared = {"backend": envs[0].backend} if envs else {}
            made = GrepSeekEnv(corpus=corpus, questions=one.questions, shuffle=False, **{**env, **shared})
            stack.callback(made.close)
            envs.append(made)
        manifest = run_manifest(_settings(policy, sets, samples, seed), corpus_digest=envs[0].backend.corpus_digest)
        if overwrite:
            _start_over(out)
        # A folder that is resumed keeps its manifest until all is played: a set may still refuse what it is asked.
        if not check_resume(out / "manifest.json", manifest):
            write_manifest(out / "manifest.json", manifest)
        played = []
        for one, own in zip(sets, envs, strict=True):
            if progress and len(sets) > 1:
                print(one.name, file=sys.stderr)
            folder = out / one.folder
            records = collect(
                own,
                policy,
                folder,
                samples=samples,
                seed=seed,
                parallel=parallel,
                retries=retries,
                timing=True,
                overwrite=overwrite,
                progress=progress,
            )
            bare, seconds = split_timing(folder, records)
            played.append(_Played(one.name, bare, seconds, _rows(one, by, alone=len(sets) == 1)))
        # The rules of the episodes, from the sets' own manifests: prompt, caps, reward.
        rules = _common([json.loads((out / one.folder / "manifest.json").read_bytes())["settings"] for one in sets])
        write_manifest(out / "manifest.json", {**manifest, "episodes": rules})
        analysis = {"by": by, "yes_no_rule": yes_no_rule, "resamples": resamples}
        return _score(out, policy.name, played, analysis, envs[0].rules.tokenizer)


def _start_over(out: Path) -> None:
    """Removes what an earlier evaluation has written here, so that nothing of it is taken for the new one's."""
    for name in ("summary.json", "table.txt", "timing.json", "predictions.jsonl"):
        (out / name).unlink(missing_ok=True)
    manifest = out / "manifest.json"
    for record in out.glob("*/trajectories.jsonl"):
        for name in ("timing.jsonl", "manifest.json", "trajectories.jsonl"):
            record.with_name(name).unlink(missing_ok=True)
    manifest.unlink(missing_ok=True)


def score_recorded(
    runs: Sequence[Path], out: Path, *, yes_no_rule: bool = False, resamples: int = RESAMPLES
) -> Evaluation:
    """Scores trajectories that are there already: run folders of `grepseek rollout`, each a row of the table.

    Raises:
        ConfigError: two runs have the same name, they were made by different policies, or `out` is one of them.
        TrajectoryError: a run's file is missing or malformed.
    """
    _check_resamples(resamples)
    names = [run.resolve().name for run in runs]
    if len(set(names)) < len(names):
        raise ConfigError(f"two of the runs have the same name: {', '.join(map(str, runs))}; rename one folder")
    if out.resolve() in {run.resolve() for run in runs}:
        raise ConfigError(f"{out} is the run itself, whose manifest would be replaced; choose another output folder")
    played, policies, settings = [], set(), {}
    for name, run in zip(names, runs, strict=True):
        # An episode that was played again after a fault is there twice; the later line counts.
        latest = {
            (t.question_id, t.metadata.get("sample", 0)): t for t in read_trajectories(run / "trajectories.jsonl")
        }
        trajectories = list(latest.values())
        policies |= {str(t.metadata.get("policy", "?")) for t in trajectories}
        path = run / "manifest.json"
        settings[name] = _recorded_settings(path)
        seconds = [times for t in trajectories if (times := read_seconds(t.metadata.get("timing"))) is not None]
        played.append(_Played(name, trajectories, seconds, lambda _id, name=name: name))  # type: ignore[misc]
    if len(policies) > 1:
        raise ConfigError(f"the runs were made by different policies: {', '.join(sorted(policies))}; score each apart")
    policy = next(iter(policies), "?")
    out.mkdir(parents=True, exist_ok=True)
    write_manifest(out / "manifest.json", {"settings": {"policy": policy, "runs": names}, "runs": settings})
    analysis = {"by": None, "yes_no_rule": yes_no_rule, "resamples": resamples}
    return _score(out, policy, played, analysis, None)


def _recorded_settings(path: Path) -> Any:
    if not path.exists():
        return {}
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as e:
        raise ConfigError(f"{path} is no manifest of a run ({e}); remove it, or play the run again") from e


def _check_resamples(resamples: int) -> None:
    if resamples < 100:
        raise ConfigError(f"resamples is {resamples}; an interval needs at least 100")


def _rows(one: EvalSet, by: str | None, *, alone: bool) -> Callable[[str], str]:
    return lambda question_id: one.row(one.questions.by_id(question_id), by, alone=alone)


def _settings(policy: Policy, sets: Sequence[EvalSet], samples: int, seed: int) -> dict[str, Any]:
    own = {key: value for key, value in policy.describe().items() if key != "policy"}
    return {
        "policy": policy.name,
        **({"policy_options": own} if own else {}),
        "sets": {s.name: {"questions": len(s.questions), "digest": s.questions.digest()} for s in sets},
        "samples": samples,
        "seed": seed,
    }


def _common(settings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns what all sets have in common; they differ in their questions alone."""
    own = {"policy", "policy_options", "questions", "questions_digest", "samples", "seed"}
    return {key: value for key, value in settings[0].items() if key not in own}


def _score(
    out: Path,
    policy: str,
    played: Sequence[_Played],
    analysis: Mapping[str, Any],
    counter: TokenCounter | None,
) -> Evaluation:
    rows: dict[str, list[Episode]] = {}
    faults: dict[str, int] = {}
    for one in played:
        names = dict.fromkeys(one.row(t.question_id) for t in one.trajectories)
        rows |= {name: [] for name in (sorted(names, key=_natural) if analysis["by"] else names)}
        for t in one.trajectories:
            name = one.row(t.question_id)
            of_row = rows[name]
            if is_result(t):
                of_row.append(measure(t, name, counter=counter, yes_no_rule=bool(analysis["yes_no_rule"])))
            else:
                faults[name] = faults.get(name, 0) + 1
    summary = {"policy": policy, "analysis": dict(analysis)} | summarize(
        rows, faults=faults, resamples=int(analysis["resamples"])
    )
    times = {
        "all": latency(seconds for one in played for seconds in one.seconds),
        "sets": {one.name: latency(one.seconds) for one in played},
    }
    episodes = tuple(e for of_row in rows.values() for e in of_row)
    result = Evaluation(out, policy, summary, times, episodes)
    with atomic_file(out / "predictions.jsonl") as file:
        file.writelines(_encoded(episodes))
    atomic_write(out / "timing.json", _json(times))
    atomic_write(out / "table.txt", result.table + "\n")
    atomic_write(out / "summary.json", _json(summary))  # the last one: where it is, the rest is
    return result


def _natural(name: str) -> list[tuple[int, str]]:
    """Sorts numbers in names by their value."""
    return [(int(piece), "") if piece.isdigit() else (-1, piece) for piece in re.split(r"(\d+)", name)]


def _encoded(episodes: Sequence[Episode]) -> Iterator[bytes]:
    return ((e.to_json() + "\n").encode() for e in episodes)


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
