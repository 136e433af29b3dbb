from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from algos.evaluate import score_recorded
from algos.evaluate.measures import measure
from algos.evaluate.summary import summarize
from grepseek_env.observation import BLANK_OUTPUT, load_tokenizer
from tests.support.trajectories import malformed, tool, trajectory, write_run

CASES = Path(__file__).parents[3] / "cases" / "scoring_golden.jsonl"


def test_counts_of_one_episode() -> None:
    turns = (
        tool("rg -F a corpus.jsonl", exit_code=1),  # no match: empty, not failed
        tool("rg -F a corpus.jsonl | head -n 3"),  # empty
        tool("cat corpus.jsonl", BLANK_OUTPUT),  # empty
        tool("grep -c a corpus.jsonl", "0", exit_code=1),  # a count of 0 is an answer
        tool("rg '(' corpus.jsonl", "regex parse error", exit_code=2),  # failed
        tool("sed -n 1p corpus.jsonl", "sed: cannot", exit_code=1),  # failed: 1 is no match only to a search
        tool("rm x", "refused", exit_code=None, refused="unknown-program"),
        tool("sort corpus.jsonl", "stopped", exit_code=None, timed_out=True),
        tool("cat corpus.jsonl", "much", exit_code=None, output_truncated=True),
        malformed("hm"),
        tool("rg last corpus.jsonl", "[turn limit]", exit_code=None),  # not run
    )
    counts = measure(trajectory(answer=None, turns=turns), "s").counts
    chars = (counts.pop("policy_chars"), counts.pop("observation_chars"))
    assert chars == (sum(len(t.text) for t in turns), sum(len(t.observation) for t in turns))
    assert counts == {
        "turns": 11,
        "commands": 10,
        "not_run": 1,
        "empty": 3,
        "failed": 4,
        "refused": 1,
        "timed_out": 1,
        "cut": 1,
        "malformed": 1,
    }


def test_scores_come_from_the_answer_not_from_the_reward() -> None:
    one = measure(trajectory(answer="the Ada Lovelace", golden=("x", "Ada"), reward=0.3), "s")
    assert (one.em, one.reward) == (0.0, 0.3)
    assert one.f1 == pytest.approx(2 / 3)
    assert measure(trajectory(answer="yes sir", golden=("yes",)), "s").f1 > 0
    assert measure(trajectory(answer="yes sir", golden=("yes",)), "s", yes_no_rule=True).f1 == 0
    without = measure(trajectory(answer=None, turns=(malformed(),)), "s")
    assert (without.prediction, without.em, without.f1) == (None, 0.0, 0.0)


class Words:
    """A tokenizer of one token a word."""

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        assert not add_special_tokens
        return [0] * len(text.split())


def test_tokens_are_counted_where_they_are_known() -> None:
    one = trajectory(turns=(tool(output="two words"),))
    assert "policy_tokens" not in measure(one, "s").counts
    counts = measure(one, "s", counter=load_tokenizer(Words())).counts
    assert counts["policy_tokens"] == sum(len(t.text.split()) for t in one.turns)
    assert counts["observation_tokens"] == len(one.turns[0].observation.split())


# Two sets: "a" of three questions with two samples each (one of them lost to a fault), "b" of one question.
A = [
    trajectory("a0", "Ada", sample=0),  # 1
    trajectory("a0", "Bob", sample=1),  # 0
    trajectory("a1", "Ada Bob", sample=0),  # F1 2/3, EM 0
    trajectory("a1", "Ada", sample=1),  # 1
    trajectory("a2", None, turns=(malformed(),), sample=0),  # 0
]
LOST = trajectory("a2", None, sample=1, finish_reason="fault", reward_valid=False, error="EngineFault: gone")
B = [trajectory("b0", "ada!", reward=1.1)]  # 1


def test_averages_by_hand(tmp_path: Path) -> None:
    again = trajectory("a0", None, sample=1, finish_reason="fault", reward_valid=False)  # later played well
    runs = [write_run(tmp_path / "a", [again, *A, LOST]), write_run(tmp_path / "b", B)]
    result = score_recorded(runs, tmp_path / "out")
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary == result.summary
    a, b = summary["sets"]["a"], summary["sets"]["b"]
    assert a["f1"]["mean"] == pytest.approx((0.5 + 5 / 6 + 0) / 3)
    assert a["em"]["mean"] == pytest.approx((0.5 + 0.5 + 0) / 3)
    assert b["f1"]["mean"] == b["em"]["mean"] == 1.0
    assert b["f1"]["ci95"] == [1.0, 1.0]
    assert summary["micro"]["f1"]["mean"] == pytest.approx((0.5 + 5 / 6 + 0 + 1) / 4)
    assert summary["macro"]["f1"]["mean"] == pytest.approx(((0.5 + 5 / 6) / 3 + 1) / 2)
    assert summary["macro"]["em"]["mean"] == pytest.approx((1 / 3 + 1) / 2)
    low, high = a["f1"]["ci95"]
    assert low < a["f1"]["mean"] < high
    assert (a["questions"], a["episodes"], a["faults"], result.faults) == (3, 5, 1, 1)
    assert a["finish_reasons"] == {"answer": 4, "turn_limit": 1}
    assert a["answered"] == 0.8
    # Best of 2 over a0 and a1, the questions with two samples.
    assert a["best_of"]["1"] == {"questions": 3, "pass": pytest.approx(1 / 3), "f1": pytest.approx(4 / 9)}
    assert a["best_of"]["2"] == {"questions": 2, "pass": 1.0, "f1": 1.0}
    assert a["samples"]["f1"]["means"] == [pytest.approx((1 + 2 / 3 + 0) / 3), pytest.approx(0.5)]
    assert "best_of" not in b
    assert summary["all"]["episodes"] == 6
    assert len((tmp_path / "out" / "predictions.jsonl").read_text().splitlines()) == 6


def test_published_scores_aggregated(tmp_path: Path) -> None:
    cases = [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]
    by_set: dict[str, list[dict[str, Any]]] = {}
    for case in cases:
        by_set.setdefault(case["id"].partition("/")[0], []).append(case)
    runs = [
        write_run(
            tmp_path / name,
            [trajectory(c["id"], c["prediction"], tuple(c["golden_answers"])) for c in of_set],
        )
        for name, of_set in by_set.items()
    ]
    summary = score_recorded(runs, tmp_path / "out", resamples=100).summary
    for metric in ("em", "f1"):
        means = {name: sum(c[metric] for c in of_set) / len(of_set) for name, of_set in by_set.items()}
        for name, mean in means.items():
            assert summary["sets"][name][metric]["mean"] == pytest.approx(mean, abs=1e-12)
        assert summary["micro"][metric]["mean"] == pytest.approx(sum(c[metric] for c in cases) / len(cases), abs=1e-12)
        assert summary["macro"][metric]["mean"] == pytest.approx(sum(means.values()) / len(means), abs=1e-12)
    scored = [json.loads(line) for line in (tmp_path / "out" / "predictions.jsonl").read_text().splitlines()]
    assert {(s["id"], s["em"], s["f1"]) for s in scored} == {(c["id"], c["em"], c["f1"]) for c in cases}


def test_nothing_to_score_is_told() -> None:
    summary = summarize({"a": []}, faults={"a": 3})
    assert summary == {"sets": {"a": {"questions": 0, "episodes": 0, "faults": 3}}}
