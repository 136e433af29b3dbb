"""Frozen records that cross layers, and the protocol that every engine offers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

    from grepseek_env.errors import GrepSeekError

__all__ = [
    "Action",
    "CommandResult",
    "EvidenceStep",
    "FinalAnswer",
    "MalformedAction",
    "Question",
    "SearchBackend",
    "ToolCall",
]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The policy asks for a command to be run.

    Attributes:
        command: the command exactly as the policy wrote it, not yet checked.
        well_formed: the whole turn keeps to the transcript format (reasoning, then exactly this action).
    """

    command: str
    well_formed: bool = True


@dataclass(frozen=True, slots=True)
class FinalAnswer:
    """The policy answers and so ends the episode.

    Attributes:
        answer: the answer with surrounding white space removed.
        well_formed: the whole turn keeps to the transcript format.
    """

    answer: str
    well_formed: bool = True


@dataclass(frozen=True, slots=True)
class MalformedAction:
    """A turn in which no action can be read; it costs the turn and `message` becomes the observation.

    Attributes:
        reason: short machine-readable name, such as ``"no-action"``.
        message: stable text for the policy.
    """

    reason: str
    message: str


Action: TypeAlias = ToolCall | FinalAnswer | MalformedAction


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What a command did.

    Attributes:
        stdout: the last stage's output, at most `max_output_bytes` of it.
        stderr: messages of all stages, in stage order, bounded.
        exit_code: the last stage's code (128 + s for death by signal s); None when the output was cut or time ran out.
        output_truncated: stdout is exactly the first `max_output_bytes` bytes of what there would have been.
        timed_out: the deadline passed; stdout holds what had been produced by then.
    """

    stdout: bytes
    stderr: bytes
    exit_code: int | None
    output_truncated: bool = False
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class EvidenceStep:
    """One hop of a question's evidence chain.

    Attributes:
        question: the sub-question in words.
        answer: its answer; for all but the last hop this is the bridge entity.
        aliases: other accepted forms of `answer`.
        passage_id: the `id` of the corpus passage that supports it.
        subject: the entity that the sub-question asks about, as the passage writes it.
    """

    question: str
    answer: str
    passage_id: str
    subject: str
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its golden answers.

    Attributes:
        id: unique within its set.
        question: the text the policy sees.
        golden_answers: accepted answers, aliases included; at least one.
        evidence: the evidence chain in time order; empty where it is not known.
        metadata: anything else that the source says (kind, hops, ...), JSON values only.
    """

    id: str
    question: str
    golden_answers: tuple[str, ...]
    evidence: tuple[EvidenceStep, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class SearchBackend(Protocol):
    """Runs commands over one corpus. Every implementation returns the same bytes and exit codes."""

    @property
    def program_dir(self) -> Path:
        """The folder that holds exactly the programs which commands run."""

    @property
    def corpus_digest(self) -> str:
        """Hexadecimal SHA-256 of the corpus."""

    def run(self, command: str, *, timeout: float | None = None, max_output_bytes: int | None = None) -> CommandResult:
        """Runs one command.

        Args:
            command: text in the command language.
            timeout: seconds of run time; None takes the backend's own limit.
            max_output_bytes: stdout is cut after this many bytes; None returns all of it.

        Raises:
            CommandRefused: the command is outside the command language.
            CorpusChanged: the corpus is not the one that was opened.
            EngineFault: the infrastructure failed.
        """

    def run_many(
        self, commands: Sequence[str], *, timeout: float | None = None, max_output_bytes: int | None = None
    ) -> list[CommandResult | GrepSeekError]:
        """Runs several commands; a refused or failed one is returned as its exception, in its place."""

    def explain(self, command: str) -> str:
        """Says in words how the command would be executed."""

    def close(self) -> None:
        """Frees everything; calling it again does nothing."""

    def __enter__(self) -> Self:
        """Returns itself; `close` follows at the end of the block."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes."""
