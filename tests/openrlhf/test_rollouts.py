"""OpenRLHF's own rollout loop in a real vLLM: ids, ranges, log-probabilities and text have to line up."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from algos.openrlhf.template import TEMPLATE_FILE
from grepseek_env.tokens import ChatTokens
from grepseek_env.trajectory import Trajectory, read_trajectories

HERE = Path(__file__).parent
LONGEST = 8 * 60


@pytest.fixture(scope="module")
def played(
    checkpoints: Path, environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], list[Trajectory]]:
    out = tmp_path_factory.mktemp("rollouts")
    options = {
        "CHAT_TEMPLATE": str(TEMPLATE_FILE),
        "SYSTEM_PROMPT": str(checkpoints / "system.txt"),
        "MAX_TURNS": "4",
        "TURN_TOKENS": "96",
        "MAX_OBSERVATION_TOKENS": "48",
        "RECORD": str(out / "record"),
    }
    command = [sys.executable, str(HERE / "rollouts.py"), str(checkpoints / "half")]
    done = subprocess.run(
        [*command, str(checkpoints / "questions.jsonl"), str(out / "out.json")],
        env={**environment, **{f"GREPSEEK_AGENT_{k}": v for k, v in options.items()}},
        cwd=out,
        capture_output=True,
        text=True,
        timeout=LONGEST,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    [record] = (out / "record").iterdir()
    return json.loads((out / "out.json").read_text(encoding="utf-8")), list(read_trajectories(record))


@pytest.fixture(scope="module")
def tokens(checkpoints: Path) -> ChatTokens:
    return ChatTokens.load(str(checkpoints / "half"))


def test_ids_ranges_and_log_probabilities_are_those_of_the_episode(
    played: tuple[dict[str, Any], list[Trajectory]], tokens: ChatTokens
) -> None:
    rows, records = played[0]["rows"], played[1]
    assert len(rows) == len(records) == 16
    views = {tokens.trajectory(record).ids: record for record in records}
    for row in rows:
        record = views[tuple(row["observation_tokens"])]
        view = tokens.trajectory(record)
        ranges = [(s.start, s.end) for s in view.spans if s.writer == "policy"]
        assert [tuple(r) for r in row["action_ranges"]] == ranges
        assert len(ranges) == len(record.turns) == row["extra_logs"]["turns"]
        assert view.logprobs is not None
        assert row["rollout_log_probs"] == pytest.approx(view.logprobs, abs=1e-6)
        for (start, end), turn in zip(ranges, record.turns, strict=True):
            # A stop string can end inside a token: then the ids say more than the text.
            assert tokens.decode(row["observation_tokens"][start:end]).startswith(turn.text)
        assert (row["reward"], row["scores"]) == (record.reward, record.breakdown["f1"])


def test_log_probabilities_are_the_models(played: tuple[dict[str, Any], list[Trajectory]], checkpoints: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(checkpoints / "half", dtype=torch.float32)
    for row in played[0]["rows"][:4]:
        ids = torch.tensor([row["observation_tokens"]])
        with torch.no_grad():
            table = torch.log_softmax(model(ids).logits[0, :-1], dim=-1)
        said = table.gather(1, ids[0, 1:, None])[:, 0].tolist()
        for start, end in row["action_ranges"]:
            assert row["rollout_log_probs"][start:end] == pytest.approx(said[start - 1 : end - 1], abs=2e-2)


def test_openrlhf_makes_an_experience_of_it(played: tuple[dict[str, Any], list[Trajectory]]) -> None:
    for row in played[0]["rows"]:
        made = row["experience"]
        assert made["sequences"] == row["observation_tokens"]
        places = [i for start, end in row["action_ranges"] for i in range(start - 1, end - 1)]
        assert [i for i, flag in enumerate(made["action_mask"]) if flag] == places
        assert len(made["rollout_log_probs"]) == len(made["action_mask"]) == len(made["sequences"]) - 1
        assert made["info"]["reward"] == pytest.approx(row["reward"])
        assert {"f1", "em", "format", "turns", "commands", "failed", "output_truncated", "fault"} <= set(made["info"])


def test_the_model_searches_and_some_rollouts_are_better_than_others(
    played: tuple[dict[str, Any], list[Trajectory]],
) -> None:
    rows = played[0]["rows"]
    assert sum(row["extra_logs"]["commands"] for row in rows) > 0
    assert len({row["reward"] for row in rows}) > 1
    assert not any(row["extra_logs"]["fault"] for row in rows)


def test_commands_of_different_rollouts_run_at_the_same_time(
    played: tuple[dict[str, Any], list[Trajectory]],
) -> None:
    spent = played[0]["spent"]
    assert len(spent) > 4
    # The most that were under way at one moment, by the intervals' own order: no wall time is compared.
    events = sorted([(began, 1) for began, _ in spent] + [(ended, -1) for _, ended in spent])
    under_way, most = 0, 0
    for _, change in events:
        under_way += change
        most = max(most, under_way)
    assert most > len(spent) / 4
