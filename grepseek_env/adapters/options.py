"""How rollouts inside a trainer are played: from environment variables, since trainers pass agents no arguments."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from grepseek_env.config import closest
from grepseek_env.engine.sandbox import check_confine
from grepseek_env.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PREFIX", "AgentOptions"]

PREFIX = "GREPSEEK_AGENT_"


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """How rollouts are played.

    Attributes:
        corpus: path or name, the same on every host.
        daemon: where commands run. "start": in the daemon of the corpus on this host, which is started where there is
            none; "find": in one that is there, else in this process; "off": in this process; or an address.
        sandbox: what the operating system keeps programs from: "auto", "require" or "off". See `open_backend`.
        action_format: name of an entry of ACTION_FORMATS.
        max_turns: policy turns of an episode, the answer included.
        max_observation_tokens: cap on tool output, in tokens of the model's tokenizer.
        reward: name of a reward preset.
        command_timeout: seconds.
        turn_tokens: cap on one turn.
        least_tokens: an episode with room for fewer tokens than these ends as "budget".
        chat_template: file with a Jinja template, "chatml", or empty for the tokenizer's own.
        system_prompt: file with a template of the system message; empty for the package's own.
        threads: commands that wait for their results at once, in one process.
        fault_retries: times a command is run again after a failure of the infrastructure, with doubling waits.
        record: folder for the trajectories, one file a process; empty for none.
    """

    corpus: str = "world:tiny"
    daemon: str = "start"
    sandbox: str = "auto"
    action_format: str = "hermes"
    max_turns: int = 6
    max_observation_tokens: int = 2048
    reward: str = "default"
    command_timeout: float = 180.0
    turn_tokens: int = 2048
    least_tokens: int = 16
    chat_template: str = ""
    system_prompt: str = ""
    threads: int = 64
    fault_retries: int = 4
    record: str = ""

    def __post_init__(self) -> None:
        for name, least in (("turn_tokens", 1), ("least_tokens", 1), ("threads", 1), ("fault_retries", 0)):
            value = getattr(self, name)
            if value < least:
                raise ConfigError(f"{PREFIX}{name.upper()} is {value!r}; it must be at least {least}")
        check_confine(self.sandbox)

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] | None = None) -> AgentOptions:
        """Reads ``GREPSEEK_AGENT_CORPUS`` and so on; what is unset or empty keeps its default.

        Raises:
            ConfigError: a variable of this prefix names no option, or its value cannot be used.
        """
        environ = os.environ if environ is None else environ
        kinds = {f"{PREFIX}{f.name.upper()}": f for f in fields(cls)}
        given: dict[str, str | int | float] = {}
        for key, text in environ.items():
            if not key.startswith(PREFIX) or not text:
                continue
            if key not in kinds:
                raise ConfigError(f"{key} is set, and there is no such option{closest(key, list(kinds))}")
            given[kinds[key].name] = _value(key, text, type(kinds[key].default))
        return cls(**given)  # type: ignore[arg-type]

    def to_environ(self) -> dict[str, str]:
        """Returns the variables that `from_environ` reads back; those with their default are left out."""
        default = AgentOptions()
        names = [f.name for f in fields(self) if getattr(self, f.name) != getattr(default, f.name)]
        return {f"{PREFIX}{name.upper()}": str(getattr(self, name)) for name in names}


def _value(key: str, text: str, kind: type) -> str | int | float:
    try:
        return kind(text)  # type: ignore[no-any-return]
    except ValueError as e:
        raise ConfigError(f"{key} is {text!r}; it must be {'a whole number' if kind is int else 'a number'}") from e
