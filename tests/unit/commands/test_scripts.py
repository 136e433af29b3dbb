"""What is proven about sed scripts, awk programs and tr sets, and what of them is refused."""

from __future__ import annotations

import shlex

import pytest

from grepseek_env.commands import Effect, ScriptFacts, parse
from grepseek_env.commands.script import bracket_open
from grepseek_env.commands.tr_sets import expand_set
from grepseek_env.errors import CommandRefused

FILTER, MAP, OPAQUE = Effect.FILTER, Effect.MAP, Effect.OPAQUE


def facts(*argv: str) -> ScriptFacts:
    script = parse(shlex.join(argv)).stages[0].script
    assert script is not None
    return script


@pytest.mark.parametrize(
    ("script", "effect"),
    [
        ("s/a/b/", MAP),
        ("s/a/b/2g;s/c/d/I", MAP),
        ("/x/d", FILTER),
        ("/x/!d", FILTER),
        ("/x/{/y/d}", FILTER),
        ("/x/p", MAP),
        ("y/abc/xyz/", MAP),
        (":a;s/  / /;ta", MAP),
        ("/x/s/a/b/;b;s/c/d/", MAP),
        ("# nothing\ns|a|b|", MAP),
        ("3q", OPAQUE),
        ("q", OPAQUE),
        ("2p", OPAQUE),
        ("$d", OPAQUE),
        ("1~10p", OPAQUE),
        ("/a/,/b/d", OPAQUE),
        ("/a/,+2d", OPAQUE),
        ("0,/x/s//y/", OPAQUE),
        ("//d", OPAQUE),
        ("=", OPAQUE),
        ("N;s/\\n/ /", OPAQUE),
        ("G", OPAQUE),
        ("x", OPAQUE),
        ("n;d", OPAQUE),
        ("$a TOTAL", OPAQUE),
        ("/x/c y", OPAQUE),
        ("l", OPAQUE),
        ("F", OPAQUE),
    ],
)
def test_sed_effects(script: str, effect: Effect) -> None:
    assert facts("sed", script, "corpus.jsonl").effect is effect
    assert bool(facts("sed", script).why) == (effect is OPAQUE)


def test_sed_quiet_selects() -> None:
    assert facts("sed", "-n", "/x/p").effect is FILTER
    assert facts("sed", "-n", "/x/p;/y/p").effect is MAP
    assert facts("sed", "#n\n/x/p").effect is FILTER
    assert facts("sed", "-n", "-e", "/x/{", "-e", "p", "-e", "}").effect is FILTER


def test_sed_may_emit_odd_bytes() -> None:
    assert facts("sed", r"s/x/\x00/").odd_bytes
    assert facts("sed", r"y/a/\o0/").odd_bytes
    assert not facts("sed", "s/x/y/").odd_bytes


@pytest.mark.parametrize(
    ("script", "underlined"),
    [
        ("w out", "w"),
        ("1e id", "e"),
        ("e", "e"),
        ("$!{R f\n}", "R"),
        ("s/a/b/w out", "w"),
        ("s/a/b/gpe", "e"),
        ("s/a/b/ e", "e"),
        ("v 9.0", "v"),
        ("s/[/]/x/", "s/[/"),
        ("a\\\n\ne id", "a\\\n"),
        ("a\\\\\ne id", "a\\"),
        ("k", "k"),
        ("1!!p", "!"),
        ("{p", "p"),
        ("p}", "}"),
        ("s/a", "s/a"),
        ("s/a/b", "s/a/b"),
        ("p x", "x"),
        (":a b", ":a "),
        ("s\\a\\b\\", "s"),
        ("sédéeé", "s"),
    ],
)
def test_sed_refusals(script: str, underlined: str) -> None:
    text = f"sed '{script}' corpus.jsonl"
    with pytest.raises(CommandRefused) as caught:
        parse(text)
    assert caught.value.reason == "sed-script"
    assert text[caught.value.start : caught.value.end] == underlined


def test_a_fault_in_the_second_piece_of_a_script_is_underlined_there() -> None:
    text = "sed -e p -e 's/a/b/;w x' corpus.jsonl"
    with pytest.raises(CommandRefused) as caught:
        parse(text)
    assert (caught.value.start, caught.value.end) == (text.index("w x"), text.index("w x") + 1)


@pytest.mark.parametrize(
    ("program", "effect"),
    [
        ("/x/", FILTER),
        ("/x/ && !/y/ {print}", FILTER),
        ("length($0) > 5 {print $0}", FILTER),
        ('BEGIN{FS="\\""} $4 ~ /x/', FILTER),
        ("{print $1, $NF}", MAP),
        ("/x/; /y/", MAP),
        ('{$2 = ""; print}', MAP),
        ('{n=split($0, a, ","); for (i=1;i<=n;i++) print a[i]}', MAP),
        ("{if (match($0, /[0-9]+/)) print substr($0, RSTART, RLENGTH)}", MAP),
        ("{x = $1; if (x > 3) y = 1; else y = 2; print y}", MAP),
        ("{delete a; a[1] = $1; print a[1]}", MAP),
        ('{gsub(/"/, ""); print}', MAP),
        ('{x = $1; gsub(/a/, "", x); print x}', MAP),
        ("NR == 1", OPAQUE),
        ("FNR > 1", OPAQUE),
        ("{print FILENAME}", OPAQUE),
        ("{n++} END {print n}", OPAQUE),
        ("BEGIN {print 1} {print}", OPAQUE),
        ("BEGIN {print 1}", OPAQUE),
        ('BEGIN {RS=""} {print}', OPAQUE),
        ("!seen[$0]++", OPAQUE),
        ("/a/,/b/", OPAQUE),
        ("{exit}", OPAQUE),
        ("{getline; print}", OPAQUE),
        ("{if (/x/) y = 1; print y}", OPAQUE),
        ("/x/ {y = 1} {print y}", OPAQUE),
        ("{while ($1 > i++) y = 1; print y}", OPAQUE),
        ("{do { if (/x/) break; y = 1 } while (0); print y}", OPAQUE),
        ("/x/ && (y = 1) {print y} {print y}", OPAQUE),
        ("{a[1] = $1; print a[1]}", OPAQUE),
        ("{split($0, a); for (k in a) print k}", OPAQUE),
        ("{OFS = $1; print $1, $2}", OPAQUE),
        ("function f(x) {return x} {print f($1)}", OPAQUE),
        ("{print RSTART; match($0, /x/)}", OPAQUE),
    ],
)
def test_awk_effects(program: str, effect: Effect) -> None:
    assert facts("awk", program, "corpus.jsonl").effect is effect


def test_awk_settings_matter() -> None:
    assert facts("awk", "-F,", "{print $1}").effect is MAP
    assert facts("awk", "-v", "RS=", "{print $1}").effect is OPAQUE
    assert facts("awk", "{print $1}", "x=1", "corpus.jsonl").effect is OPAQUE
    assert not facts("awk", "-v", "ORS= ", "/x/").aligned
    assert not facts("awk", '{printf "%s ", $1}').aligned
    assert facts("awk", '{printf "%s\\n", $1}').aligned
    assert not facts("awk", 'BEGIN{ORS=","} /x/').aligned
    assert facts("awk", '{printf "%c", 0}').odd_bytes
    assert facts("awk", '{print $1 "\\000"}').odd_bytes
    assert not facts("awk", "{print $1}").odd_bytes


@pytest.mark.parametrize(
    ("program", "underlined"),
    [
        ('{print > "f"}', ">"),
        ('{print $1, $2 >> "f"}', ">>"),
        ('{print (1)(2) > "f"}', ">"),
        ('{printf("x") > "f"}', ">"),
        ("{print a > b ? c : d}", ">"),
        ("{print a[1 > 2]}", ">"),
        ('{print | "cat"}', "|"),
        ('{"id" | getline}', "|"),
        ('{"id" |& getline}', "|&"),
        ('{getline < "f"}', "<"),
        ('{getline x < "f"}', "<"),
        ('{getline x + 1 < "f"}', "<"),
        ('{while ((getline l < "f") > 0) n++}', "<"),
        ("{system(1)}", "system"),
        ("{print ENVIRON[1]}", "ENVIRON"),
        ("BEGIN{ARGV[1] = 2}", "ARGV"),
        ("{print rand()}", "rand"),
        ("{@f()}", "@"),
        ("{print f(1)}", "f"),
        ("{if (x) /y/ {print}}", "/"),
        ("$1\n/x/", "/"),
        ("/[/]/", "/[/"),
        ("/x", "/"),
        ('{print "x}', '"'),
        ("{print 1e5x}", "1e5x"),
        ("{print a::b}", "a::"),
        ("# x \\\n{system(1)}", "# x \\"),
        ("{print", ""),
        ("{print 1 2 3)}", ")"),
        ("BEGIN", ""),
        ("{print é}", "é"),
        ("{" + "(" * 40 + "1" + ")" * 40 + "}", "("),
    ],
)
def test_awk_refusals(program: str, underlined: str) -> None:
    text = f"awk '{program}' corpus.jsonl"
    with pytest.raises(CommandRefused) as caught:
        parse(text)
    assert caught.value.reason == "awk-program"
    if underlined:
        assert text[caught.value.start : caught.value.end] == underlined


@pytest.mark.parametrize(
    ("argv", "effect", "odd"),
    [
        (("a-z", "A-Z"), MAP, False),
        (("[:lower:]", "[:upper:]"), MAP, False),
        ((" ", "\\n"), MAP, False),
        (("-d", '"'), MAP, False),
        (("-s", " "), MAP, False),
        ((" ", "\\0"), MAP, True),
        (("-d", "\\200-\\377"), MAP, True),
        (("\\n", " "), OPAQUE, True),
        (("\\012", " "), OPAQUE, True),
        (("-d", "\\n"), OPAQUE, True),
        (("-cd", "a-z"), OPAQUE, True),
        (("-cd", "a-z\\n"), MAP, True),
        (("-s", "[:space:]"), OPAQUE, True),
        (("-s", "a", "\\n"), OPAQUE, True),
        (("\\t-\\r", " "), OPAQUE, True),
        (("[=a=]", "b"), OPAQUE, True),
        (("é", "e"), OPAQUE, True),
    ],
)
def test_tr_effects(argv: tuple[str, ...], effect: Effect, odd: bool) -> None:
    found = facts("tr", *argv)
    assert (found.effect, found.odd_bytes) == (effect, odd)


def test_tr_sets_are_expanded() -> None:
    assert expand_set("a-c") == {97, 98, 99}
    assert expand_set("[a*3]") == {97}
    assert expand_set("a-") == {97, 45}
    assert expand_set("\\\\\\n\\101") == {92, 10, 65}
    assert expand_set("[:digit:]x") == {*range(48, 58), 120}
    assert expand_set("z-a") is None
    assert expand_set("[:nosuch:]") is None
    assert expand_set("\\777") is None


@pytest.mark.parametrize(
    ("regex", "is_open"),
    [
        ("a", False),
        ("[a]", False),
        ("[a", True),
        ("[]", True),
        ("[]]", False),
        ("[^]", True),
        (r"\[", False),
        ("[[:alpha:]", True),
        ("[[:alpha:]]", False),
        (r"[\]", True),
        (r"[\\]", False),
        ("a[b]c[", True),
    ],
)
def test_open_brackets(regex: str, is_open: bool) -> None:
    assert bracket_open(regex) == is_open
