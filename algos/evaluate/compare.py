"""Two evaluations of the same questions, side by side: differences, intervals, a test."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from algos.evaluate.statistics import paired
from algos.evaluate.summary import METRICS
from grepseek_env.errors import ConfigError
from grepseek_env.manifest import differing_settings

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["compare"]

_Key = tuple[str, str]
_DRAWS = 10_000


def compare(a: Path, b: Path, *, resamples: int = _DRAWS, seed: int = 0) -> dict[str, Any]:
    """Compares two evaluation folders on the questions they share; a question counts with the mean of its samples.

    Args:
        a: the first folder, with `predictions.jsonl`.
        b: the second; differences are B minus A.
        resamples: draws of intervals and tests.
        seed: of the draws.

    Returns:
        JSON values: per set, micro and macro, for each metric: means, difference, interval, p, effect, counts.

    Raises:
        ConfigError: a folder is no evaluation, they share no question, or a question has other golden answers.
    """
    left, right = _predictions(a), _predictions(b)
    shared = [key for key in left if key in right]
    if not shared:
        raise ConfigError(
            f"{a} and {b} share no question (sets {_sets(left)} and {_sets(right)}); evaluate both on the same sets"
        )
    for key in shared:
        if left[key]["golden"] != right[key]["golden"]:
            raise ConfigError(
                f"question {key[1]!r} of set {key[0]!r} has golden answers {left[key]['golden']} in {a} and "
                f"{right[key]['golden']} in {b}; these are different question sets"
            )
    sets: dict[str, list[_Key]] = {}
    for key in shared:
        sets.setdefault(key[0], []).append(key)
    groups = {name: ([keys], False) for name, keys in sets.items()}
    if len(sets) > 1:
        groups |= {"micro": (list(sets.values()), False), "macro": (list(sets.values()), True)}
    first, second = _manifest(a), _manifest(b)
    return {
        "a": {"folder": str(a), "policy": first["settings"].get("policy", "?")},
        "b": {"folder": str(b), "policy": second["settings"].get("policy", "?")},
        "differing_settings": _differences(first, second),
        "only_a": len(left) - len(shared),
        "only_b": len(right) - len(shared),
        "resamples": resamples,
        "sets": {
            name: {m: _compared(left, right, keys, m, macro, resamples, seed) for m in METRICS}
            for name, (keys, macro) in groups.items()
        },
    }


def _compared(
    left: dict[_Key, Any],
    right: dict[_Key, Any],
    groups: list[list[_Key]],
    metric: str,
    macro: bool,  # noqa: FBT001
    resamples: int,
    seed: int,
) -> dict[str, Any]:
    values = [tuple(np.array([side[key][metric] for key in keys]) for side in (left, right)) for keys in groups]
    found = paired([(a, b) for a, b in values], macro=macro, resamples=resamples, seed=seed)
    return {
        "questions": sum(map(len, groups)),
        "mean_a": found.mean_a,
        "mean_b": found.mean_b,
        "difference": found.difference,
        "ci95": [found.interval.low, found.interval.high],
        "p": found.p,
        "effect": found.effect if math.isfinite(found.effect) else None,  # JSON has no infinity
        "better": found.wins,
        "worse": found.losses,
        "equal": found.ties,
    }


def _predictions(folder: Path) -> dict[_Key, dict[str, Any]]:
    path = folder / "predictions.jsonl"
    if not path.exists():
        raise ConfigError(f"{path}: no such file; write it with: grepseek eval --policy ... --out {folder}")
    samples: dict[_Key, list[dict[str, float]]] = {}
    golden: dict[_Key, list[str]] = {}
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                record = json.loads(line)
                key = record["set"], record["id"]
                samples.setdefault(key, []).append({m: float(record[m]) for m in METRICS})
                golden.setdefault(key, list(record["golden_answers"]))
            except (ValueError, KeyError, TypeError) as e:
                raise ConfigError(
                    f"{path}, line {number}: no prediction of an evaluation ({e!r}); write it anew"
                ) from e
    return {
        key: {"golden": golden[key], **{m: sum(r[m] for r in records) / len(records) for m in METRICS}}
        for key, records in samples.items()
    }


def _sets(predictions: dict[_Key, Any]) -> str:
    return ", ".join(sorted({key[0] for key in predictions})) or "none"


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / "manifest.json"
    try:
        manifest: dict[str, Any] = json.loads(path.read_bytes())
        return {**manifest, "settings": dict(manifest["settings"])}
    except (OSError, ValueError, TypeError, KeyError) as e:
        raise ConfigError(f"{path} is no manifest of an evaluation; write it anew with grepseek eval") from e


def _differences(first: dict[str, Any], second: dict[str, Any]) -> dict[str, list[Any]]:
    """Returns what else differs between the runs, so that nobody takes it for the policy's doing."""
    one, two = ({**m["settings"], **m.get("episodes", {}), "corpus": m.get("corpus_digest")} for m in (first, second))
    for settings in (one, two):
        settings.pop("sets", None)
    return {name: list(values) for name, values in differing_settings(one, two).items()}
