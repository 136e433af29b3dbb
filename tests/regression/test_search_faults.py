"""What is missing just when a search in process needs it: a typed fault, or the same answer without it."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from grepseek_env.corpus.store import CorpusStore
from grepseek_env.engine import narrowed
from grepseek_env.engine.index import build_index
from grepseek_env.engine.index.index import Candidates
from grepseek_env.engine.local import LocalBackend
from grepseek_env.engine.scanning import Buffers, read_pieces
from grepseek_env.errors import CorpusChanged, EngineFault, SpawnFailed
from tests.support.daemons import write_corpus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Any

COMMAND = "rg -F alpha corpus.jsonl | wc -l"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CorpusStore]:
    with CorpusStore.open(write_corpus(tmp_path)) as opened:
        yield opened


def first_is_gone(store: CorpusStore, act: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `act`, before which the corpus goes away: after it was compared, before it is opened."""

    def acts(*arguments: object) -> object:
        store.corpus_file.unlink(missing_ok=True)
        return act(*arguments)

    return acts


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("batch", [True, False])
def test_a_corpus_that_goes_away_before_it_is_opened_is_a_changed_one(
    store: CorpusStore, monkeypatch: pytest.MonkeyPatch, *, kernels: bool, batch: bool
) -> None:
    if not kernels:
        monkeypatch.setattr(narrowed, "are_loaded", lambda: False)
    for name in ("_open", "MemoryCorpus"):
        monkeypatch.setattr(narrowed, name, first_is_gone(store, getattr(narrowed, name)))
    with LocalBackend(store, mode="narrowed" if kernels else "auto", cache_bytes=0) as backend:
        if batch:
            assert isinstance(backend.run_many([COMMAND])[0], CorpusChanged)
        else:
            with pytest.raises(CorpusChanged, match="gone"):
                backend.run(COMMAND)


@pytest.mark.parametrize("batch", [True, False])
def test_a_small_corpus_that_cannot_be_opened_for_lack_of_descriptors_is_a_typed_fault(
    store: CorpusStore, monkeypatch: pytest.MonkeyPatch, *, batch: bool
) -> None:
    def lacks(*_arguments: object) -> bytes:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(narrowed, "are_loaded", lambda: False)
    with LocalBackend(store, cache_bytes=0) as backend:
        with monkeypatch.context() as patch:
            patch.setattr(type(store.corpus_file), "read_bytes", lacks)
            if batch:
                assert isinstance(backend.run_many([COMMAND])[0], SpawnFailed)
            else:
                with pytest.raises(SpawnFailed, match="Too many open files"):
                    backend.run(COMMAND)
        assert backend.run(COMMAND).exit_code == 0


def test_an_index_that_cannot_be_opened_for_lack_of_descriptors_is_done_without(
    store: CorpusStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_index(store, workers=1)

    def lacks(_handle: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with LocalBackend(store, mode="narrowed", index=False) as plain:
        wanted = plain.run(COMMAND)
    with LocalBackend(store, mode="narrowed") as backend, monkeypatch.context() as patch:
        patch.setattr(os, "dup", lacks)
        with pytest.warns(UserWarning, match="ignored: .* Too many open files"):
            assert backend.run(COMMAND) == wanted


def test_an_index_that_is_written_to_between_two_questions_is_done_without(
    store: CorpusStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_index(store, workers=1)
    asked: list[object] = []

    def written_to(candidates: Candidates) -> object:
        asked.append(candidates)
        raise EngineFault("the index was changed while a command used it")

    monkeypatch.setattr(Candidates, "spans", written_to)
    with LocalBackend(store, mode="narrowed") as backend:
        result = backend.run("rg -F nowhere corpus.jsonl")  # no block is a candidate
    assert asked
    assert (result.stdout, result.exit_code) == (b"", 1)


def test_a_corpus_that_cannot_be_read_any_more_is_a_typed_fault(
    store: CorpusStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_arguments: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "preadv", fails)
    with store.corpus_file.open("rb") as file, pytest.raises(CorpusChanged, match="cannot be read"):
        read_pieces(file.fileno(), store.facts.bytes, Buffers(), lambda _end: True, lambda: None)
