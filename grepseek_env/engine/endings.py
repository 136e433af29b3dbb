"""What head and wc would make of the output of programs, made here: one program less to start."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from grepseek_env.engine.literals.records import CountBytes, CountLines, HeadLines
from grepseek_env.engine.loop import Decided
from grepseek_env.engine.once import Output

if TYPE_CHECKING:
    from grepseek_env.engine.literals.records import Sink

__all__ = ["Ending", "is_ending", "output_of"]

Ending: TypeAlias = HeadLines | CountLines | CountBytes


def is_ending(sink: Sink | None) -> bool:
    """Returns whether a last program that does this need not be started; `head -n 0` reads nothing and is."""
    match sink:
        case HeadLines(lines):
            return lines > 0
        case CountLines() | CountBytes():
            return True
        case _:
            return False


def output_of(ending: Sink | None, max_bytes: int | None) -> Output:
    """Returns what keeps the output of programs, as far as the last one, which was not started, would print it.

    Args:
        ending: what it would do; None: all programs were started.
        max_bytes: how much is kept; None keeps all.
    """
    match ending:
        case HeadLines(lines):
            return _FirstLines(lines, max_bytes)
        case CountLines() | CountBytes():
            return _Count(max_bytes, by_bytes=isinstance(ending, CountBytes))
        case _:
            return Output(max_bytes)


class _FirstLines(Output):
    """Keeps the first lines."""

    exit_code = 0

    def __init__(self, lines: int, max_bytes: int | None) -> None:
        super().__init__(max_bytes)
        self._left = lines

    @property
    def full(self) -> bool:
        return self.cut or not self._left

    def write(self, data: bytes | memoryview) -> None:
        data = bytes(data)
        at = 0
        while self._left and (found := data.find(b"\n", at)) >= 0:
            self._left -= 1
            at = found + 1
        super().write(data if self._left else data[:at])
        if not self._left:
            raise Decided


class _Count(Output):
    """Counts instead of keeping."""

    exit_code = 0

    def __init__(self, max_bytes: int | None, *, by_bytes: bool) -> None:
        super().__init__(max_bytes)
        self._by_bytes = by_bytes
        self._count = 0

    def write(self, data: bytes | memoryview) -> None:
        self._count += len(data) if self._by_bytes else bytes(data).count(b"\n")

    def finish(self) -> None:
        super().write(b"%d\n" % self._count)
