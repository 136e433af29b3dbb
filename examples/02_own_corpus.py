"""Your own text and questions: a JSONL corpus, a question list, a reward of your own. Runs in a second."""

import json
import tempfile
from pathlib import Path

import gymnasium

import grepseek_env  # noqa: F401  importing it registers the ids

PASSAGES = {
    "Ada Lovelace": "Ada Lovelace was an English mathematician, born in London on 10 December 1815.",
    "Charles Babbage": "Charles Babbage designed the Analytical Engine. He was born in London in 1791.",
    "Luigi Menabrea": "Luigi Menabrea wrote a paper on the Analytical Engine, which Ada Lovelace translated in 1843.",
}
QUESTIONS = [
    {"id": "1", "question": "When was Ada Lovelace born?", "golden_answers": ["10 December 1815", "December 10, 1815"]},
    {"id": "2", "question": "Who designed the Analytical Engine?", "golden_answers": ["Charles Babbage"]},
]


def strict(answer: str | None, golden_answers: tuple[str, ...], format_valid: bool) -> float:  # noqa: FBT001
    """Pays for an exact answer in a valid transcript only."""
    return float(format_valid and answer in golden_answers)


with tempfile.TemporaryDirectory() as folder:
    corpus = Path(folder) / "engines.jsonl"
    with corpus.open("w", encoding="utf-8") as f:
        for i, (title, text) in enumerate(PASSAGES.items()):
            f.write(json.dumps({"id": str(i), "contents": f'"{title}"\n{text}'}, ensure_ascii=False) + "\n")

    env = gymnasium.make(
        "GrepSeek-v0",
        corpus=corpus,  # prepared on first use, in engines.jsonl.grepseek beside it
        questions=QUESTIONS,
        action_format="plain",  # the whole text is the command; `answer: ...` ends
        max_observation_chars=400,
        reward=strict,
        render_mode="ansi",
    )
    env.reset(options={"question_id": "1"})
    # Commands always say corpus.jsonl, whatever the file is called.
    observation, *_ = env.step("rg -F 'Ada Lovelace' corpus.jsonl | rg -o 'born in [A-Z][a-z]+ on [^.]+'")
    answer = observation.split(" on ")[-1].strip()
    env.step(f"answer: {answer}")
    print(env.render())

    # A mistake is an observation, not an exception.
    env.reset(options={"question_id": "2"})
    observation, _, _, _, info = env.step("cat corpus.jsonl > copy.txt")
    print(observation)
    print("refused by rule:", info["refused"])
    env.close()
