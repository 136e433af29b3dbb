"""An algorithm of one's own: REINFORCE with a baseline on a vector environment. On a CPU, within a minute.

The policy is one softmax over everything it may do next: a command template filled with a name that it has seen, or a
span of the last output as the answer. Each choice is described by a few features, and the policy has a weight for each;
nothing else is known to it. It learns to look up the passage of what the question is about and which words stand
before the answer. (A language model with random weights would hardly ever get a reward to learn from.)

    python examples/04_own_algorithm.py [STEPS]
"""

import re
import sys
import zlib
from collections.abc import Callable
from functools import cache
from itertools import product

import gymnasium
import numpy as np

import grepseek_env  # noqa: F401  importing it registers the ids
from grepseek_env.tasks import load_question_set

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
ENVS = 32
FEATURES = 1 << 16  # weights; features share them by hash
LEARNING_RATE = 0.1
TEMPLATES = (
    r"""rg -F '"\"{}\"' corpus.jsonl | head -n 1""",  # the passage with this title
    "rg -F '{}' corpus.jsonl | head -n 1",
    "rg -c -F '{}' corpus.jsonl",
    "rg -F '{}' corpus.jsonl | tail -n 1 | cut -c 1-80",
)
MONTH = "(?:January|February|March|April|May|June|July|August|September|October|November|December)"
SPAN = re.compile(
    rf"(?P<date>\d+ {MONTH} \d{{4}}|{MONTH} \d+, \d{{4}})|(?P<number>\d[\d,]*)"
    r"|(?P<name>[A-Z][\w&]*(?: (?:of |the |& )*[A-Z]\w*)*)|(?P<word>[a-z]+)"
)
Envs = gymnasium.vector.VectorEnv
Episode = list[tuple[np.ndarray, np.ndarray, int]]  # a step: places of the choices, their probabilities, the one taken
Report = Callable[[Episode, float], object]
SMALL = set(
    re.findall(r"\w+", "a an and are at by did does for has have how in is it of on the to was were what which with")
)


@cache  # the same situations come again and again
def choices(question: str, output: str) -> tuple[tuple[str, ...], np.ndarray]:
    """Returns the texts that can be written next and, a row each, the places of their features' weights."""
    texts: list[str] = []
    rows: list[list[str]] = []
    # The first word of a sentence is capitalised anyway, so a name is looked for behind it.
    first, _, rest = question.partition(" ")
    cues = [first, *(m.group().lower() for m in SPAN.finditer(rest) if m["word"] and m.group() not in SMALL)]
    names = list(dict.fromkeys(m.group() for m in SPAN.finditer(rest) if m["name"]))
    for (number, template), name in product(enumerate(TEMPLATES), names):
        texts.append(template.format(name))
        rows.append([f"search {number}", f"search {number} after output {bool(output)}"])
    before = ["^", "^"]
    for m in SPAN.finditer(output or rest):
        text, kind = m.group(), m.lastgroup
        if not (kind == "word" and text in SMALL):
            texts.append(f"answer: {text}")
            row = ["answer", f"answer from output {bool(output)}", f"answer in question {text in question}"]
            row += [f"{cue} wants {kind}" for cue in cues]
            row += [f"{cue} wants {kind} after {word}" for cue in cues for word in (before[-1], " ".join(before[-2:]))]
            rows.append(row)
        before.append(text.lower())
    width = max(map(len, rows))
    places = [[zlib.crc32(f.encode()) % (FEATURES - 1) + 1 for f in row] + [0] * (width - len(row)) for row in rows]
    return tuple(texts), np.array(places)


def probabilities(weights: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Returns the softmax over the choices; the weight at place 0 stays 0."""
    scores = weights[places].sum(axis=1)
    exponentials = np.exp(scores - scores.max())
    return exponentials / exponentials.sum()


def make(split: str) -> Envs:
    """Returns environments that ask the split's questions of one hop; no two of them ask the same."""
    questions = [q for q in load_question_set("world:tiny", split=split) if q.metadata["hops"] == 1]
    options = {"questions": questions, "action_format": "plain", "max_turns": 4, "max_observation_chars": 1000}
    return gymnasium.make_vec("GrepSeek-v0", num_envs=ENVS, reward="paper", autoreset_mode="SameStep", **options)


def play(envs: Envs, weights: np.ndarray, rng: np.random.Generator | None, steps: int, report: Report) -> None:
    """Plays `steps` steps and calls `report(episode, its return)` at every end; without a generator greedily."""
    observations, _ = envs.reset(seed=0)
    questions = [text.removeprefix("Query: ") for text in observations]
    outputs = [""] * ENVS
    episodes: list[Episode] = [[] for _ in range(ENVS)]
    for _ in range(steps):
        actions = []
        for i in range(ENVS):
            texts, places = choices(questions[i], outputs[i])
            p = probabilities(weights, places)
            chosen = int(p.argmax() if rng is None else rng.choice(len(p), p=p))
            episodes[i].append((places, p, chosen))
            actions.append(texts[chosen])
        observations, rewards, terminated, truncated, _ = envs.step(actions)
        for i, ended in enumerate(terminated | truncated):
            if ended:
                report(episodes[i], float(rewards[i]))
                questions[i], outputs[i], episodes[i] = observations[i].removeprefix("Query: "), "", []
            else:
                outputs[i] = observations[i]


def mean_return(envs: Envs, weights: np.ndarray) -> float:
    """Returns the mean return of the policy's likeliest choices."""
    returns: list[float] = []
    play(envs, weights, None, 24, lambda _, reward: returns.append(reward))
    return float(np.mean(returns))


def main() -> None:
    """Learns, and shows how well on questions of another world with names of its own."""
    train, test = make("train"), make("test")
    weights = np.zeros(FEATURES)
    baseline = 0.0
    recent: list[float] = []

    def learn(episode: Episode, reward: float) -> None:
        nonlocal baseline
        advantage = reward - baseline
        baseline += 0.01 * advantage
        recent.append(reward)
        for places, p, chosen in episode:
            gradient = -p  # of log p[chosen] by the scores
            gradient[chosen] += 1.0
            np.add.at(weights, places, LEARNING_RATE * advantage * gradient[:, None])
        weights[0] = 0.0

    print(f"before: test {mean_return(test, weights):.2f}", flush=True)
    rng = np.random.default_rng(0)
    for done in range(STEPS // 10, STEPS + 1, STEPS // 10):
        recent.clear()
        play(train, weights, rng, STEPS // 10, learn)
        print(f"step {done:5d}: train {np.mean(recent):.2f}  test {mean_return(test, weights):.2f}", flush=True)
    train.close()
    test.close()


if __name__ == "__main__":
    main()
