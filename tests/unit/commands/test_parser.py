from __future__ import annotations

import pytest

from grepseek_env.commands.globs import Literal, Match, Unsure, expand
from grepseek_env.commands.parser import MAX_BYTES, split
from grepseek_env.commands.syntax import Piece, Span, Word
from grepseek_env.errors import CommandRefused


def words(text: str) -> list[list[str]]:
    return [[word.value for word in stage] for stage, _ in split(text)]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("rg x corpus.jsonl", [["rg", "x", "corpus.jsonl"]]),
        ("  rg\tx  |head  \n", [["rg", "x"], ["head"]]),
        (r"rg 'a|b' \| \' a\ b", [["rg", "a|b", "|", "'", "a b"]]),
        (
            'rg "foo$" "$" "a $ b" "\\$5" "\\`" "\\"" "\\\\" "\\n"',
            [["rg", "foo$", "$", "a $ b", "$5", "`", '"', "\\", "\\n"]],
        ),
        ("rg 'it''s' \"it's\" 'a'\"b\"c", [["rg", "its", "it's", "abc"]]),
        ("rg '' \"\" x", [["rg", "", "", "x"]]),
        ("rg 'a\nb' \"c\nd\"", [["rg", "a\nb", "c\nd"]]),
        ("rg a\\\nb \\\n c \"d\\\ne\" 'f\\\ng'", [["rg", "ab", "c", "de", "f\\\ng"]]),
        ("rg a#b x=y {} {a} a{2} }", [["rg", "a#b", "x=y", "{}", "{a}", "a{2}", "}"]]),
        ("rg $ a$ $/ $. a~b ! a!b %1 ^a", [["rg", "$", "a$", "$/", "$.", "a~b", "!", "a!b", "%1", "^a"]]),
        ("rg a\rb \u00a0 é 漢字", [["rg", "a\rb", "\u00a0", "é", "漢字"]]),
        ("rg '#' \\# a''#b", [["rg", "#", "#", "a#b"]]),
        ("'rg' r\\g \"x\"", [["rg", "rg", "x"]]),
    ],
)
def test_words_are_what_bash_makes_of_them(text: str, wanted: list[list[str]]) -> None:
    assert words(text) == wanted


@pytest.mark.parametrize(
    ("text", "reason", "underlined"),
    [
        ("", "empty", ""),
        (" \t\n", "empty", ""),
        ("|", "empty-stage", "|"),
        ("rg x |", "empty-stage", "|"),
        ("rg x | | head", "empty-stage", "|"),
        ("rg 'x", "unclosed-quote", "'"),
        ('rg "x', "unclosed-quote", '"'),
        ('rg "x\\"', "unclosed-quote", '"'),
        ("rg x\\", "backslash", "\\"),
        ("rg x; id", "operator", ";"),
        ("rg x & id", "operator", "&"),
        ("rg x && id", "operator", "&&"),
        ("rg x || id", "operator", "||"),
        ("rg x |& id", "operator", "|&"),
        ("rg x |\\\n| id", "empty-stage", "|"),
        ("rg x > f", "operator", ">"),
        ("rg x 2>f", "operator", ">"),
        ("rg x >> f", "operator", ">>"),
        ("rg < f", "operator", "<"),
        ("rg <(id)", "operator", "<"),
        ("(rg x)", "operator", "("),
        ("rg (a|b)", "operator", "("),
        ("rg x\nhead", "operator", "\n"),
        ("rg x\n| head", "operator", "\n"),
        ("rg $HOME", "expansion", "$HOME"),
        ('rg "$HOME"', "expansion", "$HOME"),
        ("rg ${x}", "expansion", "${"),
        ("rg $(id)", "expansion", "$("),
        ("rg $((1))", "expansion", "$("),
        ("rg $[1]", "expansion", "$["),
        ("rg $1", "expansion", "$1"),
        ("rg $?", "expansion", "$?"),
        ("rg $$", "expansion", "$$"),
        ("rg $\\\nx", "expansion", "$\\\n"),
        ("rg $'a'", "expansion", "$'"),
        ('rg $"a"', "expansion", '$"'),
        ("rg `id`", "expansion", "`"),
        ('rg "`id`"', "expansion", "`"),
        ("rg ~", "expansion", "~"),
        ("rg ~root/x", "expansion", "~"),
        ("rg a=~/x", "expansion", "~"),
        ("rg a=x:~", "expansion", "~"),
        ("rg {a,b}", "expansion", "{a,b}"),
        ("rg x{1..3}y", "expansion", "{1..3}"),
        ("rg x # y", "comment", "# y"),
        ("# rg", "comment", "# rg"),
        ("A=b rg x", "assignment", "A="),
        ("A+=b", "assignment", "A+="),
        ("! rg x", "operator", "!"),
        ("c* x", "glob", "c*"),
        ("rg .*", "glob", ".*"),
        ("rg /e*", "glob", "/e*"),
        ("rg ../*", "glob", "../*"),
        ("rg [[:alpha:]]*", "glob", "[[:alpha:]]*"),
        ("rg '\0'", "control-character", "\0"),
        ("rg \x01", "control-character", "\x01"),
        ("rg \ud800", "surrogate", "\ud800"),
        ("rg " + "é" * (MAX_BYTES // 2), "too-long", "é"),
    ],
)
def test_refused_where_bash_would_do_more(text: str, reason: str, underlined: str) -> None:
    with pytest.raises(CommandRefused) as caught:
        split(text)
    assert caught.value.reason == reason
    assert text[caught.value.start : caught.value.end] == underlined


def test_a_command_of_the_greatest_size_is_read() -> None:
    assert len(words("rg " + "x" * (MAX_BYTES - 3))[0][1]) == MAX_BYTES - 3


def test_spans_lead_back_to_the_text() -> None:
    text = "rg 'a'\"b\"\\c | head"
    ((first, whole), (second, _)) = split(text)
    word = first[1]
    assert text[word.span.start : word.span.end] == "'a'\"b\"\\c"
    assert [text[word.origin(i)] for i in range(3)] == ["a", "b", "c"]
    assert text[word.part(1, 3).start : word.part(1, 3).end] == 'b"\\c'
    assert text[whole.start : whole.end] == "rg 'a'\"b\"\\c"
    assert text[second[0].span.start :] == "head"


def unquoted(value: str) -> Word:
    return Word(value, Span(0, len(value)), (Piece(0, 0, quoted=False),))


@pytest.mark.parametrize(
    ("pattern", "outcome"),
    [
        ("*", Match("corpus.jsonl")),
        ("*.jsonl", Match("corpus.jsonl")),
        ("corpus.*", Match("corpus.jsonl")),
        ("c?rpus.jsonl", Match("corpus.jsonl")),
        ("./*", Match("./corpus.jsonl")),
        ("[a-d]orpus.jsonl", Match("corpus.jsonl")),
        ("[!a-b]*", Match("corpus.jsonl")),
        ("[^c]*", Literal()),
        ("*.txt", Literal()),
        ("--include=*.jsonl", Literal()),
        ("T[0-9]+", Literal()),
        ("[0-9]+", Literal()),
        ("a.*b", Literal()),
        ("s/a*/b/", Literal()),
        (".id*", Literal()),
        ("x[", Literal()),
        ("a]b", Literal()),
        (".*", Unsure()),
        (".?", Unsure()),
        ("/*", Unsure()),
        ("../*", Unsure()),
        ("./a/*", Unsure()),
        ("[[:lower:]]*", Unsure()),
        ("[é]*", Unsure()),
        ("[z-a]*", Unsure()),
    ],
)
def test_globs(pattern: str, outcome: object) -> None:
    assert expand(unquoted(pattern)) == outcome


def test_quoted_glob_characters_are_plain() -> None:
    word = Word("*.jsonl*", Span(0, 10), (Piece(0, 1, quoted=True), Piece(7, 9, quoted=False)))
    assert expand(word) == Literal()
