"""Runs programs on lines that are found in this process, through a pipe."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from grepseek_env.engine.loop import Bounds, Decided, Loop, OutOfTime
from grepseek_env.engine.once import Once, Output
from grepseek_env.errors import EngineFault
from grepseek_env.types import CommandResult

if TYPE_CHECKING:
    from grepseek_env.engine.fastpath import Search
    from grepseek_env.engine.plan import Argv
    from grepseek_env.engine.sandbox import Sandbox

__all__ = ["Clock", "feed"]


class Clock:
    """Looks at the clock and at cancellations, and lets held signals through.

    Attributes:
        once: the programs that are given lines, where there are any.
    """

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._ends = time.monotonic() + bounds.timeout
        self._loop: Loop | None = None
        self.once: Once | None = None

    @property
    def loop(self) -> Loop:
        """Where programs are waited for; made when it is first needed."""
        if self._loop is None:
            left = max(self._ends - time.monotonic(), 0)
            bounds = self._bounds
            self._loop = Loop(Bounds(left, bounds.max_output_bytes, bounds.cancels, bounds.signals))
        return self._loop

    def check(self) -> None:
        """Does what is to be done now.

        Raises:
            OutOfTime: the deadline has passed.
            BackendClosed: the command was cancelled.
            Decided: nobody wants more lines.
        """
        self.loop.turn(0)
        self._look()

    def pump(self) -> None:
        """Waits until something happens; raises what `check` does."""
        self.loop.turn(blind=self.once is not None and self.once.blind)
        self._look()

    def _look(self) -> None:
        if self.once is not None and self.once.blind:
            self.once.look()


def feed(
    argvs: tuple[Argv, ...], search: Search, sandbox: Sandbox, bounds: Bounds, clock: Clock, output: Output
) -> CommandResult | None:
    """Runs programs on lines; None where what they wrote on stderr, or how they ended, may come from that.

    Args:
        argvs: the programs.
        search: finds the lines.
        sandbox: how programs are started.
        bounds: what ends them early.
        clock: of these bounds.
        output: keeps what they print, or what a last program that was not started would make of it.
    """
    timed_out = False
    with sandbox.environment(argvs) as environment:
        once = clock.once = Once(clock.loop, output, argvs, sandbox.limits.stderr_bytes)
        try:
            try:
                with contextlib.suppress(Decided):
                    once.start(sandbox, environment, bounds.timeout)
                    search(lambda data: once.write(data, clock.pump), early=True)
                once.finish(clock.pump)
            except OutOfTime:
                timed_out = True
            finally:
                once.stop()
            messages = b"".join(once.messages())
            done = not output.cut and not timed_out
            if done and messages:
                return None
            try:
                if not timed_out:
                    once.check_not_killed()
                code = once.exit_code() if done else None
            except EngineFault:  # killed, perhaps by its limits: it then has to suffer from them by itself
                return None
        finally:
            once.close()
    if done:
        with contextlib.suppress(Decided):
            output.finish()
        code = None if output.cut else code if output.exit_code is None else output.exit_code
    return CommandResult(
        stdout=output.value(),
        stderr=messages,
        exit_code=code,
        output_truncated=output.cut,
        timed_out=timed_out and not output.cut,
    )
