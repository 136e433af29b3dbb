"""The sequential engine against bash: every case over every corpus, bytes, exit code and messages."""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from grepseek_env.commands import parse
from grepseek_env.config import Limits
from grepseek_env.corpus.store import CorpusStore
from grepseek_env.engine.local import LocalBackend
from grepseek_env.engine.programs import open_programs
from grepseek_env.engine.sandbox import LOCALES, Sandbox
from grepseek_env.engine.sequential import run_sequential
from grepseek_env.errors import CommandRefused
from tests.support.odd_corpora import odd, ordinary
from tests.support.oracle import DEADLINE, cases, oracle, write_views

if TYPE_CHECKING:
    from pathlib import Path

    from grepseek_env.commands import Pipeline
    from grepseek_env.types import CommandResult
    from tests.support.oracle import Outcome


FAST = {
    ("ordinary", "C"),
    ("bad_utf8", "C.UTF-8"),
    ("nul", "C"),
}


@functools.cache
def accepted() -> dict[str, Pipeline]:
    pipelines = {}
    for kind, command in cases():
        try:
            pipelines[command] = parse(command)
        except CommandRefused:
            if kind == "must":
                raise
    return pipelines


@pytest.fixture(scope="module")
def views(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_views(tmp_path_factory.mktemp("views"))


def messages(done: CommandResult | Outcome) -> list[bytes]:
    return sorted(done.stderr.splitlines())


def may_stop_early(pipeline: Pipeline) -> bool:
    """Returns whether a program may end before those that feed it, which then race to say something before they die."""
    return any(
        argv[0] in {"head", "sed"} or not {"-q", "-m1", "corpus.jsonl"}.isdisjoint(argv) for argv in pipeline.argv[1:]
    )


def difference(command: str, ours: CommandResult, bash: Outcome) -> str:
    same = (
        ours.stdout == bash.stdout
        and ours.exit_code == bash.exit_code
        and (messages(ours) == messages(bash) or may_stop_early(parse(command)))
        and not ours.timed_out
        and not ours.output_truncated
    )
    if same:
        return ""
    return (
        f"{command}\n  ours {ours.exit_code} {ours.stdout[:200]!r} {ours.stderr[:200]!r}"
        f"\n  bash {bash.exit_code} {bash.stdout[:200]!r} {bash.stderr[:200]!r}"
    )


# The corpora that are refused when prepared are run too: the executor itself must not care what is in the file.
@pytest.mark.parametrize(
    ("corpus", "locale"),
    [
        pytest.param(name, locale, marks=() if (name, locale) in FAST else pytest.mark.slow)
        for name in ("ordinary", *odd())
        for locale in LOCALES
        if locale == "C" or name in {"ordinary", "bad_utf8", "crlf"}  # the other one where characters matter
    ],
)
def test_equals_bash(corpus: str, locale: str, views: dict[str, Path]) -> None:
    programs = open_programs()
    sandbox = Sandbox(programs, views[corpus], Limits(), locale)

    def compare(item: tuple[str, Pipeline]) -> str:
        command, pipeline = item
        ours = run_sequential(pipeline, sandbox, timeout=DEADLINE)
        return difference(command, ours, oracle(command, views[corpus], programs.folder, locale=locale))

    with ThreadPoolExecutor(2) as pool:
        wrong = [text for text in pool.map(compare, accepted().items()) if text]
    assert not wrong, "\n".join(wrong)


def test_the_backend_equals_bash_too(tmp_path: Path) -> None:
    (tmp_path / "some name.jsonl").write_bytes(ordinary(300))
    commands = list(accepted())
    with CorpusStore.open(tmp_path / "some name.jsonl") as store, LocalBackend(store) as backend:
        results = backend.run_many(commands, timeout=DEADLINE)
        wrong = [
            difference(command, ours, oracle(command, store.view, backend.program_dir))  # type: ignore[arg-type]
            for command, ours in zip(commands, results, strict=True)
        ]
    assert not any(wrong), "\n".join(filter(None, wrong))


@pytest.mark.parametrize("budget", [0, 1, 63, 64, 4096, 65536, 65537, 10_000_000])
@pytest.mark.parametrize(
    "command", ["cat corpus.jsonl", "rg -F Einstein corpus.jsonl | tr a-z A-Z", "head -c 4096 corpus.jsonl"]
)
def test_a_budget_keeps_exactly_the_first_bytes(command: str, budget: int, views: dict[str, Path]) -> None:
    sandbox = Sandbox(open_programs(), views["huge_line"])
    whole = oracle(command, views["huge_line"], sandbox.programs.folder)
    ours = run_sequential(parse(command), sandbox, timeout=DEADLINE, max_output_bytes=budget)
    cut = len(whole.stdout) > budget
    assert ours.stdout == whole.stdout[:budget]
    assert ours.output_truncated is cut
    assert ours.exit_code == (None if cut else whole.exit_code)
