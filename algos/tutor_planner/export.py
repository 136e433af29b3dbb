"""What a run's records become: trajectories, chat messages and Parquet, all in the order of the questions."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from grepseek_env.actions import get_action_format
from grepseek_env.actions.parser import TOOL_NAME
from grepseek_env.errors import ConfigError
from grepseek_env.paths import atomic_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from algos.tutor_planner.records import Record
    from grepseek_env.trajectory import Trajectory

__all__ = ["TOOL_SCHEMA", "export", "split_of"]

TRAJECTORIES = "trajectories.jsonl"
MESSAGES = "sft.jsonl"
DROPS = "drops.jsonl"

TOOL_SCHEMA: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": TOOL_NAME,
        "description": "Runs one pipeline over corpus.jsonl and returns its output.",
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "string", "description": "the pipeline"}},
            "required": ["command"],
        },
    },
}


def split_of(question_id: str, validation: float) -> str:
    """Returns "train" or "validation" by a hash of the question's id: a question never changes sides as data grow."""
    place = int.from_bytes(hashlib.sha256(f"split/{question_id}".encode()).digest()[:6], "big") / 2**48
    return "validation" if place < validation else "train"


def export(records: Sequence[Record], out: Path, *, validation: float = 0.05, tools: bool = False) -> list[Path]:
    """Writes all exports of a run; each file appears whole or not at all.

    Args:
        records: in the order of the questions.
        out: the run folder.
        validation: share of the validation split.
        tools: add the tool's JSON schema to every line of chat messages.

    Returns:
        The files written.

    Raises:
        ConfigError: the share cannot work, or pyarrow is not installed.
    """
    if not 0 <= validation < 1:
        raise ConfigError(f"validation is {validation!r}; it must be at least 0 and below 1")
    kept = [record.trajectory for record in records if record.trajectory is not None]
    written = [
        _lines(out / TRAJECTORIES, (trajectory.to_json() for trajectory in kept)),
        _lines(out / MESSAGES, (json.dumps(_chat(t, validation, tools=tools), ensure_ascii=False) for t in kept)),
        _lines(
            out / DROPS,
            (
                json.dumps({"id": r.question_id, "reason": r.reason, "stage": r.stage, "detail": r.detail})
                for r in records
                if not r.kept
            ),
        ),
    ]
    return written + _parquet(kept, out, validation)


def _lines(path: Path, lines: Iterable[str]) -> Path:
    with atomic_file(path) as file:
        for line in lines:
            file.write(line.encode() + b"\n")
    return path


def _messages(trajectory: Trajectory) -> list[dict[str, str]]:
    return trajectory.messages(get_action_format(trajectory.action_format).tool_role)


def _chat(trajectory: Trajectory, validation: float, *, tools: bool) -> dict[str, Any]:
    line: dict[str, Any] = {
        "id": trajectory.question_id,
        "messages": _messages(trajectory),
        "split": split_of(trajectory.question_id, validation),
    }
    return {**line, "tools": [TOOL_SCHEMA]} if tools else line


def _parquet(kept: Sequence[Trajectory], out: Path, validation: float) -> list[Path]:
    try:
        import pyarrow as pa  # noqa: PLC0415 - needed by exports alone
        import pyarrow.parquet as pq  # noqa: PLC0415
    except ImportError as e:
        raise ConfigError("the Parquet export needs pyarrow: pip install 'grepseek-env[tutor]'") from e
    message = pa.struct([("role", pa.string()), ("content", pa.string())])
    schema = pa.schema(
        [
            ("id", pa.string()),
            ("question", pa.string()),
            ("golden_answers", pa.list_(pa.string())),
            ("answer", pa.string()),
            ("messages", pa.list_(message)),
            ("commands", pa.list_(pa.string())),
            ("turns", pa.int32()),
            ("hops", pa.int32()),
            ("f1", pa.float64()),
            ("metadata", pa.string()),
        ]
    )
    written = []
    for split in ("train", "validation"):
        rows = [_row(t) for t in kept if split_of(t.question_id, validation) == split]
        path = out / f"{split}.parquet"
        with atomic_file(path) as file:
            pq.write_table(pa.Table.from_pylist(rows, schema=schema), file)
        written.append(path)
    return written


def _row(trajectory: Trajectory) -> dict[str, Any]:
    return {
        "id": trajectory.question_id,
        "question": trajectory.question,
        "golden_answers": list(trajectory.golden_answers),
        "answer": trajectory.answer,
        "messages": _messages(trajectory),
        "commands": [turn.command for turn in trajectory.turns if turn.command is not None],
        "turns": len(trajectory.turns),
        "hops": len(trajectory.metadata.get("chain", ())),
        "f1": float(trajectory.breakdown["f1"]),
        "metadata": json.dumps(dict(trajectory.metadata), ensure_ascii=False),
    }
