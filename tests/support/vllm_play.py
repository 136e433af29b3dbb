"""Plays episodes with vLLM in a process of its own and writes what was sampled; run by tests/smoke/test_vllm.py.

vLLM starts processes and changes logging and warnings, so tests keep out of its process.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from sampled import CHATS, STOP, Listening, play_episodes  # beside this script: "tests" may be another package there

from grepseek_env.tasks import load_question_set
from policies.chat import Sampling
from policies.chat_policy import ChatPolicy
from policies.vllm_engine import VLLMModel


def main() -> None:
    folder, engine, question_id, rules, out = sys.argv[1:]
    options = {"max_num_seqs": 16}
    with VLLMModel(folder, engine=engine, dtype="float32", engine_options=options) as model:  # type: ignore[arg-type]
        sampling = Sampling(max_tokens=12, seed=3, logprobs=True, stop=STOP)
        stopped = model.complete(CHATS * 4, sampling)
        again = model.complete(CHATS * 4, sampling)
        [full] = model.complete([[{"role": "user", "content": "word " * 5000}]], sampling)
        long = model.complete(
            [[{"role": "user", "content": "Ulm " * 3600}]] * 4, sampling
        )  # read in several steps, or not
        episodes = []
        listening = Listening(model)
        policy = ChatPolicy(listening, Sampling(max_tokens=8, logprobs=True))
        for record in play_episodes(policy, 2, max_turns=3):
            turns, listening.heard = listening.heard[: len(record.turns)], listening.heard[len(record.turns) :]
            episodes.append({"record": record.to_json(), "heard": [asdict(c) for c in turns]})
        # What it has learnt by heart it says where nothing is drawn.
        learnt = ChatPolicy(listening, Sampling(temperature=0.0, logprobs=True))
        question = load_question_set("world:tiny").by_id(question_id)
        [record] = play_episodes(learnt, [question], **json.loads(rules))
        episodes.append({"record": record.to_json(), "heard": [asdict(c) for c in listening.heard]})
    result = {
        "stopped": [asdict(c) for c in stopped],
        "again": [asdict(c) for c in again],
        "full": asdict(full),
        "long": [asdict(c) for c in long],
        "episodes": episodes,
    }
    Path(out).write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
