"""Arguments for programs that get a slice on stdin instead of by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grepseek_env.commands.parser import split
from grepseek_env.commands.spec import Effect
from grepseek_env.engine.work import copies

if TYPE_CHECKING:
    from grepseek_env.commands.syntax import Pipeline
    from grepseek_env.engine.plan import Argv

__all__ = ["file_indices", "on_stdin"]

_AWK_NAMES = ("FILENAME", "ARGV", "ARGC", "ARGIND")


def file_indices(pipeline: Pipeline, number: int) -> tuple[int, ...]:
    """Returns where in the argv of stage `number` its inputs are named; `-` counts.

    The same word may also be a pattern or a flag's value, so places in the text are compared, not words.
    """
    stage = pipeline.stages[number]
    if not stage.files:
        return ()
    spans = {operand.span for operand in stage.files}
    words, _ = split(pipeline.text)[number]
    return tuple(index for index, word in enumerate(words) if word.span in spans)


def on_stdin(pipeline: Pipeline, mapped: tuple[Argv, ...]) -> tuple[Argv, ...] | None:
    """Returns `mapped` with its first program reading stdin, or None where the file's name shows.

    Args:
        pipeline: its first stage names the corpus and nothing else.
        mapped: the sliced programs.
    """
    first = pipeline.stages[0]
    argv = mapped[0]
    if copies(first) and len(mapped) > 1:
        following = mapped[1]
        # rg without a file looks at what its stdin is; told so, it need not.
        named = following[0] != "rg" or pipeline.stages[1].files
        return (following if named else (*following, "-"), *mapped[2:])
    index = file_indices(pipeline, 0)[0] if argv == first.argv else len(argv) - 1  # uniq -c in place of uniq -d
    shown = [option for option in first.options if option.effect is Effect.NAME]
    match first.program:
        case "grep" if all("-H" in option.spec.names for option in shown):
            # Both its prefix and its messages then bear the corpus's name.
            changed = (argv[0], f"--label={argv[index]}", *argv[1:index], "-", *argv[index + 1 :])
        case "wc":
            changed = (*argv[:index], *argv[index + 1 :])  # the label is put back when the counts are added up
        case "awk" if any(name in word for word in argv[1:] for name in _AWK_NAMES):
            return None
        case _ if shown:
            return None
        case _:
            changed = (*argv[:index], "-", *argv[index + 1 :])
    return (changed, *mapped[1:])
