from __future__ import annotations

import argparse

import pytest

from grepseek_env.errors import ConfigError
from policies.options import add_policy_arguments, policy_from_args, policy_options


def parse(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_policy_arguments(parser)
    return parser.parse_args(argv)


def test_only_what_is_given_is_passed_on() -> None:
    assert policy_options(parse("--policy", "hf")) == {}
    given = parse("--policy", "hf", "--model", "m", "--temperature", "0", "--base-url", "http://x/v1")
    assert policy_options(given) == {"model": "m", "temperature": 0.0, "base_url": "http://x/v1"}


def test_values_are_json_where_they_read_as_json() -> None:
    pairs = ["a=1", "b=true", "c=null", 'd=["x"]', "e=plain text", "f=a=b", "top-k=5"]
    args = parse("--policy", "p", *(part for pair in pairs for part in ("--policy-option", pair)))
    assert policy_options(args) == {
        "a": 1,
        "b": True,
        "c": None,
        "d": ["x"],
        "e": "plain text",
        "f": "a=b",
        "top_k": 5,
    }


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--policy-option", "novalue"], "KEY=VALUE"),
        (["--policy-option", "=1"], "KEY=VALUE"),
        (["--policy-option", "a=1", "--policy-option", "a=2"], "given twice"),
        (["--policy-option", "model=x", "--model", "y"], "model is given twice"),
    ],
)
def test_mistakes_are_named(argv: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        policy_options(parse("--policy", "p", *argv))


def test_a_policy_is_built_and_unknown_options_are_named() -> None:
    assert policy_from_args(parse("--policy", "keyword")).name == "keyword"
    with pytest.raises(ConfigError, match="policy 'keyword' has no option 'temperature'"):
        policy_from_args(parse("--policy", "keyword", "--temperature", "1"))
