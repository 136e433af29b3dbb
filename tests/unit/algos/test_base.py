"""Algorithms as plug-ins: settings from defaults, a file and a command line."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import Literal

import pytest

from algos import base
from grepseek_env.errors import ConfigError

INSTALLED = ("grpo", "sft")


@dataclass(frozen=True, slots=True)
class Args:
    """Settings.

    Attributes:
        out: where it goes,
            on two lines
        size: how many; 100 % is all
        rate: how fast
        kind: which one
        limit: at most
        loud: or not
    """

    out: Path
    size: int = 3
    rate: float = 0.5
    kind: Literal["a", "b"] = "a"
    limit: int | None = None
    loud: bool = False


def parse(*argv: str) -> Args:
    return base.parse_args(Args, list(argv), prog="test")


def test_defaults_and_every_type() -> None:
    assert parse("--out", "x") == Args(Path("x"))
    line = "--out x --size 7 --rate 2 --kind b --limit 9 --loud yes"
    assert parse(*line.split()) == Args(Path("x"), 7, 2.0, "b", 9, loud=True)
    assert parse("--out", "x", "--limit", "none").limit is None


def test_the_command_line_overrides_the_file_and_what_is_saved_is_a_file(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    file.write_text(json.dumps({"out": "x", "size": 7, "rate": 1}))
    args = parse("--config", str(file), "--size", "8")
    assert args == Args(Path("x"), 8, 1.0)
    base.save_config(args, tmp_path / "run")
    assert parse("--config", str(tmp_path / "run" / "config.json")) == args


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--size", "3"], "--out must be given"),
        (["--out", "x", "--size", "many"], "--size is 'many'; it must be N"),
        (["--out", "x", "--kind", "c"], "kind is 'c'; it must be {a,b}"),
        (["--out", "x", "--loud", "maybe"], "--loud is 'maybe'; it must be {true,false}"),
        (["--out", "x", "--limit", "0.5"], "it must be N|none"),
    ],
)
def test_mistakes_are_named(argv: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as e:
        parse(*argv)
    assert message in str(e.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read as JSON"),
        ("[1]", "must hold one JSON object"),
        ('{"sice": 1}', "sets 'sice'"),
        ('{"out": "x", "size": true}', "size is True"),
        ('{"out": "x", "size": 1.5}', "size is 1.5"),
    ],
)
def test_files_that_cannot_work(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "c.json"
    file.write_text(text)
    with pytest.raises(ConfigError) as e:
        parse("--config", str(file))
    assert message in str(e.value)


def test_a_run_of_other_settings_is_not_continued(tmp_path: Path) -> None:
    base.save_config(Args(Path("x")), tmp_path)
    base.save_config(Args(Path("x"), loud=True), tmp_path, changeable=["loud"])
    with pytest.raises(ConfigError, match="size = 3, this one has 4"):
        base.save_config(Args(Path("x"), 4), tmp_path, changeable=["loud"])
    base.save_config(Args(Path("x"), 4), tmp_path, overwrite=True)


@pytest.mark.parametrize("name", INSTALLED)
def test_every_field_of_an_installed_algorithm_is_explained(name: str) -> None:
    algorithm = base.get_algorithm(name)
    docs = base.field_docs(algorithm.Args)
    assert list(docs) == [f.name for f in fields(algorithm.Args)]
    assert all(docs.values())


def test_help_shows_docs_and_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse("--help")
    out = " ".join(capsys.readouterr().out.split())
    assert "where it goes, on two lines" in out
    assert "how many; 100 % is all (default: 3)" in out


def test_unknown_algorithms_are_named() -> None:
    assert set(INSTALLED) <= set(base.algorithm_names())
    with pytest.raises(ConfigError, match="no algorithm is named 'grop'"):
        base.get_algorithm("grop")


def test_a_mistake_is_one_line_and_ctrl_c_says_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    def main(_: Args) -> None:
        raise KeyboardInterrupt

    module = ModuleType("algos.example")
    module.Args, module.main = Args, main  # type: ignore[attr-defined]
    assert base.run(module, ["--size", "1"]) == 1
    assert capsys.readouterr().err == (
        "algos.example: --out must be given, on the command line or in the file of --config\n"
    )
    assert base.run(module, ["--out", "x"]) == 130
    assert "goes on from the last checkpoint" in capsys.readouterr().err
