"""Plain string search in both roles, for questions without a known evidence chain: no model, single-step plans.

The Tutor searches for the question's own names, the narrowest combination first, until a passage holds the golden
answer; the Planner guesses from the passages as the keyword baseline does. What comes out shows how far string search
alone carries on real text.
"""

from __future__ import annotations

import random
import shlex
from itertools import combinations
from typing import TYPE_CHECKING

from algos.tutor_planner.forms import Folded, Forms, words
from algos.tutor_planner.leaks import common_words
from algos.tutor_planner.protocols import NoModel, Opinion, Roles
from algos.tutor_planner.records import Draft, Drop, Dropped, Plan, Proposal
from policies.keyword import guess, search_terms

if TYPE_CHECKING:
    from algos.tutor_planner.protocols import EditRequest, JudgeRequest, SearchRequest
    from algos.tutor_planner.records import Case, Link, View
    from grepseek_env.trajectory import Trajectory

__all__ = ["KeywordPlanner", "KeywordTutor", "keyword_roles"]

_BEST = 4  # search terms that are combined
_SUPPORT = 2  # rare words of the question that a supporting passage has to say, where the question has so many

_OPENINGS = (
    "The question is about {terms}.",
    "What I know is {terms}.",
    "The strings worth searching are {terms}.",
)
_SEARCHES = (
    "I search for lines that contain {searched}, in any case.",
    "A passage that says {searched} should answer it.",
    "I look for {searched} and cap the output.",
)
_FINALS = (
    "A passage about {terms} says {answer}.",
    "The passages that were found point to {answer}.",
)


def _listed(terms: tuple[str, ...] | list[str]) -> str:
    *others, last = terms
    return f"{', '.join(others)} and {last}" if others else last


def _command(chosen: tuple[str, ...]) -> str:
    filters = [f"rg -i -F {shlex.quote(chosen[0])} corpus.jsonl"]
    filters += [f"rg -i -F {shlex.quote(term)}" for term in chosen[1:]]
    return " | ".join([*filters, "head -n 5"])


class KeywordTutor(NoModel):
    """Searches for combinations of the question's names."""

    def __init__(self) -> None:
        self._searched: dict[str, tuple[str, ...]] = {}

    def decompose(self, case: Case) -> Plan:
        """Returns the question as its only step."""
        return Plan((case.question.question,))

    def expect(self, case: Case, plan: Plan, index: int, later: Link | None) -> Forms:
        """Returns the golden answers."""
        del plan, index, later
        golden = case.question.golden_answers
        return Forms(golden[0], tuple(golden[1:]))

    def propose(self, request: SearchRequest) -> Proposal:
        """Returns the next combination that says nothing forbidden, narrowest first."""
        terms = [t for t in search_terms(request.case.question.question) if not Folded(t).says_any(request.forbidden)]
        best = terms[:_BEST]
        tried = {attempt.command for attempt in request.attempts}
        for size in range(len(best), 0, -1):
            for chosen in combinations(best, size):
                command = _command(chosen)
                if command not in tried:
                    self._searched[command] = chosen
                    return Proposal(command)
        raise Dropped(Drop.REFINEMENT_EXHAUSTED, "backward", f"all combinations of {best} have been tried")

    def judge(self, request: JudgeRequest) -> bool | None:
        """Tells whether one line says the answer and enough of what is rare in the question."""
        rare = {word for word in words(request.case.question.question) if word not in common_words()}
        for line in request.observation.splitlines():
            said = Folded(line)
            if request.expected.concrete and not request.expected.said_in(said):
                continue
            if len(rare & set(said.tokens)) >= min(_SUPPORT, len(rare)):
                return True
        return False

    def edit(self, request: EditRequest) -> str:
        """Adds what will be searched to the draft."""
        draw = random.Random(request.case.seed)  # noqa: S311  reproducible draws, not secrets
        sentence = draw.choice(_SEARCHES).format(searched=_listed(self._searched[request.command]))
        return f"{request.draft.thought} {sentence}"

    def review(self, case: Case, trajectory: Trajectory) -> Opinion:
        """Passes everything: the coded checks have run."""
        del case, trajectory
        return Opinion(coherent=True)


class KeywordPlanner(NoModel):
    """Drafts by the question's names and guesses the answer from the passages seen.

    Args:
        seed: of its choices of words.
    """

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)  # noqa: S311

    def draft(self, view: View) -> Draft:
        """Names the strings worth searching."""
        terms = search_terms(view.question)[:_BEST] or [view.question]
        return Draft(self._draw.choice(_OPENINGS).format(terms=_listed(terms)), command=_command(tuple(terms[:2])))

    def answer(self, view: View) -> Draft:
        """Guesses."""
        terms = search_terms(view.question)
        answer = guess(view.question, [turn.observation for turn in view.history], terms)
        thought = self._draw.choice(_FINALS).format(terms=_listed(terms[:2] or [view.question]), answer=answer)
        return Draft(thought, answer=answer)


def keyword_roles() -> Roles:
    """Returns the keyword implementation."""
    return Roles("keyword", tutor=lambda _look: KeywordTutor(), planner=KeywordPlanner, settings={})
