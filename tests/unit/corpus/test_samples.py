import os
from pathlib import Path

import pytest

from grepseek_env.corpus import samples
from grepseek_env.corpus.samples import is_json_object, look_at_samples


def look(tmp_path: Path, content: bytes) -> tuple[int, int | None]:
    path = tmp_path / "file"
    path.write_bytes(content)
    handle = os.open(path, os.O_RDONLY)
    try:
        return look_at_samples(handle, len(content))
    finally:
        os.close(handle)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"a": 1}', True),
        (b'{"a": 1}\r\n', True),
        (b'{"a": "caf\xe9"}', True),
        (b"[1]", False),
        (b"plain", False),
        (b'{"a": 1', False),
        (b"[" * 100_000, False),
    ],
)
def test_is_json_object(line: bytes, expected: bool) -> None:
    assert is_json_object(line) is expected


def test_blank_lines_and_the_leading_mark_do_not_count(tmp_path: Path) -> None:
    assert look(tmp_path, b'\xef\xbb\xbf{"a":1}\n\n \r\n{"b":2}') == (2, None)
    assert look(tmp_path, b"") == (0, None)
    assert look(tmp_path, b"\n\n") == (0, None)


def test_every_line_of_a_short_file_is_looked_at(tmp_path: Path) -> None:
    good = b'{"a": 1}\n'
    for bad in range(1, 6):
        content = b"".join(b"oops\n" if number == bad else good for number in range(1, 6))
        assert look(tmp_path, content) == (bad, bad)


def test_later_lines_are_looked_at_once_each(tmp_path: Path) -> None:
    looked_at, malformed = look(tmp_path, b'{"a": 1}\n' * 1500)
    assert malformed is None
    assert 1300 < looked_at <= 1500


def test_a_malformed_line_far_in_is_named_by_its_number(tmp_path: Path) -> None:
    good = b'{"contents": "some words here"}\n'
    content = good * 3000 + b"oops\n" * 50 + good * 3000
    _, malformed = look(tmp_path, content)
    assert malformed is not None
    assert content.split(b"\n")[malformed - 1] == b"oops"


def test_enormous_lines_are_not_parsed_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "_BUDGET", 1000)
    line = b'{"a": "' + b"x" * 600 + b'"}\n'
    assert look(tmp_path, line * 10) == (1, None)
