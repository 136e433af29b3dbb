"""The chat policies under the names by which commands know them: hf, vllm, openai."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Any

from grepseek_env.config import closest
from grepseek_env.errors import ConfigError
from policies.budgets import Budget
from policies.chat import Sampling, make_model, model_class
from policies.chat_policy import ChatPolicy

__all__ = ["hf", "openai", "vllm"]

_SAMPLING = tuple(f.name for f in fields(Sampling))
_BUDGET = tuple(f.name for f in fields(Budget))


def hf(model: str, **options: Any) -> ChatPolicy:
    """A model of transformers in this process; options of `Sampling`, `Budget` and `HFModel`."""
    return _chat_policy("hf", model, options)


def vllm(model: str, **options: Any) -> ChatPolicy:
    """A model in a vLLM engine of this process; options of `Sampling`, `Budget` and `VLLMModel`."""
    return _chat_policy("vllm", model, options)


def openai(model: str, **options: Any) -> ChatPolicy:
    """A model behind an OpenAI-compatible server; options of `Sampling`, `Budget` and `OpenAIModel`."""
    return _chat_policy("openai", model, options)


def _chat_policy(kind: str, model: str, options: dict[str, Any]) -> ChatPolicy:
    own = [p for p in inspect.signature(model_class(kind)).parameters if p != "self"][1:]
    known = sorted({*_SAMPLING, *_BUDGET, *own})
    for option in options:
        if option not in known:
            there = ", ".join(known)
            raise ConfigError(f"policy {kind!r} has no option {option!r}{closest(option, known)}; there are: {there}")
    sampling: dict[str, Any] = {k: v for k, v in options.items() if k in _SAMPLING}
    if "stop" in sampling:
        stop = sampling["stop"]
        sampling["stop"] = (stop,) if isinstance(stop, str) else tuple(stop)
    budget: dict[str, Any] = {k: v for k, v in options.items() if k in _BUDGET}
    # Checked before a model is loaded, which may take minutes.
    drawn, limits = Sampling(**sampling), Budget(**budget)
    loaded = make_model(f"{kind}:{model}", **{k: v for k, v in options.items() if k in own})
    return ChatPolicy(loaded, drawn, budget=limits)
