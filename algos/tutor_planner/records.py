"""Typed records of every stage, and the named reasons for which a question is dropped."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from algos.tutor_planner.forms import Forms
from grepseek_env.errors import GrepSeekError, TrajectoryError
from grepseek_env.trajectory import Trajectory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from grepseek_env.types import Question

__all__ = [
    "Advice",
    "Attempt",
    "Case",
    "Draft",
    "Drop",
    "Dropped",
    "Link",
    "Move",
    "Observed",
    "Plan",
    "Proposal",
    "Record",
    "Trace",
    "Usage",
    "Verdict",
    "View",
    "chain_from_metadata",
    "chain_metadata",
]


class Drop(str, Enum):
    """Why a question gave no trajectory; a leak rule's drop is ``"leak:"`` and the rule's name."""

    UNSUITABLE = "unsuitable"
    """The implementation cannot work on this question, such as an oracle on one without an evidence chain."""
    DECOMPOSE_UNPARSABLE = "decompose-unparsable"
    DECOMPOSE_LEAK = "decompose-leak"
    """A sub-question names the answer."""
    TOO_MANY_STEPS = "too-many-steps"
    PROPOSE_UNPARSABLE = "propose-unparsable"
    REFINEMENT_EXHAUSTED = "refinement-exhausted"
    """No command within the allowed tries gave an output that confirms the expected answer."""
    BRIDGE_UNPARSABLE = "bridge-unparsable"
    BRIDGE_UNSUPPORTED = "bridge-unsupported"
    """The bridge entity does not stand in the passage that it was read from."""
    DRAFT_UNPARSABLE = "draft-unparsable"
    EDIT_UNPARSABLE = "edit-unparsable"
    EDIT_LEAK = "edit-leak"
    """No edited reasoning within the allowed tries kept to what had been observed."""
    ANSWER_UNPARSABLE = "answer-unparsable"
    WRONG_ANSWER = "wrong-answer"
    TOO_LONG = "too-long"
    CONTEXT_FULL = "context-full"
    """A request did not fit the model's context."""
    BUDGET_SPENT = "budget-spent"
    INCOHERENT = "incoherent"
    VERDICT_UNPARSABLE = "verdict-unparsable"
    UNREPEATABLE = "unrepeatable"
    """A command gave something else in the forward pass than in the backward pass."""


class Dropped(GrepSeekError):
    """Ends the work on one question; becomes its record.

    Attributes:
        reason: a `Drop`, or ``"leak:RULE"``.
        stage: name of the stage that ended it.
        detail: the offending text, shortened.
    """

    def __init__(self, reason: Drop | str, stage: str, detail: str = "") -> None:
        self.reason = reason.value if isinstance(reason, Drop) else reason
        self.stage = stage
        self.detail = detail[:500]
        super().__init__(f"{self.reason} ({stage}): {self.detail}")


class Advice(str, Enum):
    """What the newest failed try teaches the next one."""

    FIRST = "first"
    BROADEN = "broaden"
    """Nothing was found."""
    NARROW = "narrow"
    """Something was found, but not the answer."""
    REWORD = "reword"
    """The command said what it may not say."""
    REPAIR = "repair"
    """The command was refused, failed or ran out of time."""


class Verdict(str, Enum):
    """What became of a proposed command."""

    CONFIRMED = "confirmed"
    LEAK = "leak"
    REFUSED = "refused"
    FAILED = "failed"
    EMPTY = "empty"
    MISSING = "missing"
    """None of the concrete accepted forms is in the output."""
    DENIED = "denied"
    """The judge said no."""
    UNPARSABLE = "unparsable"

    @property
    def advice(self) -> Advice:
        """What to do next."""
        return _ADVICE[self]


_ADVICE: Mapping[Verdict, Advice] = {
    Verdict.CONFIRMED: Advice.FIRST,
    Verdict.LEAK: Advice.REWORD,
    Verdict.REFUSED: Advice.REPAIR,
    Verdict.FAILED: Advice.REPAIR,
    Verdict.EMPTY: Advice.BROADEN,
    Verdict.MISSING: Advice.NARROW,
    Verdict.DENIED: Advice.NARROW,
    Verdict.UNPARSABLE: Advice.NARROW,
}


class Move(str, Enum):
    """What a command of the forward pass is for."""

    VERIFIED = "verified"
    COUNT = "count"
    """Counts before the verified command narrows."""
    MISS = "miss"
    """Finds nothing; the verified command recovers."""


@dataclass(frozen=True, slots=True)
class Case:
    """A question as the Tutor sees it.

    Attributes:
        question: with golden answers and, where known, evidence.
        seed: of everything that is drawn for this question.
    """

    question: Question
    seed: int


@dataclass(frozen=True, slots=True)
class Observed:
    """One turn of the forward pass, as it happened.

    Attributes:
        thought: the reasoning.
        command: what was run.
        observation: the tool output in the environment's own words, without the format's tags.
    """

    thought: str
    command: str
    observation: str


@dataclass(frozen=True, slots=True)
class View:
    """All that a Planner is ever shown.

    Attributes:
        question: its text.
        history: the turns so far.
    """

    question: str
    history: tuple[Observed, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """The decomposed question.

    Attributes:
        steps: sub-questions in time order, without their answers.
        chained: each step's answer is needed by the next; else the steps stand side by side, as in a comparison.
        aliases: other forms of the golden answer that the Tutor knows.
    """

    steps: tuple[str, ...]
    chained: bool = True
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Proposal:
    """A command to be verified, with what should be run before it in the forward pass.

    Attributes:
        command: the command.
        lead: commands that precede it, each a turn of its own: a count, or a try that finds nothing.
    """

    command: str
    lead: tuple[tuple[Move, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Attempt:
    """A proposed command and what became of it."""

    command: str
    verdict: Verdict
    observation: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Link:
    """One verified step of the chain.

    Attributes:
        step: its sub-question.
        forms: the expected answer in all its forms.
        command: confirmed by its output.
        observation: that output.
        lead: see `Proposal`.
    """

    step: str
    forms: Forms
    command: str
    observation: str
    lead: tuple[tuple[Move, str], ...] = ()


@dataclass(slots=True)
class Trace:
    """What was tried on a question, noted as it happens, so that a dropped question keeps it as well.

    Attributes:
        attempts: commands tried, a list for each step that was reached, last step first.
        early_answers: see `Record`.
    """

    attempts: list[list[Attempt]] = field(default_factory=list)
    early_answers: int = 0

    @property
    def verdicts(self) -> tuple[tuple[str, ...], ...]:
        """The attempts as a `Record` holds them."""
        return tuple(tuple(each.verdict.value for each in step) for step in reversed(self.attempts) if step)


@dataclass(frozen=True, slots=True)
class Draft:
    """What a Planner writes.

    Attributes:
        thought: reasoning.
        command: the command it would run, or None.
        answer: its answer, where it thinks that it knows.
    """

    thought: str
    command: str | None = None
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """What was asked of a model.

    Attributes:
        calls: completions.
        prompt_tokens: tokens read, as far as the model tells.
        completion_tokens: tokens written, likewise.
        retries: completions that could not be used and were asked for again.
    """

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    retries: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.retries + other.retries,
        )


@dataclass(frozen=True, slots=True)
class Record:
    """What became of one question: a line of a run's journal.

    Attributes:
        question_id: its id.
        reason: None for a kept one, else why it was dropped.
        stage: where it was dropped.
        detail: the offending text.
        trajectory: of a kept one.
        attempts: per step in time order, the verdicts of its tries; of a dropped one the steps for which one was tried.
        early_answers: drafts in which the Planner wanted to answer before the chain was complete.
        usage: by role.
    """

    question_id: str
    reason: str | None = None
    stage: str | None = None
    detail: str = ""
    trajectory: Trajectory | None = None
    attempts: tuple[tuple[str, ...], ...] = ()
    early_answers: int = 0
    usage: Mapping[str, Usage] = field(default_factory=dict)

    @property
    def kept(self) -> bool:
        """Tells whether there is a trajectory."""
        return self.trajectory is not None

    def as_json(self) -> dict[str, Any]:
        """Returns JSON values, the trajectory in its own one-line form."""
        values = asdict(replace(self, trajectory=None))
        values["trajectory"] = None if self.trajectory is None else self.trajectory.to_json()
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Record:
        """Reads what `as_json` gave.

        Raises:
            TypeError: a field is missing or unknown.
            TrajectoryError: the trajectory cannot be read.
        """
        line = values["trajectory"]
        return cls(
            **{
                **values,
                "trajectory": None if line is None else Trajectory.from_json(line),
                "attempts": tuple(tuple(step) for step in values["attempts"]),
                "usage": {role: Usage(**usage) for role, usage in values["usage"].items()},
            }
        )


def chain_metadata(chain: tuple[Link, ...]) -> list[dict[str, Any]]:
    """Returns a chain as a trajectory's metadata hold it."""
    return [
        {
            "question": link.step,
            "answer": link.forms.answer,
            "aliases": list(link.forms.aliases),
            "alternates": list(link.forms.alternates),
        }
        for link in chain
    ]


def chain_from_metadata(metadata: Mapping[str, Any]) -> tuple[Forms, ...]:
    """Returns the expected answers that a trajectory's metadata name, in time order; none where it names none.

    Raises:
        TrajectoryError: the chain is none; names the field. Left out it would guard nothing, and nobody would know.
    """
    chain = metadata.get("chain")
    if chain is None:
        return ()
    if not isinstance(chain, list):
        raise _unfit("metadata.chain", chain, "a list of steps, or left out")
    return tuple(_forms(link, f"metadata.chain[{place}]") for place, link in enumerate(chain))


def _forms(link: object, name: str) -> Forms:
    if not isinstance(link, dict):
        raise _unfit(name, link, 'an object, such as {"answer": "Ada Bell", "aliases": []}')
    answer = link.get("answer")
    if answer is not None and not isinstance(answer, str):
        raise _unfit(f"{name}.answer", answer, "text, or left out where it is not known")
    return Forms(answer or "", *(_names(link.get(key), f"{name}.{key}") for key in ("aliases", "alternates")))


def _names(values: object, name: str) -> tuple[str, ...]:
    if values is None:
        return ()
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise _unfit(name, values, "a list of texts, or left out")
    return tuple(values)


def _unfit(name: str, value: object, wanted: str) -> TrajectoryError:
    return TrajectoryError(f"{name} is {value!r:.80}; it must be {wanted}")
