"""Reads a whole transcript the way an episode does, from nothing but the turns that the policy wrote.

Prompt and tool output are never given to it, so that neither an example in the prompt nor text found in the corpus can
be scored as the policy's answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from grepseek_env.types import FinalAnswer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grepseek_env.actions import ActionFormat

__all__ = ["TranscriptReading", "read_transcript"]


@dataclass(frozen=True, slots=True)
class TranscriptReading:
    """What a transcript amounts to for the reward.

    Attributes:
        answer: the final answer; None where the transcript has none.
        format_valid: every turn keeps to the format and only the last one answers.
    """

    answer: str | None
    format_valid: bool


def read_transcript(action_format: ActionFormat, turns: Sequence[str]) -> TranscriptReading:
    """Parses the policy's turns, in order; turns after the first answer are not the episode's and break the format."""
    actions = [action_format.parse(text) for text in turns]
    answers = (action.answer for action in actions if isinstance(action, FinalAnswer))
    return TranscriptReading(answer=next(answers, None), format_valid=action_format.format_valid(actions))
