"""Lines that only a letter or byte beyond ASCII lets through are found in process as the programs find them."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from grepseek_env.corpus.store import CorpusStore
from grepseek_env.engine import narrowed
from grepseek_env.engine.local import LocalBackend
from tests.support.oracle import oracle

if TYPE_CHECKING:
    from pathlib import Path

    from grepseek_env.engine.local import Mode

LINES = "alpha beta gamma \u212aelvin\nalpha beta kelvins\nki\u017fs\nkis\nfoo\ncaf\u00e9 noir\n\u00c3\u00a9\n"
COMMANDS = [
    "rg -vwi kelvin corpus.jsonl",
    "rg -vxi kiss corpus.jsonl | wc -l",
    "rg -F 'alpha beta' corpus.jsonl | rg -wi kelvin",
    "rg -F 'alpha beta' corpus.jsonl | rg -vwi kelvin -c",
    "grep -vxi kis corpus.jsonl",
    r"rg --no-unicode 'caf\xC3\xA9' corpus.jsonl",
    r"rg --no-unicode 'caf\xC3\xA9' corpus.jsonl | wc -l",
    r"rg --no-unicode 'caf[\xC3]' corpus.jsonl | wc -l",
    r"rg --no-unicode -e noir -e '\xE2\x84\xAAelvin' corpus.jsonl | wc -l",
    r"rg 'caf\xE9' corpus.jsonl | wc -l",
    r"rg '(?-u:\xC3\xA9)' corpus.jsonl | wc -l",
]


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("mode", ["auto", "narrowed"])
@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_special_letters_of_words_and_whole_lines_and_bytes_of_rg(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, locale: str, *, kernels: bool
) -> None:
    if not kernels:
        monkeypatch.setattr(narrowed, "are_loaded", lambda: False)
    path = tmp_path / "lines.jsonl"
    path.write_bytes(LINES.encode())
    with (
        CorpusStore.open(path) as store,
        LocalBackend(store, mode=cast("Mode", mode), locale=locale, cache_bytes=0) as backend,
    ):
        together = backend.run_many(COMMANDS)
        for command, batched in zip(COMMANDS, together, strict=True):
            wanted = oracle(command, store.view, backend.program_dir, locale=locale)
            for result in (backend.run(command), batched):
                assert (result.stdout, result.exit_code) == (wanted.stdout, wanted.exit_code), command
