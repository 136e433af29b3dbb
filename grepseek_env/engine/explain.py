"""A plan in words."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from grepseek_env.engine.literals.records import (
    CountBytes,
    CountLines,
    Everything,
    GrepCount,
    HeadLines,
    Rest,
)
from grepseek_env.engine.literals.records import Exists as AnyLine
from grepseek_env.engine.plan import (
    Concat,
    Exists,
    Exits,
    Head,
    HeadBytes,
    Merge,
    Offset,
    Sequential,
    Sliced,
    Sum,
    Tail,
    TailBytes,
    Uniq,
    UniqShow,
)

if TYPE_CHECKING:
    from grepseek_env.engine.literals.records import Clause, ExactFilter, Literal, Narrowing, Sink
    from grepseek_env.engine.plan import Argv, Combiner, Plan

__all__ = ["explain_combiner", "explain_narrowing", "explain_plan"]

_SHOWN_LITERALS = 4

_SHOWN = {
    UniqShow.ALL: "equal lines on both sides of a slice's end become one",
    UniqShow.COUNTED: "equal lines on both sides of a slice's end become one, their counts are added up",
    UniqShow.REPEATED: "groups are joined over the slices' ends, then those of several lines are kept",
    UniqShow.SINGLE: "groups are joined over the slices' ends, then those of one line are kept",
}
_EXITS = {
    Exits.FIRST_FAILURE: "the exit code is the first that is not 0",
    Exits.SEARCH: "the exit code is 2 after an error, else 0 if any slice matched, else 1",
}


def explain_plan(plan: Plan) -> str:
    """Returns a few lines of text: what runs on slices, the combination, what runs once, the reasons."""
    match plan:
        case Sequential(reason):
            return f"one pass over the corpus: {reason}"
        case Sliced():
            return "\n".join(_sliced(plan))


def _sliced(plan: Sliced) -> list[str]:
    lines = [f"on slices:  {_pipeline(plan.mapped)}"]
    if plan.piped is None:
        lines.append("            (only slices that are files, since the file's name matters)")
    elif plan.piped != plan.mapped:
        lines.append(f"  by pipe:  {_pipeline(plan.piped)}")
    lines.append(f"combined:   {explain_combiner(plan.combiner)}")
    if plan.tail:
        lines.append(f"then once:  {_pipeline(plan.tail)}")
    else:
        lines.append(f"            {_EXITS[plan.exits]}")
    limited = "memory, so one slice is as good" if plan.work == "scan" else "the processor"
    early = "; the first slices may decide" if plan.early else ""
    return [*lines, f"limited by: {limited}{early}", f"how far:    {plan.reason}"]


def explain_combiner(combiner: Combiner) -> str:
    """Returns what a combiner does, without a full stop."""
    match combiner:
        case Concat():
            return "one slice's output after the other"
        case Head(lines):
            return f"the first {_count(lines, 'line')}; later slices are stopped once these have come"
        case HeadBytes(count):
            return f"the first {_count(count, 'byte')}; later slices are stopped once these have come"
        case Tail(lines):
            return f"the last {_count(lines, 'line')}"
        case TailBytes(count):
            return f"the last {_count(count, 'byte')}"
        case Sum(columns=1):
            return "the counts are added up"
        case Sum(columns=columns):
            return f"{columns} columns of counts are added up"
        case Merge(argv):
            return f"sorted slices are merged by {shlex.join(argv)}"
        case Uniq(show):
            return _SHOWN[show]
        case Offset(lines=lines, bytes=by_bytes):
            what = " and ".join(["line numbers"] * lines + ["byte offsets"] * by_bytes)
            return f"one after the other, {what} counted on from slice to slice"
        case Exists():
            return "later slices are stopped once one has a match"


def explain_narrowing(
    narrowing: Narrowing,
    fed: tuple[Argv, ...],
    ending: Sink | None,
    *,
    where: str,
    corpus_bytes: int,
    indexed: bool,
    candidates: tuple[int, int] | None,
    otherwise: str,
) -> str:
    """Returns what is searched for where, and what becomes of the lines.

    Args:
        narrowing: what is proven about the command.
        fed: the programs that are given the lines; none where it is answered in process.
        ending: what is done here in place of a last program; None: nothing.
        where: "memory" or "kernels".
        corpus_bytes: the corpus's.
        indexed: there is an index.
        candidates: how many parts of the corpus it leaves, and their bytes; None where it leaves everything.
        otherwise: how the command would run without narrowing.
    """
    lines = [f"narrowed:   {narrowing.reason}"]
    if narrowing.filters:
        lines += [f"lines with: {_clause(each.literals)}{_manner(each)}" for each in narrowing.filters]
    else:
        lines += [f"lines with: {_clause(clause)}" for clause in narrowing.clauses]
    match where, candidates:
        case "memory", _:
            lines.append("found in:   the corpus, held in memory")
        case _, (parts, size):
            share = 100 * size / max(corpus_bytes, 1)
            lines.append(
                f"found in:   {_count(parts, 'part')} of the corpus by its index, {size} bytes ({share:.3g} %)"
            )
        case _:
            why = "its index rules too little out" if indexed else "it has no index (grepseek corpus build --index)"
            lines.append(f"found in:   the whole corpus, {corpus_bytes} bytes, scanned in process: {why}")
    answer = f"answer:     {_answered(narrowing.sink)}, no program started"
    lines.append(f"then:       {_pipeline(fed)}" if fed else answer)
    if ending is not None:
        lines.append(f"of these:   {_answered(ending)}, without another program")
    return "\n".join([*lines, "without narrowing it would be", otherwise])


def _clause(clause: Clause) -> str:
    shown = " or ".join(map(_literal, clause[:_SHOWN_LITERALS]))
    return shown if len(clause) <= _SHOWN_LITERALS else f"{shown} or {len(clause) - _SHOWN_LITERALS} others"


def _literal(literal: Literal) -> str:
    return repr(literal.text.decode(errors="backslashreplace")) + " in any case" * literal.fold


def _manner(each: ExactFilter) -> str:
    manner = ", as the whole line" if each.whole_line else ", as a word" if each.word != "none" else ""
    return manner + (", left out" if each.invert else "")


def _answered(sink: Sink) -> str:
    match sink:
        case Everything():
            return "the lines"
        case HeadLines(lines):
            return f"the first {_count(lines, 'line')}"
        case CountLines() | GrepCount():
            return "the number of lines"
        case CountBytes():
            return "the number of bytes"
        case AnyLine():
            return "whether there is one"
        case Rest():
            return "the lines"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _pipeline(argvs: tuple[Argv, ...]) -> str:
    return " | ".join(shlex.join(argv) for argv in argvs)
