"""The measurement: contestants in turn, in an order that changes from round to round, every answer compared."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from grepseek_env.bench.engine.contestants import BASH
from grepseek_env.bench.engine.memory import MemorySampler, Peak
from grepseek_env.errors import EngineFault, GrepSeekError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from grepseek_env.bench.engine.contestants import Answer, Contestant, Runner
    from grepseek_env.bench.engine.pipelines import BenchPipeline
    from grepseek_env.bench.engine.words import Draw

__all__ = ["Entrant", "Measurement", "PipelineRuns", "Timing", "WrongAnswer", "measure", "planned_runs"]


class WrongAnswer(EngineFault):
    """A contestant's output or exit code is not bash's."""


@dataclass(frozen=True, slots=True)
class Entrant:
    """A contestant that is ready to run."""

    contestant: Contestant
    run: Runner

    @property
    def name(self) -> str:
        """Its name."""
        return self.contestant.name


@dataclass(frozen=True, slots=True)
class Timing:
    """One run.

    Attributes:
        seconds: wall time until the whole output was here; the time-out where that passed.
        timed_out: it passed.
        exit_code: None after a time-out.
        size: bytes of output.
        digest: SHA-256 of the output, hexadecimal.
    """

    seconds: float
    timed_out: bool
    exit_code: int | None
    size: int
    digest: str


@dataclass(slots=True)
class PipelineRuns:
    """What was measured of one pipeline.

    Attributes:
        pipeline: which.
        commands: the command of each draw.
        rounds: for each draw its complete rounds, contestant -> timing.
        memory: contestant -> peak of its untimed first run.
    """

    pipeline: BenchPipeline
    commands: list[str] = field(default_factory=list)
    rounds: list[list[Mapping[str, Timing]]] = field(default_factory=list)
    memory: dict[str, Peak] = field(default_factory=dict)


@dataclass(slots=True)
class Measurement:
    """What was measured; it grows while `measure` runs, so an interruption leaves what is complete.

    Attributes:
        runs: one entry a pipeline.
        complete: nothing is missing.
    """

    runs: list[PipelineRuns]
    complete: bool = False


def planned_runs(
    pipelines: Sequence[BenchPipeline], contestants: Sequence[Contestant], *, draws: int, rounds: int
) -> int:
    """Returns how often `measure` runs a command."""
    each = sum(_takes_part(contestant, pipeline) for pipeline in pipelines for contestant in contestants)
    return each * (draws * rounds + 1)


def measure(
    measurement: Measurement,
    entrants: Sequence[Entrant],
    draws: Sequence[Draw],
    *,
    rounds: int,
    seed: int,
    timeout: float,
    before_command: Callable[[], object] = lambda: None,
    after_run: Callable[[str], object] = lambda _text: None,
) -> None:
    """Runs everything, adding to `measurement`.

    Draws come in the outermost loop, so that the slow changes of a machine meet all pipelines alike.

    Args:
        measurement: has the pipelines.
        entrants: bash among them.
        draws: the words.
        rounds: how often each contestant runs each command.
        seed: decides the order within each round.
        timeout: seconds a command may run.
        before_command: makes the machine ready, once for each command.
        after_run: told what was just run.

    Raises:
        WrongAnswer: names pipeline and contestant.
        EngineFault: a contestant failed; the same.
    """
    for draw_number, draw in enumerate(draws):
        words = {letter: word.text for letter, word in draw.items()}
        for runs in measurement.runs:
            number = runs.pipeline.number
            command = runs.pipeline.command(words)
            before_command()
            taking_part = [e for e in entrants if _takes_part(e.contestant, runs.pipeline)]
            if not draw_number:
                first = {}
                for entrant in taking_part:
                    with MemorySampler() as sampler:
                        first[entrant.name] = _timed(entrant, command, timeout)
                    runs.memory[entrant.name] = sampler.peak()
                    after_run(f"{number} {entrant.name}")
                _compare(number, command, first, entrants)
            runs.commands.append(command)
            runs.rounds.append([])
            for round_number in range(rounds):
                timings = {}
                for entrant in _shuffled(taking_part, f"{seed} {number} {draw_number} {round_number}"):
                    timings[entrant.name] = _timed(entrant, command, timeout)
                    after_run(f"{number} {entrant.name}")
                _compare(number, command, timings, entrants)
                runs.rounds[-1].append(timings)
    measurement.complete = True


def _takes_part(contestant: Contestant, pipeline: BenchPipeline) -> bool:
    return pipeline.whole or contestant.checked


def _shuffled(entrants: Sequence[Entrant], key: str) -> list[Entrant]:
    return sorted(entrants, key=lambda entrant: hashlib.sha256(f"{key} {entrant.name}".encode()).digest())


def _timed(entrant: Entrant, command: str, timeout: float) -> Timing:
    start = time.perf_counter()
    try:
        answer: Answer = entrant.run(command, timeout)
    except GrepSeekError as error:
        raise EngineFault(f"{entrant.name} failed at {command!r}: {error}") from error
    seconds = time.perf_counter() - start
    digest = hashlib.sha256(answer.stdout).hexdigest()
    return Timing(
        seconds=timeout if answer.timed_out else seconds,
        timed_out=answer.timed_out,
        exit_code=answer.exit_code,
        size=len(answer.stdout),
        digest=digest,
    )


def _compare(number: int, command: str, timings: Mapping[str, Timing], entrants: Sequence[Entrant]) -> None:
    """Compares the answers of one round with bash's; a time-out has none."""
    expected = timings[BASH]
    checked = {entrant.name for entrant in entrants if entrant.contestant.checked}
    for name, timing in timings.items():
        if name not in checked or timing.timed_out or expected.timed_out:
            continue
        if (timing.digest, timing.exit_code) != (expected.digest, expected.exit_code):
            raise WrongAnswer(
                f"pipeline {number}: {name} does not answer as bash does\n  {command}\n"
                f"  bash: {_shown(expected)}\n  {name}: {_shown(timing)}\n"
                "no figures are given; compare the outputs of grepseek run and of bash for this command"
            )


def _shown(timing: Timing) -> str:
    return f"exit code {timing.exit_code}, {timing.size} bytes, SHA-256 {timing.digest[:16]}"
