"""Which characters are part of words, and which are letters without case, is as the programs at hand have it."""

from __future__ import annotations

import string
import subprocess
from typing import TYPE_CHECKING

import pytest

from grepseek_env.engine.literals.words import is_word, word_after, word_before
from grepseek_env.engine.programs import open_programs

if TYPE_CHECKING:
    from pathlib import Path

POINTS = [point for point in range(0x20, 0x110000) if not 0xD800 <= point < 0xE000]


@pytest.mark.slow
@pytest.mark.parametrize("line", ["{0:06x} {1}X\n", "{0:06x} X{1}\n"])
def test_the_table_is_that_of_rg(tmp_path: Path, line: str) -> None:
    (tmp_path / "corpus.jsonl").write_bytes("".join(line.format(point, chr(point)) for point in POINTS).encode())
    done = subprocess.run(
        [open_programs().folder / "rg", "-w", "-F", "X", "corpus.jsonl"], capture_output=True, cwd=tmp_path, check=True
    )
    free = {int(found[:6], 16) for found in done.stdout.split(b"\n") if found}
    wrong = [point for point in POINTS if is_word(chr(point)) is (point in free)]
    assert not wrong


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "locale", "specials"),
    [
        ("rg", "C", {"\u212a": "k", "\u017f": "s"}),
        ("grep", "C.UTF-8", {"\u017f": "s", "\u0131": "i"}),
        ("grep", "C", {}),
    ],
)
def test_letters_without_case_are_those_of_the_programs(
    tmp_path: Path, program: str, locale: str, specials: dict[str, str]
) -> None:
    (tmp_path / "corpus.jsonl").write_bytes("".join(f"{point:06x} {chr(point)}\n" for point in POINTS).encode())
    for letter in string.ascii_lowercase:
        done = subprocess.run(
            [open_programs().folder / program, "-a", "-i", "-e", f" {letter}$", "corpus.jsonl"],
            capture_output=True,
            cwd=tmp_path,
            env={"LC_ALL": locale},
            check=True,
        )
        found = {line[7:].decode() for line in done.stdout.splitlines()}
        assert found == {letter, letter.upper(), *(special for special, one in specials.items() if one == letter)}


def test_bytes_that_are_no_character_stand_beside_nothing() -> None:
    for broken in (b"\xff", b"\xc3", b"a\x80", b"\xe2\x84"):
        assert word_before(broken + b"X", len(broken), "unicode")
        assert word_after(b"X" + broken[-1:], 1, "unicode")
    assert not word_before(b"\xffX", 1, "ascii")
    assert not word_after(b"X\xff", 1, "ascii")
    assert word_before("éX".encode(), 2, "unicode")
    assert not word_before("éX".encode(), 2, "ascii")
    assert not word_after("X\u2019é".encode(), 1, "unicode")
