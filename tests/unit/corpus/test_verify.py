import os
from pathlib import Path

import pytest

from grepseek_env.corpus import reading  # fmt: skip
from grepseek_env.corpus import verify as verify_module
from grepseek_env.corpus.build import build_corpus
from grepseek_env.corpus.prepare import prepare
from grepseek_env.corpus.sidecar import Sidecar
from grepseek_env.corpus.store import CorpusStore
from grepseek_env.corpus.verify import info, verify
from tests.support.odd_corpora import odd, ordinary


def opened(tmp_path: Path, content: bytes) -> CorpusStore:
    path = tmp_path / "passages.jsonl"
    path.write_bytes(content)
    return build_corpus(path)


def test_an_intact_corpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = opened(tmp_path, ordinary(20))
    report = verify(store, deep=True, progress=True)
    assert report.ok
    assert report.found == {store.corpus_file: store.digest}
    assert (report.lines_parsed, report.first_malformed_line) == (20, None)
    assert "content as recorded" in str(report)
    assert "all 20 lines" in str(report)
    assert "checking corpus.jsonl" in capsys.readouterr().err


def test_a_changed_corpus_says_from_where_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def small_chunks(path: Path, *, progress: bool) -> tuple[str, ...]:
        return reading.hash_file(path, progress=progress, chunk_bytes=1000)

    monkeypatch.setattr(verify_module, "CHUNK_BYTES", 1000)
    monkeypatch.setattr(verify_module, "hash_file", small_chunks)
    path = tmp_path / "passages.jsonl"
    path.write_bytes(ordinary(100))
    prepare(path, Sidecar.beside(path), chunk_bytes=1000)
    store = CorpusStore.open(path)
    assert verify(store).ok
    with store.path.open("r+b") as file:
        file.seek(3456)
        file.write(b"#")
    report = verify(store)
    assert not report.ok
    assert report.different == {store.corpus_file: 3000}
    assert "CHANGED from byte 3,000 on" in str(report)


def test_both_files_are_read_where_the_view_is_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(18, os.strerror(18))

    monkeypatch.setattr("grepseek_env.corpus.view.os.link", refuse)
    store = opened(tmp_path, ordinary(20))
    assert set(verify(store).found) == {store.corpus_file, store.path}
    store.path.write_bytes(ordinary(19))
    assert list(verify(store).different) == [store.path]


def test_a_deep_check_names_the_first_malformed_line(tmp_path: Path) -> None:
    store = opened(tmp_path, b'\xef\xbb\xbf{"a":1}\n\n{"b":2}\noops\nmore\n')
    assert verify(store).ok
    report = verify(store, deep=True)
    assert not report.ok
    assert (report.lines_parsed, report.malformed_lines, report.first_malformed_line) == (4, 2, 4)
    assert "2 of 4 lines are no JSON object, the first is line 4" in str(report)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("crlf", "CR LF lines    400"),
        ("bad_utf8", "not UTF-8      1, the first is line 201"),
        ("ascii_escaped", r"ASCII only; JSON escapes such as \u00e9 occur"),
        ("no_final_newline", "final newline  no"),
        ("leading_bom", "leading BOM    yes"),
        ("dash_lines", "plain, 1 lines looked at; line 1 is no JSON object"),
        ("huge_line", "400, the longest of 6,000,040 bytes"),
    ],
)
def test_info_tells_the_facts(tmp_path: Path, name: str, expected: str) -> None:
    text = info(opened(tmp_path, odd()[name]))
    assert expected in text
    assert "hard link to the file" in text
