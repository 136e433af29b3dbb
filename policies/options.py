"""Command-line options that choose a policy: `add_policy_arguments` declares them, `policy_from_args` reads them.

grepseek rollout --policy keyword ...
grepseek rollout --policy hf --model checkpoints/sft --temperature 0 ...
grepseek rollout --policy hf --policy-option model=checkpoints/sft --policy-option dtype=bfloat16 ...

Options without a flag of their own are the keywords of the policy's class or function.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from grepseek_env.errors import ConfigError
from policies.base import make_policy, policy_names

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from policies.base import Policy

__all__ = ["add_policy_arguments", "policy_from_args", "policy_options"]

# Options of a policy that have a flag of their own: name -> (how it is read, help).
_FLAGS: dict[str, tuple[type, str]] = {
    "model": (str, "a checkpoint's folder, or the name a server gives its model"),
    "base_url": (str, "of an OpenAI-compatible server, such as http://localhost:8000/v1"),
    "temperature": (float, "0 takes the likeliest token every time"),
    "top_p": (float, "draw from the likeliest tokens that hold this much probability"),
    "max_tokens": (int, "of one turn"),
    "episode_tokens": (int, "sampled in one episode; it is truncated when they are used up"),
    "context_tokens": (int, "prompt and answer together, where the model's own limit is larger"),
}


def add_policy_arguments(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Declares `--policy`, `--policy-option` and the flags of common options."""
    group = parser.add_argument_group("policy")
    group.add_argument("--policy", required=required, help=f"one of: {', '.join(policy_names())}")
    group.add_argument(
        "--policy-option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an option of the policy; may be given several times",
    )
    for name, (kind, text) in _FLAGS.items():
        metavar = {str: "TEXT", float: "X", int: "N"}[kind]
        group.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar=metavar, help=text)


def policy_options(args: argparse.Namespace) -> dict[str, Any]:
    """Returns the options given on the command line, those with flags of their own included.

    Raises:
        ConfigError: a `--policy-option` is not of the form KEY=VALUE, or an option is given twice.
    """
    options = _pairs(args.policy_option)
    for name in _FLAGS:
        if (value := getattr(args, name)) is None:
            continue
        if name in options:
            raise ConfigError(f"{name} is given twice, by --{name.replace('_', '-')} and by --policy-option")
        options[name] = value
    return options


def policy_from_args(args: argparse.Namespace) -> Policy:
    """Builds the policy that the options of `add_policy_arguments` describe; the caller closes it.

    Raises:
        ConfigError: the policy or an option cannot work.
        ModelError: its model cannot be loaded or reached.
    """
    return make_policy(args.policy, **policy_options(args))


def _pairs(pairs: Sequence[str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        key = key.strip().replace("-", "_")
        if not equals or not key:
            raise ConfigError(f"--policy-option is {pair!r}; write it as KEY=VALUE")
        if key in options:
            raise ConfigError(f"--policy-option {key} is given twice")
        options[key] = _value(value)
    return options


def _value(text: str) -> Any:
    """Returns numbers, true, false, null, lists and objects as JSON reads them, anything else as the text it is."""
    try:
        return json.loads(text)
    except ValueError:
        return text
