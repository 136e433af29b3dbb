"""A tiny model that half knows how to search, for real training runs on a CPU."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from algos.openrlhf.template import TEMPLATE_FILE
from algos.rollout_many import run_command
from algos.rollout_play import Job, play
from grepseek_env.backend import open_backend
from grepseek_env.env import make_rules
from grepseek_env.tasks import load_question_set
from grepseek_env.tokens import ChatTokens
from policies.scripted import OraclePolicy
from policies.tiny_model import make_tiny_model
from policies.tiny_policy import make_tiny_policy, make_world_tokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from grepseek_env.trajectory import Trajectory
    from grepseek_env.types import Question

CONTEXT = 512  # tokens of an episode
SYSTEM = "Search, then answer."
RULES = {"system_prompt": SYSTEM, "max_observation_chars": 120, "max_turns": 4}


def template() -> str:
    return TEMPLATE_FILE.read_text(encoding="utf-8")


def easy_questions(count: int) -> list[Question]:
    """Returns questions that one command answers."""
    easy = [q for q in load_question_set("world:tiny") if len(q.evidence) == 1]
    assert len(easy) >= count
    return easy[:count]


def oracle_episodes(questions: Sequence[Question], **rules: object) -> list[Trajectory]:
    with open_backend("world:tiny", daemon=False) as backend:
        made = make_rules(**{**RULES, **rules})
        return [play(made, OraclePolicy(), Job(q), partial(run_command, backend)) for q in questions]


def untrained_model(out: Path, records: Sequence[Trajectory]) -> Path:
    texts = [m["content"] for r in records for m in r.messages("user")] + ["assistant", "user", "system"]
    return make_tiny_model(out, texts * 3, chat_template=template())


def study_policy(out: Path, records: Sequence[Trajectory]) -> Path:
    """Saves the policy from which the runs of `examples/08_ablation_cpu.py` start, with its own chat template."""
    tokenizer = make_world_tokenizer([record.text() for record in records], 720, min_frequency=2)
    return make_tiny_policy(out, tokenizer, context=CONTEXT)


def half_taught_model(
    folder: Path, out: Path, records: Sequence[Trajectory], *, loss_below: float, rate: float = 1e-2
) -> Path:
    """Trains a model on the records until it says much of them, and not all: groups of its rollouts then differ."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    views = [ChatTokens(tokenizer).trajectory(r) for r in records]
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(folder)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    length = max(len(v.ids) for v in views)
    ids = torch.full((len(views), length), tokenizer.pad_token_id)
    mask = torch.zeros(len(views), length, dtype=torch.bool)
    for i, v in enumerate(views):
        ids[i, : len(v.ids)] = torch.tensor(v.ids)
        mask[i, : len(v.ids)] = torch.tensor(v.mask)
    attention = (ids != tokenizer.pad_token_id).long()
    for _ in range(400):
        logits = model(ids, attention_mask=attention).logits[:, :-1][mask[:, 1:]]
        loss = torch.nn.functional.cross_entropy(logits, ids[:, 1:][mask[:, 1:]])
        if loss.item() < loss_below:
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    else:
        raise AssertionError(f"the loss is still {loss.item():.3f}, not below {loss_below}")
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    return out
