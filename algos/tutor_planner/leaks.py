"""The leak rules as code: what a clean trajectory never does, checked on any trajectory.

A trajectory is causally grounded when every turn could have been written from the question and the outputs before it.
At each turn the *known* is the question and all earlier outputs; everything else is judged against it:

- no golden answer, accepted form of it or later bridge entity in a command or in reasoning before it is known, in
  whatever case, accents, punctuation, JSON escapes or wildcards;
- every other word of a command's patterns and of the reasoning is known or common;
- the action follows from the reasoning; the answer is supported by an output.

Generic answers (yes, no, both, number words, numbers below 100) give nothing away and are exempt.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import cache, lru_cache
from importlib import resources
from typing import TYPE_CHECKING

from algos.tutor_planner.forms import Folded, Forms, fold, is_generic, words
from algos.tutor_planner.patterns import searches, spells
from algos.tutor_planner.records import chain_from_metadata
from grepseek_env.actions import get_action_format
from grepseek_env.commands import COMMANDS
from grepseek_env.reward import f1_score

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from grepseek_env.trajectory import Trajectory, Turn

__all__ = ["LEAK_CHECKS", "Finding", "Known", "Rule", "check_trajectory", "command_findings", "thought_findings"]

# Raise it whenever a rule changes: it is written into every trajectory that passed.
LEAK_CHECKS = "grepseek-leaks/2"


class Rule(str, Enum):
    """A leak rule."""

    UNFINISHED = "unfinished"
    """The episode has no final answer, or its infrastructure failed."""
    MALFORMED = "malformed"
    """The transcript does not keep to the format."""
    FAILED_COMMAND = "failed-command"
    """A command was refused or ran out of time."""
    ANSWER_IN_COMMAND = "answer-in-command"
    BRIDGE_IN_COMMAND = "bridge-in-command"
    DISGUISED_ANSWER = "disguised-answer"
    """A pattern spells a guarded form with wildcards."""
    UNSEEN_IN_COMMAND = "unseen-term-in-command"
    ANSWER_IN_REASONING = "answer-in-reasoning"
    BRIDGE_IN_REASONING = "bridge-in-reasoning"
    UNSEEN_IN_REASONING = "unseen-term-in-reasoning"
    CONTRADICTION = "contradiction"
    """The action is not what the reasoning leads to."""
    UNSUPPORTED = "unsupported-answer"
    """No output says the final answer, or a step of the chain was never observed."""
    WRONG = "wrong-answer"
    """The final answer shares no word with any golden answer."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A broken rule.

    Attributes:
        rule: which one.
        turn: index of the policy turn, from 0.
        detail: the offending word or form.
    """

    rule: Rule
    turn: int
    detail: str

    def __str__(self) -> str:
        return f"turn {self.turn + 1}: {self.rule.value}: {self.detail}"


@cache
def common_words() -> frozenset[str]:
    """Returns the words that say nothing about any one question; they are listed in ``common_words.txt``."""
    lines = resources.files(__package__).joinpath("common_words.txt").read_text(encoding="ascii").splitlines()
    listed = {word for line in lines if not line.startswith("#") for word in line.split()}
    return frozenset(listed | set(COMMANDS) | _SHELL_WORDS)


_SHELL_WORDS = frozenset({
    "corpus", "jsonl", "id", "contents", "print", "nr", "nf", "begin", "end", "gsub", "substr", "index", "length",
    "tolower",
})  # fmt: skip
_ENDINGS = ("s", "es", "ed", "d", "ing", "ly", "er", "ers", "less")
_STEM = 4
_DOTTED = re.compile(r"(?=(?:[^\W\d_][ .'-]*){3})(?=.*[^\W\d_]{2})[\w .'-]+")
# Single small letters between dots; initials, as in J. R. R. Tolkien, are capitals.
_GAP = re.compile(r"(?<![^\W_])[a-z]\.")
_NAME_LIKE = re.compile(r"[\w .'-]*")
_CLAIMS = re.compile(
    r"\bthe (?:final )?answer (?:is|must be)\b"
    r"|\bi (?:can|will|shall) (?:now )?(?:give (?:the|my) )?(?:final )?answer\b"
)
_TAGS = re.compile(r"</?tool_response>")
_NOTE = re.compile(r"\[[a-z][^\[\]]*\]")
_CLAIMED = re.compile(r"\banswer (?:is|must be)[:]?\s+(.{1,80}?)\s*(?:[.;,!?]|$)", re.IGNORECASE)


@lru_cache(maxsize=1 << 12)
def _read(text: str) -> tuple[Folded, frozenset[str]]:
    """Returns an output and the beginnings of its words; the same output is met in many checks."""
    folded = Folded(text)
    words = set(folded.tokens)
    return folded, frozenset(word[:end] for word in words for end in (*range(_STEM, len(word)), len(word)))


class Known:
    """The question and the outputs seen so far.

    Attributes:
        texts: what has been read, in order.
    """

    def __init__(self) -> None:
        self.texts: list[Folded] = []
        self._stems: list[frozenset[str]] = []

    def add(self, text: str) -> None:
        """Takes the question or an output in."""
        folded, stems = _read(text)
        self.texts.append(folded)
        self._stems.append(stems)

    def knows(self, token: str) -> bool:
        """Tells whether a folded word is common, a small number, or has been read, perhaps with another ending."""
        if len(token) == 1 or (token.isdigit() and len(token) == 2):
            return True
        bases = (token, *(token.removesuffix(end) for end in _ENDINGS if token.endswith(end)))
        return any(base in common_words() or any(base in stems for stems in self._stems) for base in bases)

    def has_like(self, pattern: str) -> bool:
        """Tells whether a name with single letters left open, such as ``Pr.ng.n M.lls``, was read in full."""
        if "." not in pattern or not _DOTTED.fullmatch(pattern):
            return False
        return any(re.search(pattern, text.text, re.IGNORECASE) for text in self.texts)

    def says(self, forms: Forms) -> bool:
        """Tells whether an accepted form of an answer has been read."""
        return forms.said_in(*self.texts)


def _guarded(golden: Sequence[str], chain: Sequence[Forms]) -> list[tuple[Forms, bool]]:
    """Returns what may not be named before it is known, each with whether it is the answer."""
    answer = Forms(golden[0], tuple(golden[1:])) if golden else Forms()
    ours = {fold(form) for form in answer.accepted}
    links = [(link, any(fold(form) in ours for form in link.accepted)) for link in chain if link.concrete]
    return [(answer, True), *links] if golden else links


def command_findings(command: str, known: Known, guarded: Iterable[tuple[Forms, bool]], turn: int = 0) -> list[Finding]:
    """Checks a command against what is known before it runs.

    Args:
        command: as the policy wrote it.
        known: question and earlier outputs.
        guarded: forms not to be named before they are known, each with whether they are the answer.
        turn: written into the findings.
    """
    parts = searches(command)
    texts = [Folded(command), *(Folded(part.literal) for part in parts)]
    found: list[Finding] = []
    for forms, is_answer in guarded:
        if known.says(forms):
            continue
        said = [form for form in forms.concrete if any(text.says(form) for text in texts)]
        rule = Rule.ANSWER_IN_COMMAND if is_answer else Rule.BRIDGE_IN_COMMAND
        found += [Finding(rule, turn, form) for form in said[:1]]
        spelled = [form for form in forms.concrete for part in parts if not said and spells(part, form)]
        found += [Finding(Rule.DISGUISED_ANSWER, turn, form) for form in spelled[:1]]
    unread = [part for part in parts if not known.has_like(part.text)]
    unseen = dict.fromkeys(term for part in unread for term in part.terms if not known.knows(term))
    # Letters by themselves say nothing, but many of them with gaps between them are a name that nobody read.
    gapped = [part.text for part in unread if _gapped(part.text)]
    return found + [Finding(Rule.UNSEEN_IN_COMMAND, turn, term) for term in (*unseen, *gapped)]


def _gapped(pattern: str) -> bool:
    return _NAME_LIKE.fullmatch(pattern) is not None and len(_GAP.findall(pattern)) > 1


def thought_findings(
    thought: str, known: Known, guarded: Iterable[tuple[Forms, bool]], *, command: str | None = None, turn: int = 0
) -> list[Finding]:
    """Checks the reasoning of a turn against what is known before it, and against the command that it leads to.

    Args:
        thought: the reasoning.
        known: question and earlier outputs.
        guarded: see `command_findings`.
        command: the turn's command; None for the turn with the answer.
        turn: written into the findings.
    """
    said = Folded(thought)
    found: list[Finding] = []
    for forms, is_answer in guarded:
        if not known.says(forms) and (named := next((f for f in forms.concrete if said.says(f)), None)):
            found.append(Finding(Rule.ANSWER_IN_REASONING if is_answer else Rule.BRIDGE_IN_REASONING, turn, named))
    unseen = dict.fromkeys(token for token in said.tokens if not known.knows(token))
    found += [Finding(Rule.UNSEEN_IN_REASONING, turn, token) for token in unseen]
    if command is not None and said.tokens:  # the plain format has no place for reasoning
        found += _contradictions(said, command, turn)
    return found


def _contradictions(thought: Folded, command: str, turn: int) -> list[Finding]:
    if claim := _CLAIMS.search(" ".join(thought.tokens)):
        return [Finding(Rule.CONTRADICTION, turn, f"it says {claim.group()!r} and runs a command")]
    parts = searches(command)
    if any(_DOTTED.fullmatch(part.text) and re.search(part.text, thought.text, re.IGNORECASE) for part in parts):
        return []
    terms = [term for part in parts for term in part.terms if len(term) > 1]
    # A rare word says what a search is about; common ones only where there is no rare one.
    specific = [term for term in terms if term not in common_words()] or terms
    tokens = set(thought.tokens)
    named = any(t in tokens or (len(t) >= _STEM and any(token.startswith(t) for token in tokens)) for t in specific)
    if specific and not named:
        return [Finding(Rule.CONTRADICTION, turn, f"the reasoning names nothing of what is searched: {specific[0]}")]
    return []


def check_trajectory(trajectory: Trajectory, chain: Sequence[Forms] | None = None) -> tuple[Finding, ...]:
    """Returns every broken rule, in turn order; a clean trajectory has none.

    Args:
        trajectory: of any origin.
        chain: expected answers of the steps in time order; None takes those of the trajectory's metadata. Without a
            chain bridge entities are guarded only as words that were not seen; without golden answers the chain alone
            is guarded, and no answer is wrong.

    Raises:
        TrajectoryError: the metadata's chain is none; names the field.
        ConfigError: the trajectory's action format is unknown.
    """
    if chain is None:
        chain = chain_from_metadata(trajectory.metadata)
    guarded = _guarded(trajectory.golden_answers, chain)
    known = Known()
    known.add(trajectory.question)
    outputs: list[Folded] = []
    found = _whole(trajectory)
    thought_of = get_action_format(trajectory.action_format).thought
    for number, turn in enumerate(trajectory.turns):
        thought = thought_of(turn.text)
        match turn.kind:
            case "tool_call":
                command = turn.command or ""
                found += thought_findings(thought, known, guarded, command=command, turn=number)
                found += command_findings(command, known, guarded, number)
                # A refusal repeats the command: it teaches nothing about the corpus.
                if turn.refused is None:
                    known.add(turn.observation)
                    outputs.append(_read(_output(turn.observation))[0])
                found += _failures(turn, number)
            case "final_answer":
                found += thought_findings(thought, known, guarded, turn=number)
                found += _answer_findings(trajectory, thought, outputs, chain, number)
            case _:
                found.append(Finding(Rule.MALFORMED, number, turn.text[:80]))
    return tuple(found)


def _output(observation: str) -> str:
    """Returns what the corpus said: an observation without tags and without the environment's own notes."""
    lines = _TAGS.sub("", observation).splitlines()
    return "\n".join(line for line in lines if not _NOTE.fullmatch(line.strip()))


def _whole(trajectory: Trajectory) -> list[Finding]:
    last = max(len(trajectory.turns) - 1, 0)
    if trajectory.finish_reason != "answer" or trajectory.answer is None or not trajectory.reward_valid:
        return [Finding(Rule.UNFINISHED, last, trajectory.finish_reason)]
    fmt = get_action_format(trajectory.action_format)
    if not fmt.format_valid([fmt.parse(turn.text) for turn in trajectory.turns]):
        return [Finding(Rule.MALFORMED, last, "the transcript as a whole")]
    return []


def _failures(turn: Turn, number: int) -> list[Finding]:
    if turn.refused is not None:
        return [Finding(Rule.FAILED_COMMAND, number, f"refused: {turn.refused}")]
    return [Finding(Rule.FAILED_COMMAND, number, "ran out of time")] if turn.timed_out else []


def _answer_findings(
    trajectory: Trajectory, thought: str, outputs: Sequence[Folded], chain: Sequence[Forms], turn: int
) -> list[Finding]:
    answer = trajectory.answer or ""
    found = []
    if trajectory.golden_answers and f1_score(answer, trajectory.golden_answers) <= 0:
        found.append(Finding(Rule.WRONG, turn, answer))
    claimed = _CLAIMED.search(thought)
    if claimed and words(claimed[1]) and not set(words(claimed[1])) & set(words(answer)):
        found.append(Finding(Rule.CONTRADICTION, turn, f"the reasoning says {claimed[1]!r}, the answer is {answer!r}"))
    if not _supported(answer, trajectory.golden_answers, outputs):
        found.append(Finding(Rule.UNSUPPORTED, turn, answer))
    unobserved = [link for link in chain if link.concrete and not link.said_in(*outputs)]
    return found + [Finding(Rule.UNSUPPORTED, turn, f"{link.answer} was never observed") for link in unobserved]


def _supported(answer: str, golden: Sequence[str], outputs: Sequence[Folded]) -> bool:
    if is_generic(answer):
        return any(output.tokens for output in outputs)
    accepted = [form for form in golden if not is_generic(form) and f1_score(answer, [form]) > 0]
    if any(output.says_any((answer, *accepted)) for output in outputs):
        return True
    # A date in another order is the same date.
    parts = set(words(answer))
    dated = any(part.isdigit() for part in parts)
    return dated and any(parts <= set(output.tokens) for output in outputs)
