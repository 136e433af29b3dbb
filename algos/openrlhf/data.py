"""Data sets for both recipes, with a count of all that is left out.

OpenRLHF leaves out what is too long without a word, or cuts it, which would train on half an answer; it is counted here
and never gets there.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from grepseek_env.actions import get_action_format
from grepseek_env.adapters.openrlhf import label_of
from grepseek_env.paths import atomic_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from grepseek_env.episode import Rules
    from grepseek_env.tokens import ChatTokens
    from grepseek_env.trajectory import Trajectory
    from grepseek_env.types import Question

__all__ = ["Prepared", "grpo_rows", "sft_row", "sft_rows", "write_rows"]

# `SFTDataset` drops a sample whose prompt leaves no room for two tokens of its last turn.
_LAST_TURN_TOKENS = 2


@dataclass(slots=True)
class Prepared:
    """Rows of a data set and what was left out.

    Attributes:
        rows: of the data set, JSON values only.
        left_out: reason -> number.
        longest: tokens of the longest row.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    longest: int = 0

    def report(self) -> str:
        """Returns one line a number."""
        lines = [f"{len(self.rows)} rows, the longest of {self.longest} tokens"]
        lines += [f"left out: {number:6d}  {reason}" for reason, number in self.left_out.most_common()]
        return "\n".join(lines)


def sft_row(trajectory: Trajectory) -> dict[str, Any]:
    """Returns a trajectory as a row: its chat up to the last thing the policy wrote."""
    messages = trajectory.messages(get_action_format(trajectory.action_format).tool_role)
    while messages and messages[-1]["role"] != "assistant":
        messages.pop()
    return {"id": trajectory.question_id, "messages": messages}


def sft_rows(trajectories: Iterable[Trajectory], tokens: ChatTokens, *, max_len: int, min_f1: float = 0.0) -> Prepared:
    """Makes the rows of supervised training.

    Args:
        trajectories: any; those without an answer that scores are left out.
        tokens: of the model that is trained.
        max_len: `--data.max_len` of the training.
        min_f1: an answer has to score above this.
    """
    out = Prepared()
    controls = set(tokens.tokenizer.all_special_tokens)
    for trajectory in trajectories:
        if not trajectory.reward_valid:
            out.left_out["the infrastructure failed in it"] += 1
            continue
        if trajectory.finish_reason != "answer":
            out.left_out[f"it has no answer ({trajectory.finish_reason})"] += 1
            continue
        if float(trajectory.breakdown.get("f1", 0.0)) <= min_f1:
            out.left_out[f"its answer's F1 is not above {min_f1:g}"] += 1
            continue
        row = sft_row(trajectory)
        if any(token in message["content"] for message in row["messages"] for token in controls):
            # `SFTDataset` would read them as control tokens; nothing the environment writes holds any.
            out.left_out["a message holds the text of a control token"] += 1
            continue
        view = tokens.trajectory(trajectory)
        last = next(span for span in reversed(view.spans) if span.writer == "policy")
        if last.start >= max_len - _LAST_TURN_TOKENS:
            out.left_out[f"over {max_len} tokens before its last turn (OpenRLHF would drop it silently)"] += 1
        elif last.end > max_len:
            out.left_out[f"over {max_len} tokens (OpenRLHF would cut its answer)"] += 1
        else:
            out.longest = max(out.longest, last.end)
            out.rows.append(row)
    return out


def grpo_rows(
    sets: Mapping[str, Sequence[Question]],
    tokens: ChatTokens,
    rules: Rules,
    *,
    max_prompt: int = 1024,
    limit: int | None = None,
    seed: int = 0,
) -> Prepared:
    """Makes the rows of GRPO: the question as prompt, the question with its golden answers as label.

    Args:
        sets: name -> questions; they are mixed evenly, as far as the smallest one reaches, then the rest.
        tokens: of the model that is trained.
        rules: of the episodes.
        max_prompt: tokens of system message and question together (the paper: 1,024).
        limit: rows at most.
        seed: of the order.
    """
    out = Prepared()
    mixed: list[tuple[float, str, Question]] = []
    for name, questions in sets.items():
        order = random.Random(f"{seed}/{name}").sample(range(len(questions)), len(questions))  # noqa: S311 - an order
        # The i-th question of every set comes before the next of any, so the first rows are an even mixture.
        mixed += [(place, name, questions[i]) for place, i in enumerate(order)]
    mixed.sort(key=lambda entry: entry[0])
    seen: set[str] = set()
    for _, name, question in mixed:
        if limit is not None and len(out.rows) >= limit:
            break
        if question.question in seen:
            # OpenRLHF tells the groups of an evaluation apart by their prompts.
            out.left_out["the same text as an earlier question"] += 1
            continue
        messages = [
            {"role": "system", "content": rules.system_prompt},
            {"role": "user", "content": rules.action_format.render_question(question.question)},
        ]
        length = len(tokens.opening(messages))
        if length > max_prompt:
            out.left_out[f"over {max_prompt} tokens of prompt"] += 1
            continue
        seen.add(question.question)
        out.longest = max(out.longest, length)
        out.rows.append({"prompt": question.question, "label": label_of(question), "datasource": name})
    return out


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Writes JSON lines; the file appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n")
