"""Finds runs and reads their trajectories, with the times that may lie beside them."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from grepseek_env.errors import TrajectoryError
from grepseek_env.trajectory import Trajectory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = ["Run", "Seconds", "find_runs"]

Seconds = dict[str, list[float]]
"""`{"model": [...], "tool": [...]}`: seconds of each turn."""

_NAME = "trajectories.jsonl"


@dataclass(slots=True)
class Run:
    """One file of trajectories.

    Attributes:
        name: what the page calls it.
        path: the file.
        unfinished: lines left out because they were still being written; known once it has been read.
    """

    name: str
    path: Path
    unfinished: int = 0

    def read(self, limit: int | None = None) -> Iterator[tuple[Trajectory, Seconds | None]]:
        """Reads the trajectories with their times, where known.

        A last line that has no end yet is left out, so that a run can be looked at while it is written.

        Raises:
            TrajectoryError: a line is malformed; names file and line.
        """
        times = _times(self.path.with_name("timing.jsonl"))
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if limit is not None and number > limit:
                    return
                if not line.endswith(b"\n"):
                    self.unfinished += 1
                    return
                try:
                    trajectory = Trajectory.from_json(line.decode())
                except (TrajectoryError, UnicodeDecodeError) as e:
                    raise TrajectoryError(f"{self.path}, line {number}: {e}") from e
                sample = trajectory.metadata.get("sample", 0)
                known = times.get((trajectory.question_id, sample)) if isinstance(sample, int) else None
                own = trajectory.metadata.get("timing") or known
                yield trajectory, _checked(own)


def _checked(seconds: Any) -> Seconds | None:
    """Returns times that can be shown; metadata may hold anything."""
    if not isinstance(seconds, dict):
        return None
    out = {part: seconds.get(part) for part in ("model", "tool")}
    fits = all(
        isinstance(v, list) and all(isinstance(s, (int, float)) and math.isfinite(s) for s in v) for v in out.values()
    )
    return out if fits else None  # type: ignore[return-value]


def _times(path: Path) -> dict[tuple[str, int], Any]:
    out: dict[tuple[str, int], Any] = {}
    if not path.exists():
        return out
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                record = json.loads(line)
                out[record["id"], record["sample"]] = record
            except (ValueError, KeyError, TypeError) as e:
                raise TrajectoryError(f"{path}, line {number}: no times of an episode; remove the file") from e
    return out


def find_runs(paths: Sequence[Path]) -> list[Run]:
    """Returns the runs at some paths: files, run folders, or folders that hold some, down to two levels.

    Raises:
        TrajectoryError: nothing is there.
    """
    out: list[Run] = []
    for path in paths:
        if path.is_file():
            out.append(Run(path.resolve().parent.name if path.name == _NAME else path.stem, path))
            continue
        found = [file for pattern in (_NAME, f"*/{_NAME}", f"*/*/{_NAME}") for file in sorted(path.glob(pattern))]
        if not found:
            raise TrajectoryError(
                f"{path}: no {_NAME} in it; write one with 'grepseek rollout --out DIR' or 'grepseek eval --out DIR'"
            )
        base = path.resolve()
        several = len(paths) > 1
        for file in found:
            inner = file.resolve().parent.relative_to(base)
            parts = ([base.name] if several or not inner.parts else []) + list(inner.parts)
            out.append(Run("/".join(parts), file))
    return out
