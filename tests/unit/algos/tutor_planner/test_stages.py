"""The algorithm over both roles: why a question is dropped, what it keeps, and that no order of work matters."""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from algos.tutor_planner import Settings, make_record, world_roles
from algos.tutor_planner.card import card_text
from algos.tutor_planner.endpoints import Endpoints
from algos.tutor_planner.export import export
from algos.tutor_planner.llm import llm_roles
from algos.tutor_planner.run import generate, read_journal
from grepseek_env.commands import parse
from grepseek_env.tasks import load_question_set
from tests.support.scripted_tutor import ScriptedTutor, prompt_name
from tests.support.tutoring import ground

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from algos.tutor_planner import Record
    from grepseek_env.types import CommandResult, Question, SearchBackend
    from policies.chat import Completion, Message, Sampling

BAD = "no json here"
NOTHING = json.dumps({"command": "rg -F 'zzzz' corpus.jsonl | head -n 8"})


@cache
def chains(count: int) -> tuple[Question, ...]:
    """Questions of at least two steps that the scripted model can work on."""
    asked = [q for q in load_question_set("world:tiny") if 2 <= len(q.evidence) <= 3 and "hop" in q.metadata["kind"]]
    return tuple(asked[:count])


def work(script: dict[str, list[Any]] | None = None, backend: SearchBackend | None = None, **settings: int) -> Record:
    [asked] = chains(1)
    base = ground()
    changed = replace(base, backend=backend or base.backend, settings=Settings(**settings))
    return make_record(asked, llm_roles(Endpoints([ScriptedTutor([asked], script or {})])), changed, seed=0)


class Changed:
    """A backend that gives something else for some commands, those that come again unless they are named."""

    def __init__(self, change: Callable[[CommandResult], CommandResult], *commands: str) -> None:
        self._backend, self._change = ground().backend, change
        self._commands, self._again = set(commands), not commands

    def run(self, command: str, **limits: Any) -> CommandResult:
        result = self._backend.run(command, **limits)
        if command in self._commands:
            return self._change(result)
        if self._again:
            self._commands.add(command)
        return result


def refuse(_: CommandResult) -> CommandResult:
    parse("rm corpus.jsonl")
    raise AssertionError


@pytest.mark.parametrize(
    "change",
    [
        lambda result: replace(result, stdout=result.stdout[:-2]),
        lambda result: replace(result, stdout=b"", exit_code=1),
        lambda result: replace(result, exit_code=None, timed_out=True),
        refuse,
    ],
    ids=["other bytes", "nothing", "out of time", "refused"],
)
def test_a_command_that_gives_something_else_in_the_forward_pass_drops_the_question(
    change: Callable[[CommandResult], CommandResult],
) -> None:
    assert work().kept
    record = work(backend=Changed(change))  # type: ignore[arg-type]
    assert (record.reason, record.stage, record.trajectory) == ("unrepeatable", "forward", None)
    assert chains(1)[0].evidence[0].subject in record.detail
    assert record.attempts == (("confirmed",),) * len(chains(1)[0].evidence)


def test_a_count_that_runs_out_of_time_before_the_verified_command_drops_the_question() -> None:
    asked = load_question_set("world:tiny")[0]
    kept = make_record(asked, world_roles(), ground(), seed=0)
    assert kept.trajectory
    count = kept.trajectory.turns[0].command
    assert count
    assert " -c " in count
    slow = Changed(lambda result: replace(result, exit_code=None, timed_out=True), count)
    record = make_record(asked, world_roles(), replace(ground(), backend=slow), seed=0)
    assert (record.reason, record.stage) == ("unrepeatable", "forward")
    assert record.detail == f"ran out of time: {count}"


def test_a_transcript_that_is_too_long_is_dropped() -> None:
    whole = work()
    assert whole.trajectory
    length = len(whole.trajectory.text())
    assert work(max_chars=length).kept
    for most in (length - 1, 100):
        record = work(max_chars=most)
        assert (record.reason, record.stage) == ("too-long", "filters")
        assert record.detail == f"{length} characters"


def test_a_dropped_question_keeps_its_tries_and_early_answers() -> None:
    steps = len(chains(1)[0].evidence)
    subject = chains(1)[0].evidence[-1].subject
    right = json.dumps({"command": f"rg -F '{subject}' corpus.jsonl | head -n 8"})
    early = json.dumps({"reasoning": "I know it.", "answer": "something"})
    golden = chains(1)[0].golden_answers[0]
    leak = json.dumps({"reasoning": f"It will be {golden}."})
    dropped = [
        (work({"propose": [NOTHING] * 4}, refinements=4), "refinement-exhausted", (("empty",) * 4,), 0),
        (
            work({"propose": [NOTHING, right, *[NOTHING] * 4]}, refinements=4),
            "refinement-exhausted",
            (("empty",) * 4, ("empty", "confirmed")),
            0,
        ),
        (work({"propose": [NOTHING, *[BAD] * 3]}), "propose-unparsable", (("empty",),), 0),
        (work({"propose": [BAD] * 3}), "propose-unparsable", (), 0),
        (work({"decompose": [BAD] * 3}), "decompose-unparsable", (), 0),
        (work({"draft": [early], "edit": [leak] * 3}), "edit-leak", (("confirmed",),) * steps, 1),
        (
            work({"draft": [early, early], "answer": [early]}),
            "wrong-answer",
            (("confirmed",),) * steps,
            2,
        ),
    ]
    for record, reason, attempts, answers in dropped:
        assert (record.reason, record.attempts, record.early_answers) == (reason, attempts, answers)
    card = card_text([record for record, *_ in dropped], {})
    for tries, number in ((1, 2 * steps + 1), (2, 1), (4, 2)):
        assert f"| {tries} | {number} | {number / (2 * steps + 4):.1%} |" in card
    assert "In 3 drafts the Planner wanted to answer" in card


class Wavering(ScriptedTutor):
    """Some replies are unreadable or wrong, by what is asked and the seed sent, and each takes a time of its own."""

    async def acomplete(
        self, messages: Sequence[Message], sampling: Sampling, *, prompt_ids: Sequence[int] | None = None
    ) -> Completion:
        completion = await super().acomplete(messages, sampling, prompt_ids=prompt_ids)
        asked = json.dumps([list(messages), sampling.seed, sampling.temperature])
        draw = hashlib.sha256(asked.encode()).digest()[0] % 16
        await asyncio.sleep(draw / 4000)
        if draw < 3:
            return replace(completion, text=BAD, completion_tokens=draw)
        wrong = {"judge": {"confirms": False}, "answer": {"reasoning": "So.", "answer": "something else"}}
        reply = wrong.get(prompt_name(messages))
        return replace(completion, text=json.dumps(reply)) if reply and draw < 6 else completion


def test_exports_are_the_same_however_many_questions_and_endpoints_there_are(tmp_path: Path) -> None:
    asked = chains(16)
    made: dict[tuple[int, int], tuple[list[dict[str, Any]], dict[str, bytes]]] = {}
    for parallel, count in ((1, 1), (4, 2)):
        models = [Wavering(asked) for _ in range(count)]
        out = tmp_path / f"{parallel}-{count}"
        records = generate(asked, llm_roles(Endpoints(models)), ground(), out, name="tiny", parallel=parallel)
        files = {path.name: path.read_bytes() for path in export(records, out, validation=0.3)}
        files["manifest.json"] = (out / "manifest.json").read_bytes()
        assert all(model.seen for model in models)
        assert len(list(read_journal(out / "journal.jsonl"))) == len(asked)
        made[parallel, count] = [record.as_json() for record in records], files
    assert made[1, 1] == made[4, 2]
    records, files = made[1, 1]
    kept = [record for record in records if record["trajectory"]]
    # It says something only where some were dropped, and some replies were asked for again.
    assert 3 <= len(kept) < len(asked)
    assert sum(record["usage"]["tutor"]["retries"] for record in records) > 3
    assert {"trajectories.jsonl", "sft.jsonl", "drops.jsonl", "train.parquet", "validation.parquet"} <= set(files)
