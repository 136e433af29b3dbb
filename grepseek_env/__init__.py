"""A Gymnasium environment for search agents that read a raw text corpus with shell commands.

    import gymnasium
    import grepseek_env  # registers the ids

    env = gymnasium.make("GrepSeek-v0")

Importing this package registers `GrepSeek-v0` and loads nothing heavy; names below load on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gymnasium.envs.registration import register

if TYPE_CHECKING:
    from grepseek_env.backend import open_backend
    from grepseek_env.config import EnvConfig, Limits, RewardConfig
    from grepseek_env.corpus.store import CorpusStore
    from grepseek_env.env import GrepSeekEnv
    from grepseek_env.token_view import TokensWrapper
    from grepseek_env.trajectory import Trajectory
    from grepseek_env.types import CommandResult, Question, SearchBackend
    from grepseek_env.vector import GrepSeekVectorEnv
    from grepseek_env.wrappers import MessagesWrapper

__version__ = "0.1.0"

__all__ = [
    "CommandResult",
    "CorpusStore",
    "EnvConfig",
    "GrepSeekEnv",
    "GrepSeekVectorEnv",
    "Limits",
    "MessagesWrapper",
    "Question",
    "RewardConfig",
    "SearchBackend",
    "TokensWrapper",
    "Trajectory",
    "__version__",
    "open_backend",
]

_LAZY = {
    "CommandResult": "grepseek_env.types",
    "CorpusStore": "grepseek_env.corpus.store",
    "EnvConfig": "grepseek_env.config",
    "GrepSeekEnv": "grepseek_env.env",
    "GrepSeekVectorEnv": "grepseek_env.vector",
    "Limits": "grepseek_env.config",
    "MessagesWrapper": "grepseek_env.wrappers",
    "Question": "grepseek_env.types",
    "RewardConfig": "grepseek_env.config",
    "SearchBackend": "grepseek_env.types",
    "TokensWrapper": "grepseek_env.token_view",
    "Trajectory": "grepseek_env.trajectory",
    "open_backend": "grepseek_env.backend",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


register(
    id="GrepSeek-v0",
    entry_point="grepseek_env.env:GrepSeekEnv",
    vector_entry_point="grepseek_env.vector:GrepSeekVectorEnv",
)
