"""What a policy reads from start to end: prompts and whole episodes on the default world."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grepseek_env.env import GrepSeekEnv, make_rules
from grepseek_env.prompts import prompt_hash

if TYPE_CHECKING:
    from tests.support.golden import Golden


def test_golden_prompts(golden: Golden) -> None:
    def compute(row: dict[str, Any]) -> dict[str, str]:
        text = make_rules(**row["options"]).system_prompt
        return {"version": prompt_hash(text), "text": text}

    golden.check("prompts/system.jsonl", compute)


def test_golden_episodes(golden: Golden) -> None:
    def compute(row: dict[str, Any]) -> list[Any]:
        env = GrepSeekEnv(**row["options"])
        observation, info = env.reset(options={"question_id": row["question_id"]})
        steps: list[Any] = [[observation, info], *(list(env.step(turn)) for turn in row["turns"])]
        env.close()
        return steps

    golden.check("episodes/episodes.jsonl", compute)
