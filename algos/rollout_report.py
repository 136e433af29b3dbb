"""What a collection tells about itself: averages at the end, a progress bar meanwhile."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tqdm import tqdm

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import TracebackType

    from typing_extensions import Self

    from grepseek_env.trajectory import Trajectory

__all__ = ["Progress", "Summary", "is_result", "summarize"]


def is_result(trajectory: Trajectory) -> bool:
    """Tells whether an episode counts: the infrastructure did not fail it and nobody gave it up."""
    return trajectory.reward_valid and trajectory.finish_reason != "abandoned"


@dataclass(frozen=True, slots=True)
class Summary:
    """Averages over trajectories whose reward is valid.

    Attributes:
        episodes: number of them.
        faults: number of episodes left out because the infrastructure failed.
        f1: mean token F1.
        em: mean exact match.
        reward: mean reward.
        turns: mean policy turns.
        commands: mean commands run.
        format_valid: share of transcripts that keep to the format.
    """

    episodes: int
    faults: int
    f1: float
    em: float
    reward: float
    turns: float
    commands: float
    format_valid: float


def summarize(trajectories: Sequence[Trajectory]) -> Summary:
    """Returns the averages of a run."""
    valid = [t for t in trajectories if is_result(t)]
    return Summary(
        episodes=len(valid),
        faults=len(trajectories) - len(valid),
        f1=_mean(t.breakdown["f1"] for t in valid),
        em=_mean(t.breakdown["em"] for t in valid),
        reward=_mean(t.reward for t in valid),
        turns=_mean(len(t.turns) for t in valid),
        commands=_mean(_commands(t) for t in valid),
        format_valid=_mean(float(t.breakdown["format_valid"]) for t in valid),
    )


def _commands(trajectory: Trajectory) -> int:
    return sum(turn.kind == "tool_call" for turn in trajectory.turns)


def _mean(values: Iterable[float]) -> float:
    items = list(values)
    return sum(items) / len(items) if items else 0.0


class Progress:
    """A progress bar with episodes/s, commands/s, the mean F1 so far and the number of faults.

    Args:
        total: episodes of the whole run.
        earlier: results of earlier sittings.
        shown: False draws nothing.
    """

    def __init__(self, total: int, earlier: Iterable[Trajectory] = (), *, shown: bool = True) -> None:
        scores = [t.breakdown["f1"] for t in earlier]
        self._sum, self._count = sum(scores), len(scores)
        self._commands = self._faults = 0
        self._bar = tqdm(total=total, initial=self._count, unit="episode", disable=not shown)
        self._start = time.monotonic()

    def update(self, trajectory: Trajectory) -> None:
        """Counts one more episode."""
        self._commands += _commands(trajectory)
        if is_result(trajectory):
            self._sum += trajectory.breakdown["f1"]
            self._count += 1
        else:
            self._faults += 1
        seconds = max(time.monotonic() - self._start, 1e-9)
        told = {"commands/s": f"{self._commands / seconds:.1f}", "f1": f"{self._sum / max(self._count, 1):.3f}"}
        if self._faults:
            told["faults"] = str(self._faults)
        self._bar.set_postfix(told, refresh=False)
        self._bar.update()

    def close(self) -> None:
        """Leaves the bar as it stands."""
        self._bar.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
