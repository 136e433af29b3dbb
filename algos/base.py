"""Algorithms as plug-ins: a module with an `Args` dataclass and a `main(args)`, run by `python -m algos.NAME`.

Every field of `Args` has its own line in the class docstring, which is its help. Settings come from the defaults, then
a JSON file (`--config`), then the command line; what came out is saved with the run as `config.json`, which is itself
such a file.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import re
import sys
import typing
from dataclasses import MISSING, asdict, fields, is_dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, get_args, get_origin

from grepseek_env.config import closest
from grepseek_env.errors import ConfigError, GrepSeekError
from grepseek_env.paths import atomic_write

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "ENTRY_POINT_GROUP",
    "Algorithm",
    "algorithm_names",
    "field_docs",
    "get_algorithm",
    "parse_args",
    "run",
    "run_actions",
    "save_config",
]

ENTRY_POINT_GROUP = "grepseek_env.algorithms"
_A = TypeVar("_A")
_SWITCH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class Algorithm(Protocol):
    """What an entry point of the group `grepseek_env.algorithms` names: usually a module."""

    Args: type[Any]

    def main(self, args: Any) -> Any:
        """Runs the algorithm with an instance of `Args`."""


def algorithm_names() -> list[str]:
    """Returns the names under which algorithms are installed."""
    return sorted(e.name for e in entry_points(group=ENTRY_POINT_GROUP))


def get_algorithm(name: str) -> Algorithm:
    """Returns an installed algorithm.

    Raises:
        ConfigError: none has this name, or what it names has no dataclass `Args` and `main`.
    """
    found = {e.name: e for e in entry_points(group=ENTRY_POINT_GROUP)}
    if name not in found:
        names = sorted(found)
        raise ConfigError(f"no algorithm is named {name!r}{closest(name, names)}; installed: {', '.join(names)}")
    algorithm: Algorithm = found[name].load()
    if not is_dataclass(getattr(algorithm, "Args", None)) or not callable(getattr(algorithm, "main", None)):
        raise ConfigError(f"entry point {name!r} names {found[name].value}, which has no dataclass Args and main(args)")
    return algorithm


def field_docs(kind: type[Any]) -> dict[str, str]:
    """Returns what the section "Attributes:" of a class docstring says of each field, on one line each."""
    section = inspect.cleandoc(kind.__doc__ or "").partition("Attributes:\n")[2]
    lines = re.split(r"^ {4}(?=\w+: )", section, flags=re.MULTILINE)[1:]
    return {name: " ".join(text.split()) for name, _, text in (line.partition(": ") for line in lines)}


def parse_args(kind: type[_A], argv: Sequence[str] | None = None, *, prog: str, description: str = "") -> _A:
    """Builds an algorithm's settings from defaults, a file and a command line, the later ones winning.

    Args:
        kind: the dataclass; its fields are int, float, str, bool or Path, one of these or None, or a Literal.
        argv: the command line without the program; default: this process's.
        prog: how the program is called.
        description: for the help.

    Raises:
        ConfigError: the file cannot be read, or holds a field that there is not or a value of another type; a value
            is wrong, or a field without a default is set nowhere.
    """
    hints = typing.get_type_hints(kind)
    docs = field_docs(kind)
    parser = argparse.ArgumentParser(
        prog, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="JSON object of settings; options override it")
    known = {f.name: f for f in fields(kind)}  # type: ignore[arg-type]
    for name, field in known.items():
        default = "" if field.default is MISSING else f" (default: {field.default})"
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            dest=name,
            default=argparse.SUPPRESS,
            metavar=_metavar(hints[name]),
            help=(docs[name] + default).replace("%", "%%"),
        )
    given = vars(parser.parse_args(argv))
    path = given.pop("config")
    values = {} if path is None else _read_config(path, known)
    values |= {name: _from_text(name, text, hints[name]) for name, text in given.items()}
    for name, value in values.items():
        if not _fits(value, hints[name]):
            raise ConfigError(f"{name} is {value!r}; it must be {_metavar(hints[name])}")
    if missing := [n for n, f in known.items() if f.default is MISSING and n not in values]:
        options = ", ".join(f"--{n.replace('_', '-')}" for n in missing)
        raise ConfigError(f"{options} must be given, on the command line or in the file of --config")
    return kind(**{name: _typed(value, hints[name]) for name, value in values.items()})


def save_config(args: Any, folder: Path, *, changeable: Sequence[str] = (), overwrite: bool = False) -> None:
    """Writes a run's settings into its folder as `config.json`, and makes sure that a run there is the same one.

    Args:
        args: the settings.
        folder: of the run; made if need be.
        changeable: fields that another sitting of the same run may have otherwise, such as the number of steps.
        overwrite: take the folder whatever it holds.

    Raises:
        ConfigError: the folder holds a run of other settings; names the first that differs.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "config.json"
    ours = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(args).items()}
    if path.exists() and not overwrite:
        theirs = _read_json(path)
        for name in sorted(ours.keys() | theirs.keys()):
            if name not in changeable and ours.get(name) != theirs.get(name):
                raise ConfigError(
                    f"{folder} holds a run with {name} = {theirs.get(name)!r}, this one has {ours.get(name)!r}; choose "
                    "another output folder, or pass --overwrite true to start over"
                )
    atomic_write(path, json.dumps(ours, indent=2) + "\n")


def run(algorithm: Any, argv: Sequence[str] | None = None) -> int:
    """Runs an algorithm's module as a program: a mistake of use is one line on stderr, Ctrl-C ends it quietly."""
    name = str((getattr(algorithm, "__spec__", None) and algorithm.__spec__.name) or algorithm.__name__)
    try:
        algorithm.main(parse_args(algorithm.Args, argv, prog=f"python -m {name}", description=algorithm.__doc__ or ""))
    except GrepSeekError as e:
        print(f"{name}: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{name}: interrupted; the same command goes on from the last checkpoint", file=sys.stderr)
        return 130
    return 0


def run_actions(cli: Any, argv: Sequence[str] | None = None) -> int:
    """Runs a module of actions, the `cli` of a package of algorithms, as the program `python -m PACKAGE`.

    Args:
        cli: has a docstring, `add_arguments(parser)` and `run(args)`, which returns the exit code.
        argv: the command line without the program; default: this process's.

    Returns:
        The exit code: 1 for a mistake of use, told in one line on stderr, 130 for Ctrl-C.
    """
    package = cli.__name__.rpartition(".")[0]
    name = package.rpartition(".")[2]
    summary, _, rest = (cli.__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        f"python -m {package}",
        description=summary,
        epilog=rest,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    cli.add_arguments(parser)
    try:
        return int(cli.run(parser.parse_args(argv)))
    except GrepSeekError as e:
        print(f"{name}: {e}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader of our output has gone, as in `... --print | head`; keep the interpreter's exit quiet.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as e:
        print(f"{name}: {f'{e.filename}: {e.strerror}' if e.filename and e.strerror else e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{name}: interrupted; the same command goes on from what is complete", file=sys.stderr)
        return 130


def _read_json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as e:
        raise ConfigError(f"{path} cannot be read as JSON: {e}") from e
    if not isinstance(values, dict):
        raise ConfigError(f"{path} holds a {type(values).__name__}; it must hold one JSON object of settings")
    return values


def _read_config(path: Path, known: Mapping[str, Any]) -> dict[str, Any]:
    values = _read_json(path)
    for name in values:
        if name not in known:
            raise ConfigError(f"{path} sets {name!r}{closest(name, list(known))}; there is no such setting")
    return values


def _choices(hint: Any) -> tuple[Any, ...]:
    """Returns the alternatives of a type: those of a union, else the type alone."""
    return get_args(hint) if get_origin(hint) not in {None, Literal} else (hint,)


def _metavar(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return "{" + ",".join(map(str, get_args(hint))) + "}"
    names = {int: "N", float: "X", str: "TEXT", bool: "{true,false}", Path: "PATH", type(None): "none"}
    return "|".join(names[t] for t in _choices(hint))


def _from_text(name: str, text: str, hint: Any) -> Any:
    if get_origin(hint) is Literal:
        return text
    kinds = _choices(hint)
    if text.lower() == "none" and type(None) in kinds:
        return None
    for kind in (k for k in kinds if k is not type(None)):
        try:
            return _SWITCH[text.lower()] if kind is bool else kind(text)
        except (ValueError, KeyError):
            continue
    raise ConfigError(f"--{name.replace('_', '-')} is {text!r}; it must be {_metavar(hint)}")


def _fits(value: Any, hint: Any) -> bool:
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    kinds = _choices(hint)
    return (
        type(value) in kinds  # bool is no int here
        or (type(value) is int and float in kinds)
        or (isinstance(value, (str, Path)) and Path in kinds)
    )


def _typed(value: Any, hint: Any) -> Any:
    """Makes paths of texts and floats of integers where the field wants those."""
    kinds = _choices(hint)
    if isinstance(value, str) and Path in kinds:
        return Path(value)
    return float(value) if type(value) is int and float in kinds and int not in kinds else value
