"""System text for a policy, made from ACTION_FORMATS and COMMANDS, so that it never promises what is refused."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from grepseek_env.commands import COMMANDS

if TYPE_CHECKING:
    from grepseek_env.actions.formats import ActionFormat

__all__ = ["TEMPLATE", "prompt_hash", "system_prompt"]

# The words in braces are filled in, wherever they stand; every other brace is text.
TEMPLATE = """\
You answer questions by searching a text corpus with shell commands. The corpus is one large file, corpus.jsonl, with \
one passage on each line: {"id": "...", "contents": "\\"Title\\"\\nText"}. \
You have {turns} turns, the answer included.

A command is one pipeline over corpus.jsonl. Only these programs exist:
{programs}
Pipes (|) and quotes work as in bash. There is no redirection, no chaining (; && ||), no background job, no variable \
and no command substitution.

How to search:
- Always end with a cap: `| head -n 3` for a narrow search, at most `| head -n 8`. Output is cut at {cap}.
- Prefer fixed strings: `rg -F 'exact words' corpus.jsonl | head -n 3`; -i ignores case, -w matches whole words.
- Narrow by a second filter: `rg -F 'name' corpus.jsonl | rg -i 'born' | head -n 3`.
- Unsure how common a word is? Count first, `rg -c 'word' corpus.jsonl`, then narrow.
- Nothing found? Use a shorter or differently spelled string. Too much? Add a word.

{instructions}

Answers are short: a name, a date, a number, yes or no, or a noun phrase."""


def system_prompt(action_format: ActionFormat, *, max_turns: int, cap: str, template: str | None = None) -> str:
    """Returns the system message.

    Args:
        action_format: how the policy has to write its turns.
        max_turns: policy turns, the answer included.
        cap: the cap on tool output in words, such as "2048 tokens".
        template: text in place of `TEMPLATE`; {turns}, {programs}, {cap} and {instructions} (of the action format) are
            filled in.
    """
    filled = {
        "{turns}": str(max_turns),
        "{programs}": "\n".join(f"- {spec.name}: {spec.help}" for spec in COMMANDS.values()),
        "{cap}": cap,
        "{instructions}": action_format.instructions,
    }
    # One pass, so that nothing is filled into what was filled in.
    return _PLACE.sub(lambda m: filled[m.group()], TEMPLATE if template is None else template)


_PLACE = re.compile(r"\{(?:turns|programs|cap|instructions)\}")


def prompt_hash(text: str) -> str:
    """Returns the first 12 hexadecimal digits of the text's SHA-256: the prompt's version."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]
