"""Latency of each class against the size of the corpus, as a picture."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from grepseek_env.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["check_plots", "draw_scaling"]

_STYLES = {"bash": ("#8c8c8c", "o", "bash"), "without": ("#4477aa", "s", "no index"), "with": ("#cc3311", "^", "index")}
_COLUMNS = 4


def check_plots() -> None:
    """Makes sure, before anything is measured, that plots can be drawn.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        raise ConfigError("plots need matplotlib: pip install 'grepseek-env[plots]', or leave out --out")


def draw_scaling(sizes: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draws one panel a class, both axes logarithmic.

    Args:
        sizes: one entry a corpus: `bytes`, and `classes`: class -> contestant -> milliseconds.
        path: PNG file.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = list(sizes[0]["classes"])
    rows = -(-len(names) // _COLUMNS)
    figure = Figure(figsize=(3.4 * _COLUMNS, 2.8 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, _COLUMNS, sharex=True, sharey=True, squeeze=False)
    ticks = [entry["bytes"] / 1e9 for entry in sizes]
    for panel, name in zip(axes.flat, names, strict=False):
        for contestant, (color, marker, label) in _STYLES.items():
            points = [
                (entry["bytes"] / 1e9, entry["classes"][name][contestant])
                for entry in sizes
                if contestant in entry["classes"].get(name, {})
            ]
            if points:
                panel.loglog(*zip(*points, strict=True), color=color, marker=marker, markersize=4, label=label)
        panel.set_title(name, fontsize=9)
        panel.grid(visible=True, which="major", alpha=0.3)
        panel.set_xticks(ticks, [f"{tick:.2g}" for tick in ticks], fontsize=8)
        panel.minorticks_off()
    for panel in list(axes.flat)[len(names) :]:
        panel.set_visible(False)
    for row in axes:
        row[0].set_ylabel("milliseconds", fontsize=8)
    for panel in axes[-1]:
        panel.set_xlabel("corpus, GB", fontsize=8)
    axes[0][0].legend(fontsize=8)
    figure.savefig(path, dpi=120)
