from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings

from grepseek_env.commands import COMMANDS, Effect, OperandKind, Pipeline, parse
from grepseek_env.errors import CommandRefused
from tests.support.oracle import CASES, cases
from tests.support.strategies import near_shell, pipelines

ATTACKS = [
    line
    for line in (CASES.parent / "attacks.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]
HARMLESS = {
    "cat": "reads the empty standard input",
    "sort": "reads the empty standard input",
    "tr -d x corpus.jsonl": "tr takes no file and says so",
    "awk 'BEGIN{while(1);}'": "computes until its deadline",
    "awk 'BEGIN{for(;;)x=x \"aaaaaaaaaaaaaaaa\"}'": "computes until its deadline or the limit of its memory",
}


def refused(text: str) -> CommandRefused:
    with pytest.raises(CommandRefused) as caught:
        parse(text)
    return caught.value


@pytest.mark.parametrize("command", [command for kind, command in cases() if kind == "must"])
def test_what_must_run_is_accepted(command: str) -> None:
    assert parse(command).text == command


@pytest.mark.parametrize("command", ATTACKS)
def test_attacks(command: str) -> None:
    if command in HARMLESS:
        assert parse(command).stages
    else:
        assert refused(command).reason


def test_the_harmless_attacks_are_still_in_the_file() -> None:
    assert set(ATTACKS) >= set(HARMLESS)


@pytest.mark.parametrize(
    ("command", "reason", "underlined"),
    [
        ("/usr/bin/rg x corpus.jsonl", "unknown-program", "/usr/bin/rg"),
        ("egrep x corpus.jsonl", "unknown-program", "egrep"),
        ("bash -c id", "unknown-program", "bash"),
        ("'' x", "unknown-program", "''"),
        ("cat corpus.jsonl|bash", "unknown-program", "bash"),
        ("if rg x", "unknown-program", "if"),
        ("rg x /etc/passwd", "operand", "/etc/passwd"),
        ("rg x ../corpus.jsonl", "operand", "../corpus.jsonl"),
        ("rg x corpus.jsonl/", "operand", "corpus.jsonl/"),
        ("rg x .//corpus.jsonl", "operand", ".//corpus.jsonl"),
        ("cat .", "operand", "."),
        ("cat ''", "operand", "''"),
        ("sort +1 corpus.jsonl", "operand", "+1"),
        ("uniq corpus.jsonl -", "operand", "-"),
        ("rg x corpus.jsonl ./corpus.jsonl", "operand", "./corpus.jsonl"),
        ("grep -fpats x corpus.jsonl", "flag", "-fpats"),
        ("grep -if pats corpus.jsonl", "flag", "f pats"),
        ("grep --fil=pats corpus.jsonl", "flag", "--fil=pats"),
        ("grep --f x corpus.jsonl", "flag", "--f x"),
        ("grep -e x --no-such-flag -f pats", "flag", "-f pats"),
        ("sort -ro out corpus.jsonl", "flag", "o out"),
        ("sort -- -o out", "operand", "-o"),
        ("head -n 3 -q2 corpus.jsonl", "flag", "2"),
        ("head -q3c corpus.jsonl", "flag", "3"),
        ("tail -3 corpus.jsonl corpus.jsonl", "flag-value", "-3"),
        ("tail -f corpus.jsonl", "flag", "-f"),
        ("tail --fol corpus.jsonl", "flag", "--fol"),
        ("tail ---presume-input-pipe corpus.jsonl", "flag", "---presume-input-pipe"),
        ("ls -la", "flag", "-l"),
        ("ls --color=always", "flag-value", "--color=always"),
        ("rg --color=red x corpus.jsonl", "flag-value", "--color=red"),
        ("rg -j99 x corpus.jsonl", "flag-value", "-j99"),
        ("rg --f corpus.jsonl", "flag", "--f corpus.jsonl"),
        ("rg --z x corpus.jsonl", "flag", "--z"),
        ("rg --pre cat x corpus.jsonl", "flag", "--pre cat"),
        ("rg -iz x corpus.jsonl", "flag", "z"),
        ("find . -exec id {} +", "flag", "-exec id"),
        ("find . -printf %t", "flag-value", "-printf %t"),
        ("find / -name x", "operand", "/"),
        ("find . -nosuch", "flag", "-nosuch"),
        ("find . -name x corpus.jsonl", "flag", "corpus.jsonl"),
        ("awk --version", "flag", "--version"),
        ("awk -W version", "flag", "-W version"),
        ("awk -v 1=2 1 corpus.jsonl", "operand", "-v 1=2"),
        ("awk -v ARGV=2 1 corpus.jsonl", "operand", "-v ARGV=2"),
        ("awk 1 ENVIRON=2 corpus.jsonl", "operand", "ENVIRON=2"),
        ("awk 1 ./a=2", "operand", "./a=2"),
        ("awk '{system(1)}' corpus.jsonl", "awk-program", "system"),
        ("sed -n -e p -e 'w out' corpus.jsonl", "sed-script", "w"),
        ("sed --expression='s/a/b/e' corpus.jsonl", "sed-script", "e"),
        ("sed --bogus 'e id' corpus.jsonl", "sed-script", "e"),
        ("grep --help", "flag", "--help"),
    ],
)
def test_refusals_point_at_the_fault(command: str, reason: str, underlined: str) -> None:
    error = refused(command)
    assert error.reason == reason
    assert command[error.start : error.end] == underlined


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("grep -m1 x corpus.jsonl", [("-m", "1")]),
        ("grep -im 1 x corpus.jsonl", [("-i", None), ("-m", "1")]),
        ("grep x corpus.jsonl -c", [("-c", None)]),
        ("grep --max-c=2 x corpus.jsonl", [("--max-count", "2")]),
        ("grep --max-count 2 x corpus.jsonl", [("--max-count", "2")]),
        ("grep --colo=never x corpus.jsonl", [("--color", "never")]),
        ("grep -e -x corpus.jsonl", [("-e", "-x")]),
        ("grep -12 x corpus.jsonl", [("-1", None), ("-2", None)]),
        ("rg -m=1 x corpus.jsonl", [("-m", "1")]),
        ("rg --m=1 --c x corpus.jsonl", [("-m", "1"), ("-c", None)]),
        ("rg -nm1 x corpus.jsonl", [("-n", None), ("-m", "1")]),
        ("rg -e -x corpus.jsonl", [("-e", "-x")]),
        ("head -3 corpus.jsonl", [("-n", "3")]),
        ("head -n-3 corpus.jsonl", [("-n", "-3")]),
        ("tail -3", [("-n", "3")]),
        ("sort -k2,2 -t, corpus.jsonl", [("-k", "2,2"), ("-t", ",")]),
        ("sort -t '' corpus.jsonl", [("-t", "")]),
        ("awk -F'\"' -vx=1 '{print $4}' corpus.jsonl", [("-F", '"'), ("-v", "x=1")]),
        ("find . -type f -not -name '*.x'", [("-type", "f"), ("-not", None), ("-name", "*.x")]),
        ("sed -ne p corpus.jsonl", [("-n", None), ("-e", "p")]),
    ],
)
def test_flags_are_resolved_as_the_program_does(command: str, options: list[tuple[str, str | None]]) -> None:
    (stage,) = parse(command).stages
    assert [(option.name, option.value) for option in stage.options] == options
    assert not stage.usage_error


@pytest.mark.parametrize(
    "command",
    [
        "rg --no-such-flag x corpus.jsonl",
        "rg -Y x corpus.jsonl",
        "rg -c=3 x corpus.jsonl",
        "rg --count=3 x corpus.jsonl",
        "rg",
        "rg x corpus.jsonl -m",
        "grep --no x corpus.jsonl",
        "grep --nosuch x corpus.jsonl",
        "grep --count=3 x corpus.jsonl",
        "grep -m",
        "grep",
        "sed",
        "tr",
        "tr a",
        "tr a b c",
        "tr -d a b",
        "cut -Q corpus.jsonl",
    ],
)
def test_what_the_program_itself_rejects_is_left_to_it(command: str) -> None:
    assert parse(command).stages[0].usage_error


@pytest.mark.parametrize(
    ("command", "kinds"),
    [
        ("rg x corpus.jsonl corpus.jsonl", [OperandKind.PATTERN, OperandKind.FILE, OperandKind.FILE]),
        ("sort -k2oout corpus.jsonl", [OperandKind.FILE]),
        ("rg --sort path -e x corpus.jsonl -", [OperandKind.FILE, OperandKind.STDIN]),
        ("rg --files corpus.jsonl", [OperandKind.FILE]),
        ("sed p corpus.jsonl", [OperandKind.SCRIPT, OperandKind.FILE]),
        ("sed -e p corpus.jsonl missing.txt", [OperandKind.FILE, OperandKind.FILE]),
        ("awk 1 x=2 corpus.jsonl", [OperandKind.SCRIPT, OperandKind.ASSIGNMENT, OperandKind.FILE]),
        ("tr a b", [OperandKind.SET, OperandKind.SET]),
        ("tr -d a b", [OperandKind.SET, OperandKind.STRAY]),
        (r"find . \( -name x \)", [OperandKind.FILE, OperandKind.EXPRESSION, OperandKind.EXPRESSION]),
    ],
)
def test_operands_are_classified(command: str, kinds: list[OperandKind]) -> None:
    assert [operand.kind for operand in parse(command).stages[0].operands] == kinds


def test_effects_follow_values() -> None:
    def effect(command: str) -> Effect:
        return parse(command).stages[0].options[0].effect

    assert effect("grep --color=never x corpus.jsonl") is Effect.KEEP
    assert effect("grep --color x corpus.jsonl") is Effect.KEEP
    assert effect("grep --color=always x corpus.jsonl") is Effect.OPAQUE
    assert effect("cut -d , -f 1 corpus.jsonl") is Effect.MAP
    assert effect("cut -d '\n' -f 1 corpus.jsonl") is Effect.OPAQUE


def test_stage_helpers_find_options_and_files() -> None:
    stage = parse("grep --max-count 3 -i x corpus.jsonl").stages[0]
    assert [option.value for option in stage.given("-m")] == ["3"]
    assert stage.given("-v") == ()
    assert [operand.value for operand in stage.files] == ["corpus.jsonl"]
    assert stage.program == "grep"


def test_a_pipeline_can_be_pickled() -> None:
    pipeline = parse("rg -F 'a b' corpus.jsonl | head -n 3")
    copy: Pipeline = pickle.loads(pickle.dumps(pipeline))
    assert copy.argv == pipeline.argv
    assert copy.stages[0].options == pipeline.stages[0].options


def outcome(text: str) -> Pipeline | CommandRefused:
    try:
        return parse(text)
    except CommandRefused as error:
        return error


@settings(max_examples=max(300, settings().max_examples), deadline=None)
@given(text=near_shell())
def test_anything_but_a_refusal_is_a_fault(text: str) -> None:
    match outcome(text):
        case CommandRefused() as error:
            lines = str(error).split("\n")
            assert lines[0]
            assert lines[-1]
            assert len(lines) == (4 if text.strip() else 2)
            assert 0 <= error.start <= error.end <= len(text)
        case pipeline:
            assert all(argv[0] in COMMANDS for argv in pipeline.argv)
            assert [stage.argv for stage in pipeline.stages] == list(pipeline.argv)


@settings(max_examples=max(200, settings().max_examples), deadline=None)
@given(text=pipelines())
def test_commands_of_the_table_are_refused_for_their_combination_alone(text: str) -> None:
    found = outcome(text)
    # No unknown program, no shell syntax: what random flags and values can add up to is no more than these.
    if isinstance(found, CommandRefused):
        assert found.reason in {"operand", "flag-value", "sed-script", "flag"}
