"""`build_corpus`: prepares a corpus, or prepares it again when it changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from grepseek_env.corpus.locate import locate
from grepseek_env.corpus.prepare import prepare
from grepseek_env.corpus.sidecar import Sidecar
from grepseek_env.corpus.store import CorpusStore
from grepseek_env.errors import ConfigError, CorpusNotFound

if TYPE_CHECKING:
    import os

__all__ = ["build_corpus"]


def build_corpus(
    path: str | os.PathLike[str], *, into: str | os.PathLike[str] | None = None, progress: bool = False
) -> CorpusStore:
    """Reads a corpus once, checks it, and makes its sidecar; does nothing when that is done and still fits.

    An interrupted build goes on where it was, as long as the file is the same. Several builders at once do the work
    only once.

    Args:
        path: a file of lines, a folder that holds one, or an existing sidecar.
        into: the sidecar folder to make; None takes `<file>.grepseek` beside the file.
        progress: show a bar on stderr.

    Returns:
        the store, opened.

    Raises:
        ConfigError: `into` is a folder with other things in it, or a file.
        CorpusNotFound: there is no such corpus.
        CorpusInvalid: the content cannot be searched exactly; names the line.
        CorpusChanged: the file changed while it was read.
        CorpusError: the sidecar cannot be written, or the disk is full.
    """
    located = locate(path)
    if not located.source.is_file():
        raise CorpusNotFound(f"{located.source}, from which {path} was prepared, is gone: give the file's new place")
    sidecar = located.sidecar if into is None else _chosen(Path(into))
    return CorpusStore(sidecar, prepare(located.source, sidecar, progress=progress))


def _chosen(into: Path) -> Sidecar:
    folder = into.resolve()
    if folder.exists():
        if not folder.is_dir():
            raise ConfigError(f"into={str(into)!r} is a file; it must be a folder, new or empty")
        own = Sidecar(folder)
        others = sorted({entry.name for entry in folder.iterdir()} - {own.lock.name, own.view.name, own.partial.name})
        if others and Sidecar.recognise(folder) is None:
            raise ConfigError(f"into={str(into)!r} holds {', '.join(others[:5])}; it must be a folder, new or empty")
    return Sidecar(folder)
