"""Trajectories written by hand, for what reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grepseek_env.actions import get_action_format
from grepseek_env.observation import NO_OUTPUT
from grepseek_env.trajectory import Trajectory, TrajectoryWriter, Turn

if TYPE_CHECKING:
    from pathlib import Path

HERMES = get_action_format("hermes")


def tool(command: str = "rg -F x corpus.jsonl", output: str = NO_OUTPUT, **fields: Any) -> Turn:
    """A turn with a command and what it printed."""
    fields.setdefault("exit_code", 0)
    return Turn(
        HERMES.render_action("I look.", command=command),
        "tool_call",
        HERMES.render_observation(output),
        command,
        **fields,
    )


def malformed(text: str = "hm") -> Turn:
    """A turn without an action."""
    return Turn(text, "malformed", HERMES.render_observation("no action"))


def trajectory(
    question_id: str = "q0",
    answer: str | None = "Ada",
    golden: tuple[str, ...] = ("Ada",),
    turns: tuple[Turn, ...] = (),
    **fields: Any,
) -> Trajectory:
    """An episode that ends with an answer, or at the turn limit where there is none."""
    text = f"<think>Done.</think>\n<answer>{answer}</answer>"
    last = () if answer is None else (Turn(text, "final_answer"),)
    question = fields.pop("question", f"Who is {question_id}?")
    sample = fields.pop("sample", 0)
    metadata = {"policy": "hand", "sample": sample, "seed": 1} | fields.pop("metadata", {})
    made: dict[str, Any] = {
        "question_id": question_id,
        "question": question,
        "golden_answers": golden,
        "action_format": "hermes",
        "system_prompt": "You search.",
        "prompt": f"Query: {question}",
        "turns": (*turns, *last),
        "finish_reason": "turn_limit" if answer is None else "answer",
        "answer": answer,
        "reward": 0.0,
        "reward_valid": True,
        "breakdown": {"reward": 0.0, "f1": 0.0, "em": 0.0, "format_valid": True, "format_bonus": 0.0},
        "metadata": metadata,
    }
    return Trajectory(**{**made, **fields})


def write_run(folder: Path, trajectories: list[Trajectory]) -> Path:
    """Writes a run folder as `grepseek rollout` does, without a manifest."""
    with TrajectoryWriter(folder / "trajectories.jsonl") as writer:
        for one in trajectories:
            writer.write(one)
    return folder
