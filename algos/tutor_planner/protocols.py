"""The two roles, and what they are asked.

A Tutor sees the golden answer; a Planner never does: its methods take a `View`, which holds the question and the turns
so far and nothing else. Both are made anew for every question, so that they may keep state and count what they use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from algos.tutor_planner.records import Usage

if TYPE_CHECKING:
    from collections.abc import Callable

    from algos.tutor_planner.forms import Forms
    from algos.tutor_planner.records import Advice, Attempt, Case, Draft, Link, Move, Plan, Proposal, View
    from grepseek_env.trajectory import Trajectory

__all__ = ["EditRequest", "JudgeRequest", "Opinion", "Planner", "Roles", "SearchRequest", "Searcher", "Tutor"]


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """Asks for a command that finds a passage which supports an expected answer.

    Attributes:
        case: the question.
        plan: its steps.
        index: of the step.
        expected: the answer that the output has to confirm.
        forbidden: forms that the command may not say.
        later: the verified step after this one, or None at the last.
        attempts: what has been tried for this step.
        advice: what the newest try teaches.
        spare: how many turns are left for commands that lead to the verified one.
    """

    case: Case
    plan: Plan
    index: int
    expected: Forms
    forbidden: tuple[str, ...]
    later: Link | None
    attempts: tuple[Attempt, ...]
    advice: Advice
    spare: int


@dataclass(frozen=True, slots=True)
class JudgeRequest:
    """Asks whether an output confirms the expected answer of a step."""

    case: Case
    plan: Plan
    index: int
    expected: Forms
    command: str
    observation: str


@dataclass(frozen=True, slots=True)
class EditRequest:
    """Asks for reasoning that leads to a command, from nothing but what has been observed.

    Attributes:
        case: the question.
        view: what the Planner was shown.
        draft: what it wrote.
        step: the sub-question that the command serves.
        command: what will be run.
        move: what it is for.
        forbidden: forms that are not known yet.
        problems: what was wrong with earlier edits of this turn.
        number: place of this turn in the trajectory, from 0.
    """

    case: Case
    view: View
    draft: Draft
    step: str
    command: str
    move: Move
    forbidden: tuple[str, ...]
    problems: tuple[str, ...]
    number: int


@dataclass(frozen=True, slots=True)
class Opinion:
    """A judge's verdict on a whole trajectory."""

    coherent: bool
    reason: str = ""


class Searcher(Protocol):
    """Runs a command as the environment would."""

    def __call__(self, command: str) -> str:
        """Returns the tool output in the environment's words, without the format's tags."""


class Tutor(Protocol):
    """Knows the golden answer. Any method may raise `Dropped`."""

    @property
    def usage(self) -> Usage:
        """What has been asked of a model so far."""

    def decompose(self, case: Case) -> Plan:
        """Returns ordered sub-questions, without their answers."""

    def expect(self, case: Case, plan: Plan, index: int, later: Link | None) -> Forms:
        """Returns the expected answer of a step; before the last one, the bridge entity read out of `later`."""

    def propose(self, request: SearchRequest) -> Proposal:
        """Returns a command."""

    def judge(self, request: JudgeRequest) -> bool | None:
        """Tells whether the output confirms the expected answer; None where the verdict cannot be read."""

    def edit(self, request: EditRequest) -> str:
        """Returns the reasoning of a turn."""

    def review(self, case: Case, trajectory: Trajectory) -> Opinion:
        """Judges whether a trajectory is coherent."""


class Planner(Protocol):
    """Knows the question and the turns so far. Any method may raise `Dropped`."""

    @property
    def usage(self) -> Usage:
        """What has been asked of a model so far."""

    def draft(self, view: View) -> Draft:
        """Returns reasoning and the command it would run next, or the answer it would give."""

    def answer(self, view: View) -> Draft:
        """Returns reasoning and the final answer."""


@dataclass(frozen=True, slots=True)
class Roles:
    """Makes the two roles for one question.

    Attributes:
        name: of the implementation, for manifests.
        tutor: is given a way to run commands.
        planner: is given a seed, and nothing about the question.
        settings: what decides their output, as JSON values for the manifest.
    """

    name: str
    tutor: Callable[[Searcher], Tutor]
    planner: Callable[[int], Planner]
    settings: dict[str, object]


@dataclass
class NoModel:
    """A role without a model."""

    @property
    def usage(self) -> Usage:
        """Nothing."""
        return Usage()
