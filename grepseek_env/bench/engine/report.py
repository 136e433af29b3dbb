"""The figures as text of up to 100 columns, and as JSON values."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from grepseek_env.bench.engine.contestants import BASH, CEILING
from grepseek_env.bench.engine.figures import figures, geometric_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from grepseek_env.bench.engine.figures import Figure, Ratio
    from grepseek_env.bench.engine.measure import Measurement, PipelineRuns
    from grepseek_env.bench.engine.memory import Peak

__all__ = ["COLUMNS", "results", "table"]

_MISSING = "-"
COLUMNS = 100
_LEAST_TEXT = 26
_BASH_WIDTH = 9


def table(measurement: Measurement) -> str:
    """Returns a block a pipeline with everything, then one summary with a line a pipeline."""
    rows = [(runs, values) for runs in measurement.runs if (values := figures(runs))]
    if not rows:
        return "no pipeline was measured"
    parts = [_block(runs, values) for runs, values in rows]
    if not measurement.complete:
        parts.append("stopped early: these figures are of the rounds that were complete")
    return "\n\n".join([*parts, _summary(rows)])


def results(measurement: Measurement) -> dict[str, Any]:
    """Returns JSON values: the figures, and every timing they come from."""
    rows = [(runs, figures(runs)) for runs in measurement.runs]
    return {
        "complete": measurement.complete,
        "geometric_means": {name: mean for name, mean in _means([row for row in rows if row[1]]).items() if mean},
        "pipelines": [
            {
                "number": runs.pipeline.number,
                "pipeline": runs.pipeline.text,
                "in_mean": runs.pipeline.in_mean,
                "figures": {name: asdict(figure) for name, figure in values.items()},
                "draws": [
                    {
                        "command": command,
                        "rounds": [{name: asdict(t) for name, t in timings.items()} for timings in rounds],
                    }
                    for command, rounds in zip(runs.commands, runs.rounds, strict=True)
                ],
            }
            for runs, values in rows
        ],
    }


_Row = tuple["PipelineRuns", dict[str, "Figure"]]


def _block(runs: PipelineRuns, values: Mapping[str, Figure]) -> str:
    lines = [
        f"{runs.pipeline.number}. {runs.pipeline.text}",
        _line("", "median ms", "bash / it  (quartiles)", "of the ceiling", "MB here, programs"),
    ]
    for name, figure in values.items():
        late = f"  {figure.timeouts} of {figure.runs} timed out" if figure.timeouts else ""
        ratios = _spread(figure.against_bash), _spread(figure.of_ceiling)
        lines.append(_line(name, f"{figure.milliseconds:.1f}", *ratios, _memory(figure.memory)) + late)
    return "\n".join(lines)


def _line(name: str, milliseconds: str, against_bash: str, of_ceiling: str, memory: str) -> str:
    return f"    {name:<14}{milliseconds:>11}   {against_bash:<26}{of_ceiling:<24}{memory:>18}"


def _summary(rows: Sequence[_Row]) -> str:
    names = list(dict.fromkeys(name for _, values in rows for name in values if name != BASH))
    # The parts of sliced:2:file stand one above the other, which leaves room for the pipelines.
    stacked = [name.split(":") for name in names]
    height = max(map(len, stacked), default=1)
    widths = [max(7, 2 + max(map(len, parts))) for parts in stacked]
    text_width = max(_LEAST_TEXT, COLUMNS - _BASH_WIDTH - sum(widths))

    def row(text: str, bash: str, cells: Iterable[str]) -> str:
        short = text if len(text) <= text_width else text[: text_width - 3] + "..."
        ends = "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        return f"{short:<{text_width}}{bash:>{_BASH_WIDTH}}{ends}"

    columns = [[""] * (height - len(parts)) + parts for parts in stacked]
    lines = [row("", "", [column[level] for column in columns]) for level in range(height - 1)]
    lines.append(row("times faster than bash", "bash ms", [column[-1] for column in columns]))
    for runs, values in rows:
        text = f"{runs.pipeline.number:>2}. {runs.pipeline.text.replace(' corpus.jsonl', '')}"
        lines.append(row(text, f"{values[BASH].milliseconds:.1f}", [_median(values.get(name)) for name in names]))
    means = _means(rows)
    if means.get(BASH) is not None:
        counted = sum(runs.pipeline.in_mean for runs, _ in rows)
        lines.append(row(f"geometric mean of {counted}", "", [_number(means.get(name)) for name in names]))
    return "\n".join(lines)


def _means(rows: Sequence[_Row]) -> dict[str, float | None]:
    """Returns contestant -> geometric mean of its ratios over the pipelines that count, None if one is missing."""
    counted = [values for runs, values in rows if runs.pipeline.in_mean]
    names = dict.fromkeys(name for values in counted for name in values if name != CEILING)
    return {name: geometric_mean(_ratio_of(values.get(name)) for values in counted) for name in names}


def _ratio_of(figure: Figure | None) -> float | None:
    return None if figure is None or figure.against_bash is None else figure.against_bash.median


def _median(figure: Figure | None) -> str:
    late = "<" if figure is not None and figure.timeouts else ""
    return late + _number(_ratio_of(figure))


def _spread(ratio: Ratio | None) -> str:
    if ratio is None:
        return _MISSING
    return f"{_number(ratio.median):>6}  ({_number(ratio.low)}-{_number(ratio.high)})"


def _number(value: float | None) -> str:
    if value is None:
        return _MISSING
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def _memory(peak: Peak | None) -> str:
    if peak is None or peak.here is None or peak.programs is None:
        return "n/a"
    return f"{peak.here / 1e6:.1f} {peak.programs / 1e6:>8.1f}"
