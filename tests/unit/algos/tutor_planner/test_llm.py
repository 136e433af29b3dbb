"""The LLM implementation against a scripted model: every branch, and what a Planner is never shown."""

from __future__ import annotations

import inspect
import json
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import pytest

from algos.tutor_planner import Settings, make_record
from algos.tutor_planner.endpoints import Endpoints
from algos.tutor_planner.forms import Folded, Forms
from algos.tutor_planner.llm import Manner, llm_roles
from algos.tutor_planner.prompts import PROMPTS, answer_messages, draft_messages, prompt_hashes
from grepseek_env.errors import ConfigError
from grepseek_env.tasks import load_question_set
from policies.chat import Completion, ModelError
from tests.support.scripted_tutor import ScriptedTutor
from tests.support.tutoring import ground

if TYPE_CHECKING:
    from algos.tutor_planner import Record
    from grepseek_env.types import Question
    from tests.support.golden import Golden

Script = dict[str, list[str | Exception | Completion]]


@cache
def question(kind: str = "2-hop") -> Question:
    return next(q for q in load_question_set("world:tiny") if q.metadata["kind"] == kind)


def work(
    script: Script | None = None, asked: Question | None = None, manner: Manner | None = None, **settings: int
) -> tuple[Record, ScriptedTutor]:
    asked = asked or question()
    model = ScriptedTutor([asked], script or {})
    roles = llm_roles(Endpoints([model]), manner=manner)
    record = make_record(asked, roles, replace(ground(), settings=Settings(**settings)), seed=0)
    return record, model


def reply(**values: object) -> str:
    return json.dumps(values)


def search(text: str) -> str:
    return reply(command=f"rg -F '{text}' corpus.jsonl | head -n 8")


def test_a_question_that_goes_well_is_kept() -> None:
    record, model = work()
    assert record.kept, record.detail
    assert record.trajectory
    assert record.trajectory.breakdown["f1"] == 1.0
    assert [turn.kind for turn in record.trajectory.turns] == ["tool_call", "tool_call", "final_answer"]
    assert record.attempts == (("confirmed",), ("confirmed",))
    assert record.usage["tutor"].calls == len(model.seen) - record.usage["planner"].calls
    assert record.usage["planner"].prompt_tokens == 300  # two drafts and the answer


@pytest.mark.parametrize(
    "mended",
    [
        "```json\n{}\n```",
        "<think>{{not this}}</think>{}",
        "Sure! Here it is: {} Hope it helps.",
    ],
)
def test_replies_with_something_around_the_json_are_read(mended: str) -> None:
    right = reply(kind="chain", steps=[s.question for s in question().evidence])
    record, _ = work({"decompose": [mended.replace("{{", "{").replace("}}", "}").replace("{}", right, 1)]})
    assert record.kept, record.detail
    assert record.usage["tutor"].retries == 0


@pytest.mark.parametrize(
    "broken", ["{'confirms': true, 'reason': 'single quotes',}", '{"confirms": true, "reason": "cut off he']
)
def test_broken_json_is_repaired(broken: str) -> None:
    record, _ = work({"judge": [broken]})
    assert record.kept
    assert record.usage["tutor"].retries == 0


def test_an_unreadable_reply_is_asked_for_again_a_little_warmer() -> None:
    record, model = work({"draft": ["I would search.", reply(reasoning="x"), reply(reasoning="Look.", command="ls")]})
    assert record.kept
    assert record.usage["planner"].retries == 2
    asked = [sampling for name, _, sampling in model.seen if name == "draft"][:3]
    assert [round(sampling.temperature, 1) for sampling in asked] == [0.3, 0.5, 0.7]
    assert len({sampling.seed for sampling in asked}) == 3


def filled(item: str | Exception | Completion, names: dict[str, str]) -> str | Exception | Completion:
    if isinstance(item, str):
        for name, value in names.items():
            item = item.replace(name, value)
    return item


BAD = "no json here"


@pytest.mark.parametrize(
    ("script", "reason", "stage"),
    [
        ({"decompose": [BAD] * 3}, "decompose-unparsable", "decompose"),
        ({"decompose": [reply(kind="tree", steps=["a?"])] * 3}, "decompose-unparsable", "decompose"),
        ({"decompose": [reply(kind="chain", steps=list("abcd"))]}, "too-many-steps", "decompose"),
        ({"propose": [BAD] * 3}, "propose-unparsable", "propose"),
        ({"bridge": [BAD] * 3}, "bridge-unparsable", "bridge"),
        ({"bridge": [reply(entity="yes")] * 3}, "bridge-unparsable", "bridge"),
        ({"bridge": [reply(entity="Zelmuk Hos")]}, "bridge-unsupported", "backward"),
        ({"draft": [BAD] * 3}, "draft-unparsable", "draft"),
        ({"edit": [BAD] * 3}, "edit-unparsable", "edit"),
        ({"edit": [reply(reasoning="I know it is Zelmuk Hos.")] * 3}, "edit-leak", "forward"),
        ({"edit": [reply(reasoning="I search for SUBJECT in <answer>.")] * 3}, "edit-unparsable", "forward"),
        ({"answer": [BAD] * 3}, "answer-unparsable", "answer"),
        ({"answer": [reply(reasoning="So.", answer="</answer>")]}, "answer-unparsable", "answer"),
        ({"answer": [reply(reasoning="So.", answer="something else")]}, "wrong-answer", "filters"),
        ({"answer": [reply(reasoning="So. " * 400, answer="x")]}, "too-long", "answer"),
        (
            {"answer": [reply(reasoning="It is near Zelmuk.", answer="GOLD")]},
            "leak:unseen-term-in-reasoning",
            "filters",
        ),
        ({"review": [reply(violations=[3], coherent=True)]}, "incoherent", "filters"),
        ({"review": [reply(violations=[], coherent="no", reason="odd")]}, "incoherent", "filters"),
        ({"review": [BAD] * 3}, "verdict-unparsable", "review"),
        ({"draft": [Completion("", "context", error="too long")]}, "context-full", "draft"),
    ],
)
def test_every_drop_has_its_name(script: Script, reason: str, stage: str) -> None:
    names = {"GOLD": question().golden_answers[0], "SUBJECT": question().evidence[0].subject}
    script = {prompt: [filled(item, names) for item in replies] for prompt, replies in script.items()}
    record, _ = work(script)
    assert (record.reason, record.stage) == (reason, stage), record.detail
    assert record.trajectory is None
    assert record.usage["tutor"].calls > 0


def test_a_sub_question_that_names_the_answer_is_a_leak() -> None:
    golden = question().golden_answers[0].upper()
    record, _ = work({"decompose": [reply(kind="chain", steps=[f"Is it {golden}?"])]})
    assert record.reason == "decompose-leak"


def test_refinement_goes_by_what_the_last_try_taught() -> None:
    step = question().evidence[-1]
    tries = [
        search(step.answer),
        reply(command="rm corpus.jsonl"),
        search("zzzz"),
        search("the"),
        reply(command="rg '(' corpus.jsonl"),
    ]
    record, model = work({"propose": list(tries)})
    assert record.kept, record.detail
    assert record.attempts[-1] == ("leak", "refused", "empty", "missing", "failed", "confirmed")
    advised = model.requests("propose")
    for number, words in enumerate(("forbidden string", "did not work", "was empty", "did not confirm", "not work"), 1):
        assert words in advised[number].rpartition("Became:")[2]


def test_refinement_ends_after_so_many_tries() -> None:
    record, model = work({"propose": [search("zzzz")] * 9}, refinements=4)
    assert (record.reason, record.stage) == ("refinement-exhausted", "backward")
    assert len(model.requests("propose")) == 4
    assert "empty: rg -F 'zzzz'" in record.detail


def test_the_judge_may_say_no_or_nothing_readable() -> None:
    record, model = work({"judge": [reply(confirms="no"), *[BAD] * 3, reply(confirms="yes")]})
    assert record.kept
    assert record.attempts[-1] == ("denied", "unparsable", "confirmed")
    assert "did not confirm" in model.requests("propose")[1]


def test_an_alias_is_accepted_and_forbidden() -> None:
    asked = replace(question(), golden_answers=("Zelmuk Hos", *question().golden_answers))
    record, model = work(
        {
            "propose": [search(asked.golden_answers[1].lower())],
            "answer": [reply(reasoning="The outputs say so.", answer=asked.golden_answers[1])],
        },
        asked,
    )
    assert record.kept, record.detail
    assert record.attempts[-1] == ("leak", "confirmed")
    assert asked.golden_answers[1] in model.requests("judge")[0]


def test_aliases_of_a_bridge_are_forbidden_in_earlier_commands() -> None:
    first = question().evidence[0]
    record, _ = work(
        {
            "bridge": [reply(entity=first.answer, aliases=["Zelmuk Hos"], alternates=["Ada", "Ida", "Oda"])],
            "propose": [search(question().evidence[1].subject), search("Zelmuk HOS")],
        }
    )
    assert record.kept, record.detail
    assert record.attempts[0] == ("leak", "confirmed")
    assert record.trajectory
    chain = record.trajectory.metadata["chain"]
    assert (chain[0]["aliases"], chain[0]["alternates"]) == (["Zelmuk Hos"], ["Ada", "Ida"])


def test_a_planner_that_answers_early_is_led_on() -> None:
    early = reply(reasoning="I know it.", answer="something")
    record, model = work({"draft": [early, early]})
    assert record.kept
    assert record.early_answers == 2
    assert "too early" in model.requests("edit")[0]


def test_a_leaking_edit_is_sent_back_with_the_problem() -> None:
    golden = question().golden_answers[0]
    record, model = work({"edit": [reply(reasoning=f"It will be {golden}."), reply(reasoning=" ok " * 500)]})
    assert record.kept, record.detail
    problems = [text for text in model.requests("edit") if "was refused" in text]
    assert f"answer-in-reasoning: {golden}" in problems[0]
    assert "too long" in problems[1]


def test_steps_side_by_side_need_no_bridge() -> None:
    asked = question("comparison")
    steps = [step.question for step in asked.evidence]
    record, model = work({"decompose": [reply(kind="parallel", steps=steps)]}, asked)
    assert record.kept, record.detail
    assert not model.requests("bridge")
    assert "any clear answer" in model.requests("judge")[0]


def test_budgets_end_a_question() -> None:
    record, model = work(manner=Manner(max_calls=3))
    assert record.reason == "budget-spent"
    assert len(model.seen) == 3
    record, _ = work(manner=Manner(max_tokens=200))
    assert record.reason == "budget-spent"


def test_a_failing_server_is_no_drop() -> None:
    with pytest.raises(ModelError, match="all 1 endpoints"):
        work({"judge": [ModelError("down")]})


def test_no_golden_form_reaches_a_planner_before_an_output_says_it() -> None:
    checked = 0
    for asked in load_question_set("world:tiny")[:60]:
        if len(asked.evidence) > 3 or len(asked.metadata["relations"]) != len(asked.evidence):
            continue
        tutor, planner = ScriptedTutor([asked]), ScriptedTutor([asked])
        roles = llm_roles(Endpoints([tutor]), Endpoints([planner]))
        record = make_record(asked, roles, ground(), seed=0)
        assert record.trajectory, record.detail
        forms = [Forms(step.answer, step.aliases) for step in asked.evidence] + [Forms(asked.golden_answers[0])]
        outputs = [Folded(turn.observation) for turn in record.trajectory.turns]
        assert {name for name, _, _ in planner.seen} == {"draft", "answer"}
        for number, (_, messages, _) in enumerate(planner.seen):
            shown = Folded(" ".join(message["content"] for message in messages))
            for each in forms:
                assert not each.said_in(shown) or each.said_in(Folded(asked.question), *outputs[:number])
                checked += 1
    assert checked > 100


def test_a_planners_messages_are_built_of_question_and_history_alone() -> None:
    for build in (draft_messages, answer_messages):
        assert list(inspect.signature(build).parameters) == ["question", "history"]


def test_golden_prompts(golden: Golden) -> None:
    def seen(row: dict[str, str]) -> dict[str, object]:
        prompt = PROMPTS[row["name"]]
        return {"version": prompt.version, "hash": prompt.digest, "system": prompt.system, "user": prompt.user}

    golden.check("tutor_planner/prompts.jsonl", seen)
    assert set(prompt_hashes()) == set(PROMPTS)


def test_manners_that_cannot_work_are_told() -> None:
    with pytest.raises(ConfigError, match="tries is 0"):
        Manner(tries=0)
    with pytest.raises(ConfigError, match="hottest"):
        Manner(temperature=1.5)
    with pytest.raises(ConfigError, match="refinements is 0"):
        Settings(refinements=0)
    with pytest.raises(ConfigError, match="no answer scores above"):
        Settings(min_f1=1)
