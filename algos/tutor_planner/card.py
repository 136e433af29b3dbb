"""The data card of a run: counts in Markdown, and plots."""

from __future__ import annotations

import json
from collections import Counter
from statistics import median
from typing import TYPE_CHECKING

from algos.tutor_planner.leaks import LEAK_CHECKS, check_trajectory
from algos.tutor_planner.patterns import command_shape
from algos.tutor_planner.run import Tally
from grepseek_env.errors import ConfigError
from grepseek_env.observation import NO_OUTPUT
from grepseek_env.paths import atomic_write

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from algos.tutor_planner.records import Record
    from algos.tutor_planner.run import Prices
    from grepseek_env.trajectory import Trajectory

__all__ = ["card_text", "write_card"]

CARD = "README.md"
_SHAPES_SHOWN = 20


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def _counts(head: Sequence[str], counts: Counter[str], total: int, *, most: int | None = None) -> str:
    rows = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:most]
    return _table((*head, "number", "share"), [(name, n, f"{n / total:.1%}") for name, n in rows])


def _spread(values: Sequence[int]) -> str:
    ordered = sorted(values)
    return f"{ordered[0]} / {median(ordered):.0f} / {ordered[-1]}"


def card_text(
    records: Sequence[Record],
    manifest: Mapping[str, object],
    *,
    prices: Mapping[str, Prices] | None = None,
    plots: Sequence[str] = (),
) -> str:
    """Returns the card as Markdown.

    Args:
        records: of all questions, in their order.
        manifest: of the run.
        prices: by role; without them no cost is told.
        plots: names of images beside the card.
    """
    kept = [record.trajectory for record in records if record.trajectory is not None]
    tally = Tally(records)
    parts = [
        "# Cold-start trajectories",
        f"{len(kept)} trajectories from {len(records)} questions ({len(kept) / max(len(records), 1):.1%} kept).",
        "Every command was run on the corpus, every observation is exactly the environment's.",
    ]
    if kept:
        parts += _kept_parts(kept)
    parts.append("## Dropped questions")
    parts.append(
        _counts(("reason",), tally.reasons, max(tally.reasons.total(), 1)) if tally.reasons else "None was dropped."
    )
    tries = Counter(str(len(step)) for record in records for step in record.attempts)
    if tries:
        parts += ["## Commands tried for a step", _counts(("tries",), tries, tries.total())]
    if early := sum(record.early_answers for record in records):
        parts.append(f"In {early} drafts the Planner wanted to answer before the chain was complete.")
    parts += _usage_parts(tally, prices or {})
    parts += [f"![{name.partition('.')[0].rpartition('/')[2]}]({name})" for name in plots]
    parts += ["## Made with", "```json\n" + json.dumps(manifest, indent=2, ensure_ascii=False) + "\n```"]
    return "\n\n".join(parts) + "\n"


def _kept_parts(kept: Sequence[Trajectory]) -> list[str]:
    hops = Counter(str(len(t.metadata.get("chain", ()))) for t in kept)
    turns = Counter(str(len(t.turns)) for t in kept)
    shapes = Counter(command_shape(turn.command) for t in kept for turn in t.turns if turn.command is not None)
    empty = sum(NO_OUTPUT in turn.observation for t in kept for turn in t.turns)
    findings = Counter(finding.rule.value for t in kept for finding in check_trajectory(t))
    exact = sum(t.breakdown["em"] == 1.0 for t in kept)
    mean_f1 = sum(t.breakdown["f1"] for t in kept) / len(kept)
    lengths = (
        ("characters of a trajectory", [len(t.text()) for t in kept]),
        ("characters written by the policy", [sum(len(turn.text) for turn in t.turns) for t in kept]),
        (
            "characters of one observation",
            [len(turn.observation) for t in kept for turn in t.turns if turn.observation],
        ),
    )
    broken = ", ".join(f"{rule} {n}" for rule, n in findings.items()) or "no rule is broken"
    return [
        f"Final answers: mean F1 {mean_f1:.3f}, exact in {exact / len(kept):.1%}.",
        "## Steps of the chain",
        _counts(("steps",), hops, len(kept)),
        "## Turns, the answer included",
        _counts(("turns",), turns, len(kept)),
        f"## Commands\n\n{shapes.total()} commands of {len(shapes)} shapes; {empty} found nothing.",
        _counts(("programs and flags",), shapes, shapes.total(), most=_SHAPES_SHOWN),
        "## Lengths",
        _table(("what", "least / median / most"), [(name, _spread(values)) for name, values in lengths]),
        f"## Leak checks\n\n`{LEAK_CHECKS}` over all {len(kept)} trajectories: {broken}.",
    ]


def _usage_parts(tally: Tally, prices: Mapping[str, Prices]) -> list[str]:
    used = {role: usage for role, usage in tally.usage.items() if usage.calls}
    if not used:
        return []
    rows = [
        (
            role,
            u.calls,
            u.retries,
            u.prompt_tokens,
            u.completion_tokens,
            f"{prices[role].cost(u):.2f}" if role in prices else "-",
        )
        for role, u in used.items()
    ]
    each = f", {tally.cost(prices) / tally.kept:.4f} a kept trajectory" if tally.kept and tally.cost(prices) else ""
    return [
        "## Models",
        _table(("role", "calls", "asked again", "tokens read", "tokens written", "cost"), rows) + each,
    ]


def _plot_data(records: Sequence[Record]) -> dict[str, tuple[str, Counter[str]]]:
    kept = [record.trajectory for record in records if record.trajectory is not None]
    thousands = Counter(f"{len(t.text()) // 1000:02d}" for t in kept)
    return {
        "turns": ("turns, the answer included", Counter(str(len(t.turns)) for t in kept)),
        "lengths": ("thousand characters", thousands),
        "shapes": (
            "command shape",
            Counter(command_shape(turn.command) for t in kept for turn in t.turns if turn.command is not None),
        ),
        "drops": ("drop reason", Counter(record.reason or "" for record in records if not record.kept)),
    }


def _draw(records: Sequence[Record], out: Path) -> list[str]:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - needed by the card alone
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as e:
        raise ConfigError("the data card's plots need matplotlib: pip install 'grepseek-env[tutor]'") from e
    folder = out / "plots"
    folder.mkdir(exist_ok=True)
    names = []
    for name, (label, counts) in _plot_data(records).items():
        path = folder / f"{name}.png"
        if not counts:
            path.unlink(missing_ok=True)
            continue
        long = max(map(len, counts)) > 4
        rows = counts.most_common(_SHAPES_SHOWN)[::-1] if long else sorted(counts.items())
        figure = Figure(figsize=(7, 1 + 0.3 * len(rows)) if long else (5, 3), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        labels, values = [row[0] for row in rows], [row[1] for row in rows]
        if long:
            axes.barh(labels, values, color="#4878a8")
            axes.set_xlabel("number")
        else:
            axes.bar(labels, values, color="#4878a8")
            axes.set_ylabel("number")
            axes.set_xlabel(label)
        axes.spines[["top", "right"]].set_visible(False)
        temporary = folder / f".{name}.png"
        figure.savefig(temporary, dpi=100, format="png")
        temporary.replace(path)
        names.append(f"plots/{name}.png")
    return names


def write_card(
    records: Sequence[Record],
    manifest: Mapping[str, object],
    out: Path,
    *,
    prices: Mapping[str, Prices] | None = None,
    plots: bool = True,
) -> Path:
    """Writes the card and its plots into the run folder and returns the card's path.

    Raises:
        ConfigError: plots are wanted and matplotlib is not installed.
    """
    names = _draw(records, out) if plots else []
    atomic_write(out / CARD, card_text(records, manifest, prices=prices, plots=names))
    return out / CARD
