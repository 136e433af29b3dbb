"""Plays recorded episodes again and checks, byte for byte, that the engine still returns what was recorded.

    grepseek rollout --policy replay --policy-option file=runs/a/trajectories.jsonl --out runs/again

`check_replay` does the same without a run folder and also compares rewards and ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grepseek_env.episode import Episode, Pending
from grepseek_env.errors import GrepSeekError, TrajectoryError
from grepseek_env.trajectory import Trajectory, read_trajectories
from grepseek_env.types import Question
from policies.base import Policy, PolicyStop

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from grepseek_env.episode import Rules
    from grepseek_env.types import SearchBackend
    from policies.base import EpisodeStart

__all__ = ["ReplayMismatch", "ReplayPolicy", "check_replay", "replay"]


class ReplayMismatch(GrepSeekError):
    """The engine returns something else than was recorded: another corpus, other rules, or a fault."""


class ReplayPolicy(Policy):
    """Writes the turns of recorded episodes of the same questions.

    A question that was played several times is looked up by the seed of the episode, then by order.

    Args:
        file: a trajectory file.
        check: compare every observation with the recorded one.

    Raises:
        TrajectoryError: the file cannot be used.
    """

    name: str = "replay"

    def __init__(self, file: str | os.PathLike[str], *, check: bool = True) -> None:
        self._file = str(file)
        self._check = check
        self._records: dict[str, list[Trajectory]] = {}
        for record in read_trajectories(file):
            self._records.setdefault(record.question_id, []).append(record)
        self._next: dict[str, int] = {}  # shared by all forks

    def begin(self, start: EpisodeStart) -> None:
        """Finds the recorded episode.

        Raises:
            TrajectoryError: there is none of this question.
        """
        found = self._records.get(start.question.id)
        if not found:
            raise TrajectoryError(
                f"{self._file} has no episode of question {start.question.id!r}; play the questions that were recorded"
            )
        by_seed = [r for r in found if r.metadata.get("seed") == start.seed]
        number = self._next.get(start.question.id, 0)
        self._next[start.question.id] = number + 1
        self._record = by_seed[0] if by_seed else found[number % len(found)]
        self._turn = 0

    def act(self, observation: str) -> str:
        """Writes the next recorded turn.

        Raises:
            ReplayMismatch: the observation is not the one that was recorded.
            PolicyStop: the recorded episode ended here.
        """
        record, turn = self._record, self._turn
        if self._check:
            expected = record.prompt if turn == 0 else record.turns[turn - 1].observation
            _compare(record, f"observation before turn {turn + 1}", expected, observation)
        if turn >= len(record.turns):
            raise PolicyStop(f"the recorded episode of question {record.question_id!r} has {turn} turns")
        self._turn += 1
        return record.turns[turn].text

    def describe(self) -> dict[str, Any]:
        """Returns the file's name."""
        return {"policy": self.name, "file": self._file}


def replay(record: Trajectory, rules: Rules, backend: SearchBackend) -> Trajectory:
    """Plays a recorded episode's turns again and returns the new record.

    Args:
        record: what was played.
        rules: of the environment; they have to be those of the record.
        backend: the corpus.
    """
    question = Question(record.question_id, record.question, record.golden_answers)
    episode = Episode(rules, question)
    for turn in record.turns:
        if episode.done:
            break
        outcome = episode.submit(turn.text)
        if isinstance(outcome, Pending):
            try:
                result: Any = backend.run(
                    outcome.command, timeout=outcome.timeout, max_output_bytes=outcome.max_output_bytes
                )
            except GrepSeekError as e:
                result = e
            episode.resume(result)
    if record.finish_reason == "budget" and not episode.done:
        episode.stop()
    return episode.trajectory(record.metadata)


def check_replay(records: Iterable[Trajectory], rules: Rules, backend: SearchBackend) -> int:
    """Plays recorded episodes again and compares every observation, the end, the answer and the reward.

    Episodes that the infrastructure failed, or that were given up, are left out.

    Returns:
        The number of episodes compared.

    Raises:
        ReplayMismatch: the first difference; names question, turn and place.
    """
    count = 0
    for record in records:
        if not record.reward_valid or record.finish_reason == "abandoned":
            continue
        again = replay(record, rules, backend)
        _compare(record, "system prompt", record.system_prompt, again.system_prompt)
        _compare(record, "prompt", record.prompt, again.prompt)
        for number, (old, new) in enumerate(zip(record.turns, again.turns, strict=False), 1):
            _compare(record, f"observation after turn {number}", old.observation, new.observation)
        for name in ("finish_reason", "answer", "reward"):
            _compare(record, name, repr(getattr(record, name)), repr(getattr(again, name)))
        count += 1
    return count


def _compare(record: Trajectory, what: str, expected: str, found: str) -> None:
    if expected == found:
        return
    at = next((i for i, (a, b) in enumerate(zip(expected, found, strict=False)) if a != b), None)
    at = min(len(expected), len(found)) if at is None else at
    raise ReplayMismatch(
        f"question {record.question_id!r}: {what} differs at character {at}: "
        f"recorded {expected[at : at + 40]!r}, now {found[at : at + 40]!r}; is it the same corpus, and are the "
        "environment's options those of the recording?"
    )
