from __future__ import annotations

import json
import math
from dataclasses import FrozenInstanceError, asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grepseek_env.actions import ACTION_FORMATS
from grepseek_env.config import RewardConfig
from grepseek_env.errors import ConfigError
from grepseek_env.reward import (
    RewardBreakdown,
    TranscriptReading,
    compute_reward,
    exact_match,
    f1_score,
    normalize_answer,
    read_transcript,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.golden import Golden

PUBLISHED = Path(__file__).parents[2] / "cases" / "scoring_golden.jsonl"

# Short texts of what normalisation treats specially, so that equal and emptied sides come up often.
ANSWERS = st.lists(st.sampled_from(["a", "The", "an", "-", ".", ")", " ", "x", "Y", "é", "yes", "no"]), max_size=5).map(
    "".join
) | st.text(max_size=12)


def test_scores_reproduce_every_published_value() -> None:
    rows = [json.loads(line) for line in PUBLISHED.read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 1538
    differing = [
        row["id"]
        for row in rows
        if exact_match(row["prediction"], row["golden_answers"]) != row["em"]
        or f1_score(row["prediction"], row["golden_answers"]) != row["f1"]
    ]
    assert differing == []


def test_scores_golden(golden: Golden) -> None:
    def compute(row: dict[str, Any]) -> dict[str, float]:
        scored = row["prediction"], row["golden_answers"]
        return {"em": exact_match(*scored), "f1": f1_score(*scored), "f1_yes_no": f1_score(*scored, yes_no_rule=True)}

    golden.check("scoring/edge_cases.jsonl", compute)


def test_rewards_golden(golden: Golden) -> None:
    def compute(row: dict[str, Any]) -> dict[str, float | bool]:
        return compute_reward(
            RewardConfig(**row["config"]),
            answer=row["answer"],
            golden_answers=row["golden_answers"],
            format_valid=row["format_valid"],
        ).as_info()

    golden.check("scoring/rewards.jsonl", compute)


@given(prediction=ANSWERS, golden_answers=st.lists(ANSWERS, min_size=1, max_size=4), rule=st.booleans())
def test_exact_match_never_exceeds_f1(prediction: str, golden_answers: list[str], *, rule: bool) -> None:
    em = exact_match(prediction, golden_answers, yes_no_rule=rule)
    f1 = f1_score(prediction, golden_answers, yes_no_rule=rule)
    assert em in {0.0, 1.0}
    assert 0.0 <= em <= f1 <= 1.0


@given(ANSWERS)
def test_an_answer_with_text_matches_itself(answer: str) -> None:
    expected = float(bool(answer.strip()))
    assert exact_match(answer, ["something else", answer]) == expected
    assert f1_score(answer, [answer]) == expected


@given(ANSWERS, ANSWERS)
def test_f1_is_symmetric_where_both_have_text(left: str, right: str) -> None:
    if left.strip() and right.strip():
        assert f1_score(left, [right]) == pytest.approx(f1_score(right, [left]))


@given(st.text())
def test_normalisation_is_stable_under_case_space_and_ascii_punctuation(text: str) -> None:
    once = normalize_answer(text)
    assert once == " ".join(once.split())
    assert normalize_answer(f" {text}!\n") == once


@pytest.mark.parametrize(
    ("prediction", "golden_answers", "message"),
    [
        ("x", "Paris", r"golden_answers is 'Paris'; it must be a list of texts: \['Paris'\]"),
        ("x", b"Paris", "must be a list"),
        ("x", [], "golden_answers is empty"),
        ("x", ["a", 5], "golden_answers holds 5"),
        ("x", [None], "golden_answers holds None"),
        (None, ["x"], "prediction is None"),
        ("", [], "golden_answers is empty"),
    ],
)
@pytest.mark.parametrize("score", [exact_match, f1_score])
def test_unusable_input_is_named(score: Any, prediction: Any, golden_answers: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        score(prediction, golden_answers)


@pytest.mark.parametrize("config", [RewardConfig(), RewardConfig.preset("paper"), RewardConfig(format="off")])
def test_an_unfinished_episode_scores_nothing(config: RewardConfig) -> None:
    made = compute_reward(config, answer=None, golden_answers=["x"], format_valid=True)
    assert made == RewardBreakdown(reward=0.0, f1=0.0, em=0.0, format_valid=False, format_bonus=0.0, answered=False)


@given(
    answer=st.none() | ANSWERS,
    golden_answers=st.lists(ANSWERS, min_size=1, max_size=3),
    format_valid=st.booleans(),
    config=st.builds(
        RewardConfig,
        metric=st.sampled_from(["f1", "em"]),
        format=st.sampled_from(["bonus", "gate", "off"]),
        format_weight=st.floats(0, 2),
        yes_no_rule=st.booleans(),
    ),
)
def test_reward_is_the_sum_of_its_parts(
    answer: str | None,
    golden_answers: list[str],
    format_valid: bool,
    config: RewardConfig,
) -> None:
    made = compute_reward(config, answer=answer, golden_answers=golden_answers, format_valid=format_valid)
    score = made.f1 if config.metric == "f1" else made.em
    gated = config.format == "gate" and not made.format_valid
    assert made.reward == (0.0 if gated else score) + made.format_bonus
    assert made.format_bonus <= (config.format_weight if config.format == "bonus" else 0)
    assert 0.0 <= made.reward <= 1.0 + config.format_weight
    assert made.answered is (answer is not None)


def test_breakdown_is_frozen_and_info_is_fresh() -> None:
    made = compute_reward(RewardConfig(), answer="Paris", golden_answers=("Paris",), format_valid=True)
    assert made.as_info() == asdict(made)
    assert made.reward == 1.1
    made.as_info()["reward"] = 5.0
    assert made.as_info()["reward"] == 1.1
    with pytest.raises(FrozenInstanceError):
        made.reward = 2.0  # type: ignore[misc]


def test_own_function_is_used_and_scores_stay_beside_it() -> None:
    seen: list[tuple[Any, ...]] = []

    def brief(answer: str | None, golden_answers: Sequence[str], format_valid: bool) -> float:
        seen.append((answer, golden_answers, format_valid))
        return -1.0 if answer is None else 1.0 / len(answer)

    made = compute_reward(brief, answer="Rome", golden_answers=["Rome"], format_valid=True)
    assert made == RewardBreakdown(reward=0.25, f1=1.0, em=1.0, format_valid=True, format_bonus=0.0, answered=True)
    assert compute_reward(brief, answer=None, golden_answers=["Rome"], format_valid=True).reward == -1.0
    assert seen == [("Rome", ("Rome",), True), (None, ("Rome",), False)]


@pytest.mark.parametrize(
    ("value", "reward"), [(1, 1.0), (True, 1.0), (np.float32(0.5), 0.5), (np.float64(2.0), 2.0), (np.int64(3), 3.0)]
)
def test_own_function_may_return_any_real_number(value: Any, reward: float) -> None:
    made = compute_reward(lambda *_: value, answer="x", golden_answers=["x"], format_valid=True)
    assert type(made.reward) is float
    assert made.reward == reward


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None, "1.0", [1.0], 1j, np.array([1.0])])
def test_own_function_must_return_a_finite_number(value: Any) -> None:
    def shaky(*_: object) -> Any:
        return value

    with pytest.raises(ConfigError, match=r"reward function .*shaky returned .*(finite|float)"):
        compute_reward(shaky, answer="x", golden_answers=["x"], format_valid=True)


def test_reading_a_transcript_is_what_an_episode_reads() -> None:
    entry = ACTION_FORMATS["hermes"]
    call, answer = entry.render_action("t", command="rg x"), entry.render_action("t", answer="Paris")
    late = entry.render_action("t", answer="Rome")
    assert read_transcript(entry, [call, answer]) == TranscriptReading("Paris", format_valid=True)
    assert read_transcript(entry, [call, "oops", answer]) == TranscriptReading("Paris", format_valid=False)
    assert read_transcript(entry, [call, answer, late]) == TranscriptReading("Paris", format_valid=False)
    assert read_transcript(entry, [call]) == TranscriptReading(None, format_valid=False)
