from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from grepseek_env.bench.engine.contestants import BASH, CEILING, Answer, Contestant, Ready
from grepseek_env.bench.engine.measure import Entrant, Measurement, PipelineRuns, WrongAnswer, measure, planned_runs
from grepseek_env.bench.engine.pipelines import LETTERS, PIPELINES, select_pipelines
from grepseek_env.bench.engine.words import Word
from grepseek_env.errors import EngineFault, SpawnFailed

if TYPE_CHECKING:
    from collections.abc import Callable

DRAWS = [{letter: Word(f"{letter.lower()}{number}", 1) for letter in LETTERS} for number in range(2)]


def entrant(name: str, run: Callable[[str, float], Answer], *, checked: bool = True) -> Entrant:
    return Entrant(Contestant(name, lambda _store: contextlib.nullcontext(Ready(run)), checked), run)


def honest(command: str, _timeout: float) -> Answer:
    return Answer(command.encode(), 0)


def run_all(entrants: list[Entrant], numbers: str = "8,9", rounds: int = 3) -> Measurement:
    measurement = Measurement([PipelineRuns(pipeline) for pipeline in select_pipelines(numbers)])
    measure(measurement, entrants, DRAWS, rounds=rounds, seed=0, timeout=5.0)
    return measurement


@pytest.mark.slow
def test_everything_is_run_as_often_as_planned() -> None:
    calls: list[str] = []
    ran: list[str] = []
    at: list[int] = []

    def noted(command: str, timeout: float) -> Answer:
        calls.append(command)
        return honest(command, timeout)

    entrants = [entrant(BASH, noted), entrant("auto", noted), entrant(CEILING, noted, checked=False)]
    measurement = Measurement([PipelineRuns(pipeline) for pipeline in PIPELINES])
    measure(
        measurement,
        entrants,
        DRAWS,
        rounds=2,
        seed=0,
        timeout=5.0,
        before_command=lambda: at.append(len(calls)),
        after_run=ran.append,
    )
    assert len(at) == 2 * len(PIPELINES)
    assert at[:3] == [0, 2 * 3, 2 * 3 + 3 * 3]  # the first pipeline without, the second with the ceiling
    contestants = [e.contestant for e in entrants]
    assert len(calls) == len(ran) == planned_runs(PIPELINES, contestants, draws=2, rounds=2)
    assert measurement.complete
    for runs in measurement.runs:
        assert runs.commands == [runs.pipeline.command({k: w.text for k, w in draw.items()}) for draw in DRAWS]
        assert [len(rounds) for rounds in runs.rounds] == [2, 2]
        assert (CEILING in runs.memory) == runs.pipeline.whole


def test_the_order_changes_and_repeats_with_the_seed() -> None:
    def orders() -> list[tuple[str, ...]]:
        calls: list[str] = []

        def noting(name: str) -> Entrant:
            return entrant(name, lambda command, timeout: calls.append(name) or honest(command, timeout))

        run_all([noting(name) for name in (BASH, "a", "b", "c")], rounds=6)
        return [tuple(calls[i : i + 4]) for i in range(0, len(calls), 4)]

    first = orders()
    assert len(set(first)) > 4
    assert all(sorted(order) == sorted(first[0]) for order in first)
    assert orders() == first


@pytest.mark.parametrize(
    "lie",
    [lambda command: Answer(command.encode() + b"\n", 0), lambda command: Answer(command.encode(), 1)],
    ids=["bytes", "exit code"],
)
def test_a_wrong_answer_stops_everything_and_is_named(lie: Callable[[str], Answer]) -> None:
    calls = 0

    def lying(command: str, timeout: float) -> Answer:
        nonlocal calls
        calls += 1
        return honest(command, timeout) if calls < 4 else lie(command)

    with pytest.raises(WrongAnswer, match=r"pipeline 8: liar does not answer as bash does\n  grep -c 'm0'"):
        run_all([entrant(BASH, honest), entrant("liar", lying)])


def test_answers_of_the_ceiling_and_of_time_outs_are_not_compared() -> None:
    late = entrant("late", lambda _command, _timeout: Answer(b"", None, timed_out=True))
    other = entrant(CEILING, lambda _command, _timeout: Answer(b"other", 0), checked=False)
    measurement = run_all([entrant(BASH, honest), late, other])
    timing = measurement.runs[0].rounds[0][0]["late"]
    assert timing.timed_out
    assert timing.seconds == 5.0


def test_an_interruption_leaves_complete_rounds() -> None:
    calls = 0

    def interrupted(command: str, timeout: float) -> Answer:
        nonlocal calls
        calls += 1
        if calls == 7:  # one untimed, five rounds, and this one
            raise KeyboardInterrupt
        return honest(command, timeout)

    measurement = Measurement([PipelineRuns(pipeline) for pipeline in select_pipelines("8,9")])
    entrants = [entrant(BASH, honest), entrant("auto", interrupted)]
    with pytest.raises(KeyboardInterrupt):
        measure(measurement, entrants, DRAWS, rounds=9, seed=0, timeout=5.0)
    assert not measurement.complete
    (rounds,) = measurement.runs[0].rounds
    assert len(rounds) == 5
    assert all(set(timings) == {BASH, "auto"} for timings in rounds)


def test_a_fault_names_contestant_and_command() -> None:
    def failing(_command: str, _timeout: float) -> Answer:
        raise SpawnFailed("no processes left")

    with pytest.raises(EngineFault, match=r"broken failed at .*grep -c 'm0'.*no processes left"):
        run_all([entrant(BASH, honest), entrant("broken", failing)])
