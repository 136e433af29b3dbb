"""The prompts of the two roles: versioned and hashed, written into every run's manifest.

A Planner's messages are built by `draft_messages` and `answer_messages`. Their signatures hold the question and the
history alone, so a golden answer has no way into them.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from grepseek_env.commands import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from algos.tutor_planner.records import Observed
    from policies.chat import Message

__all__ = ["PROMPTS", "Prompt", "answer_messages", "draft_messages", "prompt_hashes", "tutor_messages"]


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt.

    Attributes:
        name: its key in `PROMPTS`.
        version: raised with every change of its text.
        system: the system message.
        user: the user message with ``{fields}`` to fill in; a Planner's has none, since its message is the history.
        max_tokens: of a reply.
    """

    name: str
    version: int
    system: str
    user: str = ""
    max_tokens: int = 512

    @property
    def digest(self) -> str:
        """The first 12 hexadecimal digits of the SHA-256 of everything that a model gets to see of it."""
        text = json.dumps([self.name, self.version, self.system, self.user, self.max_tokens])
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def _text(body: str) -> str:
    """Returns a text written over several lines as one paragraph."""
    return " ".join(body.split())


_TOOLS = _text(f"""
    The corpus is one file, corpus.jsonl, one passage a line: {{"id": "7", "contents": "\\"Title\\"\\nText"}}. A command
    is one pipeline over it with these programs only: {", ".join(COMMANDS)}. Pipes and quotes work as in bash; there is
    no redirection, no chaining and no substitution. Always cap the output, with `| head -n 3` to `| head -n 8`. Prefer
    fixed strings (rg -F), add -i for other case, narrow with a second rg, count with rg -c before narrowing a common
    word. Example: rg -F 'exact words' corpus.jsonl | rg -i 'born' | head -n 3
""")

_JSON = "Reply with one JSON object and nothing else."
_TUTOR = "You prepare worked examples of corpus search for a student. You know the answer; the student does not."
_STUDENT = "You answer a question by searching a text corpus."

PROMPTS: Mapping[str, Prompt] = MappingProxyType(
    {
        prompt.name: prompt
        for prompt in (
            Prompt(
                "decompose",
                1,
                _text(f"""
                {_TUTOR} Split the question into the smallest number of ordered sub-questions, 1 to {{max_steps}}, each
                answerable from a single passage. Never name the answer, or anything that has to be found first: speak
                of it by its role, as in 'the director of that film'. kind is 'chain' where each sub-question needs the
                answer of the one before it, 'parallel' where they can be asked side by side, as in comparisons.
                aliases are other usual forms of the answer, at most 5. {_JSON}
            """),
                'Question: {question}\nAnswer: {answer}\n\n{{"kind": "chain", "steps": ["..."], "aliases": []}}',
            ),
            Prompt(
                "propose",
                1,
                _text(f"""
                {_TUTOR} Write one command whose output is a passage that answers the sub-question with the expected
                answer. The command may not contain any forbidden string, in whatever spelling. {_TOOLS} {_JSON}
            """),
                "Question: {question}\nSub-questions:\n{steps}\nNow sub-question {number}: {step}\nExpected answer: "
                '{expected}\nForbidden in the command: {forbidden}\n{later}{attempts}{advice}\n\n{{"command": "..."}}',
                256,
            ),
            Prompt(
                "judge",
                1,
                _text(f"""
                You check evidence strictly. Say whether the output, read alone, states that the sub-question has one
                of the accepted answers. A passage that merely mentions the words does not confirm. {_JSON}
            """),
                "Question: {question}\nSub-question: {step}\nAccepted answers: {expected}\nCommand: {command}\n"
                'Output:\n{output}\n\n{{"confirms": true, "reason": "one sentence"}}',
                256,
            ),
            Prompt(
                "bridge",
                1,
                _text(f"""
                {_TUTOR} The passage below answers sub-question {{number}}. To find it one has to know the entity that
                the sub-question before it asks for. Read that entity out of the passage, exactly as it is written
                there. aliases are other forms of its name, at most 5; alternates are other answers that would be right
                as well, at most 2. {_JSON}
            """),
                "Question: {question}\nSub-questions:\n{steps}\nPassage found for sub-question {number}:\n{output}\n\n"
                'Which entity answers sub-question {before}?\n\n{{"entity": "...", "aliases": [], "alternates": []}}',
                256,
            ),
            Prompt(
                "edit",
                1,
                _text(f"""
                {_TUTOR} Rewrite the student's reasoning so that it leads naturally to the command that will be run.
                Two to five sentences in the first person. Use only what the question and the outputs so far say: no
                name, number or date that is not there, and none of the forbidden strings. Say what is known, what is
                missing, and name what the command searches for. Never say that you were told anything, and do not
                state an answer. {_JSON}
            """),
                "{history}\n\nThe student's draft: {draft}\nThis turn serves: {step}\nThe command that will be run: "
                '{command}\nForbidden: {forbidden}\n{problems}\n{{"reasoning": "..."}}',
            ),
            Prompt(
                "review",
                1,
                _text(f"""
                You review a worked example of corpus search. It fails if (1) reasoning names something that neither
                the question nor an earlier output says, (2) a command searches for such a thing, (3) an action
                contradicts the reasoning before it, or (4) no output supports the final answer. violations lists the
                numbers of the rules that are broken. {_JSON}
            """),
                '{transcript}\n\n{{"violations": [], "coherent": true, "reason": "one sentence"}}',
                256,
            ),
            Prompt(
                "draft",
                1,
                _text(f"""
                {_STUDENT} Reason in two to five sentences: what is known, what is missing, what to look for next. Then
                give the next command, or the answer if the outputs settle it. {_TOOLS} {_JSON} It is either
                {{"reasoning": "...", "command": "..."}} or {{"reasoning": "...", "answer": "..."}}.
            """),
            ),
            Prompt(
                "answer",
                1,
                _text(f"""
                {_STUDENT} The search is over. From the outputs alone, give the final answer: as short as possible, a
                name, a date, a number, yes or no, or a noun phrase, spelled as the outputs spell it. Reason in one to
                three sentences first. {_JSON} It is {{"reasoning": "...", "answer": "..."}}.
            """),
            ),
        )
    }
)


def prompt_hashes() -> dict[str, str]:
    """Returns name -> ``VERSION-DIGEST`` of every prompt."""
    return {name: f"{prompt.version}-{prompt.digest}" for name, prompt in PROMPTS.items()}


def tutor_messages(prompt: Prompt, values: Mapping[str, object]) -> list[Message]:
    """Returns the messages of a Tutor's prompt.

    Args:
        prompt: an entry of `PROMPTS`.
        values: of the fields of its two messages.
    """
    return [
        {"role": "system", "content": _filled(prompt.system, values)},
        {"role": "user", "content": prompt.user.format_map(values)},
    ]


def _filled(text: str, values: Mapping[str, object]) -> str:
    # System messages hold JSON with braces of its own, so only fields that there are get replaced.
    for name, value in values.items():
        text = text.replace("{" + name + "}", str(value))
    return text


def render_history(question: str, history: Sequence[Observed]) -> str:
    """Returns a question and its turns as text."""
    lines = [f"Question: {question}"]
    for number, turn in enumerate(history, 1):
        lines.append(
            f"\nTurn {number}\nReasoning: {turn.thought}\nCommand: {turn.command}\nOutput:\n{turn.observation}"
        )
    return "\n".join(lines)


@cache
def _system(name: str) -> Message:
    return {"role": "system", "content": PROMPTS[name].system}


def draft_messages(question: str, history: Sequence[Observed]) -> list[Message]:
    """Returns what a Planner is shown before a search."""
    return [_system("draft"), {"role": "user", "content": render_history(question, history)}]


def answer_messages(question: str, history: Sequence[Observed]) -> list[Message]:
    """Returns what a Planner is shown before its answer."""
    return [_system("answer"), {"role": "user", "content": render_history(question, history)}]
