"""What the page holds of a trajectory: a short row for lists and plots, and the whole of it for reading."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from grepseek_env.actions import get_action_format
from grepseek_env.commands import parse
from grepseek_env.corpus.facts import CorpusFacts
from grepseek_env.engine.explain import explain_plan
from grepseek_env.engine.planner import plan
from grepseek_env.errors import CommandRefused, ConfigError
from grepseek_env.observation import BLANK_OUTPUT, NO_OUTPUT
from grepseek_env.reward import exact_match, f1_score

if TYPE_CHECKING:
    from grepseek_env.trajectory import Trajectory, Turn
    from grepseek_env.view.runs import Seconds

__all__ = ["FLAGS", "ROW", "detail", "row"]

FLAGS = {
    "fault": "infrastructure fault",
    "refused": "refused command",
    "timed_out": "out of time",
    "failed": "ended by an error",
    "malformed": "turn has no action",
    "empty": "found nothing",
    "cut": "output cut",
    "format": "format not kept",
}
"""What a trajectory can be filtered by, with words that fit the filter; the bits of a row's flags are in this order."""

ROW = (
    "run", "question", "sample", "policy", "answer", "f1", "em", "reward", "valid", "finish", "turns", "commands",
    "flags", "model", "tool", "text", "programs", "outcomes",
)  # fmt: skip
"""Fields of a row, in order."""

_SEARCHED = 400  # characters of commands that the list's search looks at
_ANSWER = 300  # likewise of the answer

# Plans depend on few facts of a corpus; they are shown for an ordinary one, since the run's own need not be there. The
# page tells its size, since the engine does otherwise with a small corpus and in other modes.
_ORDINARY = CorpusFacts(
    bytes=1 << 30,
    lines=1 << 20,
    kind="jsonl",
    looked_at=1000,
    first_malformed_line=None,
    longest_line=4096,
    blank_lines=0,
    crlf_lines=0,
    lone_cr=0,
    invalid_utf8_lines=0,
    first_invalid_utf8_line=None,
    final_newline=True,
    leading_bom=False,
    ascii_only=False,
    unicode_escapes=False,
)


@lru_cache(maxsize=4096)
def _read(command: str) -> tuple[tuple[str, ...], str]:
    """Returns a command's programs and its plan in words; nothing for a command that is refused."""
    try:
        pipeline = parse(command)
    except CommandRefused:
        return (), ""
    return tuple(argv[0] for argv in pipeline.argv), explain_plan(plan(pipeline, _ORDINARY))


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + "\N{HORIZONTAL ELLIPSIS}"


@lru_cache(maxsize=16)
def _nothing(action_format: str) -> frozenset[str]:
    try:
        render = get_action_format(action_format).render_observation
    except ConfigError:  # a format of another version; its texts are shown as they are
        return frozenset()
    return frozenset({render(NO_OUTPUT), render(BLANK_OUTPUT)})


def _ended_well(turn: Turn) -> bool:
    match turn.exit_code:
        case None | 0:
            return True
        case 1:  # "no match" of a search is an answer
            return _read(turn.command or "")[0][-1:] in {("rg",), ("grep",)}
        case _:
            return False


def _outcome(turn: Turn, nothing: frozenset[str]) -> str:
    """Returns what became of a command: a key of FLAGS, "ok" or "not_run"."""
    match turn:
        case _ if turn.refused is not None:
            return "refused"
        case _ if turn.timed_out:
            return "timed_out"
        case _ if turn.exit_code is None and not turn.output_truncated:  # in the last turn, or the engine failed
            return "not_run"
        case _ if not _ended_well(turn):
            return "failed"
        case _ if turn.observation in nothing:
            return "empty"
        case _ if turn.output_truncated:
            return "cut"
        case _:
            return "ok"


def scores(t: Trajectory) -> tuple[float, float]:
    """Returns F1 and EM: as the environment gave them, else computed."""
    f1, em = t.breakdown.get("f1"), t.breakdown.get("em")
    if isinstance(f1, (int, float)) and isinstance(em, (int, float)) and math.isfinite(f1 + em):
        return float(f1), float(em)
    if not t.golden_answers:
        return 0.0, 0.0
    return f1_score(t.answer or "", t.golden_answers), exact_match(t.answer or "", t.golden_answers)


def row(t: Trajectory, seconds: Seconds | None, *, run: int, question: int, policy: int, finish: int) -> list[Any]:
    """Returns the values of `ROW`; the numbers given are places in the page's lists of names."""
    nothing = _nothing(t.action_format)
    f1, em = scores(t)
    calls = [turn for turn in t.turns if turn.kind == "tool_call"]
    outcomes = [_outcome(turn, nothing) for turn in calls]
    present = {
        *outcomes,
        *(["fault"] if not t.reward_valid else []),
        *(["malformed"] if any(turn.kind == "malformed" for turn in t.turns) else []),
        *(["format"] if not t.breakdown.get("format_valid", False) else []),
    }
    counts: dict[str, int] = {}
    for outcome in outcomes:
        counts[outcome] = counts.get(outcome, 0) + 1
    return [
        run,
        question,
        t.metadata.get("sample", 0),
        policy,
        None if t.answer is None else _cut(t.answer, _ANSWER),
        round(f1, 6),
        em,
        t.reward if math.isfinite(t.reward) else 0.0,
        int(t.reward_valid),
        finish,
        len(t.turns),
        len(calls),
        sum(1 << bit for bit, flag in enumerate(FLAGS) if flag in present),
        None if seconds is None else sum(seconds["model"]),
        None if seconds is None else sum(seconds["tool"]),
        _cut("\n".join(turn.command or "" for turn in calls), _SEARCHED),
        sorted({program for turn in calls for program in _read(turn.command or "")[0]}),
        counts,
    ]


def detail(t: Trajectory, seconds: Seconds | None) -> dict[str, Any]:
    """Returns everything the page shows of one trajectory; JSON values only."""
    nothing = _nothing(t.action_format)
    turns = []
    for i, turn in enumerate(t.turns):
        record: dict[str, Any] = {"text": turn.text, "kind": turn.kind, "observation": turn.observation}
        if turn.command is not None:
            record |= {
                "command": turn.command,
                "exit": turn.exit_code,
                "cut": turn.output_truncated,
                "outcome": _outcome(turn, nothing),
                "refused": turn.refused,
                "plan": _read(turn.command)[1],
            }
        if seconds is not None and i < min(map(len, seconds.values())):
            record |= {part: seconds[part][i] for part in ("model", "tool")}
        if (ids := getattr(turn, "token_ids", None)) is not None:
            record["tokens"] = len(ids)
        if (logprobs := getattr(turn, "logprobs", None)) and math.isfinite(sum(logprobs)):
            record["logprob"] = sum(logprobs) / len(logprobs)
        if (reason := getattr(turn, "finish_reason", None)) is not None:
            record["stopped"] = reason
        turns.append(record)
    return {
        "format": t.action_format,
        "system": t.system_prompt,
        "prompt": t.prompt,
        "turns": turns,
        "answer": t.answer,
        "breakdown": {k: v for k, v in t.breakdown.items() if not isinstance(v, float) or math.isfinite(v)},
        "error": t.error,
        "metadata": {key: value for key, value in t.metadata.items() if key != "timing"},
    }
