"""Plays rollouts with OpenRLHF's executor in a real vLLM and writes what came of them; run by test_rollouts.py.

vLLM starts processes and changes logging, so tests keep out of its process.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

COUNT = 16
MAX_LENGTH = 512


class Engine:
    """What OpenRLHF's `RolloutRayActor.generate` does, without Ray around it."""

    def __init__(self, llm: Any) -> None:
        self.llm = llm
        self.asked: list[list[int]] = []

    async def generate(self, prompt_token_ids: list[int], sampling_params: Any, multi_modal_data: Any = None) -> Any:
        from vllm.inputs import TokensPrompt
        from vllm.utils import random_uuid

        assert multi_modal_data is None
        self.asked.append(list(prompt_token_ids))
        last = None
        prompt = TokensPrompt(prompt_token_ids=prompt_token_ids)
        async for output in self.llm.generate(prompt, sampling_params, request_id=random_uuid()):
            last = output
        return last


def main() -> None:
    model, questions, out = sys.argv[1:]
    import torch
    import vllm
    from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator
    from transformers import AutoTokenizer

    from algos.openrlhf.agent import AgentExecutor
    from grepseek_env.adapters.openrlhf import label_of
    from grepseek_env.tasks import load_question_set

    asked = list(load_question_set(questions))
    tokenizer = AutoTokenizer.from_pretrained(model)
    executor = AgentExecutor()
    spent: list[tuple[float, float]] = []

    async def play() -> list[dict[str, Any]]:
        arguments = vllm.AsyncEngineArgs(
            model=model,
            enforce_eager=True,
            dtype="float32",
            max_model_len=MAX_LENGTH,
            logprobs_mode="processed_logprobs",
            max_logprobs=1,
            enable_chunked_prefill=False,
        )
        engine = Engine(vllm.AsyncLLMEngine.from_engine_args(arguments))
        host = executor.host(tokenizer)
        run = host._run

        def slow(pending: Any) -> Any:
            began = time.perf_counter()
            time.sleep(0.5)  # it blocks, as a long command does: on the event loop it would hold up all others
            result = run(pending)
            spent.append((began, time.perf_counter()))
            return result

        host._run = slow
        jobs = [
            executor.execute(
                q.question,
                label_of(q),
                vllm.SamplingParams(temperature=1.0, max_tokens=None, logprobs=1, skip_special_tokens=False),
                MAX_LENGTH,
                tokenizer,
                engine,
            )
            for q in (asked[i % len(asked)] for i in range(COUNT))
        ]
        return await asyncio.gather(*jobs)

    responses = asyncio.run(play())
    generator = SimpleNamespace(args=None)
    rows = []
    for response in responses:
        experience = SamplesGenerator._process_response_into_experience(generator, response, max_len=MAX_LENGTH)
        rows.append(
            {
                **{k: response[k] for k in ("reward", "scores", "observation_tokens", "action_ranges", "truncated")},
                "rollout_log_probs": response["rollout_log_probs"],
                "extra_logs": response["extra_logs"],
                "experience": {
                    "sequences": experience.sequences[0].tolist(),
                    "action_mask": experience.action_mask[0].tolist(),
                    "rollout_log_probs": experience.rollout_log_probs[0].tolist(),
                    "info": {k: float(v[0]) for k, v in experience.info.items() if v.dtype != torch.bool},
                },
            }
        )
    executor.close()
    Path(out).write_text(json.dumps({"rows": rows, "spent": spent}), encoding="utf-8")


if __name__ == "__main__":
    main()
