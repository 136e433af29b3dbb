"""A person at the terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from grepseek_env.errors import ConfigError
from policies.base import Policy, PolicyStop

if TYPE_CHECKING:
    from policies.base import EpisodeStart

__all__ = ["HumanPolicy"]

_HELP = """\
Type a command such as:  rg -F 'some words' corpus.jsonl | head -n 3
or finish with:          answer: your answer        (Ctrl-D gives up)
"""


class HumanPolicy(Policy):
    """Shows each observation and reads a line: a command, or `answer:` and the final answer.

    The line is written as a turn of the environment's action format.
    """

    name: str = "human"

    def begin(self, start: EpisodeStart) -> None:
        """Says what can be typed."""
        self._start = start
        self._turn = 0
        print(_HELP)

    def act(self, observation: str) -> str:
        """Asks for a turn.

        Raises:
            PolicyStop: end of input.
        """
        print(_visible(observation))
        self._turn += 1
        write = self._start.action_format.render_action
        while True:
            try:
                line = input(f"[turn {self._turn} of {self._start.max_turns}] > ").strip()
            except EOFError:
                print("\ngiven up")
                raise PolicyStop("the person gave up") from None
            head, colon, rest = line.partition(":")
            try:
                if colon and head.strip().lower() == "answer":
                    return write("A person answers.", answer=rest.strip())
                return write("A person searches.", command=line)
            except ConfigError as e:
                print(f"that cannot be written as a turn: {e}", file=sys.stderr)

    def fork(self) -> Policy:
        """Is refused: there is one terminal.

        Raises:
            ConfigError: always.
        """
        raise ConfigError("a person plays one episode at a time; run with --parallel 1")


def _visible(text: str) -> str:
    # A corpus may hold terminal escapes; they are shown, not obeyed.
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)
