"""One pass over the corpus for several commands: each piece is read once and searched for each of them.

A piece stays in the processor's cache while all commands look at it, so a pass for many costs much less than a pass
for each. A command whose lines have been found, or whose output is full, looks no further.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from grepseek_env.engine.fastpath import conclude, demand
from grepseek_env.engine.loop import Decided, OutOfTime
from grepseek_env.engine.scanning import Buffers, Scanner, read_pieces
from grepseek_env.types import CommandResult

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from grepseek_env.engine.literals.records import Sink
    from grepseek_env.engine.once import Output
    from grepseek_env.engine.question import Question
    from grepseek_env.engine.scanning import Write

__all__ = ["Asked", "answer_together"]


@dataclass(frozen=True, slots=True)
class Asked:
    """One command of a batch.

    Attributes:
        question: which lines it wants.
        sink: what becomes of them; not `Rest`.
        output: what it prints.
    """

    question: Question
    sink: Sink
    output: Output


class _Reader:
    """One command while the corpus passes by."""

    def __init__(self, asked: Asked, buffers: Buffers, check: Callable[[], None]) -> None:
        self.asked = asked
        need = demand(asked.sink, bounded=asked.output.bounded)
        self.wants_more = need.most_lines > 0
        self.scanner = Scanner(asked.question, check, buffers)
        self._write: Write | None = asked.output.write if need.written else None
        self.scanner.begin(self._write, need.most_lines)

    def look(self, end: int) -> None:
        """Looks at what is in the buffers."""
        try:
            self.wants_more = self.scanner.scan_buffer(end, self._write)
        except Decided:
            self.wants_more = False

    def result(self, *, timed_out: bool) -> CommandResult:
        """Returns what the command did."""
        output, code = self.asked.output, 0
        timed_out &= self.wants_more
        if not timed_out:
            with contextlib.suppress(Decided):
                code = conclude(self.asked.sink, self.scanner.lines, self.scanner.bytes, output)
        return CommandResult(
            stdout=output.value(),
            stderr=b"",
            exit_code=None if output.cut or timed_out else code,
            output_truncated=output.cut,
            timed_out=timed_out and not output.cut,
        )


def answer_together(
    file: int, size: int, asked: Sequence[Asked], check: Callable[[], None] = lambda: None
) -> list[CommandResult]:
    """Answers commands in one pass, in this thread.

    Args:
        file: a descriptor of the corpus.
        size: its bytes.
        asked: the commands.
        check: called every few milliseconds; `OutOfTime` that it raises ends those that want more.

    Raises:
        CorpusChanged: the file ends before `size`.
    """
    buffers = Buffers()
    readers = [_Reader(each, buffers, check) for each in asked]
    timed_out = False
    with contextlib.ExitStack() as stack:
        for reader in readers:
            stack.enter_context(reader.scanner)
        active = [reader for reader in readers if reader.wants_more]

        def look(end: int) -> bool:
            for reader in active:
                reader.look(end)
            active[:] = [reader for reader in active if reader.wants_more]
            return bool(active)

        try:
            if active:
                read_pieces(file, size, buffers, look, check)
        except OutOfTime:
            timed_out = True
        else:
            for reader in readers:
                reader.wants_more = False
        return [reader.result(timed_out=timed_out) for reader in readers]
