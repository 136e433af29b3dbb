"""Tables for the terminal, in the paper's layout: a column a set, then micro and macro averages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from algos.evaluate.paper import COLUMNS, MICRO_EM, ROWS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["comparison_table", "latency_lines", "result_table"]

_FIRST = 22
_WIDTH = 13


def _score(value: float | None) -> str:
    """Returns a score as the paper prints it: four digits, no zero before the point."""
    return "" if value is None else f"{value:.4f}".removeprefix("0")


def _line(first: str, cells: Sequence[str], widths: Sequence[int]) -> str:
    cut = first if len(first) <= _FIRST else f"{first[: _FIRST - 1]}…"
    return f"{cut:<{_FIRST}}" + "".join(f"{cell:>{w}}" for cell, w in zip(cells, widths, strict=True)).rstrip()


def result_table(summary: Mapping[str, Any], policy: str) -> str:
    """Returns scores, with the paper's rows where sets match, and below them what is counted."""
    sets: Mapping[str, Any] = {name: s for name, s in summary["sets"].items() if s["episodes"]}
    if not sets:
        return "no episode counts: the infrastructure failed all of them; run the same command again"
    names = [
        *sorted((n for n in sets if n in COLUMNS), key=list(COLUMNS).index),
        *(n for n in sets if n not in COLUMNS),
    ]
    rows = [sets[name] for name in names]
    headings = [COLUMNS.get(name, name) for name in names]
    widths = [max(_WIDTH, len(h) + 2) for h in headings] + [_WIDTH, _WIDTH]
    averages = [summary["micro"], summary["macro"]]

    lines = [_line("", [*headings, "micro", "macro"], widths)]
    for metric, title in (("f1", "F1"), ("em", "EM")):
        lines.append(_line(f"{title}  {policy}", [_score(s[metric]["mean"]) for s in [*rows, *averages]], widths))
        lines.append(_line("    95 % interval", [_ends(s[metric]["ci95"]) for s in [*rows, *averages]], widths))
        if metric == "f1":
            lines += _paper_lines(names, widths)
        elif set(names) == set(COLUMNS):
            lines += [
                _line(f"EM  {who}", [*[""] * len(names), _score(value), ""], widths) for who, value in MICRO_EM.items()
            ]
    lines.append("")
    lines += _counts(rows, summary["all"], widths)
    if matched := [n for n in names if n in COLUMNS]:
        lines += ["", f"The paper's rows: full sets over 2018 Wikipedia; {_sizes(matched, sets)}"]
    return "\n".join(lines)


def _ends(ends: Sequence[float]) -> str:
    return f"{_score(ends[0])[:-1]}-{_score(ends[1])[:-1]}"


def _sizes(names: Sequence[str], sets: Mapping[str, Any]) -> str:
    return "here " + ", ".join(f"{COLUMNS[name]} {sets[name]['questions']:,}" for name in names) + " questions"


def _paper_lines(names: Sequence[str], widths: Sequence[int]) -> list[str]:
    if not any(name in COLUMNS for name in names):
        return []
    whole = set(names) == set(COLUMNS)  # an average over other sets would not compare
    lines = []
    for who, row in ROWS.items():
        macro = sum(row[name] for name in COLUMNS) / len(COLUMNS)
        averages = [_score(row["micro"]), _score(macro)] if whole else ["", ""]
        lines.append(_line(f"F1  {who}", [*(_score(row.get(name)) for name in names), *averages], widths))
    return lines


def _counts(rows: Sequence[Any], every: Any, widths: Sequence[int]) -> list[str]:
    """Returns the lines below the scores; their last column is over all episodes."""

    def line(title: str, value: Any) -> str:
        return _line(title, [*(value(s) for s in rows), value(every), ""], widths)

    def episode(name: str, digits: int = 2) -> Any:
        return lambda s: f"{s['per_episode'][name]:.{digits}f}" if name in s["per_episode"] else "-"

    def percent(value: Any) -> Any:
        return lambda s: f"{100 * value(s):.1f} %"

    lines = [
        _line("", [*[""] * len(rows), "all", ""], widths),
        line("questions", lambda s: f"{s['questions']:,}"),
        line("episodes", lambda s: f"{s['episodes']:,}"),
        line("faults (left out)", lambda s: f"{s['faults']:,}"),
        line("answered", percent(lambda s: s["answered"])),
        line("format valid", percent(lambda s: s["format_valid"])),
        *(
            line(f"  end: {reason}", percent(lambda s, r=reason: s["finish_reasons"].get(r, 0) / s["episodes"]))
            for reason in every["finish_reasons"]
        ),
        line("turns", episode("turns")),
        line("commands", episode("commands")),
        line("  empty", percent(lambda s: s["share_of_commands"]["empty"])),
        line("  failed", percent(lambda s: s["share_of_commands"]["failed"])),
        line("  output cut", percent(lambda s: s["share_of_commands"]["cut"])),
        line("malformed turns", episode("malformed")),
    ]
    if "policy_tokens" in every["per_episode"]:
        lines.append(line("policy tokens", episode("policy_tokens", 0)))
    if "observation_tokens" in every["per_episode"]:
        lines.append(line("observation tokens", episode("observation_tokens", 0)))
    lines += [
        line("policy characters", episode("policy_chars", 0)),
        line("observation characters", episode("observation_chars", 0)),
    ]
    ks = sorted({int(k) for s in rows for k in s.get("best_of", {})})
    for k in ks:
        lines.append(line(f"pass@{k} (EM)", lambda s, k=k: _best(s, k, "pass")))
        lines.append(line(f"best F1 of {k}", lambda s, k=k: _best(s, k, "f1")))
    if ks:
        lines.append(line("F1 sd over samples", lambda s: _score(s["samples"]["f1"]["sd"]) if "samples" in s else ""))
    return lines


def _best(row: Mapping[str, Any], k: int, what: str) -> str:
    found = row.get("best_of", {}).get(str(k))
    return _score(found[what]) if found else ""


_PARTS = {
    "model_turn": "a turn of the model",
    "tool_call": "a command",
    "model_episode": "the model, an episode",
    "tool_episode": "commands, an episode",
    "episode": "both, an episode",
}


def latency_lines(latency: Mapping[str, Any]) -> str:
    """Returns where the time went."""
    widths = [_WIDTH] * 4
    lines = [_line("seconds", ["count", "mean", "p50", "p95"], widths)]
    for part, title in _PARTS.items():
        d = latency[part]
        lines.append(_line(title, [f"{d['count']:,}", *(f"{d[key]:.4f}" for key in ("mean", "p50", "p95"))], widths))
    return "\n".join(lines)


def comparison_table(comparison: Mapping[str, Any]) -> str:
    """Returns what `compare` found, a line a set and metric."""
    headings = ("questions", "A", "B", "B - A", "95 % interval", "p", "effect", "better/worse/equal")
    widths = (11, 9, 9, 9, 19, 9, 11, 21)
    lines = [
        f"A  {comparison['a']['folder']}  ({comparison['a']['policy']})",
        f"B  {comparison['b']['folder']}  ({comparison['b']['policy']})",
        *(f"   {key}: {_short(a)} -> {_short(b)}" for key, (a, b) in comparison["differing_settings"].items()),
        "",
    ]
    for metric, title in (("f1", "F1"), ("em", "EM"), ("reward", "reward")):
        lines.append(_line(title, headings, widths))
        for name, found in comparison["sets"].items():
            lines.append(_compared(COLUMNS.get(name, name), found[metric], widths))
        lines.append("")
    only = comparison["only_a"], comparison["only_b"]
    if any(only):
        lines.append(f"not compared: {only[0]:,} questions only in A, {only[1]:,} only in B")
    lines.append(
        "p: sign-flip permutation test, two-sided; interval: paired bootstrap; effect: mean / sd of differences"
    )
    return "\n".join(lines)


def _compared(name: str, found: Mapping[str, Any], widths: Sequence[int]) -> str:
    low, high = found["ci95"]
    effect = found["effect"]
    cells = (
        f"{found['questions']:,}",
        _score(found["mean_a"]),
        _score(found["mean_b"]),
        f"{found['difference']:+.4f}",
        f"{low:+.4f} {high:+.4f}",
        f"{found['p']:.4f}",
        "all equal" if effect is None else f"{effect:+.3f}",
        f"{found['better']:,}/{found['worse']:,}/{found['equal']:,}",
    )
    return _line(name, cells, widths)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
