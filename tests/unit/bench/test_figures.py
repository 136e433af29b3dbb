from __future__ import annotations

import json

import pytest

from grepseek_env.bench.engine.contestants import BASH, CEILING
from grepseek_env.bench.engine.figures import figures, geometric_mean
from grepseek_env.bench.engine.measure import Measurement, PipelineRuns, Timing
from grepseek_env.bench.engine.memory import Peak
from grepseek_env.bench.engine.pipelines import PIPELINES
from grepseek_env.bench.engine.report import results, table

NAMES = (BASH, "sliced:2", CEILING)
USUAL = (BASH, "sequential", "sliced:2", "sliced:4", "sliced:2:file", "auto", CEILING)


def timing(seconds: float, *, timed_out: bool = False) -> Timing:
    return Timing(seconds, timed_out, None if timed_out else 0, 1, "00")


def runs_of(draws: list[list[tuple[float, float, float]]], pipeline: int = 8) -> PipelineRuns:
    return PipelineRuns(
        PIPELINES[pipeline - 1],
        ["command"] * len(draws),
        [[dict(zip(NAMES, map(timing, row), strict=True)) for row in draw] for draw in draws],
        {name: Peak(1_000_000, 2_500_000) for name in NAMES},
    )


def test_ratios_are_paired_and_their_medians_taken_twice() -> None:
    runs = runs_of([[(1.0, 0.5, 0.4), (2.0, 0.5, 0.4), (9.0, 3.0, 1.5)], [(1.0, 1.0, 1.0)], [(5.0, 1.0, 1.0)]])
    sliced = figures(runs)["sliced:2"]
    # Within draws 2, 4, 3 -> 3; 1; 5: the median over draws is 3, quartiles over 1, 2, 3, 4, 5 are 2 and 4.
    assert sliced.against_bash is not None
    assert (sliced.against_bash.median, sliced.against_bash.low, sliced.against_bash.high) == (3.0, 2.0, 4.0)
    assert sliced.of_ceiling is not None
    assert sliced.of_ceiling.median == 1.0
    assert sliced.milliseconds == 1000.0
    assert (sliced.runs, sliced.timeouts) == (5, 0)
    assert figures(runs)[CEILING].of_ceiling is None
    assert figures(runs)[BASH].against_bash == figures(runs)[BASH].against_bash.__class__(1.0, 1.0, 1.0)


def test_a_draw_without_complete_rounds_does_not_count() -> None:
    runs = runs_of([[(1.0, 0.5, 0.5)], []])
    assert figures(runs)["sliced:2"].runs == 1
    assert figures(runs_of([[]])) == {}
    assert figures(PipelineRuns(PIPELINES[0])) == {}


def test_time_outs_count_and_rounds_without_bash_give_no_ratio() -> None:
    runs = runs_of([[(1.0, 2.0, 1.0), (1.0, 1.0, 1.0)]])
    runs.rounds[0][0] = {**runs.rounds[0][0], "sliced:2": timing(60.0, timed_out=True)}
    runs.rounds[0][1] = {**runs.rounds[0][1], BASH: timing(60.0, timed_out=True)}
    figure = figures(runs)["sliced:2"]
    assert figure.timeouts == 1
    assert figure.against_bash is not None
    assert figure.against_bash.median == pytest.approx(1 / 60)
    text = table(Measurement([runs]))
    assert "1 of 2 timed out" in text
    assert "<0.02" in text
    runs.rounds[0] = [runs.rounds[0][1]]
    assert figures(runs)["sliced:2"].against_bash is None
    assert table(Measurement([runs]))


def test_geometric_mean_needs_every_value() -> None:
    assert geometric_mean([1.0, 4.0]) == pytest.approx(2.0)
    assert geometric_mean([1.0, None]) is None
    assert geometric_mean([]) is None


def test_the_table_says_all_in_100_columns() -> None:
    rows = [runs_of([[(0.8123, 0.4, 0.36)] * 3] * 2, p.number) for p in PIPELINES]
    text = table(Measurement(rows, complete=True))
    assert max(map(len, text.splitlines())) <= 100
    assert "geometric mean of 15" in text
    assert "812.3" in text
    assert "2.03  (2.03-2.03)" in text
    assert "0.90  (0.90-0.90)" in text
    assert "1.0      2.5" in text
    assert "stopped early" not in text
    assert "stopped early" in table(Measurement(rows))
    assert table(Measurement([PipelineRuns(PIPELINES[0])])) == "no pipeline was measured"


def test_the_usual_contestants_fit_too() -> None:
    rows = []
    for pipeline in PIPELINES:
        runs = PipelineRuns(pipeline, ["command"], [[{name: timing(123.0) for name in USUAL}]])
        runs.memory = {name: Peak(1_234_000_000, 1_234_000_000) for name in USUAL}
        rows.append(runs)
    lines = table(Measurement(rows, complete=True)).splitlines()
    assert max(map(len, lines)) <= 100
    head = next(i for i, line in enumerate(lines) if line.startswith("times faster than bash"))
    assert lines[head - 2].split() == ["sliced"]
    assert lines[head - 1].split() == ["sliced", "sliced", "2"]
    assert lines[head].split()[4:] == ["bash", "ms", "sequential", "2", "4", "file", "auto", "ceiling"]


def test_the_mean_leaves_out_what_is_not_in_it() -> None:
    rows = [runs_of([[(4.0, 1.0, 1.0)]], 1), runs_of([[(1.0, 1.0, 1.0)]], 2), runs_of([[(9.0, 1.0, 1.0)]], 16)]
    values = results(Measurement(rows, complete=True))
    assert values["geometric_means"] == {BASH: 1.0, "sliced:2": pytest.approx(2.0)}
    assert json.loads(json.dumps(values))["pipelines"][0]["draws"][0]["rounds"][0][BASH]["seconds"] == 4.0
