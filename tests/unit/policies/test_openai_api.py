"""A scripted server sends what servers send: errors, cut streams, odd fields, refusals of long requests."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from grepseek_env.errors import ConfigError, EngineFault
from policies.chat import Completion, ModelError, Sampling, make_model
from policies.openai_api import OpenAIModel
from policies.openai_wire import Overflow, find_overflow
from tests.support.openai_server import answer, chat, cut, hang, raw, serve, status, stream

if TYPE_CHECKING:
    from tests.support.openai_server import Server

MESSAGES = [{"role": "user", "content": "Query: x"}]
STOP = ("</tool_call>", "</answer>")
S = Sampling(max_tokens=200, stop=STOP)
GOOD = answer("<think>t</think>\n<answer>Ulm</answer>")


def model(server: Server, **options: Any) -> OpenAIModel:
    return OpenAIModel("m", base_url=server.url, **{"first_wait": 0.001, "attempts": 4, **options})


def ask(server: Server, sampling: Sampling = S, **options: Any) -> Completion:
    with model(server, **options) as m:
        return asyncio.run(m.acomplete(MESSAGES, sampling))


@pytest.mark.parametrize(
    "failure",
    [
        status(429, "slow down", headers={"Retry-After": "0.01"}),
        status(429, "slow down", headers={"retry-after-ms": "5"}),
        status(429, "slow down", headers={"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}),
        status(429, "slow down", headers={"Retry-After": "soon"}),
        status(500, "oops"),
        status(503, "loading"),
        status(408, "late"),
        raw(b"<html>bad gateway</html>", 502),
        raw(b'{"choices": [{"message": {"content": "x'),
        raw(b"not json at all", headers={"Content-Type": "text/plain"}),
        raw(b"[]"),
        raw(b"null"),
        raw(b'{"choices": []}'),
        raw(b'{"choices": null}'),
        raw(b'{"error": {"message": "engine dead"}}'),
        raw(b'{"error": "engine dead"}'),
        raw(b"[" * 100_000),
        raw(b""),
        answer("half", None),
        cut(b'{"choices": [{"index": 0, "mess'),
        hang,
    ],
    ids=range(21),
)
def test_what_passes_is_tried_again(failure: Any) -> None:
    with serve(failure, GOOD) as server:
        completion = ask(server, timeout=0.3 if failure is hang else 20.0)
    assert completion.text == "<think>t</think>\n<answer>Ulm</answer>"
    assert completion.finish_reason == "stop"
    assert len(server.requests) == 2
    assert server.requests[0] == server.requests[1]


def test_the_last_failure_is_told_after_all_tries() -> None:
    with serve(status(500, "oops")) as server:
        with pytest.raises(ModelError, match=r"openai:m failed 4 times in .* the last time with: HTTP 500: oops") as e:
            ask(server)
        assert isinstance(e.value, EngineFault)
    assert len(server.requests) == 4


def test_a_wait_past_the_deadline_is_not_begun() -> None:
    with (
        serve(status(429, "busy", headers={"Retry-After": "3600"})) as server,
        pytest.raises(ModelError, match=r"past the deadline of 5 s; the last error was: HTTP 429: busy"),
    ):
        ask(server, deadline=5.0)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (status(401, "who are you"), "HTTP 401: who are you; set OPENAI_API_KEY"),
        (status(404, "no model m"), "HTTP 404: no model m"),
        (status(400, "seed is not supported"), "HTTP 400: seed is not supported"),
        (status(429, "pay", error_code="insufficient_quota"), "HTTP 429: pay"),
        (raw(b'{"detail": "Not Found"}', 404), "HTTP 404: Not Found"),
        (raw(b'{"message": "bad", "code": 400}', 400), "HTTP 400: bad"),
    ],
)
def test_what_stays_wrong_is_told_at_once(reply: Any, message: str) -> None:
    with serve(reply) as server, pytest.raises(ModelError, match=message):
        ask(server)
    assert len(server.requests) == 1


def test_no_server_is_told() -> None:
    with serve(GOOD) as server:
        pass
    with pytest.raises(ModelError, match=r"the connection to http.* failed"):
        ask(server, attempts=2)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "thinking"])
def test_reasoning_fields_are_put_back(field: str) -> None:
    with serve(answer("\n\n<answer>Ulm", **{f"message_{field}": "\nI know it.\n"}, stop_reason="</answer>")) as server:
        completion = ask(server)
    assert completion.text == "<think>I know it.</think>\n<answer>Ulm</answer>"
    assert completion.reasoning == "\nI know it.\n"


@pytest.mark.parametrize(
    ("content", "fields", "text"),
    [
        # the server tells which stop string it met
        ("<think>t</think><answer>Ulm", {"stop_reason": "</answer>"}, "<think>t</think><answer>Ulm</answer>"),
        ("<tool_call>{}", {"matched_stop": "</tool_call>"}, "<tool_call>{}</tool_call>"),
        # it tells that there was none
        ("<think>t</think><answer>Ulm", {"stop_reason": None}, "<think>t</think><answer>Ulm"),
        ("<tool_call>{}", {"matched_stop": 151645}, "<tool_call>{}"),
        # it does not tell
        (
            "<think>an <answer> comes</think><tool_call>{}",
            {},
            "<think>an <answer> comes</think><tool_call>{}</tool_call>",
        ),
        ("<answer>Ulm</answer>", {}, "<answer>Ulm</answer>"),
        ("I do not know", {}, "I do not know"),
        (None, {"message_reasoning": "hm"}, "<think>hm</think>"),
        (None, {}, ""),
        ("<think>t</think>x", {"message_reasoning": "t"}, "<think>t</think>x"),
        ("</think>x", {"message_reasoning": "<think>t"}, "<think>t</think>\nx"),
        (None, {"message_refusal": "I will not"}, "I will not"),
        # content in parts
        ([{"type": "text", "text": "<answer>U"}, {"type": "text", "text": "lm</answer>"}], {}, "<answer>Ulm</answer>"),
        (
            [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "x"}],
            {},
            "<think>hm</think>\nx",
        ),
        ([{"type": "thinking", "thinking": "hm"}, {"type": "image"}, 3], {}, "<think>hm</think>"),
        # a call that the server has parsed
        (
            None,
            {
                "message_reasoning": "t",
                "message_tool_calls": [{"function": {"name": "shell", "arguments": '{"a": 1}'}}],
            },
            '<think>t</think>\n<tool_call>{"name": "shell", "arguments": {"a": 1}}</tool_call>',
        ),
    ],
)
def test_one_text_is_made_of_the_parts(content: Any, fields: dict[str, Any], text: str) -> None:
    with serve(answer(content, **fields)) as server:
        assert ask(server).text == text


def test_a_completion_cut_by_its_length_gets_no_stop_string() -> None:
    with serve(answer("<answer>Ul", "length", stop_reason=None)) as server:
        completion = ask(server)
    assert (completion.text, completion.finish_reason) == ("<answer>Ul", "length")


TOO_LONG = [
    (
        "This model's maximum context length is 4096 tokens. However, you requested 4200 tokens (4000 in the messages, "
        "200 in the completion). Please reduce the length of the messages or completion."
    ),
    (
        "'max_tokens' or 'max_completion_tokens' is too large: 200. This model's maximum context length is 4096 tokens "
        "and your request has 4000 input tokens (200 > 4096 - 4000)."
    ),
    (
        "You passed 4000 input tokens and requested 200 output tokens. However, the model's context length is only "
        "4096 tokens, resulting in a maximum input length of 3896 tokens."
    ),
    (
        "Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of "
        "4200 tokens: 4000 tokens from the input messages and 200 tokens for the completion."
    ),
]


@pytest.mark.parametrize("message", TOO_LONG, ids=range(len(TOO_LONG)))
def test_a_request_that_does_not_fit_is_made_smaller(message: str) -> None:
    assert find_overflow(None, message) == Overflow(message, 96)
    with serve(status(400, message), answer("x", "length")) as server:
        completion = ask(server)
    assert [r["max_tokens"] for r in server.requests] == [200, 96]
    assert completion.finish_reason == "length"


def test_without_numbers_the_request_is_halved_until_it_fits() -> None:
    full = status(400, "too long", error_code="context_length_exceeded")
    with serve(full, full, answer("x")) as server:
        assert ask(server).text == "x"
    assert [r["max_tokens"] for r in server.requests] == [200, 100, 50]


@pytest.mark.parametrize(
    "message",
    [
        "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
        "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
        "This model's maximum context length is 4096 tokens. However, your messages resulted in 4090 tokens.",
        "the context window is full",
    ],
)
def test_a_prompt_that_fills_the_context_is_no_fault(message: str) -> None:
    with serve(status(400, message)) as server:
        completion = ask(server)
    assert (completion.text, completion.finish_reason, completion.error) == ("", "context", message)
    assert len(server.requests) <= 5


def event(delta: dict[str, Any], reason: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason, **fields}]}


EVENTS = [
    event({"role": "assistant", "content": ""}),
    event({"reasoning_content": "I "}),
    event({"reasoning_content": "know."}),
    event({"content": "<answer>"}, logprobs={"content": [{"token": "a", "logprob": -0.5}]}),
    event({"content": "Zü"}, logprobs={"content": [{"token": "b", "logprob": -1.0}]}),
    event({"content": "rich"}, "stop", stop_reason="</answer>"),
    {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 5}},
]


def test_a_stream_gives_what_a_whole_response_gives() -> None:
    with serve(stream(EVENTS)) as server:
        completion = ask(server, Sampling(stop=STOP, logprobs=True), stream=True)
    assert server.requests[0]["stream"] is True
    assert completion.text == "<think>I know.</think>\n<answer>Zürich</answer>"
    assert (completion.prompt_tokens, completion.completion_tokens) == (7, 5)
    assert completion.logprobs == (-0.5, -1.0)


@pytest.mark.parametrize(
    "broken",
    [
        stream(EVENTS[:4], done=False),
        stream(EVENTS[:4]),
        stream(["{broken"]),
        stream(["[]"]),
        stream([{"error": {"message": "engine dead"}}]),
        stream([]),
        cut(b'data: {"choices": [{"delta": {"content": "x"}, "index": 0}]}\n\ndata: {"cho'),
        cut(b""),
    ],
    ids=range(8),
)
def test_a_stream_that_breaks_is_tried_again(broken: Any) -> None:
    with serve(broken, stream(EVENTS)) as server:
        assert ask(server, stream=True).text.endswith("<answer>Zürich</answer>")
    assert len(server.requests) == 2


def test_requests_hold_what_was_asked_for_and_nothing_else() -> None:
    with serve(GOOD) as server:
        ask(server, Sampling(temperature=0.5, top_p=0.9, top_k=5, max_tokens=9, stop=("x",), seed=3, logprobs=True))
        ask(server, Sampling(), omit=("top_p",), max_tokens_field="max_completion_tokens", extra_body={"a": {"b": 1}})
    assert server.requests[0] == {
        "model": "m",
        "messages": MESSAGES,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 5,
        "max_tokens": 9,
        "stop": ["x"],
        "seed": 3,
        "logprobs": True,
    }
    assert server.requests[1] == {
        "model": "m",
        "messages": MESSAGES,
        "temperature": 1.0,
        "max_completion_tokens": 512,
        "a": {"b": 1},
    }
    assert server.paths == ["/v1/chat/completions"] * 2


def test_many_at_once_and_one_that_fails_in_its_place() -> None:
    def reply(handler: Any, body: dict[str, Any]) -> None:
        text = body["messages"][0]["content"]
        handler.send(400 if text == "3" else 200, json.dumps(chat(text) if text != "3" else {"message": "no"}).encode())

    with serve(reply) as server, model(server) as m:
        done = m.complete([[{"role": "user", "content": str(i)}] for i in range(30)], Sampling(seed=5))
    assert [c.text for c in done if c.finish_reason == "stop"] == [str(i) for i in range(30) if i != 3]
    assert (done[3].finish_reason, done[3].text) == ("error", "")
    assert "HTTP 400: no" in (done[3].error or "")
    assert {r["seed"] for r in server.requests} == set(range(5, 35))


def test_a_given_up_request_does_not_stay() -> None:
    async def give_up(m: OpenAIModel) -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(m.acomplete(MESSAGES, S), 0.1)

    with serve(hang, GOOD) as server, model(server) as m:
        asyncio.run(give_up(m))
        assert m.complete([MESSAGES], S)[0].finish_reason == "stop"
    with pytest.raises(ModelError, match="was closed"):
        m.complete([MESSAGES], S)


def test_names_and_options() -> None:
    with make_model("openai:org/name@http://localhost:1/v1", timeout=1.0) as m:
        assert m.name == "openai:org/name"
    with pytest.raises(ConfigError, match="no option 'timeuot' \\(did you mean 'timeout'"):
        make_model("openai:m", timeuot=1)
    with pytest.raises(ConfigError, match="did you mean 'openai'"):
        make_model("openia:m")
    with pytest.raises(ConfigError, match="must be more than 0"):
        make_model("openai:m", timeout=0)
