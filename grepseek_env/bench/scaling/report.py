"""The figures as tables of up to 100 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["batch_table", "class_table", "index_table"]

_MISSING = "-"


def index_table(sizes: Sequence[Mapping[str, Any]]) -> str:
    """Returns size, rate and memory of each index; dashes where it was there already."""
    lines = [f"{'corpus GB':>9}{'index, % of it':>16}{'MB/s':>8}{'MB/s a core':>13}{'MB/CPU s':>10}{'peak MB':>9}"]
    for entry in sizes:
        index, size = entry["index"], entry["bytes"]
        cells = [f"{size / 1e9:>9.2f}", f"{index['bytes'] / size:>16.1%}"]
        if "seconds" in index:
            rate = size / 1e6 / index["seconds"]
            peak = index["peak_bytes"]
            cells += [f"{rate:>8.0f}", f"{rate / index['workers']:>13.0f}"]
            cells += [
                f"{size / 1e6 / index['cpu_seconds']:>10.0f}",
                f"{_MISSING if peak is None else round(peak / 1e6):>9}",
            ]
        else:
            cells += [f"{_MISSING:>{width}}" for width in (8, 13, 10, 9)]
        lines.append("".join(cells))
    return "\n".join(lines)


def class_table(sizes: Sequence[Mapping[str, Any]]) -> str:
    """Returns milliseconds of bash and of the engine, and how many times faster it is, a block a size."""
    blocks = []
    for entry in sizes:
        lines = [
            f"{entry['bytes'] / 1e9:.2f} GB, {entry['lines']} lines; medians",
            f"  {'':<30}{'bash ms':>10}{'no index ms':>13}{'index ms':>10}{'no index x':>12}{'index x':>10}",
        ]
        for name, milliseconds in entry["classes"].items():
            ratios = entry["against_bash"][name]
            cells = f"{milliseconds['bash']:>10.1f}{milliseconds['without']:>13.2f}{milliseconds['with']:>10.3f}"
            times = "".join(f"{_number(ratios.get(key)):>{width}}" for key, width in (("without", 12), ("with", 10)))
            lines.append(f"  {name:<30}{cells}{times}")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def batch_table(sizes: Sequence[Mapping[str, Any]]) -> str:
    """Returns commands a second of batches."""
    lines = [f"{'corpus GB':>9}{'commands':>10}{'bash/s':>10}{'no index/s':>12}{'index/s':>10}"]
    for entry in sizes:
        rates = entry["batch"]["per_second"]
        count = entry["batch"]["commands"]
        cells = f"{rates['bash']:>10.1f}{rates['without']:>12.0f}{rates['with']:>10.0f}"
        lines.append(f"{entry['bytes'] / 1e9:>9.2f}{count:>10}{cells}")
    return "\n".join(lines)


def _number(value: float | None) -> str:
    if value is None:
        return _MISSING
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"
