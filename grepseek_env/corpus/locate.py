"""From what a user calls a corpus to the file and its sidecar."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from grepseek_env.config import closest
from grepseek_env.corpus.sidecar import CORPUS_NAME, Sidecar
from grepseek_env.errors import CorpusError, CorpusInvalid, CorpusNotFound

if TYPE_CHECKING:
    import os

__all__ = ["Located", "locate"]

_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Located:
    """A corpus file and the folder that holds, or will hold, what is prepared from it.

    Attributes:
        source: absolute, links resolved; it may be missing when a prepared sidecar was named.
        sidecar: the sidecar folder.
    """

    source: Path
    sidecar: Sidecar


def locate(path: str | os.PathLike[str]) -> Located:
    """Finds the corpus that `path` means: a file, a folder with one, a sidecar folder or its view.

    Raises:
        CorpusNotFound: there is nothing of that name, or no corpus in the folder.
        CorpusInvalid: the folder holds several candidates, or the file is no regular file.
    """
    given = Path(path)
    try:
        resolved = given.resolve()
        mode = resolved.stat().st_mode
    except (FileNotFoundError, NotADirectoryError) as error:
        raise CorpusNotFound(f"there is no corpus {given}{_near(given)}: give a JSONL file or a folder") from error
    except (OSError, ValueError, RuntimeError) as error:  # no permission, a NUL in the name, a loop of links
        raise CorpusError(f"the corpus {str(given)!r} cannot be opened: {error}") from error
    if stat.S_ISDIR(mode):
        return _in_folder(resolved, given)
    if not stat.S_ISREG(mode):
        raise CorpusInvalid(f"{given} is no regular file; a corpus must be one, since it is read many times")
    if around := Sidecar.recognise(resolved.parent):
        if resolved == around.corpus_file:
            return _of_sidecar(around)
        raise CorpusInvalid(f"{given} is part of a prepared corpus, not a corpus: give {around.folder} itself")
    return Located(resolved, Sidecar.beside(resolved))


def _in_folder(folder: Path, given: Path) -> Located:
    if sidecar := Sidecar.recognise(folder):
        return _of_sidecar(sidecar)
    names = sorted(entry.name for entry in folder.iterdir())
    candidates = [name for name in names if name.endswith(".jsonl") and (folder / name).is_file()]
    match candidates:
        case [name]:
            return locate(folder / name)
        case _ if CORPUS_NAME in candidates:
            return locate(folder / CORPUS_NAME)
        case []:
            raise CorpusNotFound(f"there is no .jsonl file in {given}; it holds {_listed(names)}: give the file itself")
        case _:
            raise CorpusInvalid(f"{given} holds several .jsonl files: {_listed(candidates)}: say which one")


def _of_sidecar(sidecar: Sidecar) -> Located:
    try:
        manifest = sidecar.read()
    except CorpusInvalid:
        manifest = None
    default = sidecar.default_source()
    # Beside its file a sidecar belongs to that file, wherever the two have been moved together.
    if default is not None and default.is_file() and not (manifest and manifest.source.is_file()):
        return Located(default, sidecar)
    if manifest is not None:
        return Located(manifest.source, sidecar)
    raise CorpusNotFound(
        f"{sidecar.folder} holds no prepared corpus, and its file cannot be told: give the file itself"
    )


def _near(given: Path) -> str:
    try:
        names = [entry.name for entry in given.parent.iterdir()]
    except OSError:
        return f" (and no folder {given.parent})"
    return closest(given.name, names)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return (", ".join(names[:_SHOWN]) or "nothing") + more
