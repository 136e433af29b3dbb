"""A chat model that plays both roles on questions of a generated world, right by default, with scripted exceptions."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from algos.tutor_planner.prompts import PROMPTS
from policies.chat import ChatModel, Completion

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from grepseek_env.types import Question
    from policies.chat import Message, Sampling

# How each system message begins; what follows may hold numbers.
_BEGINNINGS = {name: prompt.system.partition("{")[0][:400] for name, prompt in PROMPTS.items()}


def prompt_name(messages: Sequence[Message]) -> str:
    """Tells which prompt a request is of."""
    system = messages[0]["content"]
    fitting = [name for name, beginning in _BEGINNINGS.items() if system.startswith(beginning)]
    return max(fitting, key=lambda name: len(_BEGINNINGS[name]))


@dataclass
class ScriptedTutor(ChatModel):
    """Replies by the evidence of the question that a request quotes.

    Attributes:
        questions: that may be asked about.
        script: by prompt, replies that come before the right ones; an exception is raised, a `Completion` is returned.
        seen: every request, as prompt name, messages and sampling.
    """

    questions: Sequence[Question]
    script: dict[str, list[str | Exception | Completion]] = field(default_factory=dict)
    seen: list[tuple[str, Sequence[Message], Sampling]] = field(default_factory=list)
    name: str = "scripted"

    async def acomplete(
        self, messages: Sequence[Message], sampling: Sampling, *, prompt_ids: Sequence[int] | None = None
    ) -> Completion:
        assert prompt_ids is None
        name = prompt_name(messages)
        self.seen.append((name, messages, sampling))
        waiting = self.script.get(name)
        reply = waiting.pop(0) if waiting else self.right(messages)
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, Completion):
            return reply
        return Completion(reply, "stop", prompt_tokens=100, completion_tokens=10)

    def right(self, messages: Sequence[Message]) -> str:
        """Returns the right reply to a request."""
        return json.dumps(_RIGHT[prompt_name(messages)](*self._asked(messages)))

    def _asked(self, messages: Sequence[Message]) -> tuple[Question, str]:
        user = messages[-1]["content"]
        text = re.search(r"Question: (.*)", user)
        assert text
        return next(q for q in self.questions if q.question == text[1]), user

    def requests(self, name: str) -> list[str]:
        """Returns the user messages of a prompt's requests."""
        return [messages[-1]["content"] for prompt, messages, _ in self.seen if prompt == name]


def _decompose(question: Question, _: str) -> dict[str, object]:
    return {"kind": "chain", "steps": [step.question for step in question.evidence], "aliases": []}


def _propose(question: Question, user: str) -> dict[str, object]:
    number = re.search(r"Now sub-question (\d+)", user)
    assert number
    subject = question.evidence[int(number[1]) - 1].subject
    return {"command": f"rg -F '{subject}' corpus.jsonl | head -n 8"}


def _bridge(question: Question, user: str) -> dict[str, object]:
    before = re.search(r"Which entity answers sub-question (\d+)", user)
    assert before
    return {"entity": question.evidence[int(before[1]) - 1].answer, "aliases": [], "alternates": []}


def _edit(_: Question, user: str) -> dict[str, object]:
    command = re.search(r"The command that will be run: (.*)", user)
    assert command
    subject = re.search(r"'(.*)'", command[1])
    assert subject
    return {"reasoning": f"I search for lines that contain {subject[1]}."}


_RIGHT: dict[str, Callable[[Question, str], dict[str, object]]] = {
    "decompose": _decompose,
    "propose": _propose,
    "judge": lambda _q, _u: {"confirms": True, "reason": "it says so"},
    "bridge": _bridge,
    "edit": _edit,
    "review": lambda _q, _u: {"violations": [], "coherent": True},
    "draft": lambda _q, _u: {"reasoning": "I look for it.", "command": "rg -F 'x' corpus.jsonl | head -n 3"},
    "answer": lambda q, _u: {"reasoning": "The outputs say so.", "answer": q.golden_answers[0]},
}
