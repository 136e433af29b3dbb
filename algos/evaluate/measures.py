"""What is counted in one episode: `measure(trajectory)` -> `Episode`, a line of `predictions.jsonl`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from grepseek_env.actions import get_action_format
from grepseek_env.commands import parse
from grepseek_env.errors import CommandRefused
from grepseek_env.observation import BLANK_OUTPUT, NO_OUTPUT
from grepseek_env.reward import exact_match, f1_score

if TYPE_CHECKING:
    from grepseek_env.observation import TokenCounter
    from grepseek_env.trajectory import Trajectory, Turn

__all__ = ["COUNTS", "TOKEN_COUNTS", "Episode", "measure"]

COUNTS = (
    "turns",
    "commands",
    "not_run",
    "empty",
    "failed",
    "refused",
    "timed_out",
    "cut",
    "malformed",
    "policy_chars",
    "observation_chars",
)
"""What every episode counts: policy turns; tool calls; tool calls of the last turn, which are not run; commands that
found nothing; commands refused, out of time or ended by an error; of these the refused, and those out of time;
observations that show only the head of the output; turns without an action; characters on both sides."""

TOKEN_COUNTS = ("policy_tokens", "observation_tokens")
"""Counted where the model told its token ids, or a tokenizer is given."""

_SEARCHES = frozenset({"rg", "grep"})


@dataclass(frozen=True, slots=True)
class Episode:
    """One scored episode.

    Attributes:
        row: the row of the table it belongs to: its set, or a group of it.
        question_id: within the set.
        sample: which of the question's episodes.
        question: its text.
        prediction: the answer; None without one, which scores 0.
        golden_answers: accepted answers.
        em: exact match.
        f1: token F1.
        reward: as the environment gave it.
        format_valid: the transcript keeps to the format.
        finish_reason: how it ended.
        counts: one value an entry of `COUNTS`; of `TOKEN_COUNTS` where tokens are known.
    """

    row: str
    question_id: str
    sample: int
    question: str
    prediction: str | None
    golden_answers: tuple[str, ...]
    em: float
    f1: float
    reward: float
    format_valid: bool
    finish_reason: str
    counts: dict[str, int]

    def to_json(self) -> str:
        """Returns one line of `predictions.jsonl`; `grepseek score` reads it too."""
        record: dict[str, Any] = {
            "set": self.row,
            "id": self.question_id,
            "sample": self.sample,
            "question": self.question,
            "prediction": self.prediction or "",
            "answered": self.prediction is not None,
            "golden_answers": list(self.golden_answers),
            "em": self.em,
            "f1": self.f1,
            "reward": self.reward,
            "format_valid": self.format_valid,
            "finish_reason": self.finish_reason,
            **self.counts,
        }
        text = json.dumps(record, ensure_ascii=False)
        # Lone surrogates, which UTF-8 cannot hold, stay JSON escapes.
        return json.dumps(record) if any("\ud800" <= c <= "\udfff" for c in text) else text


def measure(
    trajectory: Trajectory, row: str, *, counter: TokenCounter | None = None, yes_no_rule: bool = False
) -> Episode:
    """Scores and counts one episode.

    EM and F1 are computed anew from the answer, so that they are the same whatever the reward was.

    Args:
        row: the row of the table.
        counter: counts tokens; without one only a model's own token ids are counted.
        yes_no_rule: HotpotQA's rule, see `grepseek_env.reward.f1_score`.
    """
    answer, golden = trajectory.answer, trajectory.golden_answers
    sample = trajectory.metadata.get("sample", 0)
    return Episode(
        row=row,
        question_id=trajectory.question_id,
        sample=sample if isinstance(sample, int) else 0,
        question=trajectory.question,
        prediction=answer,
        golden_answers=golden,
        em=exact_match(answer or "", golden, yes_no_rule=yes_no_rule),
        f1=f1_score(answer or "", golden, yes_no_rule=yes_no_rule),
        reward=float(trajectory.reward),
        format_valid=bool(trajectory.breakdown.get("format_valid", False)),
        finish_reason=trajectory.finish_reason,
        counts=_counts(trajectory) | _tokens(trajectory, counter),
    )


def _counts(trajectory: Trajectory) -> dict[str, int]:
    counts = dict.fromkeys(COUNTS, 0)
    counts["turns"] = len(trajectory.turns)
    nothing = _nothing(trajectory.action_format)
    for turn in trajectory.turns:
        counts["policy_chars"] += len(turn.text)
        counts["observation_chars"] += len(turn.observation)
        counts["malformed"] += turn.kind == "malformed"
        if turn.kind != "tool_call":
            continue
        run = turn.exit_code is not None or turn.output_truncated or turn.timed_out or turn.refused is not None
        counts["commands"] += 1
        counts["not_run"] += not run
        counts["empty"] += run and turn.observation in nothing
        counts["failed"] += run and _failed(turn)
        counts["refused"] += turn.refused is not None
        counts["timed_out"] += turn.timed_out
        counts["cut"] += turn.output_truncated
    return counts


@lru_cache(maxsize=8)
def _nothing(action_format: str) -> frozenset[str]:
    render = get_action_format(action_format).render_observation
    return frozenset({render(NO_OUTPUT), render(BLANK_OUTPUT)})


def _failed(turn: Turn) -> bool:
    if turn.refused is not None or turn.timed_out:
        return True
    match turn.exit_code:
        case None | 0:
            return False
        case 1:  # "no match" of a search is an answer
            return _last_program(turn.command or "") not in _SEARCHES
        case _:
            return True


def _last_program(command: str) -> str:
    try:
        return parse(command).stages[-1].argv[0]
    except CommandRefused:  # written for another version of the command language
        return ""


def _tokens(trajectory: Trajectory, counter: TokenCounter | None) -> dict[str, int]:
    out: dict[str, int] = {}
    ids = [getattr(turn, "token_ids", None) for turn in trajectory.turns]
    if ids and all(one is not None for one in ids):
        out["policy_tokens"] = sum(len(one) for one in ids if one is not None)
    elif counter is not None:
        out["policy_tokens"] = sum(counter.count(turn.text) for turn in trajectory.turns)
    if counter is not None:
        out["observation_tokens"] = sum(counter.count(turn.observation) for turn in trajectory.turns)
    return out
