"""The algorithm, written once against the two roles and a search backend.

    decompose -> backward (last step first: propose, run, check, judge, refine) -> reverse
              -> forward (draft, edit, run) -> answer -> filters

Every stage is a function from records to a record; a stage that cannot go on raises `Dropped` with a named reason.
An infrastructure failure (`EngineFault`) passes through: it says nothing about the question.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from algos.tutor_planner.forms import Folded, Forms
from algos.tutor_planner.leaks import (
    LEAK_CHECKS,
    Known,
    Rule,
    check_trajectory,
    command_findings,
    thought_findings,
)
from algos.tutor_planner.protocols import EditRequest, JudgeRequest, SearchRequest
from algos.tutor_planner.records import (
    Advice,
    Attempt,
    Case,
    Drop,
    Dropped,
    Link,
    Move,
    Observed,
    Record,
    Trace,
    Usage,
    Verdict,
    View,
    chain_metadata,
)
from grepseek_env.episode import Episode, Pending
from grepseek_env.errors import CommandRefused, ConfigError
from grepseek_env.observation import clip, render_result

if TYPE_CHECKING:
    from algos.tutor_planner.protocols import Planner, Roles, Tutor
    from algos.tutor_planner.records import Draft, Plan
    from grepseek_env.episode import Rules
    from grepseek_env.trajectory import Trajectory
    from grepseek_env.types import CommandResult, Question, SearchBackend

__all__ = ["Ground", "Settings", "backward", "case_seed", "decompose", "filters", "forward", "make_record"]


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits of the algorithm; the defaults are the paper's where it names one.

    Attributes:
        max_steps: sub-questions of a plan.
        refinements: commands tried for a step.
        edits: tries to edit a turn's reasoning.
        max_aliases: aliases of a bridge entity that are kept.
        max_alternates: alternates of a bridge entity that are kept.
        min_f1: a final answer has to score above this.
        max_thought_chars: of one turn's reasoning.
        max_chars: of a whole transcript, observations included.
    """

    max_steps: int = 3
    refinements: int = 6
    edits: int = 3
    max_aliases: int = 5
    max_alternates: int = 2
    min_f1: float = 0.0
    max_thought_chars: int = 1_200
    max_chars: int = 60_000

    def __post_init__(self) -> None:
        for field in fields(self):
            value, least = getattr(self, field.name), 0 if field.name in _MAY_BE_ZERO else 1
            if isinstance(value, bool) or not isinstance(value, (int, float)) or value < least:
                raise ConfigError(f"Settings.{field.name} is {value!r}; it must be a number of at least {least}")
        if self.min_f1 >= 1:
            raise ConfigError(f"Settings.min_f1 is {self.min_f1!r}; no answer scores above that: choose less than 1")


_MAY_BE_ZERO = ("min_f1", "max_aliases", "max_alternates")


def case_seed(seed: int, question_id: str) -> int:
    """Returns the seed of one question, a hash, so that neither order nor number of the others matters."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{question_id}".encode()).digest()[:6], "big")


@dataclass(frozen=True, slots=True)
class Ground:
    """What a question is worked on with.

    Attributes:
        backend: runs commands.
        rules: the environment's, so that outputs are exactly what it shows.
        settings: limits.
    """

    backend: SearchBackend
    rules: Rules
    settings: Settings

    def run(self, command: str) -> CommandResult:
        """Runs a command with the environment's limits."""
        timeout = self.rules.config.limits.command_timeout
        return self.backend.run(command, timeout=timeout, max_output_bytes=self.rules.max_output_bytes)

    def show(self, result: CommandResult) -> str:
        """Returns the observation of a result, without the format's tags."""
        c = self.rules.config
        if self.rules.tokenizer is None:
            clipped = clip(result.stdout, cut=result.output_truncated, max_chars=c.max_observation_chars)
        else:
            clipped = clip(
                result.stdout,
                cut=result.output_truncated,
                max_tokens=c.max_observation_tokens,
                tokenizer=self.rules.tokenizer,
            )
        return self.rules.action_format.inert(render_result(result, clipped, timeout=c.limits.command_timeout))

    def look(self, command: str) -> str:
        """Returns the observation of a command, or the refusal."""
        try:
            return self.show(self.run(command))
        except CommandRefused as e:
            return str(e)

    @property
    def commands(self) -> int:
        """How many commands an episode may run."""
        return self.rules.config.max_turns - 1


# ------------------------------------------------------------------ decompose


def decompose(case: Case, tutor: Tutor, ground: Ground) -> Plan:
    """Splits the question into steps that do not name the answer."""
    plan = tutor.decompose(case)
    most = min(ground.settings.max_steps, ground.commands)
    if not 1 <= len(plan.steps) <= most:
        raise Dropped(Drop.TOO_MANY_STEPS, "decompose", f"{len(plan.steps)} steps, at most {most}")
    asked = Folded(case.question.question)
    answer = _answer_forms(case.question, plan)
    secret = [form for form in answer.concrete if not asked.says(form)]
    for step in plan.steps:
        if not answer.said_in(asked) and Folded(step).says_any(secret):
            raise Dropped(Drop.DECOMPOSE_LEAK, "decompose", step)
    return plan


def _answer_forms(question: Question, plan: Plan) -> Forms:
    return Forms(question.golden_answers[0], (*question.golden_answers[1:], *plan.aliases))


# ------------------------------------------------------------------ backward


def backward(case: Case, plan: Plan, tutor: Tutor, ground: Ground, trace: Trace) -> tuple[Link, ...]:
    """Verifies the steps, last one first, and returns them in time order; every try is noted in the trace."""
    chain: list[Link] = []
    spare = ground.commands - len(plan.steps)
    for index in reversed(range(len(plan.steps))):
        later = chain[-1] if chain else None
        expected = _expected(case, plan, index, later, tutor, ground.settings)
        trace.attempts.append([])
        link = _verify(case, plan, index, expected, tuple(chain), spare, tutor, ground, trace.attempts[-1])
        spare -= len(link.lead)
        chain.append(link)
    return tuple(reversed(chain))


def _expected(case: Case, plan: Plan, index: int, later: Link | None, tutor: Tutor, settings: Settings) -> Forms:
    forms = tutor.expect(case, plan, index, later)
    if later is None or not plan.chained:
        return forms
    if forms.concrete and not forms.said_in(Folded(later.observation), Folded(later.command)):
        raise Dropped(Drop.BRIDGE_UNSUPPORTED, "backward", forms.answer)
    return Forms(forms.answer, forms.aliases[: settings.max_aliases], forms.alternates[: settings.max_alternates])


def _verify(
    case: Case,
    plan: Plan,
    index: int,
    expected: Forms,
    done: tuple[Link, ...],
    spare: int,
    tutor: Tutor,
    ground: Ground,
    attempts: list[Attempt],
) -> Link:
    # Named early is whatever this step or a later one finds. The entity that the step itself starts from is found by
    # an earlier step, which is not verified yet: the forward pass checks that it was seen.
    asked = Known()
    asked.add(case.question.question)
    guarded = [_answer_forms(case.question, plan), expected, *(link.forms for link in done)]
    secret = tuple(dict.fromkeys(f for forms in guarded if not asked.says(forms) for f in forms.concrete))
    later = done[-1] if done else None
    for _ in range(ground.settings.refinements):
        advice = attempts[-1].verdict.advice if attempts else Advice.FIRST
        request = SearchRequest(case, plan, index, expected, secret, later, tuple(attempts), advice, spare)
        proposal = tutor.propose(request)
        attempt = _try(proposal.command, secret, case, plan, index, expected, tutor, ground)
        attempts.append(attempt)
        if attempt.verdict is Verdict.CONFIRMED:
            lead = proposal.lead[:spare] if spare > 0 else ()
            return Link(plan.steps[index], expected, proposal.command, attempt.observation, lead)
    tried = "; ".join(f"{attempt.verdict.value}: {attempt.command}" for attempt in attempts)
    raise Dropped(Drop.REFINEMENT_EXHAUSTED, "backward", f"step {index + 1} of {len(plan.steps)}: {tried}")


def _try(
    command: str,
    secret: tuple[str, ...],
    case: Case,
    plan: Plan,
    index: int,
    expected: Forms,
    tutor: Tutor,
    ground: Ground,
) -> Attempt:
    """Runs the cheap checks, then asks the judge."""
    leaks = command_findings(command, Known(), [(Forms(form), True) for form in secret])
    leak = next((f for f in leaks if f.rule in {Rule.ANSWER_IN_COMMAND, Rule.DISGUISED_ANSWER}), None)
    if leak is not None:
        return Attempt(command, Verdict.LEAK, detail=leak.detail)
    try:
        result = ground.run(command)
    except CommandRefused as e:
        return Attempt(command, Verdict.REFUSED, detail=str(e))
    observation = ground.show(result)
    if result.timed_out or (result.exit_code or 0) > 1:
        return Attempt(command, Verdict.FAILED, observation, "ran out of time" if result.timed_out else "failed")
    if not result.stdout.strip():
        return Attempt(command, Verdict.EMPTY, observation)
    if expected.concrete and not expected.said_in(Folded(observation)):
        return Attempt(command, Verdict.MISSING, observation)
    match tutor.judge(JudgeRequest(case, plan, index, expected, command, observation)):
        case None:
            return Attempt(command, Verdict.UNPARSABLE, observation)
        case True:
            return Attempt(command, Verdict.CONFIRMED, observation)
        case _:
            return Attempt(command, Verdict.DENIED, observation)


# ------------------------------------------------------------------ forward


def forward(
    case: Case, plan: Plan, chain: tuple[Link, ...], tutor: Tutor, planner: Planner, ground: Ground, trace: Trace
) -> Episode:
    """Plays the chain on the real environment, lets the Planner answer and returns the finished episode."""
    episode = Episode(ground.rules, case.question)
    guarded = [(_answer_forms(case.question, plan), True), *((link.forms, False) for link in chain)]
    known = Known()
    known.add(case.question.question)
    history: list[Observed] = []
    for link in chain:
        for move, command in (*link.lead, (Move.VERIFIED, link.command)):
            view = View(case.question.question, tuple(history))
            draft = planner.draft(view)
            trace.early_answers += draft.answer is not None
            request = EditRequest(case, view, draft, link.step, command, move, (), (), len(history))
            thought = _edited(request, guarded, known, tutor, ground.settings)
            result, observation = _play(episode, thought, command, ground)
            if move is Move.VERIFIED and observation != link.observation:
                raise Dropped(Drop.UNREPEATABLE, "forward", command)
            if result.timed_out:
                raise Dropped(Drop.UNREPEATABLE, "forward", f"ran out of time: {command}")
            known.add(observation)
            history.append(Observed(thought, command, observation))
    final = planner.answer(View(case.question.question, tuple(history)))
    _finish(episode, final, ground.settings)
    return episode


def _edited(
    request: EditRequest, guarded: list[tuple[Forms, bool]], known: Known, tutor: Tutor, settings: Settings
) -> str:
    secret = tuple(dict.fromkeys(f for forms, _ in guarded if not known.says(forms) for f in forms.concrete))
    problems: list[str] = []
    for _ in range(settings.edits):
        thought = tutor.edit(replace(request, forbidden=secret, problems=tuple(problems))).strip()
        found = thought_findings(thought, known, guarded, command=request.command, turn=request.number)
        if len(thought) > settings.max_thought_chars:
            problems.append(f"too long: {len(thought)} characters, at most {settings.max_thought_chars}")
        elif not thought:
            problems.append("empty")
        elif found:
            problems.append("; ".join(f"{f.rule.value}: {f.detail}" for f in found))
        else:
            return thought
    raise Dropped(Drop.EDIT_LEAK, "forward", f"turn {request.number + 1}: {problems[-1]}")


def _play(episode: Episode, thought: str, command: str, ground: Ground) -> tuple[CommandResult, str]:
    try:
        text = ground.rules.action_format.render_action(thought, command=command)
    except ConfigError as e:
        raise Dropped(Drop.EDIT_UNPARSABLE, "forward", str(e)) from e
    pending = episode.submit(text)
    if not isinstance(pending, Pending):
        raise Dropped(Drop.EDIT_UNPARSABLE, "forward", f"the turn does not read as a command: {text}")
    try:
        result = ground.run(pending.command)
    except CommandRefused as e:
        raise Dropped(Drop.UNREPEATABLE, "forward", f"{command}: {e}") from e
    episode.resume(result)
    return result, ground.show(result)


def _finish(episode: Episode, final: Draft, settings: Settings) -> None:
    if not (final.answer or "").strip():
        raise Dropped(Drop.ANSWER_UNPARSABLE, "answer", final.thought)
    if len(final.thought) > settings.max_thought_chars:
        raise Dropped(Drop.TOO_LONG, "answer", final.thought)
    try:
        text = episode.rules.action_format.render_action(final.thought, answer=final.answer)
    except ConfigError as e:
        raise Dropped(Drop.ANSWER_UNPARSABLE, "answer", str(e)) from e
    episode.submit(text)
    if episode.finish_reason != "answer":
        raise Dropped(Drop.ANSWER_UNPARSABLE, "answer", text)


# ------------------------------------------------------------------ filters


def filters(case: Case, trajectory: Trajectory, tutor: Tutor, settings: Settings) -> None:
    """Drops a trajectory that is wrong, too long, not clean or not coherent, cheapest check first."""
    if trajectory.breakdown["f1"] <= settings.min_f1:
        raise Dropped(Drop.WRONG_ANSWER, "filters", f"{trajectory.answer!r} for {trajectory.golden_answers[0]!r}")
    if len(trajectory.text()) > settings.max_chars:
        raise Dropped(Drop.TOO_LONG, "filters", f"{len(trajectory.text())} characters")
    if findings := check_trajectory(trajectory):
        raise Dropped(f"leak:{findings[0].rule.value}", "filters", "; ".join(map(str, findings)))
    opinion = tutor.review(case, trajectory)
    if not opinion.coherent:
        raise Dropped(Drop.INCOHERENT, "filters", opinion.reason)


def make_record(question: Question, roles: Roles, ground: Ground, *, seed: int) -> Record:
    """Works on one question from beginning to end.

    Raises:
        GrepSeekError: the infrastructure failed; the question may be tried again.
    """
    own = case_seed(seed, question.id)
    case = Case(question, own)
    tutor, planner = roles.tutor(ground.look), roles.planner(own)
    trace = Trace()
    try:
        plan = decompose(case, tutor, ground)
        chain = backward(case, plan, tutor, ground, trace)
        episode = forward(case, plan, chain, tutor, planner, ground, trace)
        trajectory = episode.trajectory(
            {
                **_kept_metadata(question),
                "source": roles.name,
                "seed": seed,
                "chain": chain_metadata(chain),
                "leak_checks": LEAK_CHECKS,
            }
        )
        filters(case, trajectory, tutor, ground.settings)
    except Dropped as e:
        record = Record(question.id, e.reason, e.stage, e.detail)
    else:
        record = Record(question.id, trajectory=trajectory)
    return replace(record, attempts=trace.verdicts, early_answers=trace.early_answers, usage=_usage(tutor, planner))


def _usage(tutor: Tutor, planner: Planner) -> dict[str, Usage]:
    return {"tutor": tutor.usage, "planner": planner.usage}


def _kept_metadata(question: Question) -> dict[str, object]:
    return {key: question.metadata[key] for key in ("kind", "hops", "split", "dataset") if key in question.metadata}
