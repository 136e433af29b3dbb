"""Production runs: interrupted anywhere and resumed they give the same set, once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from algos.tutor_planner import Roles, WorldStyle, world_roles
from algos.tutor_planner.card import card_text, write_card
from algos.tutor_planner.check import check_file
from algos.tutor_planner.endpoints import Endpoints
from algos.tutor_planner.export import export, split_of
from algos.tutor_planner.llm import llm_roles
from algos.tutor_planner.records import Usage
from algos.tutor_planner.run import Prices, Tally, generate, read_journal
from grepseek_env.errors import ConfigError, EngineFault, TrajectoryError
from grepseek_env.tasks import load_question_set, write_questions
from grepseek_env.trajectory import read_trajectories
from policies.chat import ModelError
from tests.support.openai_server import answer, serve, status
from tests.support.scripted_tutor import ScriptedTutor
from tests.support.tutoring import ground

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from algos.tutor_planner import Record, Tutor
    from algos.tutor_planner.protocols import Searcher
    from grepseek_env.types import Question

COUNT = 16
PLAIN = WorldStyle(quality="plain", vague=0.5)


def questions(count: int = COUNT) -> Sequence[Question]:
    return load_question_set("world:tiny")[:count]


def make(out: Path, roles: Roles | None = None, count: int = COUNT, **options: object) -> list[Record]:
    tries = replace(ground(), settings=replace(ground().settings, refinements=1))
    return generate(questions(count), roles or world_roles(PLAIN), tries, out, name="tiny", **options)  # type: ignore[arg-type]


def failing(after: int, error: BaseException) -> Roles:
    """Makes a Tutor that fails for good from a certain question on."""
    roles = world_roles(PLAIN)
    made = 0

    def tutor(look: Searcher) -> Tutor:
        nonlocal made
        made += 1
        if made > after:
            raise error
        return roles.tutor(look)

    return replace(roles, tutor=tutor)


def exported(records: list[Record], out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in export(records, out)}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("whole")
    return exported(make(out), out)


@pytest.mark.parametrize("parallel", [1, 3])
@pytest.mark.parametrize("after", [0, 1, 7, COUNT - 1])
def test_interrupted_and_resumed_is_the_same_as_uninterrupted(
    tmp_path: Path, whole: dict[str, bytes], after: int, parallel: int
) -> None:
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path, failing(after, KeyboardInterrupt()), parallel=parallel)
    journal = tmp_path / "journal.jsonl"
    kept = journal.read_bytes()
    assert kept.count(b"\n") <= after
    assert kept == b"" or kept.endswith(b"\n")
    with journal.open("ab") as file:
        file.write(b'{"key": "torn by a cr')
    records = make(tmp_path, parallel=parallel)
    assert journal.read_bytes().startswith(kept)
    assert sorted(record.question_id for _, record in read_journal(journal)) == sorted(q.id for q in questions())
    assert exported(records, tmp_path) == whole


@pytest.mark.slow
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGKILL, -9), (signal.SIGINT, 130)])
def test_a_stopped_process_leaves_whole_lines(tmp_path: Path, sent: signal.Signals, code: int) -> None:
    count = 80
    whole = exported(make(tmp_path / "whole", count=count), tmp_path / "whole")
    out = tmp_path / "run"
    arguments = f"--quality plain --vague 0.5 --parallel 1 --quiet --no-plots --limit {count} --out {out}".split()
    command = [sys.executable, "-m", "algos.tutor_planner", "generate", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    journal = out / "journal.jsonl"
    deadline = time.monotonic() + 60
    while not (journal.exists() and journal.read_bytes().count(b"\n") >= 2) and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(sent)
    assert process.wait(60) in {code, 0}  # 0: it was done before the signal came
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    assert f"of {count} questions kept" in done.stdout
    assert {name: (out / name).read_bytes() for name in whole} == whole


def test_a_run_grows_and_keeps_its_splits(tmp_path: Path) -> None:
    first = exported(make(tmp_path, count=6), tmp_path)
    second = exported(make(tmp_path), tmp_path)
    assert second["trajectories.jsonl"].startswith(first["trajectories.jsonl"])
    lines = [json.loads(line) for line in second["sft.jsonl"].splitlines()]
    assert [line["split"] for line in lines] == [split_of(line["id"], 0.05) for line in lines]
    assert second["sft.jsonl"].startswith(first["sft.jsonl"])


def test_other_settings_or_questions_are_refused(tmp_path: Path) -> None:
    make(tmp_path, count=2)
    with pytest.raises(ConfigError, match="holds a run with seed = 0, this one has 1"):
        make(tmp_path, count=2, seed=1)
    changed = [replace(questions(1)[0], golden_answers=("x",))]
    with pytest.raises(ConfigError, match="is not the one that this run has worked on"):
        generate(changed, world_roles(PLAIN), replace(ground(), settings=replace(ground().settings, refinements=1)),
                 tmp_path, name="tiny")  # fmt: skip
    assert len(make(tmp_path, count=2, seed=1, overwrite=True)) == 2
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(ConfigError, match="without a manifest"):
        make(tmp_path, count=2)
    with pytest.raises(ConfigError, match="parallel is 0"):
        make(tmp_path, parallel=0)


def test_a_spoiled_journal_is_told_with_its_line(tmp_path: Path) -> None:
    make(tmp_path, count=2)
    with (tmp_path / "journal.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"key": "x"}\n')
    with pytest.raises(TrajectoryError, match=r"journal.jsonl, line 3: no record of this run"):
        make(tmp_path, count=2)


def test_infrastructure_failures_leave_questions_for_the_next_run(
    tmp_path: Path, whole: dict[str, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(EngineFault, match="disk"):
        make(tmp_path, failing(3, EngineFault("disk")))
    some = questions(3)
    model = ScriptedTutor(some, {"judge": [ModelError("down")]})
    out = tmp_path / "llm"
    records = generate(some, llm_roles(Endpoints([model])), ground(), out, name="tiny")
    assert len(records) == 2  # one is left, and nothing says that it was dropped
    assert f"question {some[0].id} is left for the next run: ModelError: all 1 endpoints" in caplog.text
    records = generate(some, llm_roles(Endpoints([model])), ground(), out, name="tiny")
    assert [record.question_id for record in records] == [question.id for question in some]
    assert exported(make(tmp_path), tmp_path) == whole


def test_exports_agree_with_one_another(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    records = make(tmp_path, count=40)
    export(records, tmp_path, validation=0.3, tools=True)
    trajectories = {t.question_id: t for t in read_trajectories(tmp_path / "trajectories.jsonl")}
    assert len(trajectories) == sum(record.kept for record in records) > 10
    chats = [json.loads(line) for line in (tmp_path / "sft.jsonl").read_bytes().splitlines()]
    rows = {}
    for split in ("train", "validation"):
        for row in pq.read_table(tmp_path / f"{split}.parquet").to_pylist():
            assert split_of(row["id"], 0.3) == split
            rows[row["id"]] = row
    assert set(rows) == set(trajectories) == {chat["id"] for chat in chats}
    for chat in chats:
        trajectory, row = trajectories[chat["id"]], rows[chat["id"]]
        assert chat["messages"] == row["messages"] == trajectory.messages()
        assert chat["messages"][-1]["role"] == "assistant"
        assert chat["tools"][0]["function"]["name"] == "shell"
        assert json.loads(row["metadata"]) == trajectory.metadata
        assert row["turns"] == len(trajectory.turns)
    drops = [json.loads(line) for line in (tmp_path / "drops.jsonl").read_bytes().splitlines()]
    assert [drop["id"] for drop in drops] == [record.question_id for record in records if not record.kept]
    assert {drop["reason"] for drop in drops} == {"refinement-exhausted"}
    with pytest.raises(ConfigError, match="validation is 1"):
        export(records, tmp_path, validation=1)


@pytest.mark.slow
def test_the_card_counts_what_there_is(tmp_path: Path) -> None:
    records = make(tmp_path)
    path = write_card(records, {"settings": {"seed": 0}}, tmp_path)
    text = path.read_text(encoding="utf-8")
    kept = sum(record.kept for record in records)
    assert f"{kept} trajectories from {COUNT} questions" in text
    assert f"| refinement-exhausted | {COUNT - kept} | 100.0% |" in text
    assert "no rule is broken" in text
    plots = sorted(file.name for file in (tmp_path / "plots").iterdir())
    assert plots == ["drops.png", "lengths.png", "shapes.png", "turns.png"]
    assert all((tmp_path / "plots" / name).read_bytes().startswith(b"\x89PNG") for name in plots)
    spent = [replace(records[0], usage={"tutor": Usage(3, 1_000_000, 500_000, 1)})]
    priced = card_text(spent, {}, prices={"tutor": Prices(2.0, 8.0)})
    assert "| tutor | 3 | 1 | 1000000 | 500000 | 6.00 |" in priced
    assert card_text([], {}).startswith("# Cold-start trajectories")


def test_a_tally_tells_yield_reasons_tokens_and_cost() -> None:
    tally = Tally()
    assert tally.line({}) == "kept -"
    record = make_records()
    for each in record:
        tally.add(each)
    line = tally.line({"tutor": Prices(1.0, 0.0)}, "2/3")
    assert line == "kept 0%, wrong-answer 2, too-long 1, 3.30M tokens, cost 3.00, endpoints 2/3"


def make_records() -> list[Record]:
    from algos.tutor_planner import Record

    usage = {"tutor": Usage(1, 1_000_000, 100_000)}
    return [
        Record("a", "wrong-answer", usage=usage),
        Record("b", "too-long", usage=usage),
        Record("c", "wrong-answer", usage=usage),
    ]


def test_a_file_is_checked_and_replayed(tmp_path: Path) -> None:
    export(make(tmp_path), tmp_path)
    path = tmp_path / "trajectories.jsonl"
    base = ground()
    report = check_file(path, rules=base.rules, backend=base.backend)
    assert report.checked == report.clean > 3
    first, *others = read_trajectories(path)
    forged = replace(first.turns[0], observation=first.turns[0].observation.replace("is", "was", 1))
    spoiled = tmp_path / "spoiled.jsonl"
    lines = [replace(first, turns=(forged, *first.turns[1:])), *others, *others[:1]]
    spoiled.write_text("".join(t.to_json() + "\n" for t in lines), encoding="utf-8")
    report = check_file(spoiled, rules=base.rules, backend=base.backend)
    assert report.rules["replay"] == 1
    assert report.duplicates == 1
    assert report.lines[0].startswith(f"{spoiled}, line 1 ({first.question_id}): ")
    # Without metadata the chain comes from the questions.
    bare = tmp_path / "bare.jsonl"
    bare.write_text("".join(replace(t, metadata={}).to_json() + "\n" for t in others), encoding="utf-8")
    assert check_file(bare, questions={q.id: q for q in questions()}).clean == len(others)


class TestCommandLine:
    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "algos.tutor_planner", *arguments],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
            env={**os.environ, "COLUMNS": "200"},
        )

    @pytest.mark.slow
    def test_generate_then_check(self, tmp_path: Path) -> None:
        out = tmp_path / "run"
        done = self.run("generate", "--limit", "5", "--out", str(out), "--quiet", "--no-plots")
        assert done.returncode == 0, done.stderr
        assert "5 of 5 questions kept; kept 100%" in done.stdout
        checked = self.run("check", str(out / "trajectories.jsonl"), "--replay", "--quiet")
        assert (checked.returncode, checked.stderr) == (0, "")
        assert "5 of 5 trajectories are clean, replayed byte for byte" in checked.stdout

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ("--implementation llm", "needs --model"),
            ("--shapes single,oddly", "no shape is named 'oddly'"),
            ("--heads x", "--heads is 'x'"),
            ("--limit 0", "--limit is 0"),
            ("--price 3", "a price is '3'"),
            ("--model openai:x@http://127.0.0.1:1 --model-option oops", "write KEY=VALUE"),
            ("--model odd", "model is 'odd'"),
        ],
    )
    def test_mistakes_are_one_line(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: str, words: str
    ) -> None:
        from algos.tutor_planner.__main__ import main

        assert main(["generate", "--out", str(tmp_path), "--quiet", "--no-plots", *arguments.split()]) == 1
        said = capsys.readouterr().err
        assert words in said
        assert said.count("\n") == 1

    @pytest.mark.slow
    def test_models_behind_servers_one_of_which_is_down(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        from algos.tutor_planner.__main__ import main

        chains = [q for q in questions(60) if len(q.evidence) <= 3 and len(q.metadata["relations"]) == len(q.evidence)]
        model = ScriptedTutor(chains)
        file = tmp_path / "chains.jsonl"
        write_questions(file, chains[:8])

        def reply(handler: Any, body: dict[str, Any]) -> None:
            usage = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}
            answer(model.right(body["messages"]), top_usage=usage)(handler, body)

        with serve(reply) as good, serve(status(503, "busy")) as bad:
            options = "--corpus world:tiny --parallel 4 --in-flight 2 --model-option attempts=1 --price 1,10 --tools"
            models = f"--model openai:m@{bad.url} --model openai:m@{good.url} --planner-model openai:p@{good.url}"
            arguments = f"{options} {models} --questions {file} --out {tmp_path / 'out'} --quiet --no-plots".split()
            assert main(["generate", *arguments]) == 0
            assert 1 <= len(bad.requests) <= 4  # then it rested
        said = capsys.readouterr().out
        assert "8 of 8 questions kept; kept 100%" in said
        calls = len(good.requests)
        assert f"cost {calls * 0.002:.2f}" in said
        card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
        assert "| tutor |" in card
        assert "| planner |" in card
        assert good.url not in card
        assert '"tutor": "openai:m"' in card

    def test_questions_without_a_corpus_need_one(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        from algos.tutor_planner.__main__ import main

        file = tmp_path / "q.jsonl"
        file.write_text('{"id": "1", "question": "Who?", "golden_answers": ["me"]}\n', encoding="utf-8")
        assert main(["generate", "--questions", str(file), "--out", str(tmp_path / "o"), "--quiet"]) == 1
        assert "pass --corpus" in capsys.readouterr().err


class TestEndpoints:
    def test_a_failing_endpoint_rests_and_another_one_serves(self) -> None:
        some = questions(2)
        now = [0.0]
        bad = ScriptedTutor(some, {"decompose": [ModelError("down")] * 3}, name="m")
        good = ScriptedTutor(some, name="m")
        both = Endpoints([bad, good], rest=10.0, clock=lambda: now[0])
        roles = llm_roles(both)
        from algos.tutor_planner import make_record

        make_record(some[0], roles, ground(), seed=0)
        assert len(bad.seen) == 1
        assert both.health() == "1/2"
        assert both.name == "m"
        now[0] = 11.0
        assert both.health() == "2/2"
        make_record(some[1], roles, ground(), seed=0)
        assert len(bad.seen) == 2  # failed again, and now rests twice as long
        now[0] = 11.0 + 15.0
        assert both.health() == "1/2"

    def test_requests_under_way_are_capped(self) -> None:
        import asyncio

        from policies.chat import ChatModel, Completion, Sampling

        class Slow(ChatModel):
            name = "slow"
            now = most = 0

            async def acomplete(self, messages: object, sampling: object, *, prompt_ids: object = None) -> Completion:  # noqa: ARG002
                self.now += 1
                self.most = max(self.most, self.now)
                await asyncio.sleep(0.02)
                self.now -= 1
                return Completion("x", "stop")

        slow = Slow()
        endpoints = Endpoints([slow], in_flight=2)
        threads = [threading.Thread(target=endpoints.complete, args=([], Sampling())) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert slow.most == 2

    def test_stopping_ends_waits(self) -> None:
        import asyncio

        from algos.tutor_planner.endpoints import Stopped
        from policies.chat import ChatModel, Completion, Sampling

        class Hanging(ChatModel):
            name = "hanging"

            async def acomplete(self, messages: object, sampling: object, *, prompt_ids: object = None) -> Completion:  # noqa: ARG002
                await asyncio.sleep(3600)
                raise AssertionError

        stop = threading.Event()
        endpoints = Endpoints([Hanging()], stop=stop)
        threading.Timer(0.05, stop.set).start()
        with pytest.raises(Stopped):
            endpoints.complete([], Sampling())
        with pytest.raises(Stopped):
            endpoints.complete([], Sampling())

    def test_no_model_is_told(self) -> None:
        with pytest.raises(ConfigError, match="no model"):
            Endpoints([])
