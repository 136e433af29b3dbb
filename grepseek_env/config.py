"""Validated options: `Limits`, `RewardConfig`, `EnvConfig`.

Each is a frozen dataclass that checks its values when it is built; `from_dict` names unknown keys.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from grepseek_env.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["EnvConfig", "Limits", "RewardConfig", "closest", "from_dict"]

T = TypeVar("T")


def closest(word: object, known: Sequence[str]) -> str:
    """Returns " (did you mean 'x'?)" for a near miss, else an empty string."""
    near = difflib.get_close_matches(word, known, n=1) if isinstance(word, str) else []
    return f" (did you mean {near[0]!r}?)" if near else ""


def from_dict(cls: type[T], values: Mapping[str, Any]) -> T:
    """Builds a config dataclass from plain values.

    Raises:
        ConfigError: a key is unknown (named, with the nearest known one) or a value is not allowed.
    """
    known = [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]
    for key in values:
        if key not in known:
            raise ConfigError(
                f"{cls.__name__} has no option {key!r}{closest(key, known)}; known options: {', '.join(known)}"
            )
    return cls(**values)


def _check(owner: object, name: str, *, choices: Sequence[object] = (), kind: type | None = None) -> None:
    value = getattr(owner, name)
    label = f"{type(owner).__name__}.{name}"
    if choices and value not in choices:
        raise ConfigError(f"{label} is {value!r}; it must be one of {', '.join(map(repr, choices))}")
    if kind is not None and not isinstance(value, kind):
        raise ConfigError(f"{label} is {value!r}; it must be a {kind.__name__}")


def _check_number(owner: object, name: str, minimum: float, *, whole: bool = True, finite: bool = True) -> None:
    """Checks a number; a fraction where a count is meant would fail later, in the middle of an episode."""
    value = getattr(owner, name)
    kinds = (int,) if whole else (int, float)
    fits = isinstance(value, kinds) and not isinstance(value, bool) and value >= minimum
    if not fits or (finite and not math.isfinite(value)):
        noun = "a whole number" if whole else "a number"
        raise ConfigError(f"{type(owner).__name__}.{name} is {value!r}; it must be {noun} of at least {minimum}")


@dataclass(frozen=True, slots=True)
class Limits:
    """What one command may use.

    Attributes:
        command_timeout: seconds of run time (the paper: 60 at inference, 180 in training).
        cpu_seconds: processor seconds of each program, all its threads together (RLIMIT_CPU); None: the timeout
            rounded up plus one, for each core that sort may use.
        memory_bytes: address space of each program (RLIMIT_AS).
        temp_file_bytes: size of each temporary file, such as those of a sort that spills (RLIMIT_FSIZE).
        open_files: descriptors of each program (RLIMIT_NOFILE).
        stderr_bytes: messages kept of each program.
    """

    command_timeout: float = 60.0
    cpu_seconds: int | None = None
    memory_bytes: int = 4 << 30
    temp_file_bytes: int = 4 << 30
    open_files: int = 64
    stderr_bytes: int = 16 << 10

    def __post_init__(self) -> None:
        _check_number(self, "command_timeout", 0.001, whole=False, finite=False)
        if self.cpu_seconds is not None:
            _check_number(self, "cpu_seconds", 1)
        _check_number(self, "memory_bytes", 64 << 20)
        _check_number(self, "temp_file_bytes", 0)
        _check_number(self, "open_files", 16)
        _check_number(self, "stderr_bytes", 256)


@dataclass(frozen=True, slots=True)
class RewardConfig:
    """How an answer is scored.

    Attributes:
        metric: token F1 or exact match against the best golden answer.
        format: "bonus" adds `format_weight` when the transcript keeps to the format, so the reward runs from 0 to
            1 + `format_weight`; "gate" gives 0 unless it does; "off" ignores it.
        format_weight: size of the bonus.
        yes_no_rule: HotpotQA's rule that yes, no and noanswer match only exactly; off in plain SQuAD scoring.
    """

    metric: Literal["f1", "em"] = "f1"
    format: Literal["bonus", "gate", "off"] = "bonus"
    format_weight: float = 0.1
    yes_no_rule: bool = False

    def __post_init__(self) -> None:
        _check(self, "metric", choices=("f1", "em"))
        _check(self, "format", choices=("bonus", "gate", "off"))
        _check_number(self, "format_weight", 0, whole=False)

    @classmethod
    def preset(cls, name: str) -> RewardConfig:
        """Returns "default" (F1 + 0.1 x format) or "paper" (F1 if the format is valid, else 0; arXiv 2605.29307).

        Raises:
            ConfigError: no preset has this name.
        """
        match name:
            case "default":
                return cls()
            case "paper":
                return cls(format="gate")
            case _:
                raise ConfigError(f"no reward preset is named {name!r}; presets are 'default' and 'paper'")


@dataclass(frozen=True, slots=True)
class EnvConfig:
    """Rules of an episode.

    Attributes:
        action_format: name of an entry of ACTION_FORMATS.
        max_turns: policy turns, the one with the answer included (the paper: 6).
        max_observation_tokens: cap on tool output in tokens of the given tokenizer (the paper: 2,048).
        max_observation_chars: cap on tool output in characters, used where no tokenizer is given; four characters a
            token is a common rule of thumb for English.
        reward: how the answer is scored.
        limits: what one command may use.
    """

    action_format: str = "hermes"
    max_turns: int = 6
    max_observation_tokens: int = 2048
    max_observation_chars: int = 8192
    reward: RewardConfig = field(default_factory=RewardConfig)
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        _check_number(self, "max_turns", 1)
        _check_number(self, "max_observation_tokens", 1)
        _check_number(self, "max_observation_chars", 1)
        _check(self, "reward", kind=RewardConfig)
        _check(self, "limits", kind=Limits)
