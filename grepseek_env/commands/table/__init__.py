"""COMMANDS: one entry a program drives checking, planning, prompt help and docs."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from grepseek_env.commands.table.files import FIND, LS
from grepseek_env.commands.table.scripts import AWK, SED
from grepseek_env.commands.table.search import GREP, RG
from grepseek_env.commands.table.text import CAT, CUT, HEAD, SORT, TAIL, TR, UNIQ, WC

if TYPE_CHECKING:
    from collections.abc import Mapping

    from grepseek_env.commands.spec import ProgramSpec

__all__ = ["COMMANDS"]

COMMANDS: Mapping[str, ProgramSpec] = MappingProxyType(
    {spec.name: spec for spec in (RG, GREP, FIND, SED, AWK, HEAD, TAIL, CAT, LS, WC, SORT, CUT, UNIQ, TR)}
)
"""Program name -> its entry, in the order in which help shows them."""
