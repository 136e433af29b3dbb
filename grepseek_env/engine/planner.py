"""Pipeline -> Plan, purely: what runs on slices, how the slices' outputs become one, what then runs once.

What a program and each of its flags do to slicing is declared in COMMANDS; here stand the rules for their
combinations. Whatever is not proven sees the whole stream.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from grepseek_env.commands.spec import Effect
from grepseek_env.commands.syntax import OperandKind
from grepseek_env.engine.feeding import file_indices, on_stdin
from grepseek_env.engine.plan import (
    Combiner,
    Concat,
    Exists,
    Exits,
    Head,
    HeadBytes,
    Merge,
    Numbers,
    Offset,
    Sequential,
    Sliced,
    Sum,
    Tail,
    TailBytes,
    Uniq,
    UniqShow,
)
from grepseek_env.engine.work import copies, stops_early, work_of

if TYPE_CHECKING:
    from grepseek_env.commands.syntax import Option, Pipeline, Stage
    from grepseek_env.corpus.facts import CorpusFacts
    from grepseek_env.engine.plan import Argv, Plan

__all__ = ["plan", "why_once"]

_CORPUS_NAMES = frozenset({"corpus.jsonl", "./corpus.jsonl"})
_DIGITS = re.compile(r"[0-9]{1,18}")  # more digits may overflow, which is the program's own affair
_PCRE = ("-P", "--perl-regexp", "--pcre2", "--engine", "--auto-hybrid-regex")
_HELD_LINES = 10_000  # a longer tail is left to tail, which keeps it outside this process
_HELD_BYTES = 1 << 20
_PIPE_WIDTH = 7  # of wc's columns where the input is a pipe and there are several


@dataclass(frozen=True, slots=True)
class _Pass:
    """The stage runs on slices and the stream goes on as slices."""

    rewrites: bool
    odd_bytes: bool = False
    aligned: bool = True


@dataclass(frozen=True, slots=True)
class _Ends:
    """The stage runs on slices, and its outputs are combined."""

    combiner: Combiner
    run_as: Argv | None = None


@dataclass(frozen=True, slots=True)
class _Whole:
    """The stage sees the whole stream."""

    why: str


_Verdict: TypeAlias = _Pass | _Ends | _Whole


@dataclass(frozen=True, slots=True)
class _Stream:
    """What is known about the lines that enter a stage.

    Attributes:
        front: they are the corpus itself.
        rewritten: they are not all lines of the corpus as they stand there.
        odd_bytes: they may hold a NUL byte or a piece of a character that the corpus does not have.
        corpus: facts of the corpus.
        locale: LC_ALL of the programs.
    """

    corpus: CorpusFacts
    locale: str
    front: bool = True
    rewritten: bool = False
    odd_bytes: bool = False

    def after(self, stage: Stage, passed: _Pass) -> _Stream:
        """Returns what leaves the stage."""
        return _Stream(
            corpus=self.corpus,
            locale=self.locale,
            front=self.front and copies(stage),
            rewritten=self.rewritten or passed.rewrites,
            odd_bytes=self.odd_bytes or passed.odd_bytes,
        )


@dataclass(slots=True)
class _Draft:
    """The sliced part as far as it is known."""

    mapped: list[Argv] = field(default_factory=list)
    combiner: Combiner = field(default_factory=Concat)
    why: str = "every program runs on slices"


def plan(pipeline: Pipeline, corpus: CorpusFacts, *, locale: str = "C") -> Plan:
    """Decides how a pipeline is run.

    Args:
        pipeline: a checked command.
        corpus: facts of the corpus it runs on.
        locale: LC_ALL of the programs.
    """
    stages = pipeline.stages
    if (why := why_once(pipeline, corpus)) is not None:
        return Sequential(why)
    draft = _Draft()
    stream = _Stream(corpus, locale)
    for number, stage in enumerate(stages):
        verdict = _judge(stage, stream)
        if isinstance(verdict, _Ends) and isinstance(verdict.combiner, Merge):
            verdict = _Ends(_merge(pipeline, number))
        match verdict:
            case _Whole(why):
                draft.why = f"{stage.program} sees the whole stream: {why}"
                break
            case _Ends(combiner, run_as):
                draft.mapped.append(run_as or stage.argv)
                draft.combiner = combiner
                draft.why = (
                    f"{stage.program} is combined" if number + 1 < len(stages) else "every program runs on slices"
                )
                break
            case _Pass(aligned=aligned):
                draft.mapped.append(stage.argv)
                if not aligned and number + 1 < len(stages):
                    draft.why = f"{stage.program} may leave a line open at a slice's end"
                    break
                stream = stream.after(stage, verdict)
    return _finish(pipeline, draft)


def _finish(pipeline: Pipeline, draft: _Draft) -> Plan:
    stages = pipeline.stages
    count = len(draft.mapped)
    if count == 0 or (count < len(stages) and isinstance(draft.combiner, Concat) and all(map(copies, stages[:count]))):
        return Sequential(draft.why)
    mapped, tail = tuple(draft.mapped), tuple(stage.argv for stage in stages[count:])
    last = stages[count - 1]
    return Sliced(
        mapped=mapped,
        piped=on_stdin(pipeline, mapped),
        combiner=draft.combiner,
        tail=tail,
        exits=Exits.SEARCH if last.program in {"rg", "grep"} else Exits.FIRST_FAILURE,
        work=work_of(stages[:count]),
        early=isinstance(draft.combiner, Head | HeadBytes | Exists)
        or (isinstance(draft.combiner, Concat | Offset) and stops_early(stages[count:])),
        reason=draft.why,
        written=tuple(stage.argv for stage in stages[:count]),
        stdin_label=stages[0].files[0].value if stages[0].program == "rg" else "",
    )


def why_once(pipeline: Pipeline, corpus: CorpusFacts) -> str | None:
    """Says why the pipeline needs one pass, whatever its flags: it does not read the corpus in its first stage alone.

    None where it may run on slices or on some lines only.
    """
    first, *others = pipeline.stages
    if corpus.bytes == 0:
        return "the corpus is empty"
    for stage in pipeline.stages:
        if stage.usage_error:
            return f"{stage.program} will complain: {stage.usage_error}"
    match first.files:
        case (only,) if only.kind is OperandKind.FILE and only.value in _CORPUS_NAMES:
            pass
        case ():
            return f"{first.program} is given no file"
        case (only,):
            return f"{first.program} reads {only.value!r} instead of the corpus"
        case _:
            return f"{first.program} reads several inputs"
    for stage in others:
        if any(operand.kind is OperandKind.FILE for operand in stage.files):
            return f"{stage.program} reads a file instead of what comes before it"
        if stage.program in {"ls", "find"} or (stage.spec.dot and stage.given("--recursive", "--files")):
            return f"{stage.program} reads the folder instead of what comes before it"
    return None


def _judge(stage: Stage, stream: _Stream) -> _Verdict:
    spec = stage.spec
    if spec.effect is Effect.OPAQUE:
        return _Whole("it does not work line by line")
    if len(stage.files) > 1:
        return _Whole("it reads several inputs")
    for option in stage.options:
        match option.effect:
            case Effect.OPAQUE:
                return _Whole(f"{option.name} does not work line by line")
            case Effect.CONTEXT:
                return _Whole(f"{option.name} prints neighbours of lines")
        if opposite := stage.given(*option.spec.against):
            return _Whole(f"{option.name} and {opposite[0].name} are given together")
    match spec.effect:
        case Effect.FILTER:
            return _search(stage, stream)
        case Effect.MAP:
            return _Pass(rewrites=True, odd_bytes=_odd_bytes(stage))
        case Effect.SCRIPT:
            return _script(stage)
        case Effect.HEAD | Effect.TAIL:
            return _end_of_stream(stage)
        case Effect.COUNT:
            return _word_count(stage, stream)
        case Effect.SORT:
            return _Ends(Merge(("sort", "-m")))
        case Effect.UNIQ:
            return _uniq(stage, stream)
        case _:
            return _Whole("how it works on slices is not declared")


def _odd_bytes(stage: Stage) -> bool:
    return stage.spec.odd_bytes or any(option.spec.odd_bytes for option in stage.options)


def _search(stage: Stage, stream: _Stream) -> _Verdict:
    """rg, grep and cat: they choose lines, unless a flag says otherwise."""
    if stage.program in {"rg", "grep"} and (why := _other_on_slices(stage, stream)):
        return _Whole(why)
    effects = {option.effect for option in stage.options}
    limit = [option for option in stage.options if option.effect is Effect.LIMIT]
    numbers = [_number(option) for option in limit]
    if any(not number for number in numbers) or len(limit) > 1:
        return _Whole("its limit is left to it")  # 0 ends it before it reads
    if Effect.EXISTS in effects:
        return _Ends(Exists())
    if Effect.COUNT in effects:
        if limit:
            return _Whole(f"{limit[0].name} bounds the count")
        if pcre := stage.given(*_PCRE):
            return _Whole(f"with {pcre[0].name} a count may be given up half-way, printing nothing")
        return _Ends(Sum())
    if effects & {Effect.OFFSET_LINES, Effect.OFFSET_BYTES}:
        return _numbered(stage, stream, effects)
    if limit:
        if Effect.MAP in effects:
            return _Whole(f"{limit[0].name} counts lines, of which each may print several")
        return _Ends(Head(numbers[0] or 0))
    return _Pass(rewrites=bool(effects & {Effect.MAP, Effect.NAME}), odd_bytes=_odd_bytes(stage))


def _other_on_slices(stage: Stage, stream: _Stream) -> str:
    """Says what rg or grep would see in a slice that they would not see in the whole stream, or the reverse."""
    if stage.program == "rg":
        if stream.rewritten:
            return "rg drops a byte-order mark at the start of what it reads, which rewritten lines may have"
        return ""
    if stage.given("-a") or stage.given("--binary-files"):
        return ""
    if stream.odd_bytes:
        return "what comes before it may make the stream binary"
    if stream.locale != "C" and stream.corpus.invalid_utf8_lines:
        return f"the corpus is not all valid in the locale {stream.locale}, so grep may stop at a binary match"
    return ""


def _number(option: Option) -> int | None:
    """Returns the value as a number of lines or bytes, or None where it has a sign, a unit or is missing."""
    return int(option.value) if option.value is not None and _DIGITS.fullmatch(option.value) else None


def _numbered(stage: Stage, stream: _Stream, effects: set[Effect]) -> _Verdict:
    if not stream.front:
        return _Whole("it numbers lines that earlier slices decide")
    if Effect.LIMIT in effects:
        return _Whole("it numbers the lines up to a limit")
    if stage.given("-r", "--replace") and stage.program == "rg":
        return _Whole("a replacement may hold line breaks")
    by_bytes = Effect.OFFSET_BYTES in effects
    if by_bytes and stage.given("--column"):
        return _Whole("a column stands between the two numbers")
    if by_bytes and stage.program == "rg" and stream.corpus.leading_bom:
        return _Whole("rg does not count the corpus's byte-order mark")
    named = stage.given("-H")
    if named and stage.given("-h", "-I"):
        return _Whole("whether the file's name is printed depends on the order of flags")
    if stage.program == "cat":
        if effects & {Effect.MAP}:
            return _Whole("numbers and marks are printed together")
        return _Ends(Offset(lines=True, bytes=False, numbers=Numbers.CAT))
    name = {"rg": "<stdin>", "grep": "(standard input)"}[stage.program]
    if stage.files and stage.files[0].kind is OperandKind.FILE:
        name = stage.files[0].value
    return _Ends(Offset(lines=Effect.OFFSET_LINES in effects, bytes=by_bytes, label=f"{name}:" if named else ""))


def _script(stage: Stage) -> _Verdict:
    facts = stage.script
    if facts is None:
        return _Whole("its script is not proven to work line by line")
    match facts.effect:
        case Effect.FILTER:
            return _Pass(rewrites=False, odd_bytes=facts.odd_bytes, aligned=facts.aligned)
        case Effect.MAP:
            return _Pass(rewrites=True, odd_bytes=facts.odd_bytes, aligned=facts.aligned)
        case _:
            return _Whole(facts.why or "its script does not work line by line")


def _end_of_stream(stage: Stage) -> _Verdict:
    """Head and tail."""
    counts = [option for option in stage.options if option.effect is stage.spec.effect]
    head = stage.spec.effect is Effect.HEAD
    if not counts:
        return _Ends(Head(10) if head else Tail(10))
    option = counts[0]
    value = option.value or ""
    number = int(value) if _DIGITS.fullmatch(value) else None
    if not head and number is None and _DIGITS.fullmatch(value.removeprefix("-")):
        number = int(value.removeprefix("-"))
    if number is None or len(counts) > 1:
        return _Whole(f"{option.name} {value} is left to it")
    by_lines = "-n" in option.spec.names
    if head:
        return _Ends(Head(number) if by_lines else HeadBytes(number))
    if number > (_HELD_LINES if by_lines else _HELD_BYTES):
        return _Whole(f"{option.name} {value} is too much to hold")
    return _Ends(Tail(number) if by_lines else TailBytes(number))


def _word_count(stage: Stage, stream: _Stream) -> _Verdict:
    columns = len({option.spec for option in stage.options if option.effect is Effect.COUNT}) or 3
    operand = stage.files[0] if stage.files else None
    width = 1
    if columns > 1:
        from_file = operand is not None and operand.kind is OperandKind.FILE
        width = len(str(stream.corpus.bytes)) if from_file else _PIPE_WIDTH
    return _Ends(Sum(columns=columns, width=width, label=operand.value if operand else ""))


def _uniq(stage: Stage, stream: _Stream) -> _Verdict:
    if stream.locale != "C":
        return _Whole(f"which lines are equal is left to it in the locale {stream.locale}")
    given = {option.spec.names[0] for option in stage.options if option.effect is Effect.UNIQ}
    if keys := [option for option in stage.options if option.effect is Effect.KEY]:
        return _Whole(f"{keys[0].name} makes different lines equal")
    operands = tuple(operand.value for operand in stage.files)
    match sorted(given):
        case []:
            return _Ends(Uniq(UniqShow.ALL))
        case ["-c"]:
            return _Ends(Uniq(UniqShow.COUNTED))
        case ["-d"]:
            return _Ends(Uniq(UniqShow.REPEATED), run_as=("uniq", "-c", *operands))
        case ["-u"]:
            return _Ends(Uniq(UniqShow.SINGLE), run_as=("uniq", "-c", *operands))
        case several:
            return _Whole(f"{' and '.join(several)} are given together")


def _merge(pipeline: Pipeline, number: int) -> Merge:
    """Returns the merge of what sort, stage `number`, makes of slices: the same flags, without the inputs."""
    dropped = {0, *file_indices(pipeline, number)}
    argv = pipeline.stages[number].argv
    return Merge(("sort", "-m", *(word for index, word in enumerate(argv) if index not in dropped and word != "--")))
