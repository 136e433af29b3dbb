"""A runner that stands behind one that narrows, and notes what is left to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grepseek_env.engine.modes import Engine, SequentialRunner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grepseek_env.commands import Pipeline
    from grepseek_env.engine.executor import Cancellation
    from grepseek_env.types import CommandResult

__all__ = ["Elsewhere"]


class Elsewhere:
    """Notes what is not narrowed."""

    def __init__(self, engine: Engine) -> None:
        self.commands: list[str] = []
        self.inner = SequentialRunner(engine)

    def run(
        self,
        pipeline: Pipeline,
        *,
        timeout: float,
        max_output_bytes: int | None = None,
        cancels: Sequence[Cancellation] = (),
    ) -> CommandResult:
        self.commands.append(pipeline.text)
        return self.inner.run(pipeline, timeout=timeout, max_output_bytes=max_output_bytes, cancels=cancels)

    def explain(self, pipeline: Pipeline) -> str:
        return f"otherwise {pipeline.text}"
