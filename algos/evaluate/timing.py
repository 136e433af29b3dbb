"""Times of a run, kept apart from its results: these repeat exactly, times never do.

While a set is played, the seconds of an episode are in its record's metadata. When the set is complete they move into
`timing.jsonl` beside the records, which are then the same in every run.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from algos.evaluate.statistics import percentile
from grepseek_env.errors import TrajectoryError
from grepseek_env.paths import atomic_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from grepseek_env.trajectory import Trajectory

__all__ = ["Seconds", "latency", "read_seconds", "split_timing"]

Seconds = dict[str, list[float]]
"""`{"model": [...], "tool": [...]}`: seconds of each turn; a turn without a command has 0 for the tool."""

_PARTS = ("model", "tool")


def split_timing(folder: Path, trajectories: Sequence[Trajectory]) -> tuple[list[Trajectory], list[Seconds]]:
    """Moves the times of a complete set's records into `timing.jsonl`.

    Returns:
        The records without times, and the times of all episodes, those of earlier sittings included.

    Raises:
        OSError: the folder cannot be written.
    """
    path = folder / "timing.jsonl"
    known = _read(path)
    bare = []
    for t in trajectories:
        metadata = dict(t.metadata)
        if (seconds := metadata.pop("timing", None)) is not None:
            known[t.question_id, metadata.get("sample", 0)] = {part: list(seconds[part]) for part in _PARTS}
        bare.append(replace(t, metadata=metadata))
    keys = [(t.question_id, t.metadata.get("sample", 0)) for t in bare]
    lines = [{"id": key[0], "sample": key[1], **known[key]} for key in keys if key in known]
    # Times first: were it stopped between the two, the next sitting finds them in either place.
    _write(path, (json.dumps(line) for line in lines))
    if any("timing" in t.metadata for t in trajectories):
        _write(folder / "trajectories.jsonl", (t.to_json() for t in bare))
    return bare, [known[key] for key in keys if key in known]


def read_seconds(value: Any) -> Seconds | None:
    """Returns the times of an episode as a record's metadata, which may hold anything, gives them; else None."""
    if not isinstance(value, dict):
        return None
    lists = [value.get(part) for part in _PARTS]
    if not all(isinstance(one, list) and all(isinstance(s, (int, float)) for s in one) for one in lists):
        return None
    return {part: list(map(float, value[part])) for part in _PARTS}


def _write(path: Path, lines: Iterable[str]) -> None:
    with atomic_file(path) as file:
        file.writelines(f"{line}\n".encode() for line in lines)


def _read(path: Path) -> dict[tuple[str, int], Seconds]:
    out: dict[tuple[str, int], Seconds] = {}
    if path.exists():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            try:
                record = json.loads(line)
                out[record["id"], record["sample"]] = {part: record[part] for part in _PARTS}
            except (ValueError, KeyError, TypeError) as e:
                raise TrajectoryError(f"{path}, line {number}: no times of an episode; remove the file") from e
    return out


def latency(episodes: Iterable[Seconds]) -> dict[str, Any]:
    """Returns mean, p50 and p95 in seconds: of a model's turn, of a command, and of both in a whole episode.

    With episodes in parallel, a turn's seconds hold the time it waited for others.
    """
    every = list(episodes)
    totals: Mapping[str, list[float]] = {part: [sum(e[part]) for e in every] for part in _PARTS}
    return {
        "episodes": len(every),
        "model_turn": _described([s for e in every for s in e["model"]]),
        "tool_call": _described([s for e in every for s in e["tool"] if s > 0]),
        "model_episode": _described(totals["model"]),
        "tool_episode": _described(totals["tool"]),
        "episode": _described([m + t for m, t in zip(totals["model"], totals["tool"], strict=True)]),
    }


def _described(seconds: Sequence[float]) -> dict[str, float]:
    return {
        "count": len(seconds),
        "mean": sum(seconds) / len(seconds) if seconds else 0.0,
        "p50": percentile(seconds, 50),
        "p95": percentile(seconds, 95),
    }
