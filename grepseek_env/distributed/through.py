"""Which pipelines may read the corpus on stdin in place of the file they name: those in whose output it cannot show."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from grepseek_env.commands.spec import Effect
from grepseek_env.engine.feeding import on_stdin
from grepseek_env.engine.planner import why_once

if TYPE_CHECKING:
    from grepseek_env.commands import Pipeline, Stage
    from grepseek_env.corpus.facts import CorpusFacts
    from grepseek_env.engine.plan import Argv

__all__ = ["through_stdin"]

# Options that see the whole stream, and show neither the file's name nor its size.
_NAMELESS = {
    "rg": (
        "-U", "--multiline-dotall", "--passthru", "--stop-on-nonmatch", "--crlf", "--include-zero",
        "--no-pcre2-unicode", "--field-match-separator", "--field-context-separator",
        "--regex-size-limit", "--dfa-size-limit",
    ),
    "grep": ("-z",),
    "sed": ("-l", "-z", "--posix", "-b"),
    "head": ("-z",),
    "tail": ("-z",),
    "cat": ("-b", "-s"),
    "sort": ("-z", "-S", "--parallel", "--batch-size"),
    "cut": ("-z",),
    "uniq": ("-D", "--all-repeated", "--group", "-z"),
    "awk": (),
    "tr": (),
}  # fmt: skip
_SED_REGEX = re.compile(r"[sy]/(?:\\.|[^/\\])*/(?:\\.|[^/\\])*/|/(?:\\.|[^/\\])*/", re.DOTALL)
_SED_OTHER_DELIMITER = re.compile(r"[sy][^/\w\s;}]|(?:^|[;{,\s])\\")


def through_stdin(pipeline: Pipeline, corpus: CorpusFacts) -> tuple[Argv, ...] | None:
    """Returns the programs with the first reading its stdin; None where that may show, or it reads something else.

    What they say on stderr may still differ.
    """
    first = pipeline.stages[0]
    if why_once(pipeline, corpus) is not None or _shows_file(first):
        return None
    return on_stdin(pipeline, pipeline.argv)


def _shows_file(stage: Stage) -> bool:
    nameless = _NAMELESS.get(stage.program)
    if nameless is None:
        return True
    whole = [option.spec for option in stage.options if option.effect is Effect.OPAQUE]
    names = any(option.effect is Effect.NAME for option in stage.options)
    if names or any(set(nameless).isdisjoint(spec.names) for spec in whole):
        return True
    return stage.program == "sed" and any(map(_may_print_name, stage.argv[1:]))


def _may_print_name(script: str) -> bool:
    """Returns whether there may be a command F, which prints the file's name, in a sed script."""
    if "F" not in script:
        return False
    return bool(_SED_OTHER_DELIMITER.search(script)) or "F" in _SED_REGEX.sub("", script)
