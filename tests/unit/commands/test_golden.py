from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grepseek_env.commands import COMMANDS, Stage, describe, parse
from grepseek_env.errors import CommandRefused

if TYPE_CHECKING:
    from tests.support.golden import Golden


def refused(row: dict[str, Any]) -> dict[str, str]:
    try:
        parse(row["command"])
    except CommandRefused as error:
        return {"reason": error.reason, "message": str(error)}
    raise AssertionError(f"{row['command']!r} is accepted")


def shown(stage: Stage) -> dict[str, Any]:
    script = stage.script
    return {
        "argv": stage.argv,
        "options": [[o.name, o.value, o.effect.value] for o in stage.options],
        "operands": [[o.kind.value, o.value] for o in stage.operands],
        **({"usage_error": stage.usage_error} if stage.usage_error else {}),
        **({"script": [script.effect.value, script.aligned, script.odd_bytes, script.why]} if script else {}),
    }


def test_refusals(golden: Golden) -> None:
    golden.check("commands/refusals.jsonl", refused)


def test_pipelines(golden: Golden) -> None:
    golden.check("commands/pipelines.jsonl", lambda row: [shown(stage) for stage in parse(row["command"]).stages])


def test_help(golden: Golden) -> None:
    golden.check("commands/help.jsonl", lambda row: describe(COMMANDS[row["program"]]))
