"""Guesses whether a command is faster on the lines that can matter, found in process, than as it stands.

Only speed depends on a guess. Where the first lines are likely to be all that is wanted, nothing has to be guessed: see
`near_bytes`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from grepseek_env.corpus.slicer import first_cut
from grepseek_env.engine.fastpath import demand
from grepseek_env.engine.memory import MOST_BYTES
from grepseek_env.engine.scanning import Scanner, whole
from grepseek_env.engine.scheduler import SCHEDULER
from grepseek_env.engine.work import work_of

if TYPE_CHECKING:
    from grepseek_env.commands import Pipeline
    from grepseek_env.engine.prepared import Prepared
    from grepseek_env.engine.question import Question
    from grepseek_env.engine.scanning import Spans

__all__ = ["QUICK_BYTES", "Costs", "Estimate", "frequencies", "near_bytes", "total"]

QUICK_BYTES = 8 << 20
"""So many bytes are scanned in half a millisecond."""

_SAMPLE = 1 << 20
_COUNTED = 4  # samples of bytes
_NEAR_PART = 32  # of the corpus is scanned before another way is taken: some percent of what rg takes for all of it
# Bytes a second, of one core, in round numbers: only which way is faster depends on them.
# rg maps the file: where the page cache holds it in large pieces, nothing reads it faster.
_SCAN_SPEED, _PIPE_SPEED, _FAST_PROGRAM, _SLOW_PROGRAM = 7e9, 1e9, 20e9, 0.5e9
_START_SECONDS = 0.002  # of a program
_MEMORY_SPEED = 3e9  # of `memory`


@dataclass(frozen=True, slots=True)
class Costs:
    """What two ways to run a command are guessed to take, in seconds, beside what both have to do.

    Attributes:
        search: here: to look for the wanted lines.
        hand_on: here: to give them to programs.
        read: as it stands: to read the corpus.
        take: as it stands: to take what the programs print.
        start: as it stands: to start programs that are not needed here.
        share: about what part of the corpus is wanted; None where no sample was taken.
        near: the first lines of the answer are all of it, and are expected near the beginning.
    """

    search: float
    hand_on: float
    read: float
    take: float
    start: float
    share: float | None = None
    near: bool = False

    @property
    def here(self) -> float:
        """Of searching in process."""
        return self.search + self.hand_on

    @property
    def usual(self) -> float:
        """Of the command as it stands."""
        return self.read + self.take + self.start


class Estimate:
    """What is known about the cost of commands on one corpus.

    Args:
        size: bytes of the corpus.
        lines: its lines.
    """

    def __init__(self, size: int, lines: int) -> None:
        self._size = size
        self._line_bytes = size / max(lines, 1)
        self._shares: dict[str, float] = {}

    def forget(self, text: str) -> None:
        """Drops what was sampled for a command."""
        self._shares.pop(text, None)

    def is_worth_it(
        self, pipeline: Pipeline, prepared: Prepared, question: Question, file: int, found: Spans | None
    ) -> bool:
        """Returns whether searching in process is likely to be faster than the usual way.

        Args:
            pipeline: the command.
            prepared: what is proven about it.
            question: which lines are wanted.
            file: a descriptor of the corpus.
            found: the parts outside of which no line is wanted; None where they are not known.
        """
        if self._size <= MOST_BYTES or _is_scan(pipeline, prepared):
            return True
        if not prepared.fed and (self._size if found is None else total(found)) <= QUICK_BYTES:
            return True
        costs = self.costs(pipeline, prepared, question, file, found)
        return costs.here < costs.usual

    def costs(
        self, pipeline: Pipeline, prepared: Prepared, question: Question, file: int, found: Spans | None
    ) -> Costs:
        """Returns what both ways are likely to take; the arguments are those of `is_worth_it`."""
        size = self._size
        read = size if found is None else total(found)
        share = self.share(pipeline.text, question, file)
        reached: float = size
        need = demand(prepared.narrowing.sink, bounded=False)
        if not prepared.fed and share and need.early:
            reached = min(size, need.most_lines * self._line_bytes / share)
        given = min(share * reached, read)
        cores = SCHEDULER.cores
        slow = work_of(pipeline.stages) == "cpu"
        speed = _SLOW_PROGRAM if slow else _FAST_PROGRAM
        hand_on = given / _PIPE_SPEED + (given / speed if prepared.replays else 0)
        return Costs(
            search=min(read, reached) / (_SCAN_SPEED * cores),
            hand_on=hand_on if prepared.fed else 0,
            read=reached / (speed * (cores if slow else 1)),
            take=0 if prepared.fed else given / _PIPE_SPEED,
            start=_saved_starts(pipeline, prepared),
            share=share,
            near=reached < size,
        )

    def costs_in_memory(self, pipeline: Pipeline, prepared: Prepared) -> Costs:
        """Returns what is likely where the corpus is held in memory; no sample is taken of so little."""
        speed = _SLOW_PROGRAM if work_of(pipeline.stages) == "cpu" else _FAST_PROGRAM
        search, read = self._size / _MEMORY_SPEED, self._size / speed
        return Costs(search, hand_on=0, read=read, take=0, start=_saved_starts(pipeline, prepared))

    def share(self, text: str, question: Question, file: int) -> float:
        """Returns about what part of the corpus is wanted, from two samples."""
        known = self._shares.get(text)
        if known is None:
            size = self._size
            wanted = read = 0
            for start in (0, first_cut(file, size, size // 2)):
                with Scanner(question) as scanner:
                    scanner.scan(file, whole(size, start), None, most_read=_SAMPLE)
                    wanted += scanner.bytes
                    read += min(_SAMPLE, size - start)
            self._shares[text] = known = min(1.0, wanted / max(read, 1))
        return known


def near_bytes(pipeline: Pipeline, prepared: Prepared, size: int, *, bounded: bool) -> int:
    """Returns how much of the beginning had better be searched before anything is guessed; 0: nothing.

    It is meant for a corpus without an index, which would tell more, and sooner.

    Args:
        pipeline: the command.
        prepared: what is proven about it.
        size: bytes of the corpus.
        bounded: not all of the output may be kept.
    """
    if prepared.fed or size <= MOST_BYTES or _is_scan(pipeline, prepared):
        return 0
    if not demand(prepared.narrowing.sink, bounded=bounded).early:
        return 0
    return size // _NEAR_PART


def frequencies(file: int, size: int) -> tuple[int, ...]:
    """Returns how common each byte is in a corpus, from a few samples."""
    step = max(size // _COUNTED, 1)
    sample = b"".join(os.pread(file, _SAMPLE // 16, number * step) for number in range(_COUNTED))
    return tuple(np.bincount(np.frombuffer(sample, np.uint8), minlength=256).tolist())


def total(spans: Spans) -> int:
    """Returns the bytes of all spans together."""
    return int((spans[:, 1] - spans[:, 0]).sum())


def _is_scan(pipeline: Pipeline, prepared: Prepared) -> bool:
    """Returns whether a program that is slower than a scan is all that would be started."""
    return not prepared.fed and work_of(pipeline.stages) == "cpu"


def _saved_starts(pipeline: Pipeline, prepared: Prepared) -> float:
    return _START_SECONDS * (len(pipeline.stages) - len(prepared.fed))
