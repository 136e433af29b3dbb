"""Every exception this package raises on purpose.

    GrepSeekError
    ├── ConfigError            an option has a value that cannot work (also a ValueError)
    ├── CommandRefused         the command language does not allow this command (also a ValueError)
    ├── EpisodeError           the environment was used out of order, such as step() before reset()
    ├── CorpusError            something about the corpus
    │   ├── CorpusNotFound     no such file, folder or name (also a FileNotFoundError)
    │   ├── CorpusInvalid      the file's content cannot be used; names the line
    │   └── CorpusChanged      the file is not the one that was prepared
    ├── QuestionsError         a question file or set cannot be used; names file and line
    ├── TrajectoryError        a trajectory file cannot be used; names file and line
    ├── SourceUnavailable      a public source (Hub, data set) cannot be reached
    └── EngineFault            the infrastructure failed, not the policy
        ├── ProgramMissing     rg, grep, ... is not installed
        ├── SpawnFailed        the operating system would not start a program
        ├── LauncherLost       the confined process that starts programs died under a command
        ├── PartLost           the host of a part of the corpus was lost under a command, twice
        ├── SandboxMissing     the operating system cannot confine programs as was required
        └── BackendClosed      used after close()

A policy's own mistake is no exception inside an episode: `CommandRefused` becomes an observation. An
`EngineFault` or `CorpusChanged` ends the episode with `reward_valid=False`; it is never a reward to learn from.
"""

from __future__ import annotations

__all__ = [
    "BackendClosed",
    "CommandRefused",
    "ConfigError",
    "CorpusChanged",
    "CorpusError",
    "CorpusInvalid",
    "CorpusNotFound",
    "EngineFault",
    "EpisodeError",
    "GrepSeekError",
    "LauncherLost",
    "PartLost",
    "ProgramMissing",
    "QuestionsError",
    "SandboxMissing",
    "SandboxWarning",
    "SourceUnavailable",
    "SpawnFailed",
    "TrajectoryError",
]


class GrepSeekError(Exception):
    """Root of every error raised on purpose by this package."""


class ConfigError(GrepSeekError, ValueError):
    """An option has a value that cannot work; the message names option, value and the accepted values."""


class CommandRefused(GrepSeekError, ValueError):
    """A command outside the command language.

    `str(error)` is the caret message: what is wrong, the command with the offending span underlined, and what to
    write instead. It is stable text, since a policy is trained on it.

    Attributes:
        reason: a short machine-readable name of the rule, such as ``"unknown-flag"``.
        start: index of the first offending character of the command.
        end: index after the last offending character.
    """

    def __init__(self, message: str, *, reason: str = "refused", start: int = 0, end: int = 0) -> None:
        super().__init__(message)
        self.reason = reason
        self.start = start
        self.end = end

    def __reduce__(self) -> tuple[object, ...]:
        return _refused, (str(self), self.reason, self.start, self.end)


def _refused(message: str, reason: str, start: int, end: int) -> CommandRefused:
    return CommandRefused(message, reason=reason, start=start, end=end)


class EpisodeError(GrepSeekError, RuntimeError):
    """The environment was used out of order, such as `step()` before `reset()` or after the end."""


class CorpusError(GrepSeekError):
    """Something about the corpus."""


class CorpusNotFound(CorpusError, FileNotFoundError):
    """No such corpus file, folder or name."""


class CorpusInvalid(CorpusError, ValueError):
    """The corpus cannot be used; the message names the file, the line and the next thing to try."""


class CorpusChanged(CorpusError):
    """The corpus file is not the one that was prepared: its content changed or it was replaced."""


class QuestionsError(GrepSeekError, ValueError):
    """A question file or set cannot be used; the message names file and line."""


class TrajectoryError(GrepSeekError, ValueError):
    """A trajectory file cannot be used; the message names file and line."""


class SourceUnavailable(GrepSeekError, OSError):
    """A public source cannot be reached from here; the message says what would have been loaded from where."""


class EngineFault(GrepSeekError, RuntimeError):
    """The infrastructure failed, not the policy: never a reward of 0 to learn from."""


class ProgramMissing(EngineFault):
    """A program of the command language is not installed, or is not the GNU version that is needed."""


class SpawnFailed(EngineFault):
    """The operating system would not start a program (out of processes, descriptors or memory)."""


class LauncherLost(EngineFault):
    """The confined process that starts programs died, and the programs with it; a command is run once more.

    Attributes:
        untold: it died before it was told what to do, so nothing of it was done.
    """

    def __init__(self, message: str, *, untold: bool = False) -> None:
        super().__init__(message)
        self.untold = untold


class PartLost(EngineFault):
    """The host that keeps a part of the corpus was lost under a command, and again when the command was repeated."""


class SandboxMissing(EngineFault):
    """`sandbox="require"` was asked for and a layer is not available; the message names it."""


class SandboxWarning(UserWarning):
    """Programs run with less confinement than there could be; said once a process."""


class BackendClosed(EngineFault):
    """A backend was used after `close()`."""
