"""A tiny model with random weights for tests, made once a test run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pytest

from algos.rollout_many import run_command
from algos.rollout_play import Job, play
from grepseek_env.backend import open_backend
from grepseek_env.env import make_rules
from grepseek_env.tasks import load_question_set
from grepseek_env.tokens import ChatTokens
from policies.scripted import OraclePolicy
from policies.tiny_model import make_tiny_model

if TYPE_CHECKING:
    from pathlib import Path

    from grepseek_env.trajectory import Trajectory
    from grepseek_env.types import Question

__all__ = ["RULES", "TEXTS", "Taught", "taught_model", "teach", "tiny_model"]

TEXTS = (
    "Albert Einstein was born in Ulm. Zürich, the K-sign: naïve café, 漢字 and 🧠.",
    "<think>I look.</think>\n",
    """<tool_call>{"name": "shell", "arguments": {"command": "rg -F 'Ulm' corpus.jsonl | head -n 3"}}</tool_call>""",
    "<think>It is said.</think>\n<answer>Ulm</answer>",
    "You answer questions by searching a text corpus with shell commands.",
    "<tool_response>\n{}\n</tool_response> Query: Who?",
)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder of a Qwen3 model of two layers with a vocabulary of 1,024."""
    import torch

    torch.set_num_threads(1)  # so small a model is slower on several, most of all beside other tests
    questions = load_question_set("world:tiny")
    asked = [questions[i].question for i in range(min(len(questions), 200))]
    return make_tiny_model(tmp_path_factory.mktemp("models") / "tiny", [*TEXTS * 20, *asked])


@dataclass(frozen=True)
class Taught:
    """A tiny model that has learnt one episode by heart, so that it searches and answers.

    Attributes:
        folder: its checkpoint.
        record: the episode, played by the oracle under `RULES`.
        question: what was asked.
    """

    folder: Path
    record: Trajectory
    question: Question


# A short prompt and short observations: the episode is then short enough to be learnt in seconds.
RULES = {"system_prompt": "Search, then answer.", "max_observation_chars": 120, "max_turns": 4}


def teach(folder: Path, out: Path) -> Taught:
    """Trains a model on one episode until it says its turns by heart, and saves it."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    question = next(q for q in load_question_set("world:tiny") if len(q.evidence) == 2)
    with open_backend("world:tiny") as backend:
        record = play(make_rules(**RULES), OraclePolicy(), Job(question), partial(run_command, backend))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    view = ChatTokens(tokenizer).trajectory(record)
    ids, mask = torch.tensor([view.ids]), torch.tensor(view.mask[1:])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_pretrained(folder)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        for _ in range(300):
            logits = model(ids).logits[0, :-1][mask]
            loss = torch.nn.functional.cross_entropy(logits, ids[0, 1:][mask])
            if loss.item() < 0.01:
                break
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    return Taught(out, record, question)


@pytest.fixture(scope="session")
def taught_model(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Taught:
    """Returns a model that plays one question rightly."""
    return teach(tiny_model, tmp_path_factory.mktemp("taught") / "model")
