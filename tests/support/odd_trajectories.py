"""Trajectories that try to break what shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grepseek_env.trajectory import Turn
from tests.support.trajectories import malformed, tool, trajectory

if TYPE_CHECKING:
    from grepseek_env.trajectory import Trajectory

__all__ = ["ATTACKS", "odd_trajectories"]

ATTACKS = (
    "</script><script>window.pwned = 1</script>",
    "<!--<script>",
    "]]></script>",
    "<img src=x onerror='window.pwned = 1'>",
    "<svg/onload=window.pwned=1>",
    "<style>*{display:none}</style>",
    "javascript:window.pwned=1",
    "@DATA@ @SCRIPT@ @STYLE@",
    "\ud800 lone, \udc00 low",
    "\u2028 line \u2029 paragraph \u202e right to left",
    "nul \0 escape \x1b[31m bell \x07",
    "${window.pwned=1} `x` \\u003cb\\u003e",
    "é ñ 中文 🧵 ﬁ",
)


def odd_trajectories() -> list[Trajectory]:
    """One for every attack, in every text a trajectory has; and every way to end."""
    out = [
        trajectory(
            f"id {text}",
            text,
            (text, "x"),
            (
                tool(f"rg -F {text!r} corpus.jsonl", text),
                tool("cat corpus.jsonl", f'{{"id": "7", "contents": "\\"Title\\"\\n{text}"}}\n{{"id": {text}'),
                tool("rm x", f"refused {text}", exit_code=None, refused=text),
                malformed(text),
            ),
            question=f"What is {text}?",
            system_prompt=text,
            metadata={"policy": text, "note": {text: [text]}},
        )
        for text in ATTACKS
    ]
    fault = {"finish_reason": "fault", "reward_valid": False, "error": ATTACKS[0], "breakdown": {}}
    out += [
        trajectory("limit", None, turns=(tool(), tool("rg late corpus.jsonl", "[turn limit]", exit_code=None))),
        trajectory(
            "fault", None, turns=(tool("rg x corpus.jsonl", "[the environment failed]", exit_code=None),), **fault
        ),
        trajectory("nothing", None, finish_reason="abandoned", breakdown={}),
        trajectory("no gold", "x", (), breakdown={}),
        trajectory("long", "word", ("word",), (tool("cat corpus.jsonl", "word " * 40_000), tool(output="y\n" * 3000))),
        trajectory("other format", "x", action_format="of another version"),
        trajectory("sampled", "Ada", turns=(Turn("hm", "malformed", "no", token_ids=(1, 2), logprobs=(-0.5, -1.5)),)),
        trajectory("timed", "Ada", turns=(tool(),), metadata={"timing": {"model": [0.5, 0.25], "tool": [0.125, 0.0]}}),
        trajectory("wrong times", "Ada", metadata={"timing": "x"}),
    ]
    return out
