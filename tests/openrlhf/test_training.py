"""The recipes' own command lines, run on a CPU through the shim: two steps of SFT and of GRPO of the study's policy."""

from __future__ import annotations

import ast
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from algos.openrlhf import grpo, sft
from algos.openrlhf.data import grpo_rows, sft_rows, write_rows
from algos.openrlhf.recipe import preset
from algos.openrlhf.template import load_tokens
from grepseek_env.env import make_rules
from grepseek_env.tasks import load_question_set
from grepseek_env.trajectory import read_trajectories
from policies.tiny_policy import TEMPLATE

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
LONGEST = 10 * 60


def run(command: list[str], environment: dict[str, str], folder: Path) -> str:
    done = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=LONGEST, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return done.stdout + done.stderr


def tensors(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return {name: value.float() for file in folder.glob("*.safetensors") for name, value in load_file(file).items()}


def changed(before: Path, after: Path) -> list[str]:
    old, new = tensors(before), tensors(after)
    assert set(new) <= set(old) | {"lm_head.weight"}  # tied with the embedding
    return [name for name in new if name in old and not old[name].bfloat16().equal(new[name].bfloat16())]


def check_loads(folder: Path, environment: dict[str, str]) -> None:
    """Checks that a checkpoint loads in transformers, with the template it was trained with, and in vLLM."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.chat_template.strip() == TEMPLATE.strip()
    AutoModelForCausalLM.from_pretrained(folder)
    code = (
        "import sys; from policies.vllm_engine import VLLMModel; from policies.chat import Sampling\n"
        "if __name__ == '__main__':\n"
        "    with VLLMModel(sys.argv[1], engine='batch', dtype='float32') as model:\n"
        "        chat = [{'role': 'user', 'content': 'Who?'}]\n"
        "        print('said', len(model.complete([chat], Sampling(max_tokens=4))[0].token_ids))\n"
    )
    script = folder.parent / "serve.py"
    script.write_text(code, encoding="utf-8")
    plain = {k: v for k, v in environment.items() if k != "GREPSEEK_OPENRLHF_SHIM"}
    assert re.search(
        r"^said [1-4]$", run([sys.executable, str(script), str(folder)], plain, folder.parent), re.MULTILINE
    )


def free_port() -> str:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


def test_two_steps_of_sft(checkpoints: Path, environment: dict[str, str], tmp_path: Path) -> None:
    records = list(read_trajectories(checkpoints / "trajectories.jsonl"))
    prepared = sft_rows(records, load_tokens(str(checkpoints / "study"), "model"), max_len=512)
    assert len(prepared.rows) == 8
    write_rows(tmp_path / "sft.jsonl", prepared.rows)
    recipe = preset(
        sft.SFTRecipe,
        sft.PRESETS,
        "tiny-cpu",
        model=str(checkpoints / "study"),
        chat_template="model",
        dataset="sft.jsonl",
        out="out",
        checkpoints="state",
        tensorboard=None,
        warmup=0.0,
        max_len=512,
    )
    launch = recipe.launch()
    ranks = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    said = run(list(launch.argv), {**environment, **ranks, **launch.environ}, tmp_path)
    norms = [float(x) for x in re.findall(r"grad_norm=([0-9.e+-]+)\]", said)]
    assert norms
    assert norms[-1] > 0
    assert len(changed(checkpoints / "study", tmp_path / "out")) > 10
    check_loads(tmp_path / "out", environment)


def steps(said: str) -> list[dict[str, Any]]:
    """Returns what OpenRLHF logs of each step."""
    found = re.findall(r"Global step (\d+): (\{.*?\})\s*$", said, re.MULTILINE)
    logged = [ast.literal_eval(re.sub(r"\b(nan|inf)\b", "None", text)) for _, text in found]
    assert [int(number) for number, _ in found] == list(range(1, len(found) + 1))
    return logged


@contextmanager
def cluster(environment: dict[str, str], folder: Path) -> Iterator[str]:
    """Runs a Ray cluster of this machine that believes in two GPUs; yields its dashboard's address."""
    bin_folder = Path(sys.executable).parent
    port = free_port()
    command = [
        str(bin_folder / "ray"),
        *("start", "--head", "--block", "--port", free_port(), "--dashboard-port", port),
        *("--num-gpus", "2", "--num-cpus", "8", "--object-store-memory", str(200 << 20), "--temp-dir", str(folder)),
    ]
    log = folder.with_suffix(".log")
    with log.open("w", encoding="utf-8") as out:
        head = subprocess.Popen(command, env=environment, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        address = f"http://127.0.0.1:{port}"
        ends = time.monotonic() + 120
        while True:
            with contextlib.suppress(OSError, HTTPException):
                asked = HTTPConnection("127.0.0.1", int(port), timeout=5)
                asked.request("GET", "/api/version")
                if asked.getresponse().status == 200:
                    break
            assert head.poll() is None, log.read_text(encoding="utf-8")
            assert time.monotonic() < ends, log.read_text(encoding="utf-8")
            time.sleep(0.5)
        yield address
    finally:
        head.terminate()
        try:
            head.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(head.pid, signal.SIGKILL)
            head.wait(60)


@pytest.mark.parametrize("where", ["here", "job"])
def test_two_steps_of_grpo(checkpoints: Path, environment: dict[str, str], tmp_path: Path, where: str) -> None:
    half = checkpoints / "half-study"
    system = checkpoints / "system.txt"
    questions = load_question_set(str(checkpoints / "questions.jsonl"))
    tokens = load_tokens(str(half), "model")
    rules = make_rules(max_turns=4, system_prompt=system.read_text(encoding="utf-8"))
    prepared = grpo_rows({"world": questions}, tokens, rules)
    assert len(prepared.rows) == 4
    write_rows(tmp_path / "grpo.jsonl", prepared.rows)
    values = {
        "model": str(half),
        "chat_template": "model",
        "dataset": "grpo.jsonl",
        "out": "out",
        "checkpoints": "state",
        "tensorboard": None,
        "system_prompt": str(system),
        "episodes": 2,
        "group": 8,
        "batch": 32,
        "max_len": 512,
        "turn_tokens": 96,
        "max_turns": 4,
        "max_observation_tokens": 48,
        "learning_rate": 1e-3,
        "record": str(tmp_path / "record"),
    }
    if where == "here":
        launch = preset(grpo.GRPORecipe, grpo.PRESETS, "tiny-cpu", **values).launch()
        assert list(launch.argv[1:3]) == ["-m", "openrlhf.cli.train_ppo_ray"]
        command = [sys.executable, str(HERE / "shim/grpo.py"), *launch.argv[3:]]
        said = run(command, {**environment, **launch.environ}, tmp_path)
    else:
        path = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"  # the cluster's python3
        there = {**environment, "PATH": path}
        with tempfile.TemporaryDirectory(prefix="ray-") as folder, cluster(there, Path(folder) / "r") as address:
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(tmp_path)
                launch = preset(grpo.GRPORecipe, grpo.PRESETS, "tiny-cpu", ray=address, **values).launch()
            assert list(launch.argv[:3]) == ["ray", "job", "submit"]
            said = run(list(launch.argv), {**there, **launch.environ}, tmp_path)
    check_grpo(said, half, tmp_path, environment)


def check_grpo(said: str, before: Path, folder: Path, environment: dict[str, str]) -> None:
    logged = steps(said)
    assert len(logged) == 2
    for step in logged:
        assert step["actor_grad_norm"] > 0
        assert step["rollout/reward_std"] > 0
        assert step["group_reward_std"] > 0
        assert step["rollout/num_samples"] == 32
        assert step["fault"] == 0
        assert step["commands"] > 0
        # Trainer and engine agree about the rollouts; in the second step only if it got the new weights.
        assert abs(step["vllm_kl"]) < 0.01
    assert logged[0]["actor_lr"] > 0
    assert len(changed(before, folder / "out")) > 10
    records = [t for file in (folder / "record").iterdir() for t in read_trajectories(file)]
    assert len(records) == 64
    means = [sum(t.reward for t in part) / 32 for part in (records[:32], records[32:])]
    assert [step["rollout/reward_mean"] for step in logged] == pytest.approx(means, abs=1e-5)
    check_loads(folder / "out", environment)
