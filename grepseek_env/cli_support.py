"""Options that several subcommands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from grepseek_env.errors import ConfigError

if TYPE_CHECKING:
    import argparse

__all__ = ["add_corpus_argument", "add_env_arguments", "add_mode_arguments", "env_kwargs"]


def add_corpus_argument(parser: argparse.ArgumentParser) -> None:
    """Declares `--corpus`."""
    parser.add_argument(
        "--corpus",
        default="world:tiny",
        metavar="PATH|NAME",
        help="a JSONL or text file, a folder, or a name such as world:tiny or wiki18 (default: world:tiny)",
    )


def add_mode_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares `--mode`, `--slices` and `--sandbox`."""
    parser.add_argument("--mode", default="auto", help="how commands run: auto, sequential, sliced or narrowed")
    parser.add_argument(
        "--slices", type=int, metavar="N", help="slices of the corpus a command works on at once (default: the cores)"
    )
    parser.add_argument(
        "--sandbox",
        choices=("auto", "require", "off"),
        default="auto",
        help="auto: confine programs as far as this system can; require: refuse to work without (default: auto)",
    )


def add_env_arguments(parser: argparse.ArgumentParser, *, split: str = "train", many: bool = False) -> None:
    """Declares the options that describe an environment; `env_kwargs` reads them.

    Args:
        parser: gets the options.
        split: the default of `--split`.
        many: `--questions` may name several sets, with commas between.
    """
    add_corpus_argument(parser)
    parser.add_argument(
        "--questions",
        metavar="SET[,SET]" if many else "FILE|NAME",
        help="a FlashRAG JSONL file or a set's name (default: the questions of a generated world)"
        if not many
        else "FlashRAG JSONL files or names such as nq, commas between (default: the questions of a generated world)",
    )
    parser.add_argument(
        "--split", choices=("train", "test"), default=split, help=f"split of a named set (default: {split})"
    )
    parser.add_argument("--action-format", default="hermes", help="hermes or plain (default: hermes)")
    parser.add_argument("--max-turns", type=int, default=6, help="policy turns, the answer included (default: 6)")
    parser.add_argument("--max-observation-tokens", type=int, default=2048, help="cap with --tokenizer (default: 2048)")
    parser.add_argument("--max-observation-chars", type=int, default=8192, help="cap without (default: 8192)")
    parser.add_argument("--tokenizer", metavar="DIR|NAME", help="count observation tokens with this tokenizer")
    parser.add_argument(
        "--system-prompt", type=Path, metavar="FILE", help="text of the system message (see: grepseek prompt)"
    )
    parser.add_argument("--reward", default="default", help="default or paper (default: default)")
    add_mode_arguments(parser)
    parser.add_argument(
        "--command-timeout", type=float, default=60.0, metavar="S", help="seconds a command (default: 60)"
    )


_KEYS = (
    "corpus",
    "questions",
    "split",
    "action_format",
    "max_turns",
    "max_observation_tokens",
    "max_observation_chars",
    "tokenizer",
    "reward",
    "mode",
    "slices",
    "sandbox",
    "command_timeout",
)


def env_kwargs(args: argparse.Namespace) -> dict[str, Any]:
    """Returns the keywords of `GrepSeekEnv` that the options of `add_env_arguments` give.

    Raises:
        ConfigError: the file of `--system-prompt` is no text.
        OSError: it cannot be read.
    """
    return {key: getattr(args, key) for key in _KEYS} | {"system_prompt": _system_prompt(args.system_prompt)}


def _system_prompt(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8").rstrip("\n")
    except UnicodeDecodeError as e:
        raise ConfigError(f"--system-prompt {path}: not UTF-8 ({e.reason} at byte {e.start}); save it as UTF-8") from e
