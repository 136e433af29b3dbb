"""What must hold for any command and any turn, whatever is in it."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from grepseek_env.actions import ACTION_FORMATS
from grepseek_env.commands import parse
from grepseek_env.errors import CommandRefused, ConfigError
from grepseek_env.types import FinalAnswer, MalformedAction, ToolCall
from tests.fuzz.mutations import SHELL_PIECES, TAG_PIECES, Mutator, command_seeds, turn_seeds
from tests.support.bash_argv import bash_argv

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["Report", "fuzz_commands", "fuzz_turns"]

_BATCH = 2000


@dataclass
class Report:
    """What came of it."""

    tried: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)


def fuzz_commands(count: int, view: Path, seed: int, tell: Callable[[Report], None] = lambda _: None) -> Report:
    """Parses random commands: bash must read the accepted ones alike, the others must be refused, and say where.

    Args:
        count: how many.
        view: a folder with `corpus.jsonl` in it, and nothing else.
        seed: of the random numbers.
        tell: is given the report after every batch.
    """
    report, mutator = Report(), Mutator(command_seeds(), SHELL_PIECES, seed)
    while report.tried < count:
        accepted = []
        for _ in range(min(_BATCH, count - report.tried)):
            text = mutator.next()
            report.tried += 1
            try:
                pipeline = parse(text)
            except CommandRefused as refusal:
                report.outcomes[refusal.reason] += 1
                if not 0 <= refusal.start <= refusal.end <= len(text):
                    report.findings.append(f"{text!r}: refused at {refusal.start}-{refusal.end}")
            except BaseException as error:  # noqa: BLE001 - that is what is looked for
                report.findings.append(f"{text!r}: {error!r}")
            else:
                report.outcomes["accepted"] += 1
                accepted.append((text, pipeline.argv))
        argvs = bash_argv([text for text, _ in accepted], view) if accepted else []
        report.findings += [
            f"{text!r}: {ours}, bash {its}" for (text, ours), its in zip(accepted, argvs, strict=True) if ours != its
        ]
        tell(report)
    return report


def fuzz_turns(count: int, seed: int, *, until: float = float("inf")) -> Report:
    """Parses random turns in every format: no exception, and what is read can be written and read again.

    Args:
        count: how many.
        seed: of the random numbers.
        until: value of the monotonic clock at which it ends early.
    """
    report, mutator = Report(), Mutator(turn_seeds(), TAG_PIECES, seed)
    while report.tried < count and time.monotonic() < until:
        text = mutator.next()
        report.tried += 1
        for name, entry in ACTION_FORMATS.items():
            try:
                action = entry.parse(text)
                entry.thought(text)
                valid = entry.format_valid([action])
                shown = entry.render_observation(text)
                again = _again(name, action)
            except BaseException as error:  # noqa: BLE001 - that is what is looked for
                report.findings.append(f"{name} {text!r}: {error!r}")
                continue
            report.outcomes[f"{name} {type(action).__name__}"] += 1
            if again is not None and (type(again), _content(again)) != (type(action), _content(action)):
                report.findings.append(f"{name} {text!r}: read again as {again!r}")
            if valid and not isinstance(action, FinalAnswer):
                report.findings.append(f"{name} {text!r}: valid without an answer")
            if name == "hermes" and isinstance(entry.parse(shown), FinalAnswer):
                report.findings.append(f"{name} {text!r}: its observation reads as an answer")
    return report


def _again(name: str, action: object) -> object:
    entry = ACTION_FORMATS[name]
    try:
        match action:
            case ToolCall(command=command):
                return entry.parse(entry.render_action("t", command=command))
            case FinalAnswer(answer=answer):
                return entry.parse(entry.render_action("t", answer=answer))
            case _:
                return None
    except ConfigError:  # the format cannot carry it, and says so
        return None


def _content(action: object) -> str:
    match action:
        case ToolCall(command=text) | FinalAnswer(answer=text) | MalformedAction(reason=text):
            return text.strip()
        case _:
            return ""
