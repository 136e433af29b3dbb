"""Command text -> Pipeline: the command language, one table, one gate."""

from __future__ import annotations

from grepseek_env.commands.spec import Arity, Effect, FlagSpec, Operands, ProgramSpec, Style, ValueKind, describe
from grepseek_env.commands.syntax import (
    Operand,
    OperandKind,
    Option,
    Pipeline,
    ScriptFacts,
    Span,
    Stage,
    Word,
)
from grepseek_env.commands.table import COMMANDS
from grepseek_env.commands.validator import parse

__all__ = [
    "COMMANDS",
    "Arity",
    "Effect",
    "FlagSpec",
    "Operand",
    "OperandKind",
    "Operands",
    "Option",
    "Pipeline",
    "ProgramSpec",
    "ScriptFacts",
    "Span",
    "Stage",
    "Style",
    "ValueKind",
    "Word",
    "describe",
    "parse",
]
