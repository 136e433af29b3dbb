"""The figures: medians over rounds, ratios within a round; as text of up to 100 columns, JSON values and a picture."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from grepseek_env.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from grepseek_env.bench.vector.measure import Measurement, Run

__all__ = ["Figure", "check_plot", "figures", "plot", "results", "table"]


@dataclass(frozen=True, slots=True)
class Figure:
    """One contestant with one number of environments.

    Attributes:
        contestant: its name.
        num_envs: how many.
        env_steps_per_second: median over rounds.
        commands_per_second: median over rounds.
        ratio: its commands/s over the baseline's of the same round, the median; None without the baseline.
        ratio_low: the least of these ratios.
        ratio_high: the greatest.
        beyond_us: microseconds a step and environment beyond the commands, the median; None where it is not known.
        rounds: how many there are.
    """

    contestant: str
    num_envs: int
    env_steps_per_second: float
    commands_per_second: float
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    beyond_us: float | None
    rounds: int


def figures(runs: Sequence[Run], baseline: str) -> list[Figure]:
    """Returns the figures by number of environments, then by name, the baseline last."""
    by_name: dict[tuple[int, str], list[Run]] = {}
    for run in runs:
        by_name.setdefault((run.num_envs, run.contestant), []).append(run)
    base = {(run.num_envs, run.round): run for run in runs if run.contestant == baseline}
    out = []
    for number, name in sorted(by_name, key=lambda key: (key[0], key[1] == baseline, key[1])):
        own = by_name[number, name]
        paired = [(run, base[run.num_envs, run.round]) for run in own if (run.num_envs, run.round) in base]
        ratios = [run.commands_per_second / other.commands_per_second for run, other in paired]
        beyond = [run.beyond for run in own if run.beyond is not None]
        out.append(
            Figure(
                contestant=name,
                num_envs=number,
                env_steps_per_second=statistics.median(run.env_steps_per_second for run in own),
                commands_per_second=statistics.median(run.commands_per_second for run in own),
                ratio=statistics.median(ratios) if ratios else None,
                ratio_low=min(ratios, default=None),
                ratio_high=max(ratios, default=None),
                beyond_us=1e6 * statistics.median(beyond) if beyond else None,
                rounds=len(own),
            )
        )
    return out


def table(measurement: Measurement, baseline: str) -> str:
    """Returns a line a contestant and number of environments."""
    rows = figures(measurement.runs, baseline)
    if not rows:
        return "nothing was measured"
    width = max(18, *(len(row.contestant) for row in rows))
    against = f"x {baseline}"
    lines = [f"{'envs':>5}  {'':<{width}}{'env steps/s':>13}{'commands/s':>12}  {against:<28}{'beyond commands':>16}"]
    for last, row in zip([None, *rows], rows, strict=False):
        if last is not None and last.num_envs != row.num_envs:
            lines.append("")
        ratio = "-" if row.ratio is None else f"{row.ratio:.2f}  ({row.ratio_low:.2f} to {row.ratio_high:.2f})"
        beyond = "-" if row.beyond_us is None else f"{row.beyond_us:.0f} us"
        lines.append(
            f"{row.num_envs:>5}  {row.contestant:<{width}}{row.env_steps_per_second:>13.1f}"
            f"{row.commands_per_second:>12.1f}  {ratio:<28}{beyond:>16}"
        )
    if not measurement.complete:
        lines.append("\nstopped early: these figures are of what was complete")
    return "\n".join(lines)


def results(measurement: Measurement, baseline: str) -> dict[str, Any]:
    """Returns JSON values: the figures, and every run they come from."""
    return {
        "complete": measurement.complete,
        "baseline": baseline,
        "figures": [asdict(figure) for figure in figures(measurement.runs, baseline)],
        "runs": [asdict(run) for run in measurement.runs],
    }


def check_plot(path: Path) -> None:
    """Makes sure before anything is measured that the picture can be drawn.

    Raises:
        ConfigError: matplotlib is missing, or cannot write such a file.
    """
    try:
        from matplotlib.figure import Figure as Canvas  # noqa: PLC0415 - an optional package
    except ImportError as error:
        raise ConfigError("--plot needs matplotlib: pip install 'grepseek-env[plots]'") from error
    kinds = sorted(Canvas().canvas.get_supported_filetypes())
    if path.suffix[1:] not in kinds:
        raise ConfigError(f"plot is {str(path)!r}; its name must end in one of {', '.join(kinds)}")


def plot(path: Path, rows: Sequence[Figure], title: str) -> None:
    """Draws commands/s over the number of environments, a line a contestant."""
    from matplotlib.figure import Figure as Canvas  # noqa: PLC0415 - an optional package
    from matplotlib.ticker import LogLocator, NullFormatter  # noqa: PLC0415

    canvas = Canvas(figsize=(7, 4.2), layout="constrained")
    axes = canvas.subplots()
    for name in dict.fromkeys(row.contestant for row in rows):
        own = [row for row in rows if row.contestant == name]
        axes.plot([row.num_envs for row in own], [row.commands_per_second for row in own], marker="o", label=name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter("{x:,.0f}")
    numbers = sorted({row.num_envs for row in rows})
    axes.set_xticks(numbers, [str(number) for number in numbers])
    axes.set_xlabel("environments")
    axes.set_ylabel("commands/s")
    axes.set_title(title, fontsize=10)
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend(frameon=False)
    canvas.savefig(path, dpi=150)
