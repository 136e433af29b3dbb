"""System text for a policy, made from ACTION_FORMATS and COMMANDS, so that it never promises what is refused."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from grepseek_env.commands import COMMANDS

if TYPE_CHECKING:
    from grepseek_env.actions.formats import ActionFormat

__all__ = ["prompt_hash", "system_prompt"]

_TASK = """\
You answer questions by searching a text corpus with shell commands. The corpus is one large file, corpus.jsonl, with \
one passage on each line: {{"id": "...", "contents": "\\"Title\\"\\nText"}}. \
You have {turns} turns, the answer included."""

_COMMANDS = """\
A command is one pipeline over corpus.jsonl. Only these programs exist:
{programs}
Pipes (|) and quotes work as in bash. There is no redirection, no chaining (; && ||), no background job, no variable \
and no command substitution.

How to search:
- Always end with a cap: `| head -n 3` for a narrow search, at most `| head -n 8`. Output is cut at {cap}.
- Prefer fixed strings: `rg -F 'exact words' corpus.jsonl | head -n 3`; -i ignores case, -w matches whole words.
- Narrow by a second filter: `rg -F 'name' corpus.jsonl | rg -i 'born' | head -n 3`.
- Unsure how common a word is? Count first, `rg -c 'word' corpus.jsonl`, then narrow.
- Nothing found? Use a shorter or differently spelled string. Too much? Add a word."""

_STYLE = "Answers are short: a name, a date, a number, yes or no, or a noun phrase."


def system_prompt(action_format: ActionFormat, *, max_turns: int, cap: str) -> str:
    """Returns the system message.

    Args:
        action_format: how the policy has to write its turns.
        max_turns: policy turns, the answer included.
        cap: the cap on tool output in words, such as "2048 tokens".
    """
    programs = "\n".join(f"- {spec.name}: {spec.help}" for spec in COMMANDS.values())
    return "\n\n".join(
        (
            _TASK.format(turns=max_turns),
            _COMMANDS.format(programs=programs, cap=cap),
            action_format.instructions,
            _STYLE,
        )
    )


def prompt_hash(text: str) -> str:
    """Returns the first 12 hexadecimal digits of the text's SHA-256: the prompt's version."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]
