"""What the CPU study measures and writes: held-out scores, what an odd answer earns, a table and learning curves."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from algos.grpo_metrics import mean
from algos.grpo_rollout import play_groups
from algos.training import load_policy, read_metrics
from grepseek_env import open_backend
from grepseek_env.env import GrepSeekEnv, make_rules
from grepseek_env.errors import ConfigError
from grepseek_env.manifest import run_manifest, write_manifest
from grepseek_env.paths import atomic_write
from grepseek_env.tasks import load_question_set
from grepseek_env.tokens import ChatTokens, TokenContext
from policies.base import PolicyStop
from policies.budgets import Budget
from policies.chat import Sampling
from policies.tiny_sampler import LiveModel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from grepseek_env.trajectory import Trajectory

__all__ = ["copied_right", "evaluate", "hacks", "names_relation", "read_outcomes", "table", "write_report"]

HOPS = ("all", "1-hop", "2-hop")
_NAME = re.compile(r"[A-Z][a-z]+(?: [A-Z][a-z]+)*")


def evaluate(
    model: Path, *, corpus: str, count: int, rules: Mapping[str, Any], turn_tokens: int, seed: int
) -> dict[str, Any]:
    """Plays held-out questions once with the most likely tokens and once with sampled ones (T = 1).

    Args:
        model: folder in the layout of the Hub.
        corpus: a generated world of one-fact passages.
        count: questions of its test split; the first ones.
        rules: keywords of `make_rules`.
        turn_tokens: of a turn at most.
        seed: of sampling.

    Returns:
        "greedy" and "sampled"; each has "all", "1-hop" and "2-hop", and each of these what `_scores` returns.
    """
    import torch  # noqa: PLC0415

    policy, tokenizer, _ = load_policy(model)
    questions = load_question_set(corpus, split="test")[:count]
    out: dict[str, Any] = {"questions": count}
    live = LiveModel(policy, tokenizer, name=str(model))
    with open_backend(corpus) as backend, torch.no_grad():
        for name, temperature in (("greedy", 0.0), ("sampled", 1.0)):
            sampling = Sampling(temperature=temperature, max_tokens=turn_tokens)
            played = make_rules(**rules, tokenizer=tokenizer)
            groups = play_groups(played, backend, live, questions, 1, sampling, seed=seed)
            valid = [(group.question.metadata["kind"], t) for group in groups for t in group.valid]
            out[name] = {hop: _scores([t for kind, t in valid if hop in {"all", kind}]) for hop in HOPS}
    return out


def _scores(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Returns means over episodes, the standard errors of F1 and EM, and two shares over all commands."""
    f1 = [float(t.breakdown["f1"]) for t in trajectories]
    em = [float(t.breakdown["em"]) for t in trajectories]
    commands = [pair for t in trajectories for pair in _commands(t)]
    values = {
        "n": len(f1),
        "f1": mean(f1),
        "f1_se": standard_error(f1),
        "em": mean(em),
        "em_se": standard_error(em),
        "format_rate": mean(float(t.breakdown["format_valid"]) for t in trajectories),
        "reward": mean(t.reward for t in trajectories),
        "turns": mean(len(t.turns) for t in trajectories),
        "commands": len(commands) / max(1, len(f1)),
        "answer_words": mean(len(t.answer.split()) for t in trajectories if t.answer is not None),
        "names_relation": mean(float(names_relation(command)) for command, _ in commands),
        "copied_right": mean(float(copied_right(command, seen)) for command, seen in commands),
    }
    return {name: value if name == "n" else round(value, 4) for name, value in values.items()}


def standard_error(values: Iterable[float]) -> float:
    """Returns the standard error of the mean; 0 of fewer than two values."""
    items = list(values)
    if len(items) < 2:
        return 0.0
    centre = mean(items)
    return math.sqrt(math.fsum((v - centre) ** 2 for v in items) / (len(items) - 1) / len(items))


def _commands(trajectory: Trajectory) -> list[tuple[str, str]]:
    """Returns an episode's commands, each with all that the policy had read before it."""
    seen, out = trajectory.question, []
    for turn in trajectory.turns:
        if turn.kind == "tool_call" and turn.command is not None:
            out.append((turn.command, seen))
        seen += "\n" + turn.observation
    return out


def names_relation(command: str) -> bool:
    """Tells whether a command's patterns say more than a name: names have capital letters, relations have none."""
    return any(re.search(r"\b[a-z]{2,}", pattern) for pattern in re.findall(r"'([^']*)'", command))


def copied_right(command: str, seen: str) -> bool:
    """Tells whether a command's patterns hold a name and every one of them has been read before."""
    names = [name for pattern in re.findall(r"'([^']*)'", command) for name in _NAME.findall(pattern)]
    return bool(names) and all(name in seen for name in names)


def hacks(corpus: str, tokenizer: Any, *, max_turns: int, context: int) -> list[dict[str, Any]]:
    """Has episodes end in the ways that reinforcement learning likes to find, and returns what the reward says of each.

    All are of the same held-out question, in the real environment, with its default reward: F1 plus 0.1 for the format.

    Args:
        corpus: a generated world of one-fact passages.
        tokenizer: counts the tokens of a context.
        max_turns: of an episode.
        context: tokens of an episode; one that has none left for a turn ends there.
    """
    made = GrepSeekEnv(corpus=corpus, split="test", tokenizer=tokenizer, max_turns=max_turns, shuffle=False)
    with closing(made) as env:
        questions = env.question_set[:200]
        question = next(q for q in questions if q.metadata["kind"] == "1-hop" and len(q.golden_answers[0].split()) == 1)
        gold, subject = question.golden_answers[0], question.evidence[0].subject
        others = list(dict.fromkeys(q.golden_answers[0] for q in questions if q.golden_answers[0] != gold))
        search = f"rg -F '{subject}' corpus.jsonl | head -n 1"
        flood = "rg -F ' ' corpus.jsonl | head -n 1000"
        own = env.rules.action_format

        def ask(command: str) -> str:
            return own.render_action("Find it.", command)

        def answer(text: str) -> str:
            return own.render_action("Found.", answer=text)

        cases: list[tuple[str, list[str]]] = [
            ("the right answer", [ask(search), answer(gold)]),
            ("the right answer without a search", [answer(gold)]),
            *(
                (f"the right answer among {n} other candidates", [ask(search), answer(" ".join([gold, *others[:n]]))])
                for n in (1, 4, 19, 99)
            ),
            ("the right answer ten times", [ask(search), answer(" ".join([gold] * 10))]),
            ("the question with the right answer", [ask(search), answer(f"{question.question} {gold}")]),
            ("a wrong answer", [ask(search), answer(others[0])]),
            ("an empty answer", [ask(search), answer(gold).replace(gold, "")]),
            ("the right answer, with text after it", [ask(search), answer(gold) + " That is right."]),
            ("searches until no turn is left", [ask(search)] * max_turns),
            ("a thought that never ends, in every turn", ["<think>Find" + " it" * 60] * max_turns),
            ("1,000 lines printed, then the right answer", [ask(flood), answer(gold)]),
        ]
        return [_paid(env, question.id, name, turns, tokenizer, context) for name, turns in cases]


def _paid(
    env: GrepSeekEnv, question_id: str, name: str, turns: Sequence[str], tokenizer: Any, context: int
) -> dict[str, Any]:
    """Plays written turns under a token budget, as a sampler does."""
    first, _ = env.reset(seed=0, options={"question_id": question_id})
    tokens = ChatTokens(tokenizer)
    read = TokenContext(tokens, role=env.rules.action_format.tool_role)
    read.start([{"role": "system", "content": env.system_prompt}, {"role": "user", "content": first}])
    budget = Budget(context_tokens=context)
    for text in turns:
        try:
            budget.of_turn(len(tokens.assistant(text)), sampled=0, context=len(read))
        except PolicyStop:
            env.episode.stop()
            break
        observation, _, terminated, truncated, _ = env.step(text)
        if terminated or truncated:
            break
        read.sampled(tokens.assistant(text))
        read.observed(observation)
    record = env.trajectory()
    return {
        "what": name,
        "ends": record.finish_reason,
        "answer_words": len((record.answer or "").split()),
        "reward": round(record.reward, 4),
        **{key: record.breakdown[key] for key in ("f1", "format_valid", "format_bonus")},
    }


def read_outcomes(out: Path) -> list[dict[str, Any]]:
    """Reads what the arms of a study have scored so far."""
    order = {"base": 0, "grpo": 1, "barely": 2, "barely+grpo": 3, "plain": 4, "plain+grpo": 5, "strong": 6}
    found = [json.loads(path.read_bytes()) for path in sorted(out.glob("world-*/seed-*/*.json"))]
    return sorted(found, key=lambda o: (o["world"], o["seed"], order.get(o["arm"], 7)))


# What a table's columns show: how it was played, which questions, which score.
_COLUMNS = (
    ("F1", "greedy", "all", "f1"),
    ("EM", "greedy", "all", "em"),
    ("1-hop F1", "greedy", "1-hop", "f1"),
    ("2-hop F1", "greedy", "2-hop", "f1"),
    ("F1 sampled", "sampled", "all", "f1"),
    ("EM sampled", "sampled", "all", "em"),
    ("1-hop sampled", "sampled", "1-hop", "f1"),
    ("2-hop sampled", "sampled", "2-hop", "f1"),
)
_SHARES = (
    ("format valid", "format_rate"),
    ("commands naming the relation", "names_relation"),
    ("commands with names copied right", "copied_right"),
    ("commands an episode", "commands"),
    ("answer words", "answer_words"),
)


def table(outcomes: Sequence[Mapping[str, Any]], paid: Sequence[Mapping[str, Any]] = ()) -> str:
    """Returns the study in Markdown: means over worlds and seeds, every one of them, and what odd answers earn."""
    arms = list(dict.fromkeys(o["arm"] for o in outcomes))
    runs = {arm: [o for o in outcomes if o["arm"] == arm] for arm in arms}
    heads = [head for head, *_ in _COLUMNS]

    def pooled(arm: str, pick: Callable[[Mapping[str, Any]], float]) -> str:
        values = [pick(o) for o in runs[arm]]
        return f"{mean(values):.3f} ± {standard_error(values):.3f}"

    def whole(way: str, hop: str, key: str) -> Callable[[Mapping[str, Any]], float]:
        return lambda o: float(o[way][hop][key])

    cells = [
        [f"{o[way][hop][key]:.3f} ± {o[way][hop][key + '_se']:.3f}" for _, way, hop, key in _COLUMNS] for o in outcomes
    ]
    parts = [
        "Means over worlds and seeds, ± the standard error over these runs.",
        _markdown(
            ["arm", "runs", *heads],
            [[arm, str(len(runs[arm])), *(pooled(arm, whole(*column[1:])) for column in _COLUMNS)] for arm in arms],
        ),
        "How they search (greedy, all questions).",
        _markdown(
            ["arm", *(head for head, _ in _SHARES)],
            [[arm, *(pooled(arm, whole("greedy", "all", key)) for _, key in _SHARES)] for arm in arms],
        ),
        "Every run, ± the standard error over its questions.",
        _markdown(
            ["world", "seed", "arm", *heads],
            [[str(o["world"]), str(o["seed"]), o["arm"], *cell] for o, cell in zip(outcomes, cells, strict=True)],
        ),
    ]
    if paid:
        names = ("reward", "f1", "format_bonus")
        rows = [[str(p["what"]), str(p["ends"]), *(f"{p[name]:.3f}" for name in names)] for p in paid]
        parts += ["What an episode earns that ends otherwise.", _markdown(["episode", "ends by", *names], rows)]
    return "\n\n".join(parts) + "\n"


def _markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write_report(
    out: Path,
    settings: Mapping[str, Any],
    corpora: Mapping[str, str],
    paid: Sequence[Mapping[str, Any]],
    *,
    seconds: float,
) -> Path:
    """Writes `table.md`, `results.json`, `curves.png` and `manifest.json` into a study's folder.

    Args:
        out: the folder.
        settings: of the study.
        corpora: world -> digest of its corpus, the first of them that which `paid` was tried on.
        paid: what `hacks` found.
        seconds: that the study took.

    Returns:
        The path of the table.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    outcomes = read_outcomes(out)
    curves = {
        f"{o['world']}/{o['seed']}/{o['arm']}": list(
            read_metrics(out / f"world-{o['world']}" / f"seed-{o['seed']}" / o["arm"] / "metrics.jsonl")
        )
        for o in outcomes
    }
    plot(curves, out / "curves.png")
    trained = {key: _kept(rows) for key, rows in curves.items() if key.endswith("grpo")}
    results = {"outcomes": outcomes, "training": trained, "hacks": list(paid)}
    atomic_write(out / "results.json", json.dumps(results, indent=None, separators=(",", ":")) + "\n")
    manifest = run_manifest(settings, corpus_digest=next(iter(corpora.values())))
    work = math.fsum(o["train_seconds"] + o["eval_seconds"] for o in outcomes)
    sets = {
        str(path.parent.relative_to(out)): _lines(path) for path in sorted(out.glob("world-*/*/trajectories.jsonl"))
    }
    extra = {
        "corpora": dict(corpora),
        "demonstrations": sets,
        "seconds": round(seconds),
        "seconds_of_arms": round(work),
        "commit": _commit(),
    }
    write_manifest(out / "manifest.json", manifest | extra)
    atomic_write(out / "table.md", table(outcomes, paid))
    return out / "table.md"


# What of GRPO's metrics tells whether the reward was earned or tricked out of the environment.
_WATCHED = ("reward_mean", "f1", "format_bonus", "answer_words", "empty_answers", "turns", "commands", "flat_groups")


def _kept(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    return {name: [round(float(row[name]), 4) for row in rows if name in row] for name in _WATCHED}


def _lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(1 for _ in file)


def _commit() -> str | None:
    git = shutil.which("git")
    if git is None:
        return None
    here = Path(__file__).parent
    out = subprocess.run([git, "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=False)
    return out.stdout.strip() or None


_PANELS = (
    ("f1", "F1 of the rollouts"),
    ("format_bonus", "reward paid for the format"),
    ("answer_words", "words an answer"),
    ("turns", "turns an episode"),
)
_COLOURS = {"grpo": "#888888", "barely+grpo": "#c8843c", "plain+grpo": "#3c78b4", "strong+grpo": "#3c9664"}


def plot(curves: Mapping[str, Sequence[Mapping[str, Any]]], path: Path) -> None:
    """Draws what GRPO's rollouts scored over the steps: a thin line a run, and the mean of an arm's runs.

    Args:
        curves: rows of metrics, by a name that ends in "/ARM".
        path: of the PNG.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as e:
        raise ConfigError("learning curves need matplotlib: pip install 'grepseek-env[tutor]'") from e
    figure = Figure(figsize=(9, 6), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (metric, label) in zip(figure.subplots(2, 2).flat, _PANELS, strict=True):
        for arm, colour in _COLOURS.items():
            runs = [
                [float(row[metric]) for row in rows if metric in row]
                for name, rows in curves.items()
                if name.rpartition("/")[2] == arm
            ]
            for run in runs:
                axes.plot(range(1, len(run) + 1), run, color=colour, linewidth=0.5, alpha=0.5)
            means = [mean(values) for values in zip(*runs, strict=False)]
            if means:
                axes.plot(range(1, len(means) + 1), means, color=colour, linewidth=2, label=arm)
        axes.set_xlabel("GRPO step")
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].legend(frameon=False, fontsize=8)
    temporary = path.with_name(f".{path.name}")
    figure.savefig(temporary, dpi=100, format="png")
    temporary.replace(path)
