"""Checks a trajectory file: the leak rules, and on request that every observation comes out byte for byte again."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tqdm import tqdm

from algos.tutor_planner.forms import Forms
from algos.tutor_planner.leaks import check_trajectory
from algos.tutor_planner.records import chain_from_metadata
from grepseek_env.episode import Episode, Pending
from grepseek_env.errors import CommandRefused, GrepSeekError, TrajectoryError
from grepseek_env.trajectory import read_trajectories
from grepseek_env.types import Question

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from algos.tutor_planner.leaks import Finding
    from grepseek_env.episode import Rules
    from grepseek_env.trajectory import Trajectory
    from grepseek_env.types import SearchBackend

__all__ = ["Report", "check_file", "replay_difference"]


@dataclass
class Report:
    """What a file's check found.

    Attributes:
        checked: trajectories read.
        clean: those without a finding.
        rules: findings by rule.
        lines: one message a finding, in file order, in characters that can be printed.
        duplicates: question ids that occur again with the same turns.
    """

    checked: int = 0
    clean: int = 0
    rules: Counter[str] = field(default_factory=Counter)
    lines: list[str] = field(default_factory=list)
    duplicates: int = 0


def replay_difference(trajectory: Trajectory, rules: Rules, backend: SearchBackend) -> str | None:
    """Plays a trajectory's turns again and returns the first difference in words; None where there is none."""
    question = Question(trajectory.question_id, trajectory.question, trajectory.golden_answers)
    episode = Episode(rules, question)
    if episode.prompt != trajectory.prompt:
        return f"the first observation is {episode.prompt!r:.120}"
    if rules.system_prompt != trajectory.system_prompt:
        return "the system prompt is another one; give the same --max-turns, caps and --action-format"
    for number, turn in enumerate(trajectory.turns, 1):
        outcome = episode.submit(turn.text)
        if isinstance(outcome, Pending):
            try:
                outcome = episode.resume(
                    backend.run(outcome.command, timeout=outcome.timeout, max_output_bytes=outcome.max_output_bytes)
                )
            except CommandRefused as e:
                outcome = episode.resume(e)
        if episode.turns[-1] != turn:
            return f"turn {number}: the environment now says {outcome.observation!r:.160}"
    if (episode.answer, episode.finish_reason) != (trajectory.answer, trajectory.finish_reason):
        return f"it ends with {episode.finish_reason} {episode.answer!r}"
    return None


def check_file(
    path: Path,
    *,
    questions: Mapping[str, Question] | None = None,
    rules: Rules | None = None,
    backend: SearchBackend | None = None,
    progress: bool = False,
) -> Report:
    """Checks every trajectory of a file.

    Args:
        path: trajectories, one a line.
        questions: by id; their evidence is the chain of a trajectory that names none.
        rules: of the environment, for replay.
        backend: replays every command, with `rules`.
        progress: show a progress bar.

    Raises:
        TrajectoryError: the file cannot be read, or a trajectory's chain or action format is none; names the line.
    """
    report = Report()
    seen: set[tuple[str, tuple[str, ...]]] = set()
    for number, trajectory in enumerate(tqdm(read_trajectories(path), unit="trajectory", disable=not progress), 1):
        report.checked += 1
        try:
            findings = _findings(trajectory, questions or {})
        except GrepSeekError as e:
            raise TrajectoryError(f"{path}, line {number}: {e}") from e
        found = [(f.rule.value, str(f)) for f in findings]
        if rules is not None and backend is not None and (difference := _replayed(trajectory, rules, backend)):
            found.append(("replay", difference))
        key = (trajectory.question_id, tuple(turn.text for turn in trajectory.turns))
        report.duplicates += key in seen
        seen.add(key)
        report.clean += not found
        report.rules.update(rule for rule, _ in found)
        where = f"{path}, line {number} ({trajectory.question_id})"
        report.lines += [_printable(f"{where}: {message}") for _, message in found]
    return report


def _printable(line: str) -> str:
    # A policy may have written half of a surrogate pair, which no terminal takes.
    return line.encode("utf-8", "backslashreplace").decode()


def _findings(trajectory: Trajectory, questions: Mapping[str, Question]) -> tuple[Finding, ...]:
    """Checks with the trajectory's own chain, or, where it names none, with the question's evidence."""
    chain = chain_from_metadata(trajectory.metadata)
    if not chain and trajectory.question_id in questions:
        chain = tuple(Forms(step.answer, step.aliases) for step in questions[trajectory.question_id].evidence)
    return check_trajectory(trajectory, chain)


def _replayed(trajectory: Trajectory, rules: Rules, backend: SearchBackend) -> str | None:
    try:
        return replay_difference(trajectory, rules, backend)
    except GrepSeekError as e:
        return f"replay failed: {e}"
