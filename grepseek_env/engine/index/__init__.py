"""The token index: for literals that a line must hold, the few blocks of the corpus where such lines can stand.

`build_index` makes it, `TokenIndex` answers. Modules with kernels (`texts`, `tokens`, `codes`, `lists`, `words`,
`room`, `dictionary`, `query`) import numba and compile, or load, machine code when they are imported; so the
others import them inside functions.
"""

from __future__ import annotations

from grepseek_env.engine.index.build import build_index, load_kernels
from grepseek_env.engine.index.index import ALL, Candidates, Everything, TokenIndex, index_info, verify_index
from grepseek_env.engine.index.layout import IndexInfo

__all__ = [
    "ALL",
    "Candidates",
    "Everything",
    "IndexInfo",
    "TokenIndex",
    "build_index",
    "index_info",
    "load_kernels",
    "verify_index",
]
