"""`open_backend()`: one call from a corpus, whatever names it, to a SearchBackend."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from grepseek_env.config import Limits
from grepseek_env.corpus.store import CorpusStore
from grepseek_env.engine.local import LocalBackend
from grepseek_env.tasks.registry import resolve_corpus

if TYPE_CHECKING:
    import os

    from grepseek_env.types import SearchBackend

__all__ = ["open_backend", "open_corpus"]


def open_corpus(corpus: str | os.PathLike[str] | CorpusStore, *, progress: bool = False) -> CorpusStore:
    """Opens a corpus, preparing it first where that has not been done.

    Args:
        corpus: a JSONL or text file, a folder, a `CorpusStore`, or a name (``"world:tiny"``, ``"wiki18"``).
        progress: show a progress bar while a corpus is generated or prepared.

    Raises:
        CorpusNotFound: nothing of this path or name exists.
        CorpusInvalid: the file cannot be used; names the line.
    """
    if isinstance(corpus, CorpusStore):
        return corpus
    path = Path(corpus)
    if not path.exists() and isinstance(corpus, str):
        path = resolve_corpus(corpus, progress=progress)
    return CorpusStore.open(path, progress=progress)


def open_backend(
    corpus: str | os.PathLike[str] | CorpusStore = "world:tiny",
    mode: str = "auto",
    *,
    limits: Limits | None = None,
    progress: bool = False,
) -> SearchBackend:
    """Opens a corpus and the engine that runs commands over it.

    Args:
        corpus: see `open_corpus`.
        mode: "auto" chooses; "sequential" runs the pipeline as it stands. Output and exit code never differ.
        limits: what one command may use.
        progress: show a progress bar while a corpus is generated or prepared.

    Raises:
        ConfigError: no such mode.
        CorpusError: the corpus cannot be opened.
        ProgramMissing: a program of the command language is not installed.
    """
    return LocalBackend(open_corpus(corpus, progress=progress), limits=limits or Limits(), mode=mode)
