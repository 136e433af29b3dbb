"""What a runner has to know about a command, from what is proven about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from grepseek_env.engine.endings import is_ending
from grepseek_env.engine.literals.records import Rest
from grepseek_env.engine.narrow import ending
from grepseek_env.engine.question import Question

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from grepseek_env.commands import Pipeline
    from grepseek_env.engine.literals.records import Narrowing, Sink
    from grepseek_env.engine.plan import Argv

__all__ = ["Prepared", "prepare"]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A command, looked at once.

    Attributes:
        narrowing: what is proven about it.
        question: which lines are wanted; None where nothing is known, or too much for the kernels.
        fed: the programs that are given these lines; none where the command is answered in process.
        replays: `fed` is the whole command, but for the last program if there is an `ending`.
        ending: what the last program would do, which is then not one of `fed`; None where all are.
    """

    narrowing: Narrowing
    question: Question | None
    fed: tuple[Argv, ...]
    replays: bool
    ending: Sink | None = None


def prepare(narrowing: Narrowing, pipeline: Pipeline, frequencies: Callable[[], Sequence[int]]) -> Prepared:
    """Decides which lines are wanted, and which programs are given them.

    Args:
        narrowing: what is proven.
        pipeline: the command.
        frequencies: returns how common each byte of the corpus is.
    """
    sink, filters = narrowing.sink, narrowing.filters
    clauses = tuple(each.literals for each in filters if not each.invert)
    # Clauses may speak of more stages than the filters do; lines may be left out for their sake only where it does
    # not show in numbers that a later stage prints.
    more = () if narrowing.replay is None else tuple(c for c in narrowing.clauses if c not in clauses)
    question: Question | None = None
    fed: tuple[Argv, ...] = ()
    replays = False
    match sink:
        case Rest(first) if filters:
            question, fed = Question(filters, more, (*clauses, *more), frequencies), pipeline.argv[first:]
        case Rest():
            if narrowing.replay is not None and narrowing.clauses:
                question = Question((), narrowing.clauses, narrowing.clauses, frequencies)
                fed, replays = narrowing.replay, True
        case _:
            question = Question(filters, (), clauses, frequencies)
    if question is not None and not question.fits:
        question = None
    last = ending(pipeline.stages[-1]) if len(fed) > 1 else None
    if is_ending(last):
        return Prepared(narrowing, question, fed[:-1], replays, last)
    return Prepared(narrowing, question, fed, replays)
