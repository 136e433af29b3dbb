import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grepseek_env.corpus.facts import CorpusFacts, ScanState, scan
from grepseek_env.errors import CorpusInvalid
from tests.support.odd_corpora import REFUSED, odd

NAME = Path("some/corpus.jsonl")
MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
ODD = odd()


def is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def plainly(content: bytes) -> dict[str, object]:
    """The same facts, computed in the most obvious way; kind and samples left out."""
    lines = content.split(b"\n")
    if not lines[-1]:
        lines.pop()
    bad = [number for number, line in enumerate(lines, 1) if not is_utf8(line)]
    escapes = re.findall(rb"\\u([0-9a-fA-F]{4})", content)
    return {
        "bytes": len(content),
        "lines": len(lines),
        "longest_line": max(map(len, lines), default=0),
        "blank_lines": sum(line in {b"", b"\r"} for line in lines),
        "crlf_lines": content.count(b"\r\n"),
        "lone_cr": content.count(b"\r") - content.count(b"\r\n"),
        "invalid_utf8_lines": len(bad),
        "first_invalid_utf8_line": bad[0] if bad else None,
        "final_newline": content.endswith(b"\n") or not content,
        "leading_bom": content.startswith(MARKS[0]),
        "ascii_only": all(byte < 128 for byte in content),
        "unicode_escapes": any(int(digits, 16) >= 0x80 for digits in escapes),
    }


def refused_line(content: bytes) -> int | None:
    """The number of the first line that cannot be accepted, or None."""
    for number, line in enumerate(content.split(b"\n"), 1):
        inner_bom = number > 1 and line.startswith(MARKS[0])
        if b"\0" in line or inner_bom or line.startswith(MARKS[1:]):
            return number
    return None


def scanned(content: bytes, *, block: int = 1 << 20, piece: int = 1 << 18) -> dict[str, object]:
    state = ScanState()
    for start in range(0, len(content), block):
        scan(state, content[start : start + block], NAME, piece_bytes=piece)
        state = ScanState.from_json(json.loads(json.dumps(state.to_json())))  # what a checkpoint does
    facts = state.facts(looked_at=0, first_malformed_line=None)
    return {key: getattr(facts, key) for key in plainly(b"")}


@pytest.mark.parametrize("name", sorted(set(ODD) - REFUSED))
def test_facts_of_odd_corpora_equal_the_plain_computation(name: str) -> None:
    assert scanned(ODD[name]) == plainly(ODD[name])
    assert scanned(ODD[name], block=1009, piece=61 if len(ODD[name]) < 200_000 else 4001) == plainly(ODD[name])


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_refused_corpora_name_the_line(name: str) -> None:
    line = refused_line(ODD[name])
    assert line is not None
    for piece in (61, 1 << 18):
        with pytest.raises(CorpusInvalid, match=rf"some/corpus\.jsonl: line {line} .*To use the file, "):
            scanned(ODD[name], piece=piece)


BORDERS = {
    "crlf": b"a\r\n\r\nbc\r\n\r\rd\r\n\n\r",
    "characters": "aé\n€\n😀é\r\n\u00ff\u0800\uffff".encode(),
    "broken characters": b"\xe2\x82\n\xac\n\xf0\x9f\x98\x80\n\xc3\n\xe9t\xe9\nok\n\xff\xff\xff\nok\n\xf0\x9f",
    "leading mark": b"\xef\xbb\xbf\n\nx\xef\xbb\xbf\n",
    "two leading marks": b"\xef\xbb\xbf\xef\xbb\xbfx\n",
    "nearly marks": b"\xef\xbb\n\xef\n\xff\n\xfe\n\xef\xbc\xa1\n\xfe",
    "escapes": rb'{"a": "\u0041 \u007F \u00e"}' + b"\n" + rb'"\u00e9"',
    "low escapes": rb'"\u0000\u001f\u007f\u00zz"' + b"\n",
    "blank": b"\n\n\r\n\r\r\n\n\r",
    "long": b"x" * 50 + b"\n" + b"y" * 30,
}


@pytest.mark.parametrize("name", sorted(BORDERS))
@pytest.mark.parametrize("piece", [1, 2, 3, 4, 5, 7, 11])
def test_borders_may_fall_anywhere(name: str, piece: int) -> None:
    assert scanned(BORDERS[name], piece=piece) == plainly(BORDERS[name])
    assert scanned(BORDERS[name], block=piece) == plainly(BORDERS[name])


ATOMS = (b"a", b"\n", b"\r", b"\r\n", b"\xc3", b"\xa9", b"\xef", b"\xbb\xbf", b"\xff", b"\xfe", b"\xef\xbb\xbf",
         b"\xf0\x9f\x98\x80", b"\\", b"u00e9", b"u0041", b"\\u0", b"\\ud83d", b"\xed\xa0\x80", b"\0")  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(
    content=st.lists(st.sampled_from(ATOMS), max_size=30).map(b"".join),
    block=st.integers(1, 40),
    piece=st.integers(1, 12),
)
def test_any_content_in_any_pieces(content: bytes, block: int, piece: int) -> None:
    line = refused_line(content)
    if line is None:
        assert scanned(content, block=block, piece=piece) == plainly(content)
    else:
        with pytest.raises(CorpusInvalid, match=f": line {line} "):
            scanned(content, block=block, piece=piece)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"\x1f\x8b\x08\x00\x00", "gzip"),
        (b"(\xb5/\xfd\x00", "zstd"),
        (b"PAR1\x00", "Parquet"),
        (b"PK\x03\x04\0", "zip"),
    ],
)
def test_a_packed_file_is_called_by_its_kind(content: bytes, kind: str) -> None:
    with pytest.raises(CorpusInvalid, match=f"is a {kind} file.*Unpack"):
        scanned(content)


def test_facts_say_the_kind() -> None:
    def kind(looked_at: int, malformed: int | None) -> CorpusFacts:
        return ScanState().facts(looked_at=looked_at, first_malformed_line=malformed)

    assert kind(3, None).kind == "jsonl"
    assert kind(3, 2).kind == "plain"
    assert kind(0, None).kind == "plain"
