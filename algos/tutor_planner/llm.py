"""The LLM implementation of both roles over any chat model.

A reply that cannot be read is asked for again, a little warmer each time; every question has a budget of calls and
tokens for each role.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from algos.tutor_planner.forms import Forms, is_generic
from algos.tutor_planner.prompts import (
    PROMPTS,
    answer_messages,
    draft_messages,
    prompt_hashes,
    render_history,
    tutor_messages,
)
from algos.tutor_planner.protocols import Opinion, Roles
from algos.tutor_planner.records import Advice, Draft, Drop, Dropped, Observed, Plan, Proposal, Usage
from algos.tutor_planner.replies import Unreadable, flag, json_object, text, texts
from grepseek_env.actions import get_action_format
from grepseek_env.errors import ConfigError
from policies.chat import Sampling

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from algos.tutor_planner.endpoints import Endpoints
    from algos.tutor_planner.protocols import EditRequest, JudgeRequest, SearchRequest
    from algos.tutor_planner.records import Case, Link, View
    from grepseek_env.trajectory import Trajectory
    from policies.chat import Message

__all__ = ["LlmPlanner", "LlmTutor", "Manner", "llm_roles"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Manner:
    """How models are asked.

    Attributes:
        temperature: of a first try.
        warmer: added for each further try, up to `hottest`.
        hottest: highest temperature.
        tries: of a reply that cannot be read.
        top_p: nucleus of sampling.
        max_calls: completions a role may ask for, for one question.
        max_tokens: tokens a role may read and write, for one question.
        reply_tokens: added to the reply limit of every prompt, for models that think before they answer.
    """

    temperature: float = 0.3
    warmer: float = 0.2
    hottest: float = 1.0
    tries: int = 3
    top_p: float = 1.0
    max_calls: int = 80
    max_tokens: int = 400_000
    reply_tokens: int = 0

    def __post_init__(self) -> None:
        for name in ("tries", "max_calls", "max_tokens"):
            if getattr(self, name) < 1:
                raise ConfigError(f"Manner.{name} is {getattr(self, name)!r}; it must be at least 1")
        if self.temperature < 0 or self.warmer < 0 or self.hottest < self.temperature:
            raise ConfigError("Manner: temperature and warmer must be at least 0, hottest at least the temperature")


class _Voice:
    """Asks one model on behalf of one role for one question."""

    def __init__(self, endpoints: Endpoints, manner: Manner, seed: int) -> None:
        self._endpoints = endpoints
        self._manner = manner
        self._seed = seed
        self.usage = Usage()

    def ask(self, name: str, messages: Sequence[Message], read: Callable[[dict[str, Any]], T], unparsable: Drop) -> T:
        """Returns what `read` makes of a reply.

        Raises:
            Dropped: no reply could be read, or the budget or the model's context is used up.
        """
        prompt, m = PROMPTS[name], self._manner
        problem = ""
        for attempt in range(m.tries):
            used = self.usage
            if used.calls >= m.max_calls or used.prompt_tokens + used.completion_tokens >= m.max_tokens:
                raise Dropped(Drop.BUDGET_SPENT, name, f"{used.calls} calls")
            sampling = Sampling(
                temperature=min(m.temperature + m.warmer * attempt, m.hottest),
                top_p=m.top_p,
                max_tokens=prompt.max_tokens + m.reply_tokens,
                seed=self._draw(name, used.calls),
            )
            completion = self._endpoints.complete(messages, sampling)
            self.usage += Usage(1, completion.prompt_tokens or 0, completion.completion_tokens or 0, int(attempt > 0))
            if completion.finish_reason == "context":
                raise Dropped(Drop.CONTEXT_FULL, name, completion.error or "")
            try:
                return read(json_object(completion.text))
            except Unreadable as e:
                problem = str(e)
        raise Dropped(unparsable, name, problem)

    def _draw(self, name: str, call: int) -> int:
        digest = hashlib.sha256(f"{self._seed}/{name}/{call}".encode()).digest()
        return int.from_bytes(digest[:4], "big") >> 1  # servers take signed 32-bit seeds


_ADVICE = {
    Advice.FIRST: "",
    Advice.BROADEN: "The last output was empty: use a shorter or rarer string, drop a filter, or ignore case.",
    Advice.NARROW: "The last output did not confirm the answer: add a filter or search for something rarer.",
    Advice.REWORD: "The last command contained a forbidden string: search for something else in the passage.",
    Advice.REPAIR: "The last command did not work: correct it.",
}
_SHOWN = 1_500  # characters of an earlier output that a proposal is shown


class LlmTutor:
    """A Tutor that is a chat model.

    Args:
        endpoints: its model.
        manner: how it is asked.
        max_steps: sub-questions of a plan.
    """

    def __init__(self, endpoints: Endpoints, manner: Manner, max_steps: int) -> None:
        self._endpoints = endpoints
        self._manner = manner
        self._max_steps = max_steps
        self._voice: _Voice | None = None

    @property
    def usage(self) -> Usage:
        """What has been asked of the model so far."""
        return Usage() if self._voice is None else self._voice.usage

    def _ask(
        self, case: Case, name: str, values: Mapping[str, object], read: Callable[[dict[str, Any]], T], drop: Drop
    ) -> T:
        if self._voice is None:
            self._voice = _Voice(self._endpoints, self._manner, case.seed)
        return self._voice.ask(name, tutor_messages(PROMPTS[name], values), read, drop)

    def decompose(self, case: Case) -> Plan:
        """Asks for sub-questions."""

        def read(values: dict[str, Any]) -> Plan:
            steps = texts(values, "steps", most=self._max_steps + 1)
            if not steps:
                raise Unreadable("steps is empty")
            kind = text(values, "kind")
            if kind not in {"chain", "parallel"}:
                raise Unreadable(f"kind is {kind!r}; it must be 'chain' or 'parallel'")
            return Plan(steps, chained=kind == "chain", aliases=texts(values, "aliases", most=5))

        question = case.question
        values = {
            "question": question.question,
            "answer": " | ".join(question.golden_answers),
            "max_steps": self._max_steps,
        }
        return self._ask(case, "decompose", values, read, Drop.DECOMPOSE_UNPARSABLE)

    def expect(self, case: Case, plan: Plan, index: int, later: Link | None) -> Forms:
        """Returns the golden answer for the last step; asks for the bridge entity before it.

        What a step of a comparison will find is known to nobody: its judge decides alone.
        """
        golden = case.question.golden_answers
        if not plan.chained and len(plan.steps) > 1:
            return Forms()
        if later is None:
            return Forms(golden[0], (*golden[1:], *plan.aliases))

        def read(values: dict[str, Any]) -> Forms:
            entity = text(values, "entity")
            if is_generic(entity):
                raise Unreadable(f"entity is {entity!r}, which names nothing")
            return Forms(entity, texts(values, "aliases", most=5), texts(values, "alternates", most=2))

        values = {
            "question": case.question.question,
            "steps": _numbered(plan.steps),
            "number": index + 2,
            "before": index + 1,
            "output": later.observation,
        }
        return self._ask(case, "bridge", values, read, Drop.BRIDGE_UNPARSABLE)

    def propose(self, request: SearchRequest) -> Proposal:
        """Asks for a command."""
        tried = [
            f"Tried: {a.command}\nBecame: {a.verdict.value} {a.detail}\n{a.observation[:_SHOWN]}"
            for a in request.attempts[-2:]
        ]
        later = f"The next sub-question is answered by: {request.later.command}\n" if request.later else ""
        values = {
            "question": request.case.question.question,
            "steps": _numbered(request.plan.steps),
            "number": request.index + 1,
            "step": request.plan.steps[request.index],
            "expected": " | ".join(request.expected.accepted) or "not known; any clear answer will do",
            "forbidden": " | ".join(request.forbidden) or "nothing",
            "later": later,
            "attempts": "".join(f"{item}\n" for item in tried),
            "advice": _ADVICE[request.advice],
        }
        return self._ask(
            request.case, "propose", values, lambda v: Proposal(text(v, "command")), Drop.PROPOSE_UNPARSABLE
        )

    def judge(self, request: JudgeRequest) -> bool | None:
        """Asks for a verdict; None where it cannot be read."""
        values = {
            "question": request.case.question.question,
            "step": request.plan.steps[request.index],
            "expected": " | ".join(request.expected.accepted) or "any clear answer",
            "command": request.command,
            "output": request.observation,
        }
        try:
            return self._ask(request.case, "judge", values, lambda v: flag(v, "confirms"), Drop.VERDICT_UNPARSABLE)
        except Dropped as e:
            if e.reason == Drop.VERDICT_UNPARSABLE.value:
                return None
            raise

    def edit(self, request: EditRequest) -> str:
        """Asks for the reasoning of a turn."""
        draft = request.draft
        meant = f" (it would answer {draft.answer!r}; that is too early)" if draft.answer is not None else ""
        values = {
            "history": render_history(request.view.question, request.view.history),
            "draft": f"{draft.thought}{meant}",
            "step": request.step,
            "command": request.command,
            "forbidden": " | ".join(request.forbidden) or "nothing",
            "problems": "".join(f"An earlier edit was refused: {problem}\n" for problem in request.problems),
        }
        return self._ask(request.case, "edit", values, lambda v: text(v, "reasoning"), Drop.EDIT_UNPARSABLE)

    def review(self, case: Case, trajectory: Trajectory) -> Opinion:
        """Asks for a verdict on the whole."""

        def read(values: dict[str, Any]) -> Opinion:
            broken = texts(values, "violations", most=4)
            coherent = flag(values, "coherent") and not broken
            reason = text(values, "reason", optional=True)
            return Opinion(coherent, f"rules {', '.join(broken)}: {reason}" if broken else reason)

        thought = get_action_format(trajectory.action_format).thought
        history = [
            Observed(thought(turn.text), turn.command or "", turn.observation)
            for turn in trajectory.turns
            if turn.kind == "tool_call"
        ]
        last = trajectory.turns[-1]
        transcript = (
            f"{render_history(trajectory.question, history)}\n\nFinal turn\nReasoning: {thought(last.text)}\n"
            f"Answer: {trajectory.answer}"
        )
        return self._ask(case, "review", {"transcript": transcript}, read, Drop.VERDICT_UNPARSABLE)


def _numbered(steps: Sequence[str]) -> str:
    return "\n".join(f"{number}. {step}" for number, step in enumerate(steps, 1))


class LlmPlanner:
    """A Planner that is a chat model; all it can be shown is a `View`.

    Args:
        endpoints: its model.
        manner: how it is asked.
        seed: of its sampling.
    """

    def __init__(self, endpoints: Endpoints, manner: Manner, seed: int) -> None:
        self._voice = _Voice(endpoints, manner, seed)

    @property
    def usage(self) -> Usage:
        """What has been asked of the model so far."""
        return self._voice.usage

    def draft(self, view: View) -> Draft:
        """Asks for the next step."""

        def read(values: dict[str, Any]) -> Draft:
            command = text(values, "command", optional=True)
            answer = text(values, "answer", optional=True)
            if not command and not answer:
                raise Unreadable("neither command nor answer is given")
            return Draft(text(values, "reasoning"), command or None, None if command else answer)

        messages = draft_messages(view.question, view.history)
        return self._voice.ask("draft", messages, read, Drop.DRAFT_UNPARSABLE)

    def answer(self, view: View) -> Draft:
        """Asks for the final answer."""
        messages = answer_messages(view.question, view.history)
        return self._voice.ask(
            "answer",
            messages,
            lambda v: Draft(text(v, "reasoning"), answer=text(v, "answer")),
            Drop.ANSWER_UNPARSABLE,
        )


def llm_roles(
    tutor: Endpoints, planner: Endpoints | None = None, manner: Manner | None = None, *, max_steps: int = 3
) -> Roles:
    """Returns the LLM implementation.

    Args:
        tutor: the Tutor's model.
        planner: the Planner's; None takes the Tutor's.
        manner: how both are asked.
        max_steps: sub-questions of a plan.
    """
    planner = planner or tutor
    manner = manner or Manner()
    return Roles(
        name="llm",
        tutor=lambda _look: LlmTutor(tutor, manner, max_steps),
        planner=lambda seed: LlmPlanner(planner, manner, seed),
        settings={
            "tutor": tutor.name,
            "planner": planner.name,
            **({"tutor_options": tutor.options} if tutor.options else {}),
            **({"planner_options": planner.options} if planner.options else {}),
            "prompts": prompt_hashes(),
            **asdict(manner),
        },
    )
