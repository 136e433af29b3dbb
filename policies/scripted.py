"""Policies without a model: an oracle, a keyword baseline, and two that test the environment."""

from __future__ import annotations

import random
import shlex
from typing import TYPE_CHECKING

from policies.base import EpisodeStart, Policy
from policies.keyword import KeywordPolicy

if TYPE_CHECKING:
    from grepseek_env.types import EvidenceStep

__all__ = ["KeywordPolicy", "MalformedPolicy", "OraclePolicy", "RandomPolicy"]


class OraclePolicy(Policy):
    """Walks the question's evidence chain, a command a hop, then gives the first golden answer.

    Its commands name only what the hop asks about, never the answer. On a question without evidence it answers at
    once. It is the upper bound of every table.
    """

    name: str = "oracle"
    privileged: bool = True

    def begin(self, start: EpisodeStart) -> None:
        """Takes the evidence chain."""
        self._start = start
        # The last turn is for the answer.
        self._steps: list[EvidenceStep] = list(start.question.evidence)[: start.max_turns - 1]

    def act(self, observation: str) -> str:
        """Writes the next hop, then the answer."""
        del observation  # the chain is known
        write = self._start.action_format.render_action
        if not self._steps:
            return write("The last output names the answer.", answer=self._start.question.golden_answers[0])
        step = self._steps.pop(0)
        command = f"rg -F -e {shlex.quote(step.subject)} corpus.jsonl | head -n 8"
        return write(f"I need to know: {step.question} I look for lines about {step.subject}.", command=command)


class RandomPolicy(Policy):
    """Runs random commands over random words and answers at random; a floor, and a smoke test of the engine."""

    name: str = "random"
    _TAILS = ("head -n 3", "wc -l", "cut -c 1-80 | head -n 2", "sort | uniq -c | head -n 3", "tail -n 1")

    def begin(self, start: EpisodeStart) -> None:
        """Seeds the draws."""
        self._start = start
        self._random = random.Random(start.seed)  # noqa: S311  reproducible draws, not secrets
        self._words = start.question.question.split()

    def act(self, observation: str) -> str:
        """Writes a random command or a random answer."""
        # Only plain words: a tag of the action format cannot stand in an answer.
        words = [w for w in self._words + observation.split() if w.isalnum()]
        word = self._random.choice(words or ["the"])
        write = self._start.action_format.render_action
        if self._random.random() < 1 / self._start.max_turns:
            return write("I guess.", answer=word)
        flag = self._random.choice(("-F", "-i -F", "-w -F"))
        tail = self._random.choice(self._TAILS)
        return write("I try a word.", command=f"rg {flag} -e {shlex.quote(word)} corpus.jsonl | {tail}")


class MalformedPolicy(Policy):
    """Writes turns in which no action can be read, then answers; shows that mistakes are observations, not crashes."""

    name: str = "malformed"
    _TURNS = (
        "",
        "I think the answer is obvious.",
        "<think>unclosed",
        '<think>x</think><tool_call>{"name": "shell", "arguments": {"command": }}</tool_call>',
        "<think>x</think><tool_call>rg x corpus.jsonl</tool_call>",
        '<think>x</think><tool_call>{"name": "python", "arguments": {"command": "1"}}</tool_call>',
    )

    def begin(self, start: EpisodeStart) -> None:
        """Seeds the draws."""
        self._start = start
        self._random = random.Random(start.seed)  # noqa: S311  reproducible draws, not secrets
        self._left = start.max_turns

    def act(self, observation: str) -> str:
        """Writes a turn without an action; in the last turn an answer."""
        del observation
        self._left -= 1
        if self._left <= 0:
            return self._start.action_format.render_action("Now an answer.", answer="unknown")
        return self._random.choice(self._TURNS)
