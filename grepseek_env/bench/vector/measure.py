"""The measurement: contestants in turn, the same commands for all, every observation compared."""

from __future__ import annotations

import hashlib
import itertools
import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from grepseek_env.actions import ACTION_FORMATS
from grepseek_env.bench.engine.measure import WrongAnswer
from grepseek_env.bench.vector.mix import EPISODE, replay

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from grepseek_env.bench.vector.contestants import Contestant, Ready
    from grepseek_env.corpus.store import CorpusStore

__all__ = ["Measurement", "Run", "measure"]


@dataclass(frozen=True, slots=True)
class Run:
    """One measurement of one contestant with one number of environments.

    Attributes:
        contestant: its name.
        num_envs: how many.
        round: from 0; runs of a round are compared with one another.
        seconds: inside `step`.
        steps: calls of `step`.
        commands: commands run by all environments together.
        inside: seconds of these inside the backend; None where that is in other processes, or not of one batch.
    """

    contestant: str
    num_envs: int
    round: int
    seconds: float
    steps: int
    commands: int
    inside: float | None

    @property
    def env_steps_per_second(self) -> float:
        """Environment steps per second."""
        return self.steps * self.num_envs / self.seconds

    @property
    def commands_per_second(self) -> float:
        """Commands per second."""
        return self.commands / self.seconds

    @property
    def beyond(self) -> float | None:
        """Seconds a step and environment beyond the commands; None where it is not known."""
        return None if self.inside is None else (self.seconds - self.inside) / (self.steps * self.num_envs)


@dataclass(slots=True)
class Measurement:
    """What was measured; it grows while `measure` runs, so an interruption leaves what is complete.

    Attributes:
        runs: in the order they were made.
        complete: nothing is missing.
    """

    runs: list[Run] = field(default_factory=list)
    complete: bool = False


def measure(
    measurement: Measurement,
    contestants: Sequence[Contestant],
    numbers: Sequence[int],
    store: CorpusStore,
    words: Mapping[str, Sequence[str]],
    *,
    rounds: int,
    seconds: float,
    seed: int,
    before: Callable[[], object],
    after: Callable[[str], object],
) -> None:
    """Measures every contestant with every number of environments, `rounds` times, in a new order every time.

    Args:
        measurement: where runs are put.
        contestants: who.
        numbers: numbers of environments.
        store: the corpus.
        words: for the commands, see `mix_words`.
        rounds: a round has commands of its own, the same for all contestants.
        seconds: of a measurement; the step under way is finished.
        seed: decides commands and orders.
        before: called before a measurement.
        after: called after one, with its name.

    Raises:
        WrongAnswer: two contestants observed different things.
    """
    order = random.Random(seed)  # noqa: S311  reproducible draws, not secrets
    for number in range(rounds):
        seen: dict[int, tuple[str, list[tuple[bytes, ...]]]] = {}
        pairs = [(contestant, num_envs) for contestant in contestants for num_envs in numbers]
        order.shuffle(pairs)
        for contestant, num_envs in pairs:
            before()
            key = f"{seed}/{number}/{num_envs}"
            with contestant.open(store, num_envs) as ready:
                run, digests = _run(ready, contestant, num_envs, number, words, key=key, seconds=seconds)
            other, theirs = seen.setdefault(num_envs, (contestant.name, digests))
            for step, (mine, his) in enumerate(zip(digests, theirs, strict=False)):
                if mine != his:
                    place = next(i for i, (a, b) in enumerate(zip(mine, his, strict=True)) if a != b)
                    raise WrongAnswer(
                        f"{contestant.name} and {other} observe different things with {num_envs} environments, "
                        f"at step {step} of environment {place} in round {number}"
                    )
            if len(digests) > len(theirs):
                seen[num_envs] = contestant.name, digests
            measurement.runs.append(run)
            after(f"{contestant.name} {num_envs}")
    measurement.complete = True


def _run(
    ready: Ready,
    contestant: Contestant,
    num_envs: int,
    number: int,
    words: Mapping[str, Sequence[str]],
    *,
    key: str,
    seconds: float,
) -> tuple[Run, list[tuple[bytes, ...]]]:
    write = ACTION_FORMATS["hermes"].render_action
    commands = replay(words, num_envs, seed=int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big"))
    answer = [write("That is it.", answer="it")] * num_envs
    if contestant.warms_up:
        # What is loaded when it is first needed belongs to the start, not to a step.
        first = write("I look for it.", command=f"rg -F '{words['P'][-1]}' corpus.jsonl | head -n 1")
        ready.envs.reset(seed=0)
        ready.envs.step([first] * num_envs)
    ready.envs.reset(seed=0)
    spent = inside = 0.0
    steps = ran = 0
    digests: list[tuple[bytes, ...]] = []
    # An episode's commands, its answer, and the step in which the next one starts.
    for turn in itertools.cycle(range(EPISODE + 2)):
        acts = turn < EPISODE
        actions = [write("I look for it.", command=each) for each in next(commands)] if acts else answer
        if ready.backend is not None:
            ready.backend.seconds = 0.0
        start = time.perf_counter()
        observations, *_ = ready.envs.step(actions)
        spent += time.perf_counter() - start
        inside += ready.backend.seconds if ready.backend is not None else 0.0
        steps += 1
        ran += num_envs if acts else 0
        digests.append(tuple(hashlib.blake2b(text.encode(), digest_size=8).digest() for text in observations))
        if spent >= seconds:
            break
    known = inside if ready.backend is not None else None
    return Run(contestant.name, num_envs, number, spent, steps, ran, known), digests
