from __future__ import annotations

import dataclasses
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

from grepseek_env.commands import parse
from grepseek_env.config import Limits
from grepseek_env.engine import estimate, narrowed, scanning
from grepseek_env.engine.executor import Cancellation
from grepseek_env.engine.kernels import load
from grepseek_env.engine.modes import MODES, Engine, SequentialRunner
from grepseek_env.engine.narrowed import NarrowedRunner
from grepseek_env.errors import BackendClosed, CorpusChanged
from grepseek_env.types import CommandResult
from tests.support.elsewhere import Elsewhere
from tests.support.odd_corpora import ordinary
from tests.support.oracle import DEADLINE
from tests.support.slicing import Sliceable

if TYPE_CHECKING:
    from pathlib import Path

    from grepseek_env.engine.literals.records import Clause
    from grepseek_env.engine.scanning import Spans

needs_kernels = pytest.mark.skipif(not load.are_possible(), reason="numba cannot be imported here")

ANSWERED = "rg -F Einstein corpus.jsonl | head -n 3"
FED = "rg -F Einstein corpus.jsonl | sort -r | head -n 3"
REPLAYED = "rg 'Einstein.*[0-9]' corpus.jsonl | head -n 3"


@pytest.fixture
def corpus(tmp_path: Path) -> Sliceable:
    return Sliceable(tmp_path, ordinary(300))


@pytest.fixture
def engine(corpus: Sliceable) -> Engine:
    return Engine(corpus.sandbox, corpus.file, corpus.facts)


@needs_kernels
@pytest.mark.parametrize(
    "command",
    [
        ANSWERED,
        FED,
        REPLAYED,
        "rg -F Einstein corpus.jsonl",
        "rg -F Einstein corpus.jsonl | wc -l",
        "grep -F Einstein corpus.jsonl | wc -c",
        "grep -c Einstein corpus.jsonl",
        "rg -c QQQ corpus.jsonl",
        "grep -c QQQ corpus.jsonl",
        "rg -q Einstein corpus.jsonl",
        "rg -m 2 -F Einstein corpus.jsonl",
        "rg -F QQQ corpus.jsonl | head -n 0",
        "cat corpus.jsonl | grep -F Einstein | grep -v Ulm",
        "rg -F QQQ corpus.jsonl | awk 'END { print NR }'",
        "rg 'QQQ[0-9]' corpus.jsonl | wc -l",
        "rg 'QQQ[0-9]' corpus.jsonl",
    ],
)
def test_narrowed_is_what_bash_gives_and_does_not_go_elsewhere(corpus: Sliceable, engine: Engine, command: str) -> None:
    elsewhere = Elsewhere(engine)
    ours = NarrowedRunner(engine, elsewhere).run(parse(command), timeout=DEADLINE)
    wanted = corpus.wanted(command)
    assert (ours.stdout, ours.exit_code, ours.stderr) == wanted
    assert not elsewhere.commands


@pytest.mark.parametrize("mode", ["narrowed", "auto"])
@pytest.mark.parametrize(
    "command",
    [
        "rg '(Einstein' corpus.jsonl",  # a pattern that is none
        "rg '(Einstein' corpus.jsonl | wc -l",
        "grep -E 'Einstein(' corpus.jsonl | head -n 1",
        "rg -F Einstein corpus.jsonl | sort -k 0",
        "rg -F Einstein corpus.jsonl | cut -f",
        "rg Einstein nothing.jsonl",
        "wc -l corpus.jsonl",
    ],
)
def test_complaints_are_those_of_the_command_as_it_stands(
    corpus: Sliceable, engine: Engine, mode: str, command: str
) -> None:
    ours = MODES[mode](engine).run(parse(command), timeout=DEADLINE)
    assert (ours.stdout, ours.exit_code, ours.stderr) == corpus.wanted(command)


@needs_kernels
@pytest.mark.parametrize("mode", ["narrowed", "auto"])
@pytest.mark.parametrize("budget", [0, 1, 100, 10**6])
@pytest.mark.parametrize(
    "command",
    [ANSWERED, FED, "rg -F Einstein corpus.jsonl", "rg -F Einstein corpus.jsonl | wc -l", "rg -F Q corpus.jsonl"],
)
def test_output_is_cut_as_everywhere(corpus: Sliceable, engine: Engine, mode: str, command: str, budget: int) -> None:
    ours = MODES[mode](engine).run(parse(command), timeout=DEADLINE, max_output_bytes=budget)
    wanted = corpus.wanted(command)
    cut = len(wanted.stdout) > budget
    assert ours == CommandResult(wanted.stdout[:budget], b"", None if cut else wanted.exit_code, output_truncated=cut)


def test_output_of_exactly_the_budget_is_not_cut(corpus: Sliceable, engine: Engine) -> None:
    wanted = corpus.wanted(ANSWERED)
    ours = MODES["auto"](engine).run(parse(ANSWERED), timeout=DEADLINE, max_output_bytes=len(wanted.stdout))
    assert ours == CommandResult(wanted.stdout, b"", 0)


def test_a_small_corpus_is_searched_in_memory_and_starts_no_program(
    engine: Engine, corpus: Sliceable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(narrowed, "are_loaded", lambda: False)
    monkeypatch.setattr(narrowed, "load", lambda: pytest.fail("numba is not needed"))
    elsewhere = Elsewhere(engine)
    runner = NarrowedRunner(engine, elsewhere, "auto")
    assert runner.run(parse(ANSWERED), timeout=DEADLINE).stdout == corpus.wanted(ANSWERED).stdout
    assert runner.run(parse(FED), timeout=DEADLINE).stdout == corpus.wanted(FED).stdout
    assert not elsewhere.commands
    assert "held in memory" in runner.explain(parse(ANSWERED))
    assert runner.run(parse(REPLAYED), timeout=DEADLINE).stdout == corpus.wanted(REPLAYED).stdout
    assert not elsewhere.commands  # head need not be started
    alone = "rg 'Einstein.*[0-9]' corpus.jsonl"
    assert runner.run(parse(alone), timeout=DEADLINE).stdout == corpus.wanted(alone).stdout
    assert elsewhere.commands == [alone]  # the same program has to be started


@pytest.mark.parametrize(
    ("loaded", "compiled", "size", "where"),
    [
        (False, False, 1 << 20, "memory"),
        (True, True, 1 << 20, "kernels"),
        (False, False, 10 << 20, ""),
        (False, True, 10 << 20, "kernels"),
        (False, False, 1 << 30, "kernels"),
    ],
)
def test_auto_waits_for_a_compilation_only_where_it_pays(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, size: int, where: str, *, loaded: bool, compiled: bool
) -> None:
    monkeypatch.setattr(narrowed, "are_loaded", lambda: loaded)
    monkeypatch.setattr(narrowed, "are_compiled", lambda: compiled)
    monkeypatch.setattr(narrowed, "load", lambda: narrowed)
    large = dataclasses.replace(engine, facts=dataclasses.replace(engine.facts, bytes=size))
    runner = NarrowedRunner(large, Elsewhere(engine), "auto")
    assert runner._where(runner._prepare(parse(ANSWERED)), may_load=True) == where


def test_without_numba_all_goes_on(engine: Engine, corpus: Sliceable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(narrowed, "are_loaded", lambda: False)
    monkeypatch.setattr(narrowed, "load", lambda: None)
    monkeypatch.setattr(narrowed, "are_possible", lambda: False)
    monkeypatch.setattr(narrowed, "MOST_BYTES", 100)
    elsewhere = Elsewhere(engine)
    runner = NarrowedRunner(engine, elsewhere)
    assert runner.run(parse(ANSWERED), timeout=DEADLINE).stdout == corpus.wanted(ANSWERED).stdout
    assert elsewhere.commands == [ANSWERED]
    assert "numba cannot be imported" in runner.explain(parse(ANSWERED))


@needs_kernels
def test_an_index_is_opened_once_and_asked(engine: Engine, corpus: Sliceable) -> None:
    opened: list[int] = []
    asked: list[tuple[Clause, ...]] = []

    def open_index() -> narrowed.Index:
        opened.append(1)

        def parts(clauses: tuple[Clause, ...]) -> Spans:
            asked.append(clauses)
            return np.array([[0, len(corpus.data)]], np.int64)

        return parts

    runner = NarrowedRunner(dataclasses.replace(engine, open_index=open_index), Elsewhere(engine))
    for command in ("rg -F Einstein corpus.jsonl | rg -v -F Ulm | wc -l", FED, REPLAYED):
        assert runner.run(parse(command), timeout=DEADLINE).stdout == corpus.wanted(command).stdout
    texts = [[literal.text for literal in clauses[0]] for clauses in asked]
    assert opened == [1]
    assert texts == [[b"Einstein"]]  # the others were decided by the first bytes
    assert "1 part of the corpus by its index" in runner.explain(parse(ANSWERED))


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is looked at every few lines."""
    monkeypatch.setattr(scanning, "_STEP", 1)
    monkeypatch.setattr(scanning, "_BUFFER", 100)
    monkeypatch.setattr(scanning, "_LARGEST_KEPT", 0)
    monkeypatch.setattr(scanning, "_FREE", scanning._Free())


@needs_kernels
@pytest.mark.usefixtures("small_steps")
def test_a_closed_backend_stops_a_search(engine: Engine) -> None:
    cancel = Cancellation()
    cancel.set()
    with pytest.raises(BackendClosed):
        NarrowedRunner(engine, Elsewhere(engine)).run(
            parse("rg -F QQQ corpus.jsonl | wc -l"), timeout=DEADLINE, cancels=(cancel,)
        )


@needs_kernels
@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("command", ["rg -F Einstein corpus.jsonl", "rg -F Einstein corpus.jsonl | sort"])
def test_a_deadline_that_has_passed_is_told(engine: Engine, command: str) -> None:
    result = NarrowedRunner(engine, Elsewhere(engine)).run(parse(command), timeout=1e-9)
    assert result.timed_out
    assert result.exit_code is None


@needs_kernels
def test_a_truncated_corpus_is_a_fault_and_not_a_crash(engine: Engine) -> None:
    engine.corpus.write_bytes(engine.corpus.read_bytes()[:100])
    with pytest.raises(CorpusChanged, match="became shorter"):
        NarrowedRunner(engine, Elsewhere(engine)).run(parse("rg -F QQQ corpus.jsonl"), timeout=DEADLINE)


@needs_kernels
def test_a_program_that_its_limits_kill_is_run_as_it_stands(corpus: Sliceable) -> None:
    command = "rg -F Einstein corpus.jsonl | awk 'BEGIN { while (1) x++ }'"
    sandbox = dataclasses.replace(corpus.sandbox, limits=Limits(cpu_seconds=1))
    engine = Engine(sandbox, corpus.file, corpus.facts)
    elsewhere = Elsewhere(engine)
    result = NarrowedRunner(engine, elsewhere).run(parse(command), timeout=DEADLINE)
    assert result == SequentialRunner(engine).run(parse(command), timeout=DEADLINE)


@needs_kernels
def test_many_threads_may_use_one_runner(engine: Engine, corpus: Sliceable) -> None:
    runner = NarrowedRunner(engine, Elsewhere(engine))
    commands = [ANSWERED, "rg -F Ulm corpus.jsonl | wc -l", "grep -i einstein corpus.jsonl | wc -c", FED] * 4
    results: dict[int, bytes] = {}

    def work(number: int) -> None:
        results[number] = runner.run(parse(commands[number]), timeout=DEADLINE).stdout

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(commands))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [results[number] for number in range(len(commands))] == [corpus.wanted(each).stdout for each in commands]


@needs_kernels
@pytest.mark.parametrize("mode", ["narrowed", "auto"])
@pytest.mark.parametrize("share", [0.0001, 0.9])
def test_candidates_costs_and_the_reason_are_told(
    corpus: Sliceable, engine: Engine, monkeypatch: pytest.MonkeyPatch, mode: str, share: float
) -> None:
    load.load()
    for module in (narrowed, estimate):
        monkeypatch.setattr(module, "MOST_BYTES", 0)
    monkeypatch.setattr(estimate.Estimate, "share", lambda *_: share)
    monkeypatch.setattr(estimate, "_SCAN_SPEED", 1e12)
    size = len(corpus.data)
    indexed = dataclasses.replace(engine, open_index=lambda: lambda _: np.array([[0, size]], np.int64))
    text = MODES[mode](indexed).explain(parse("rg 'Einstein.*[0-9]' corpus.jsonl"))
    assert f"1 part of the corpus by its index, {size} bytes (100 %)" in text
    assert f"about {100 * share:g} % of the corpus is wanted" in text
    assert " ms here, " in text
    assert text.startswith("not narrowed: about 90 %") is (mode == "auto" and share > 0.5)
    if mode == "narrowed":
        assert f"mode auto would {'not' if share > 0.5 else 'too'}: " in text
    elif share < 0.5:
        assert "why:        its index leaves little to be searched" in text


def test_a_reason_is_told_before_kernels_are_compiled(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("are_loaded", "are_compiled"):
        monkeypatch.setattr(narrowed, name, lambda: False)
    large = dataclasses.replace(engine, facts=dataclasses.replace(engine.facts, bytes=1 << 30))
    text = NarrowedRunner(large, Elsewhere(engine), "auto").explain(parse(ANSWERED))
    assert "estimated:  nothing yet, until the kernels are compiled" in text
    assert "why:        nothing is decided before" in text


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (ANSWERED, "the first 3 lines, no program started"),
        (FED, "then:       sort -r\nof these:   the first 3 lines, without another program"),
        ("rg -F Einstein corpus.jsonl | sort -r", "then:       sort -r\n"),
        ("rg -F -i einstein corpus.jsonl | rg -v -w Ulm | wc -l", "'Ulm', as a word, left out"),
        ("rg -F -e a1 -e b2 -e c3 -e d4 -e e5 corpus.jsonl", "'d4' or 1 others"),
        ("wc -l corpus.jsonl", "not narrowed"),
    ],
)
def test_explanations(engine: Engine, command: str, told: str) -> None:
    text = MODES["narrowed"](engine).explain(parse(command))
    assert told in text
    assert repr(parse(command).argv[0][0]) in text  # how it would be run otherwise
