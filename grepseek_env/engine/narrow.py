"""Pipeline -> what its leading searches need a line to hold, purely.

Lines that lack it can be left out before a program reads them, and what is printed stays the same: a search prints
none of them, whatever comes after sees the same lines, and the exit code is that of the last program. Whatever is not
proven ends the narrowing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from grepseek_env.commands.spec import Effect
from grepseek_env.engine.feeding import on_stdin
from grepseek_env.engine.literals.records import (
    Clause,
    CountBytes,
    CountLines,
    Everything,
    ExactFilter,
    Exists,
    GrepCount,
    HeadLines,
    Literal,
    Narrowing,
    Rest,
    Sink,
)
from grepseek_env.engine.literals.search import Search, read_search
from grepseek_env.engine.planner import why_once
from grepseek_env.engine.work import copies

if TYPE_CHECKING:
    from grepseek_env.commands.syntax import Option, Pipeline, Stage
    from grepseek_env.corpus.facts import CorpusFacts

__all__ = [
    "Clause",
    "CountBytes",
    "CountLines",
    "Everything",
    "ExactFilter",
    "Exists",
    "GrepCount",
    "HeadLines",
    "Literal",
    "Narrowing",
    "Rest",
    "Sink",
    "ending",
    "narrow",
]

_SEARCHES = frozenset({"rg", "grep"})
# What these print depends on the lines they select alone, not on those between or around them.
_SELECTS = frozenset({Effect.KEEP, Effect.LIMIT, Effect.COUNT, Effect.EXISTS, Effect.MAP})
_NUMBER = re.compile(r"[0-9]{1,18}")  # more digits may overflow, which is the program's own affair


def narrow(pipeline: Pipeline, corpus: CorpusFacts, *, locale: str = "C") -> Narrowing:
    """Says which lines of the corpus a pipeline can need, and what its leading searches do.

    Args:
        pipeline: a checked command.
        corpus: facts of the corpus it runs on.
        locale: LC_ALL of the programs.
    """
    if (why := why_once(pipeline, corpus)) is not None:
        return Narrowing((), 0, (), Rest(0), None, why)
    searches = [_read(stage, corpus, locale) for stage in pipeline.stages]
    clauses, covered, reason = _clauses(pipeline.stages, searches)
    filters, sink = _exact(pipeline.stages, searches)
    return Narrowing(
        clauses=clauses,
        covered=covered,
        filters=filters,
        sink=sink,
        replay=on_stdin(pipeline, pipeline.argv) if clauses else None,
        reason=reason,
    )


def _read(stage: Stage, corpus: CorpusFacts, locale: str) -> Search | str:
    if stage.program not in _SEARCHES:
        return f"{stage.program} is no search"
    return read_search(stage, corpus, locale)


def _clauses(stages: tuple[Stage, ...], searches: list[Search | str]) -> tuple[tuple[Clause, ...], int, str]:
    """Returns the clauses, how many stages they speak of, and the reason."""
    found: list[Clause] = []
    covered = 0
    why = "all programs are searches"
    for number, (stage, search) in enumerate(zip(stages, searches, strict=True)):
        effects = {option.effect for option in stage.options}
        if not copies(stage):
            if isinstance(search, str):
                why = search
                break
            if search.invert:
                why = f"{stage.program} -v prints the lines that do not match"
                break
            if odd := [option for option in stage.options if option.effect not in _SELECTS]:
                why = f"what {stage.program} {odd[0].name} prints is not for the matching lines alone to decide"
                break
            found += search.clauses
            covered = number + 1
            if effects - {Effect.KEEP}:
                why = f"{stage.program} prints something else than all lines that match"
                break
            if search.refers_back:
                why = f"{stage.program} may give up on a line, having a back-reference"
                break
        covered = number + 1
    found = list(dict.fromkeys(found))
    if not found:
        return (), 0, f"no line is known to be left out: {why}"
    return tuple(found), covered, why


def _exact(stages: tuple[Stage, ...], searches: list[Search | str]) -> tuple[tuple[ExactFilter, ...], Sink]:
    """Returns what the leading stages do exactly, and what follows."""
    filters: list[ExactFilter] = []
    last = len(stages) - 1
    for number, (stage, search) in enumerate(zip(stages, searches, strict=True)):
        if copies(stage) and number < last:
            continue
        exact = None if isinstance(search, str) else search.exact
        end: Sink | None = None
        if exact is None:
            end = ending(stage) if filters and number == last else None
        elif printed := [option for option in stage.options if option.effect is not Effect.KEEP]:
            end = _search_end(stage, printed) if number == last else None
            filters += [exact] if end is not None else []
        else:
            filters.append(exact)
            continue
        if not filters:
            return (), Rest(0)
        return tuple(filters), end or Rest(number)
    return tuple(filters), Everything()


def _search_end(stage: Stage, printed: list[Option]) -> Sink | None:
    """Returns what the flags of the last stage, a search, make of the lines it selects; None if that is left to it."""
    if len(printed) > 1:
        return None
    option = printed[0]
    match option.effect:
        case Effect.EXISTS:
            return Exists()
        case Effect.COUNT if "-c" in option.spec.names:
            return GrepCount(zero=stage.program == "grep")
        case Effect.LIMIT if (lines := _number(option.value)) and lines > 0:
            return HeadLines(lines, search=True)
        case _:
            return None


def ending(stage: Stage) -> Sink | None:
    """Returns what a last stage that is no search prints of the lines it reads; None if that is left to it."""
    if stage.operands or len(stage.options) > 1:
        return None
    option = stage.options[0] if stage.options else None
    match stage.program:
        case "head" if option is None:
            return HeadLines(10)
        case "head" if option and "-n" in option.spec.names and (lines := _number(option.value)) is not None:
            return HeadLines(lines)
        case "wc" if option and "-l" in option.spec.names:
            return CountLines()
        case "wc" if option and "-c" in option.spec.names:
            return CountBytes()
        case _:
            return None


def _number(value: str | None) -> int | None:
    return int(value) if value is not None and _NUMBER.fullmatch(value) else None
