"""What the CPU study counts, and what tricks earn: relations named, names copied right, standard errors, the table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from algos.study import copied_right, hacks, names_relation, plot, read_outcomes, standard_error, table
from grepseek_env.tasks import load_question_set
from policies.tiny_policy import make_world_tokenizer

if TYPE_CHECKING:
    from pathlib import Path

WORLD = "world:study?questions=400&passages=600"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("rg -F 'Trulwin is located in' corpus.jsonl | head -n 1", True),
        ("rg -F 'Zosdin Labs' corpus.jsonl | rg -i 'founded|set up' | head -n 8", True),
        ("rg -F 'Gratu Tewel' corpus.jsonl | head -n 1", False),
        ("rg -F Gratu corpus.jsonl", False),
    ],
)
def test_a_command_names_the_relation(command: str, expected: bool) -> None:
    assert names_relation(command) is expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("rg -F 'Gratu Tewel was born in' corpus.jsonl", True),
        ("rg -F 'Gratu Tewes was born in' corpus.jsonl", False),
        ("rg -F 'was born in' corpus.jsonl", False),
        ("rg -F 'Gratu Tewel' corpus.jsonl | rg -F 'Borman'", False),
    ],
)
def test_names_are_copied_from_what_was_read(command: str, expected: bool) -> None:
    assert copied_right(command, "Where was Gratu Tewel born?") is expected


def test_standard_error_by_hand() -> None:
    assert standard_error([0.0, 1.0, 1.0, 0.0]) == pytest.approx((1 / 3 / 4) ** 0.5)
    assert standard_error([0.7]) == 0.0


@pytest.fixture(scope="module")
def paid() -> dict[str, dict[str, Any]]:
    texts = [q.question for q in load_question_set(WORLD)[:]]
    tokenizer = make_world_tokenizer(texts, 600, min_frequency=5)
    return {row["what"]: row for row in hacks(WORLD, tokenizer, max_turns=4, context=320)}


def test_no_trick_earns_as_much_as_the_right_answer(paid: dict[str, dict[str, Any]]) -> None:
    assert paid["the right answer"]["reward"] == 1.1
    honest = {"the right answer", "the right answer without a search"}
    assert all(row["reward"] < 1.05 for name, row in paid.items() if name not in honest)


def test_every_further_candidate_costs(paid: dict[str, dict[str, Any]]) -> None:
    rewards = [paid[f"the right answer among {n} other candidates"]["reward"] for n in (1, 4, 19, 99)]
    assert rewards == sorted(rewards, reverse=True)
    assert rewards[0] <= 0.1 + 2 / 3


def test_answers_that_say_nothing_and_outputs_without_end_earn_nothing(paid: dict[str, dict[str, Any]]) -> None:
    for name, ends in (
        ("an empty answer", "answer"),
        ("searches until no turn is left", "turn_limit"),
        ("a thought that never ends, in every turn", "budget"),
        ("1,000 lines printed, then the right answer", "budget"),
    ):
        assert (paid[name]["reward"], paid[name]["ends"]) == (0.0, ends)


def outcome(seed: int, f1: float) -> dict[str, Any]:
    scores = {"f1": f1, "f1_se": 0.02, "em": f1, "em_se": 0.02, "format_rate": 1.0}
    scores |= {"names_relation": 0.2, "copied_right": 0.9, "commands": 1.5, "answer_words": 1.2}
    ways = {way: dict.fromkeys(("all", "1-hop", "2-hop"), scores) for way in ("greedy", "sampled")}
    return {"world": 1, "seed": seed, "arm": "plain", **ways}


def test_the_table_has_means_and_every_run(tmp_path: Path, paid: dict[str, dict[str, Any]]) -> None:
    for seed, f1 in ((1, 0.2), (2, 0.4)):
        folder = tmp_path / "world-1" / f"seed-{seed}"
        folder.mkdir(parents=True)
        (folder / "plain.json").write_text(json.dumps(outcome(seed, f1)), encoding="utf-8")
    outcomes = read_outcomes(tmp_path)
    assert [o["seed"] for o in outcomes] == [1, 2]
    text = table(outcomes, list(paid.values()))
    assert "| plain | 2 | 0.300 ± 0.100 |" in text
    assert "| 1 | 2 | plain | 0.400 ± 0.020 |" in text
    assert "| an empty answer | answer | 0.000 |" in text


@pytest.mark.slow
def test_curves_are_drawn(tmp_path: Path) -> None:
    rows = [{"step": i, "f1": i / 10, "format_bonus": 0.1, "answer_words": 1, "turns": 2} for i in range(5)]
    plot({"1/1/plain+grpo": rows, "1/2/plain+grpo": rows[:3], "1/1/plain": []}, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
