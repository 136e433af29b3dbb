"""Scores of a final answer and the reward made from them."""

from grepseek_env.reward.format import TranscriptReading, read_transcript
from grepseek_env.reward.normalize import normalize_answer
from grepseek_env.reward.reward import RewardBreakdown, RewardFunction, compute_reward
from grepseek_env.reward.scores import exact_match, f1_score

__all__ = [
    "RewardBreakdown",
    "RewardFunction",
    "TranscriptReading",
    "compute_reward",
    "exact_match",
    "f1_score",
    "normalize_answer",
    "read_transcript",
]
