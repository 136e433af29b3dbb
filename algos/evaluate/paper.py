"""The published rows that an evaluation is shown beside (arXiv 2605.29307: token F1, full sets, 2018 Wikipedia)."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["COLUMNS", "MICRO_EM", "ROWS"]

COLUMNS: Mapping[str, str] = MappingProxyType(
    {
        "nq": "NQ",
        "triviaqa": "TriviaQA",
        "popqa": "PopQA",
        "hotpotqa": "HotpotQA",
        "2wikimultihopqa": "2Wiki",
        "musique": "MuSiQue",
        "bamboogle": "Bamboogle",
    }
)
"""Name of a set -> its heading, in the paper's order."""

ROWS: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        "Search-R1 (paper)": MappingProxyType(
            {
                "nq": 0.5067,
                "triviaqa": 0.7693,
                "popqa": 0.5101,
                "hotpotqa": 0.5591,
                "2wikimultihopqa": 0.4299,
                "musique": 0.2878,
                "bamboogle": 0.6989,
                "micro": 0.5441,
            }
        ),
        "GrepSeek (paper)": MappingProxyType(
            {
                "nq": 0.5223,
                "triviaqa": 0.7673,
                "popqa": 0.4861,
                "hotpotqa": 0.6231,
                "2wikimultihopqa": 0.5178,
                "musique": 0.3006,
                "bamboogle": 0.6212,
                "micro": 0.5691,
            }
        ),
    }
)
"""Token F1."""

MICRO_EM: Mapping[str, float] = MappingProxyType({"GrepSeek (paper)": 0.4948})
