"""Faults that careless or hostile use showed in policies, evaluation and Tutor/Planner, each named in its test."""

from __future__ import annotations

import base64
import errno
import gzip
import json
import os
import re
import resource
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from algos.evaluate import compare, evaluate, score_recorded
from algos.tutor_planner.forms import Forms
from algos.tutor_planner.leaks import Known, Rule, command_findings
from algos.tutor_planner.replies import Unreadable, json_object
from grepseek_env.errors import ConfigError, TrajectoryError
from grepseek_env.paths import atomic_file
from grepseek_env.view import find_runs, write_page
from policies.base import make_policy
from policies.openai_wire import find_overflow, merge_stream, read_answer

if TYPE_CHECKING:
    from pathlib import Path


def keyword(out: Path, **options: object) -> Path:
    values: dict[str, object] = {"limit": 2, "resamples": 100, **options}
    evaluate(make_policy("keyword"), out, **values)  # type: ignore[arg-type]
    return out


def test_a_refused_resume_took_the_rules_of_the_episodes_out_of_the_manifest(tmp_path: Path) -> None:
    whole = (keyword(tmp_path) / "manifest.json").read_bytes()
    with pytest.raises(ConfigError, match="max_turns = 6, this one has 3"):
        keyword(tmp_path, max_turns=3)
    assert (tmp_path / "manifest.json").read_bytes() == whole
    assert json.loads(whole)["episodes"]["max_turns"] == 6


def test_an_overwritten_evaluation_kept_the_earlier_ones_sets_and_numbers(tmp_path: Path) -> None:
    keyword(tmp_path, questions="world:tiny/train")
    mine = tmp_path / "notes" / "mine.txt"
    mine.parent.mkdir()
    mine.write_text("mine")
    with pytest.raises(ConfigError, match="max_turns"):
        keyword(tmp_path, overwrite=True, max_turns=0)
    assert (tmp_path / "summary.json").exists()  # what cannot start removes nothing
    keyword(tmp_path, questions="world:tiny/test", overwrite=True)
    assert [run.name for run in find_runs([tmp_path])] == ["world_tiny_test"]
    assert mine.read_text() == "mine"


@pytest.mark.parametrize(
    "change", [{"f1": None}, {"f1": "high"}, {"golden_answers": None}, {"golden_answers": 3}, {"id": ["a"]}]
)
def test_predictions_without_scores_ended_compare_with_a_traceback(tmp_path: Path, change: dict[str, object]) -> None:
    keyword(tmp_path)
    path = tmp_path / "predictions.jsonl"
    first, second = map(json.loads, path.read_text().splitlines())
    left = {key: value for key, value in {**second, **change}.items() if value is not None}
    path.write_text(f"{json.dumps(first)}\n{json.dumps(left)}\n")
    with pytest.raises(ConfigError, match=r"predictions\.jsonl, line 2: no prediction"):
        compare(tmp_path, tmp_path)


def test_a_broken_manifest_or_times_beside_a_run_ended_scoring_with_a_traceback(tmp_path: Path) -> None:
    run = keyword(tmp_path / "run") / "world_tiny_test"
    times = (run / "timing.jsonl").read_text()
    (run / "timing.jsonl").write_text(f'{times}{{"id": 1}}\n')
    with pytest.raises(TrajectoryError, match=r"timing\.jsonl, line 3: no times"):
        keyword(tmp_path / "run")
    lines = [json.loads(line) for line in (run / "trajectories.jsonl").read_text().splitlines()]
    for line, timing in zip(lines, (3, {"model": [1.0]}), strict=True):
        line["metadata"]["timing"] = timing
    (run / "trajectories.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found = score_recorded([run], tmp_path / "out", resamples=100)
    assert len(found.episodes) == 2
    assert found.latency["all"]["episodes"] == 0
    (run / "manifest.json").write_text("{")
    with pytest.raises(ConfigError, match=r"manifest\.json is no manifest of a run"):
        score_recorded([run], tmp_path / "again", resamples=100)


def test_half_a_surrogate_pair_from_a_server_ended_the_run_at_the_next_turn() -> None:
    message = {"content": "a\ud83d b", "reasoning_content": "\ude00", "tool_calls": None}
    answer = read_answer(json.dumps({"choices": [{"finish_reason": "stop", "message": message}]}))
    assert (answer.text, answer.reasoning) == ("a\N{REPLACEMENT CHARACTER} b", "\N{REPLACEMENT CHARACTER}")
    called = {"function": {"name": "search", "arguments": '{"command": "\udfff"}'}}
    body = {"choices": [{"finish_reason": "stop", "message": {"content": None, "tool_calls": [called]}}]}
    assert read_answer(json.dumps(body)).text.encode()


def test_the_halves_of_a_character_in_two_pieces_of_a_stream_are_one_character() -> None:
    pieces = [{"delta": {"content": "\ud83d"}}, {"delta": {"content": "\ude00"}, "finish_reason": "stop"}]
    lines = [f"data: {json.dumps({'choices': [piece]})}" for piece in pieces]
    assert merge_stream(lines).text == "\N{GRINNING FACE}"


def test_a_length_of_five_thousand_digits_in_an_error_ended_the_run() -> None:
    told = f"maximum context length is {'9' * 5000} tokens, however you requested 50 tokens in the messages"
    overflow = find_overflow(None, told)
    assert overflow is not None
    assert overflow.message == told


def test_a_pattern_of_dots_held_the_leak_rules_up_for_minutes() -> None:
    known = Known()
    known.add("Who was it?")
    guarded = [(Forms("Thikit Mills"), True)]
    long = command_findings(f"rg '{'a.' * 1500}!' corpus.jsonl", known, guarded)
    assert not long
    gapped = command_findings("rg 'T.k.t. m.l.s' corpus.jsonl", known, guarded)
    assert Rule.UNSEEN_IN_COMMAND in {finding.rule for finding in gapped}


def test_a_full_disk_was_told_without_the_files_name(tmp_path: Path) -> None:
    def write() -> None:
        with atomic_file(tmp_path / "page.html"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError, match=r"page\.html"):
        write()
    assert not list(tmp_path.iterdir())
    code = (
        "import sys; from grepseek_env.trajectory import TrajectoryWriter\n"
        "with TrajectoryWriter(sys.argv[1]) as w:\n w.append('a' * 50); w.append('b' * 5000)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "t.jsonl")],
        preexec_fn=_small_files,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "t.jsonl" in ended.stderr.splitlines()[-1]
    assert (tmp_path / "t.jsonl").read_text() == "a" * 50 + "\n"


def _small_files() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))


@pytest.mark.parametrize("option", ["temperature", "top_p", "top_k", "max_tokens", "episode_tokens", "attempts"])
def test_a_word_where_a_number_belongs_ended_with_a_traceback(option: str) -> None:
    pytest.importorskip("openai")
    with pytest.raises(ConfigError, match=rf"{option} is 'abc'"):
        make_policy("openai", model="m", base_url="http://127.0.0.1:9/v1", **{option: "abc"})


def test_a_reply_nested_too_deep_ended_a_tutor_run_and_every_resume_of_it() -> None:
    for reply in ('{"a":' * 5000, '{"a":' + "[" * 50_000):
        with pytest.raises(Unreadable):
            json_object(reply)


def test_think_tags_and_fences_without_an_end_were_read_in_quadratic_time() -> None:
    assert json_object("<think>" * 50_000 + '{"a": 1}') == {"a": 1}
    assert json_object("```json" + " " * 50_000 + '{"a": 1}') == {"a": 1}
    assert json_object('<think>{"a": 2}</think>```json\n{"a": 1}\n```') == {"a": 1}


def test_a_pattern_that_backtracks_held_the_leak_rules_up_for_ever() -> None:
    known = Known()
    known.add("Where is it?")
    guarded = [(Forms("Antananarivo autonomous province"), True)]
    for pattern in (
        "([a-z ]+)+!|antananarivo autonom",
        f"{'.*' * 14}!|antananarivo autonom",
        f"{'a?' * 60}ntananarivo",
    ):
        assert command_findings(f"rg '{pattern}' corpus.jsonl", known, guarded)


def test_one_number_that_json_does_not_know_left_the_whole_page_empty(tmp_path: Path) -> None:
    run = keyword(tmp_path) / "world_tiny_test"
    first, second = map(json.loads, (run / "trajectories.jsonl").read_text().splitlines())
    first["turns"][0] |= {"token_ids": [1, 2], "logprobs": [float("nan"), -1.0]}
    first["breakdown"]["f1"] = float("nan")
    first["metadata"] |= {"loss": [float("inf")], "timing": {"model": [float("nan")], "tool": [0.0]}}
    second["metadata"]["sample"] = [1]  # ended with a traceback
    (run / "trajectories.jsonl").write_text(f"{json.dumps(first)}\n{json.dumps(second)}\n")
    page = write_page(find_runs([tmp_path]), tmp_path / "view.html")
    assert page.trajectories == 2
    blocks = re.findall(r'<script type="text/plain" id="[^"]+">([^<]+)</script>', page.path.read_text())
    assert blocks
    for block in blocks:
        json.loads(gzip.decompress(base64.b64decode(block)), parse_constant=pytest.fail)
