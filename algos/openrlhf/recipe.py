"""What both recipes share: fields that know their flag, command lines, and starting them."""

from __future__ import annotations

import argparse
import dataclasses
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

from grepseek_env.config import closest
from grepseek_env.errors import ConfigError
from grepseek_env.tasks import BENCHMARKS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Launch", "add_options", "evaluation", "flag", "flags", "given_options", "preset"]

R = TypeVar("R")


def flag(name: str, default: Any) -> Any:
    """Returns a dataclass field that becomes this flag; None and False leave it out, True gives it alone."""
    return field(default=default, metadata={"flag": name})


def flags(recipe: Any) -> list[str]:
    """Returns the flags of a recipe, in the order of its fields."""
    out: list[str] = []
    for f in dataclasses.fields(recipe):
        name = f.metadata.get("flag")
        value = getattr(recipe, f.name)
        if name is None:
            continue
        match value:
            case None | False:
                pass
            case True:
                out.append(name)
            case tuple():
                out += [name, *map(str, value)]
            case _:
                out += [name, str(value)]
    return out


def preset(cls: type[R], presets: Mapping[str, Mapping[str, Any]], name: str, **given: Any) -> R:
    """Builds a recipe from a preset and what is given on top of it.

    Raises:
        ConfigError: there is no such preset.
    """
    if name not in presets:
        raise ConfigError(f"no preset is named {name!r}{closest(name, list(presets))}; presets: {', '.join(presets)}")
    return cls(**{**presets[name], **given})


def add_options(parser: argparse.ArgumentParser, cls: type) -> None:
    """Declares an option for every field of a recipe; unset ones keep the preset's value."""
    group = parser.add_argument_group("values of the recipe", "each with OpenRLHF's flag for it")
    for f in dataclasses.fields(cls):
        option = f"--{f.name.replace('_', '-')}"
        text = f.metadata.get("flag", f.metadata.get("help", ""))
        match f.default:
            case bool():
                group.add_argument(option, action=argparse.BooleanOptionalAction, default=None, help=text)
            case tuple():
                kind = float if all(isinstance(v, float) for v in f.default) and f.default else str
                group.add_argument(option, type=kind, nargs="*", default=None, help=text, metavar="V")
            case _:
                kinds = {int: int, float: float}
                kind = kinds.get(type(f.default), str)
                group.add_argument(option, type=kind, default=None, help=text, metavar="V")


def given_options(args: argparse.Namespace, cls: type) -> dict[str, Any]:
    """Returns the values of the options that were given."""
    given = {f.name: getattr(args, f.name) for f in dataclasses.fields(cls)}
    return {name: tuple(v) if isinstance(v, list) else v for name, v in given.items() if v is not None}


@dataclass(frozen=True, slots=True)
class Launch:
    """A command that trains, and what comes after it.

    Attributes:
        argv: the command.
        environ: variables it needs on top of this process's.
        after: commands for when it has ended, to be printed.
    """

    argv: Sequence[str]
    environ: Mapping[str, str]
    after: Sequence[str] = ()

    def text(self) -> str:
        """Returns the command line for a shell, one option a line."""
        words = [f"{k}={shlex.quote(v)}" for k, v in self.environ.items()]
        lines: list[str] = []
        for word in self.argv:
            if word.startswith("--") or not lines:
                lines.append(shlex.quote(word))
            else:
                lines[-1] += " " + shlex.quote(word)
        return " ".join(words) + (" \\\n" if words else "") + " \\\n  ".join(lines)

    def run(self) -> int:
        """Runs the command, with this terminal; returns its exit code.

        Raises:
            ConfigError: OpenRLHF, or the program that launches it, is not there.
        """
        program = "openrlhf" if self.argv[0] == sys.executable else self.argv[0]
        there = find_spec(program) if program == "openrlhf" else shutil.which(program)
        if there is None:
            raise ConfigError(
                f"{program} is not installed here: run this in the environment of OpenRLHF "
                "(pip install 'grepseek-env[openrlhf]'), or look at the command with --print"
            )
        return subprocess.run(self.argv, env={**os.environ, **self.environ}, check=False).returncode


def evaluation(model: str, name: str, corpus: str, *, chatml: bool, rules: Sequence[str] = ()) -> list[str]:
    """Returns the two commands that serve a checkpoint and evaluate it, token in, token out.

    Args:
        model: its folder.
        name: what it is called when it is served.
        corpus: that is searched.
        rules: options of the episodes, where they were other than the defaults.
        chatml: it was trained with the recipes' template, which a checkpoint of GRPO alone does not hold.
    """
    serve = ["python", "-m", "vllm.entrypoints.openai.api_server", "--model", model, "--served-model-name", name]
    options = [f"tokenizer={model}", *(["chat_template=chatml"] if chatml else [])]
    ask = ["grepseek", "eval", "--policy", "openai", "--model", name, "--base-url", "http://localhost:8000/v1"]
    for option in options:
        ask += ["--policy-option", option]
    ask += ["--tokenizer", model, *rules, "--corpus", corpus]
    if not corpus.startswith("world:"):  # a generated world brings its own
        ask += ["--questions", ",".join(BENCHMARKS)]
    return [shlex.join([*serve, "--port", "8000"]), shlex.join([*ask, "--out", f"evals/{name}"])]
