"""Random commands and turns: what is known to be well formed or hostile, mutated and spliced."""

from __future__ import annotations

import json
import random
from pathlib import Path

from grepseek_env.actions import ACTION_FORMATS
from grepseek_env.commands import COMMANDS
from tests.support.catalogue import catalogue

__all__ = ["Mutator", "command_seeds", "turn_seeds"]

_TESTS = Path(__file__).parents[1]

SHELL_PIECES = (
    *("'", '"', "\\", "|", "||", "|&", "&", "&&", ";", ";;", "<", ">", ">>", "<<", "<<<", "(", ")", "{", "}", "[", "]"),
    *("$", "$x", "${x}", "$(", "$((", "`", "$'", '$"', "~", "#", "!", "!!", "*", "?", "=", "-", "--", "\n", "\t", " "),
    *(
        "\\\n",
        "''",
        '""',
        "{a,b}",
        "{1..3}",
        "\x01",
        "\x7f",
        "\x80",
        "\xa0",
        "é",
        "漢",
        "\u2028",
        "\ufeff",
        "\U0001f600",
    ),
    *("-f", "-i", "-o", "-e", "-n5", "--", "--file=x", "--in", "-exec", "w x", "r x", "e", "corpus.jsonl", "./", "../"),
    *("/dev/stdin", "*.jsonl", "[a-z]*", "x=y", "1>2", "2>&1", "time", "if", "do", "function", "[[", "coproc"),
)
TAG_PIECES = (
    *("<think>", "</think>", "<tool_call>", "</tool_call>", "<answer>", "</answer>", "<tool_response>", "<", "</", ">"),
    *('{"name": "shell", "arguments": {"command": "ls"}}', "{", "}", '"', "\\", "\\ud800", "\\u0041", "NaN", "1e999"),
    *("[", "]", ",", ":", "null", '"name"', '"arguments"', '"command"', "answer:", "Answer :", "\n", "\r", "\x00"),
    *("<|im_end|>", "<|im_start|>", "é", "\ud800", "\U0001f600", " ", "9" * 400, "[" * 400, "<think>" * 40),
)


class Mutator:
    """Makes texts from seeds.

    Args:
        seeds: texts to begin with.
        pieces: what is put in.
        seed: of the random numbers.
    """

    def __init__(self, seeds: list[str], pieces: tuple[str, ...], seed: int) -> None:
        self._seeds = seeds
        self._pieces = pieces
        self._rng = random.Random(seed)

    def next(self) -> str:
        """Returns another text."""
        rng = self._rng
        text = rng.choice(self._seeds)
        for _ in range(min(6, 1 + int(rng.expovariate(1.2)))):
            text = self._mutated(text)
        return text

    def _mutated(self, text: str) -> str:
        rng = self._rng
        first = 0 if rng.random() < 0.1 else min(len(text), 5)  # an unknown program ends the reading at once
        at, to = sorted((rng.randint(first, len(text)), rng.randint(first, len(text))))
        match rng.randrange(9):
            case 0:
                return text[:at] + rng.choice(self._pieces) + text[at:]
            case 1:
                return text[:at] + rng.choice(self._pieces) + text[to:]
            case 2:
                return text[:at] + text[at + 1 :]
            case 3:
                return text[:at] + text[to:]
            case 4:
                return text[:to] + text[at:to] + text[to:]
            case 5:
                other = rng.choice(self._seeds)
                return text[:at] + other[rng.randint(0, len(other)) :]
            case 6:
                head, *words = text.split(" ")
                rng.shuffle(words)
                return " ".join([head, *words])
            case 7:
                return f"{text} | {rng.choice(self._seeds)}"
            case _:
                return text[:at] + chr(rng.choice((rng.randrange(1, 128), rng.randrange(1, 0x3000)))) + text[at + 1 :]


def command_seeds() -> list[str]:
    """Returns commands of every kind."""
    found = [example for spec in COMMANDS.values() for example in spec.examples]
    found += [case.command for case in catalogue()]
    for file in (_TESTS / "cases" / "attacks.txt", _TESTS / "attacks" / "commands.txt"):
        found += [line for line in file.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    for file in (_TESTS / "golden" / "commands").glob("*.jsonl"):
        rows = map(json.loads, file.read_text(encoding="ascii").splitlines())
        found += [row["command"] for row in rows if "command" in row]
    return [text for text in dict.fromkeys(found) if "\0" not in text and len(text) < 2000]


def turn_seeds() -> list[str]:
    """Returns turns of every format."""
    found = []
    for entry in ACTION_FORMATS.values():
        commands = ("ls", "rg -F 'a \"b\"' corpus.jsonl | head -n 3")
        found += [entry.render_action("why", command=command) for command in commands]
        found.append(entry.render_action("why", answer="Marie Curie"))
    found += ["<tool_call>", "<answer>x", "<think>a<answer>b</answer></think><answer>c</answer>", ""]
    return found
