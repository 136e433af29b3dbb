"""The plainest way to run a command: the whole pipeline, once, over the whole corpus.

Every other way has to give the same bytes and exit codes as this one, which has to give those of bash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from grepseek_env.engine.executor import execute

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grepseek_env.commands import Pipeline
    from grepseek_env.engine.executor import Cancellation
    from grepseek_env.engine.sandbox import Sandbox
    from grepseek_env.types import CommandResult

__all__ = ["explain_sequential", "run_sequential"]


def run_sequential(
    pipeline: Pipeline,
    sandbox: Sandbox,
    *,
    timeout: float,
    max_output_bytes: int | None = None,
    cancels: Sequence[Cancellation] = (),
) -> CommandResult:
    """Runs a checked pipeline as it stands; see `execute` for the arguments and errors."""
    return execute(pipeline.argv, sandbox, timeout=timeout, max_output_bytes=max_output_bytes, cancels=cancels)


def explain_sequential(pipeline: Pipeline, sandbox: Sandbox) -> str:
    """Says what `run_sequential` would start, one line a program."""
    versions = sandbox.programs.versions
    lines = [f"sequential: one process a program, no shell, in {sandbox.view}, locale {sandbox.locale}"]
    lines += [f"  {number}. {argv!r}  {versions[argv[0]]}" for number, argv in enumerate(map(list, pipeline.argv), 1)]
    return "\n".join(lines)
