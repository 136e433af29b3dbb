"""A tiny model with random weights for tests, made once a test run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from grepseek_env.tasks import load_question_set
from policies.tiny_model import make_tiny_model

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["TEXTS", "tiny_model"]

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
