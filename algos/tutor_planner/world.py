"""The world implementation: an oracle Tutor that knows a generated world's evidence, and a template Planner.

No model is involved and any amount of data can be made. The Tutor searches with many shapes of commands, and sometimes
counts first or misses first; the Planner reads outputs by the world's grammar and knows nothing else, so that the final
answer comes out of what was observed.

Two qualities: "strong" refines until a command is confirmed; "plain" is one try a step, mostly for the name alone,
kept if it succeeds: realistic but mediocre demonstrations, from which reinforcement learning has something to gain.
"""

from __future__ import annotations

import random
import re
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Literal

from algos.tutor_planner.forms import Folded, Forms
from algos.tutor_planner.prose import Prose, checking, final, needed, opening, search_sentence, stalled
from algos.tutor_planner.protocols import NoModel, Opinion, Roles
from algos.tutor_planner.reading import Hop, Meaning, meanings, passages, read, relation_named, winner
from algos.tutor_planner.records import Advice, Draft, Drop, Dropped, Move, Plan, Proposal, Verdict
from algos.tutor_planner.shapes import RELATION_WORDS, SHAPES, Asked
from grepseek_env.config import closest
from grepseek_env.errors import ConfigError
from grepseek_env.observation import NO_OUTPUT
from grepseek_env.tasks.world.grammar import ONE_FACT

if TYPE_CHECKING:
    from algos.tutor_planner.protocols import EditRequest, JudgeRequest, Searcher, SearchRequest
    from algos.tutor_planner.reading import Passage
    from algos.tutor_planner.records import Case, Link, View
    from grepseek_env.trajectory import Trajectory

__all__ = ["QUALITIES", "WorldPlanner", "WorldStyle", "WorldTutor", "world_roles"]

QUALITIES = ("strong", "plain")
# Shapes for a try after the first one, the surest first.
_SURE = ("narrowed-either", "title", "single", "dotted", "insensitive")


@dataclass(frozen=True, slots=True)
class WorldStyle:
    """How demonstrations of a generated world are made.

    Attributes:
        quality: "strong" or "plain".
        prose: "full" sentences, or "brief" ones for models of a few hundred thousand parameters.
        shapes: names of `SHAPES` to draw from; empty takes all that the quality has.
        heads: caps of outputs to draw from, in lines.
        vague: share of a plain searcher's commands that name the entity alone.
        keep_misses: how often a command that found nothing stays in the trajectory, before the one that recovers.
    """

    quality: Literal["strong", "plain"] = "strong"
    prose: Prose = "full"
    shapes: tuple[str, ...] = ()
    heads: tuple[int, ...] = (3, 5, 8)
    vague: float = 0.8
    keep_misses: float = 0.5

    def __post_init__(self) -> None:
        for name, choices in (("quality", QUALITIES), ("prose", ("full", "brief"))):
            if getattr(self, name) not in choices:
                raise ConfigError(f"WorldStyle.{name} is {getattr(self, name)!r}; it must be one of {choices}")
        for shape in self.shapes:
            if shape not in SHAPES:
                raise ConfigError(
                    f"no shape is named {shape!r}{closest(shape, list(SHAPES))}; there are {', '.join(SHAPES)}"
                )
        if not self.heads or any(head < 1 for head in self.heads):
            raise ConfigError(f"WorldStyle.heads is {self.heads!r}; it must hold numbers of at least 1")


class WorldTutor(NoModel):
    """Knows a question's evidence chain.

    Args:
        look: runs a command; used to see in which words the passage of a step speaks.
        style: how to search and to write.
    """

    def __init__(self, look: Searcher, style: WorldStyle) -> None:
        self._look = look
        self._style = style
        self._made: dict[str, tuple[str, str]] = {}
        self._hops: tuple[Hop, ...] = ()
        self._passages: dict[int, tuple[Passage, ...]] = {}
        self._draw = random.Random(0)  # noqa: S311  reproducible draws, not secrets

    def decompose(self, case: Case) -> Plan:
        """Returns the sub-questions of the evidence chain."""
        question = case.question
        relations = question.metadata.get("relations")
        if not question.evidence or not relations:
            raise Dropped(Drop.UNSUITABLE, "decompose", "no evidence chain of a generated world")
        self._draw = random.Random(case.seed)  # noqa: S311
        names = list(relations) * (len(question.evidence) if len(relations) == 1 else 1)
        try:
            self._hops = tuple(Hop(name, relation_named(name).subject) for name in names)
        except StopIteration:
            raise Dropped(Drop.UNSUITABLE, "decompose", f"unknown relations {names}") from None
        steps = question.evidence
        chained = len(steps) < 2 or _folds(steps[1].subject, (steps[0].answer, *steps[0].aliases))
        return Plan(tuple(step.question for step in steps), chained)

    def expect(self, case: Case, plan: Plan, index: int, later: Link | None) -> Forms:
        """Returns the answer of a step, as the evidence has it."""
        del plan, later
        step = case.question.evidence[index]
        return Forms(step.answer, step.aliases)

    def propose(self, request: SearchRequest) -> Proposal:
        """Draws a shape; after a failed try, a surer one."""
        asked = self._asked(request)
        proposal = self._draw_shape(asked, request)
        last = request.attempts[-1] if request.attempts else None
        if (
            last
            and last.verdict is Verdict.EMPTY
            and not proposal.lead
            and self._draw.random() < self._style.keep_misses
        ):
            proposal = replace(proposal, lead=((Move.MISS, last.command),))
        for _, command in (*proposal.lead, (Move.VERIFIED, proposal.command)):
            self._made[command] = (_spelled(asked, command), _filter(command, asked.subject))
        return proposal

    def _draw_shape(self, asked: Asked, request: SearchRequest) -> Proposal:
        tries = len(request.attempts)
        if tries:
            surest = "narrowed-either" if request.advice is Advice.NARROW else "single"
            order = dict.fromkeys((surest, *_SURE))
            made = {attempt.command for attempt in request.attempts}
            for name in order:
                proposal = SHAPES[name].build(replace(asked, heads=(max(8, *asked.heads),)))
                if proposal is not None and proposal.command not in made:
                    return replace(proposal, lead=())
        for name in self._names(asked, self._hops[request.index].kind):
            proposal = SHAPES[name].build(asked)
            if proposal is not None:
                return proposal if request.spare > 0 or not proposal.lead else replace(proposal, lead=())
        raise Dropped(Drop.UNSUITABLE, "backward", f"no shape fits {asked.subject!r}")

    def _names(self, asked: Asked, kind: str) -> list[str]:
        """Returns shapes in the order in which they are tried."""
        style = self._style
        names = style.shapes or tuple(name for name, shape in SHAPES.items() if shape.weight)
        if style.quality == "plain" and not style.shapes:
            precise = "phrase" if asked.phrase else "narrowed-either"
            # A city's name alone is in too many lines for anybody to try it.
            return ["single"] if kind != "city" and self._draw.random() < style.vague else [precise]
        weights = [SHAPES[name].weight or 1 for name in names]
        return [*self._draw.choices(names, weights, k=8), *names]

    def _asked(self, request: SearchRequest) -> Asked:
        hop = self._hops[request.index]
        subject = self._subject(request.case, request.index)
        text = " ".join(passage.text for passage in self._passage(request.case, request.index)).lower()
        wordings = RELATION_WORDS[hop.relation]
        present = tuple(word for word in wordings if word in text)
        phrase = ""
        if hop.relation in ONE_FACT and (told := re.search(r"\[([^]]*)\]", ONE_FACT[hop.relation])):
            phrase = next((p for p in told[1].split("|") if text.startswith(f"{subject.lower()} {p} ")), "")
        missing = tuple(word for word in wordings if word not in present)
        style = self._style
        # Words that the passage has come first, and with one that it does not have: the searcher cannot know.
        known = tuple(dict.fromkeys((*present, *missing[: 1 if style.quality == "strong" else 0]))) or wordings
        return Asked(subject, known, missing, phrase, style.heads, self._draw)

    def _passage(self, case: Case, index: int) -> tuple[Passage, ...]:
        if index not in self._passages:
            identity = case.question.evidence[index].passage_id
            self._passages[index] = passages(self._look(f"""rg -m 1 -F '{{"id": "{identity}", ' corpus.jsonl"""))
        return self._passages[index]

    def _subject(self, case: Case, index: int) -> str:
        """Returns the entity of a step as the step before wrote it, where that is another name of it."""
        steps = case.question.evidence
        name = steps[index].subject
        if index == 0 or not steps[index - 1].aliases:
            return name
        before = self._hops[index - 1]
        written = read(before, self._subject(case, index - 1), self._passage(case, index - 1))
        forms = (steps[index - 1].answer, *steps[index - 1].aliases)
        return written if written and name in forms and written in forms else name

    def judge(self, request: JudgeRequest) -> bool | None:
        """Tells whether the expected answer can be read from the output."""
        entity = self._subject(request.case, request.index)
        value = read(self._hops[request.index], entity, passages(request.observation))
        return value is not None and Folded(value).says_any(request.expected.accepted)

    def edit(self, request: EditRequest) -> str:
        """Adds to the Planner's draft the sentence that leads to the command."""
        draw = random.Random(f"{request.case.seed}/{request.number}")  # noqa: S311
        subject, words = self._made[request.command]
        loose = request.command.startswith("rg -i ")
        sentence = search_sentence(request.move, subject, words, draw, prose=self._style.prose, loose=loose)
        early = request.draft.answer is not None
        thought = checking(subject, draw, prose=self._style.prose) if early else request.draft.thought
        return f"{thought} {sentence}".strip()

    def review(self, case: Case, trajectory: Trajectory) -> Opinion:
        """Passes everything: the coded checks have run, and templates do not contradict themselves."""
        del case, trajectory
        return Opinion(coherent=True)


def _folds(name: str, forms: tuple[str, ...]) -> bool:
    wanted = Folded(name)
    return any(wanted.tokens == Folded(form).tokens for form in forms)


def _spelled(asked: Asked, command: str) -> str:
    """Returns the entity as the command writes it."""
    return asked.subject if asked.subject in command else asked.subject.lower()


def _filter(command: str, subject: str) -> str:
    """Returns the words that a command narrows by, for prose; empty where it does not narrow."""
    stages = command.split(" | ")
    narrowed = re.search(r"^(?:rg|grep)(?: -\w)* ['\"]?(.+?)['\"]?$", stages[1]) if len(stages) > 1 else None
    match = narrowed or re.search(re.escape(subject) + r"\.\*\((.+?)\)", command)
    if match is None:
        return ""
    words = match[1]
    *others, last = words.split("|")
    return f"{', '.join(others)} or {last}" if others else last


class WorldPlanner(NoModel):
    """Parses the question by the world's wordings and reads outputs by its sentences.

    Args:
        seed: of its choices of words.
        prose: how wordy.
    """

    def __init__(self, seed: int, prose: Prose) -> None:
        self._seed = seed
        self._prose = prose

    def draft(self, view: View) -> Draft:
        """Returns what it would look up next, or the answer where everything has been read."""
        draw = random.Random(f"{self._seed}/{len(view.history)}")  # noqa: S311
        for meaning in meanings(view.question):
            facts, entity = _progress(meaning, view)
            if len(facts) == _wanted(meaning):
                continue
            hop = meaning.hops[0] if len(meaning.subjects) > 1 else meaning.hops[len(facts)]
            thought = self._thought(meaning, hop, entity, facts, view, draw)
            return Draft(thought, command=f"rg -F '{entity}' corpus.jsonl | head -n 3")
        return self.answer(view)

    def _thought(
        self,
        meaning: Meaning,
        hop: Hop,
        entity: str,
        facts: list[tuple[Hop, str, str]],
        view: View,
        draw: random.Random,
    ) -> str:
        need = needed(hop.relation, entity, draw)
        last = view.history[-1].observation.strip() if view.history else ""
        if last == NO_OUTPUT:
            return stalled(need, draw, prose=self._prose)
        if last.isdigit():
            return stalled(need, draw, prose=self._prose, count=last)
        if not facts:
            return opening(need, entity, draw, prose=self._prose, hops=_wanted(meaning))
        before, subject, value = facts[-1]
        known = needed(before.relation, subject, draw)
        return opening(need, entity, draw, prose=self._prose, hops=_wanted(meaning), known=known, value=value)

    def answer(self, view: View) -> Draft:
        """Answers from what the outputs say; "unknown" where they do not say it."""
        draw = random.Random(f"{self._seed}/answer")  # noqa: S311
        for meaning in meanings(view.question):
            facts, _ = _progress(meaning, view)
            if len(facts) == _wanted(meaning):
                answer = winner(meaning, tuple(value for _, _, value in facts))
                told = [(needed(hop.relation, entity, draw), value) for hop, entity, value in facts]
                shown = told[-1:] if meaning.rule == "value" else told
                return Draft(final(shown, answer, draw, prose=self._prose), answer=answer)
        return Draft("The outputs do not say it.", answer="unknown")


def _wanted(meaning: Meaning) -> int:
    return len(meaning.subjects) if len(meaning.subjects) > 1 else len(meaning.hops)


def _progress(meaning: Meaning, view: View) -> tuple[list[tuple[Hop, str, str]], str]:
    """Returns what has been read so far, as hop, entity and value, and the entity to look up next."""
    seen = [passage for turn in view.history for passage in passages(turn.observation)]
    facts: list[tuple[Hop, str, str]] = []
    if len(meaning.subjects) > 1:
        for subject in meaning.subjects:
            value = read(meaning.hops[0], subject, seen)
            if value is None:
                return facts, subject
            facts.append((meaning.hops[0], subject, value))
        return facts, ""
    entity = meaning.subjects[0]
    for hop in meaning.hops:
        value = read(hop, entity, seen)
        if value is None:
            break
        facts.append((hop, entity, value))
        entity = value
    return facts, entity


def world_roles(style: WorldStyle | None = None) -> Roles:
    """Returns the world implementation.

    Args:
        style: how demonstrations are made; default: strong ones in full sentences.
    """
    style = style or WorldStyle()
    return Roles(
        name=f"world-{style.quality}",
        tutor=lambda look: WorldTutor(look, style),
        planner=lambda seed: WorldPlanner(seed, style.prose),
        settings=asdict(style),
    )
