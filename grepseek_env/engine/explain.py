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
    from grepseek_env.engine.estimate import Costs
    from grepseek_env.engine.literals.records import Clause, ExactFilter, Literal, Narrowing, Sink
    from grepseek_env.engine.plan import Argv, Combiner, Plan

__all__ = ["explain_combiner", "explain_costs", "explain_narrowing", "explain_place", "explain_plan", "explain_why"]

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
    place: str,
    costs: str,
    why: str,
    otherwise: str,
) -> str:
    """Returns what is searched for where, what becomes of the lines, and why.

    Args:
        narrowing: what is proven about the command.
        fed: the programs that are given the lines; none where it is answered in process.
        ending: what is done here in place of a last program; None: nothing.
        place: see `explain_place`.
        costs: see `explain_costs`.
        why: the reason, without a full stop.
        otherwise: how the command would run without narrowing.
    """
    lines = [f"narrowed:   {narrowing.reason}"]
    if narrowing.filters:
        lines += [f"lines with: {_clause(each.literals)}{_manner(each)}" for each in narrowing.filters]
    else:
        lines += [f"lines with: {_clause(clause)}" for clause in narrowing.clauses]
    lines.append(f"found in:   {place}")
    answer = f"answer:     {_answered(narrowing.sink)}, no program started"
    lines.append(f"then:       {_pipeline(fed)}" if fed else answer)
    if ending is not None:
        lines.append(f"of these:   {_answered(ending)}, without another program")
    return "\n".join([*lines, f"estimated:  {costs}", f"why:        {why}", "without narrowing it would be", otherwise])


def explain_place(corpus_bytes: int, candidates: tuple[int, int] | None, *, memory: bool, indexed: bool) -> str:
    """Returns where lines are looked for, without a full stop.

    Args:
        corpus_bytes: the corpus's.
        candidates: how many parts of the corpus its index leaves, and their bytes; None where it leaves everything.
        memory: the corpus is held in memory.
        indexed: there is an index.
    """
    if memory:
        return "the corpus, held in memory"
    if candidates is not None:
        parts, size = candidates
        share = 100 * size / max(corpus_bytes, 1)
        return f"{_count(parts, 'part')} of the corpus by its index, {size} bytes ({share:.3g} %)"
    why = "its index rules too little out" if indexed else "it has no index (grepseek corpus build --index)"
    return f"the whole corpus, {corpus_bytes} bytes: {why}"


def explain_costs(costs: Costs | None) -> str:
    """Returns what two ways are guessed to take; None: the kernels are missing, without which no sample is taken."""
    if costs is None:
        return "nothing yet, until the kernels are compiled (grepseek corpus build compiles them)"
    text = f"{_milliseconds(costs.here)} here, {_milliseconds(costs.usual)} as it stands, beside what both have to do"
    match costs.share:
        case None:
            return text
        case 0:
            return f"{text}; nothing that is wanted is in two samples of the corpus"
        case share:
            return f"{text}; about {_percent(share)} of the corpus is wanted"


def explain_why(costs: Costs, program: str, *, worth: bool, indexed: bool, narrowed: bool) -> str:
    """Returns why the command is narrowed, or why not: what takes longest of the way that is not taken.

    Args:
        costs: of both ways.
        program: the command's first.
        worth: it is narrowed.
        indexed: there is an index.
        narrowed: that leaves only parts of the corpus.
    """
    if worth:
        if costs.here >= costs.usual:
            return "so small a corpus is searched in no time"
        if costs.near:
            return "the first lines that are wanted are expected near the beginning"
        if costs.start >= max(costs.read, costs.take):
            return "starting programs that are not needed here would take longer"
        if costs.take > costs.read:
            return f"taking what {program} prints would take longer"
        if costs.read > costs.here:
            return "its index leaves little to be searched" if narrowed else f"{program} would read it more slowly"
        return f"{program} would lose more by being started, and by handing over what it prints, than it reads faster"
    if costs.hand_on > costs.search:
        share = _percent(costs.share or 0)
        return f"about {share} of the corpus holds what every line of the answer must hold, too much to hand on"
    if narrowed:
        return f"{program} reads all of the corpus faster than what its index leaves can be searched here"
    without = "its index rules too little out, and" if indexed else "without an index"
    return f"{without} {program} reads all of it faster than it can be searched here"


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


def _milliseconds(seconds: float) -> str:
    return f"{_short(1000 * seconds)} ms" if seconds >= 1e-5 else "under 0.01 ms"


def _percent(share: float) -> str:
    return f"{_short(100 * share)} %"


def _short(number: float) -> str:
    return f"{number:.3g}" if number < 100 else f"{number:.0f}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _pipeline(argvs: tuple[Argv, ...]) -> str:
    return " | ".join(shlex.join(argv) for argv in argvs)
