"""Exact match and token F1 of a prediction against the best of its golden answers.

Both reproduce the published per-question values of SQuAD-style evaluations. Two cases differ from the naive script, so
that exact match never exceeds F1: an empty prediction scores 0 whatever the golden answer is, and texts that
normalisation empties are compared with their signs (`normalize.comparable`).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from grepseek_env.errors import ConfigError
from grepseek_env.reward.normalize import comparable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["exact_match", "f1_score"]

_CLOSED_ANSWERS = frozenset({"yes", "no", "noanswer"})


def exact_match(prediction: str, golden_answers: Sequence[str], *, yes_no_rule: bool = False) -> float:
    """Returns 1.0 if the prediction equals one of the golden answers after normalisation, else 0.0.

    Args:
        prediction: the answer to score; an empty one scores 0.
        golden_answers: accepted answers, at least one.
        yes_no_rule: accepted so that both scores are called alike; it cannot change an exact match.

    Raises:
        ConfigError: `golden_answers` is empty, a bare string or holds something else than text, or the prediction is
            no text.
    """
    del yes_no_rule
    return _best(_exact, prediction, golden_answers)


def f1_score(prediction: str, golden_answers: Sequence[str], *, yes_no_rule: bool = False) -> float:
    """Returns the token F1, from 0.0 to 1.0, against the best golden answer.

    Args:
        prediction: the answer to score; an empty one scores 0.
        golden_answers: accepted answers, at least one.
        yes_no_rule: HotpotQA's rule: where either side is yes, no or noanswer, only equality scores.

    Raises:
        ConfigError: as for `exact_match`.
    """
    return _best(_closed_f1 if yes_no_rule else _token_f1, prediction, golden_answers)


def _best(score: Callable[[str, str], float], prediction: str, golden_answers: Sequence[str]) -> float:
    if not isinstance(prediction, str):
        raise ConfigError(f"prediction is {prediction!r}; it must be text (an unfinished episode is not scored)")
    # A bare string is a sequence of strings too: its characters would be scored one by one.
    if isinstance(golden_answers, (str, bytes)):
        raise ConfigError(f"golden_answers is {golden_answers!r}; it must be a list of texts: [{golden_answers!r}]")
    golden = tuple(golden_answers)
    if not golden:
        raise ConfigError("golden_answers is empty; a question needs at least one golden answer to be scored")
    for answer in golden:
        if not isinstance(answer, str):
            raise ConfigError(f"golden_answers holds {answer!r}; every golden answer must be text")
    if not prediction.strip():
        return 0.0
    return max(score(*comparable(prediction, answer)) for answer in golden)


def _exact(prediction: str, golden: str) -> float:
    return float(prediction == golden)


def _token_f1(prediction: str, golden: str) -> float:
    predicted, wanted = prediction.split(), golden.split()
    shared = (Counter(predicted) & Counter(wanted)).total()
    if not shared:
        return 0.0
    precision, recall = shared / len(predicted), shared / len(wanted)
    return 2 * precision * recall / (precision + recall)


def _closed_f1(prediction: str, golden: str) -> float:
    if prediction != golden and _CLOSED_ANSWERS & {prediction, golden}:
        return 0.0
    return _token_f1(prediction, golden)
