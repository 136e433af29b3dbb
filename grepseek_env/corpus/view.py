"""The view: one folder with one regular file, `corpus.jsonl`, and no ignore files above it."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from typing import TYPE_CHECKING

from grepseek_env.errors import CorpusInvalid
from grepseek_env.paths import sync_dir

if TYPE_CHECKING:
    from pathlib import Path

    from grepseek_env.corpus.sidecar import Sidecar

__all__ = ["FIXED_MTIME", "ignore_files_above", "install_copy", "install_link", "why_no_link"]

FIXED_MTIME = 946_684_800  # 2000-01-01 UTC: a copy's bytes and stamp do not depend on when it was made

# The file system has no such thing, lies elsewhere, has too many links of it, or may not link others' files.
_NO_LINK = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
_IGNORE_FILES = (".gitignore", ".ignore", ".rgignore")


def why_no_link(source: Path, sidecar: Sidecar) -> str:
    """Tries to link and returns the reason why that cannot work, or an empty text when it can."""
    trial = sidecar.folder / f"trial.{secrets.token_hex(6)}"
    try:
        os.link(source, trial)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        return f"no hard link to {source} is possible here: {os.strerror(error.errno)}"
    finally:
        trial.unlink(missing_ok=True)
    return ""


def install_link(source: Path, sidecar: Sidecar) -> None:
    """Makes the view's file a second name of `source`, replacing another file there."""
    _clear_view(sidecar)
    # rename(2) between two names of one inode does nothing and would leave the first behind
    with contextlib.suppress(FileNotFoundError):
        if sidecar.corpus_file.samefile(source) and not sidecar.corpus_file.is_symlink():
            return
    trial = sidecar.folder / f"trial.{secrets.token_hex(6)}"
    os.link(source, trial)
    try:
        trial.replace(sidecar.corpus_file)
    except BaseException:
        trial.unlink(missing_ok=True)
        raise
    sync_dir(sidecar.view)


def install_copy(sidecar: Sidecar) -> None:
    """Makes the finished copy the view's file."""
    _clear_view(sidecar)
    sidecar.partial.chmod(0o444)
    os.utime(sidecar.partial, (FIXED_MTIME, FIXED_MTIME))
    sidecar.partial.replace(sidecar.corpus_file)
    sync_dir(sidecar.view)


def _clear_view(sidecar: Sidecar) -> None:
    sidecar.view.mkdir(exist_ok=True)
    strangers = sorted(entry.name for entry in sidecar.view.iterdir() if entry != sidecar.corpus_file)
    if strangers:
        raise CorpusInvalid(f"{sidecar.view} holds {strangers}, which commands would see: move or remove them")


def ignore_files_above(view: Path) -> list[Path]:
    """Returns the ignore files in and above the view, nearest first: with them rg might skip the corpus."""
    folders = (view.resolve(), *view.resolve().parents)
    return [folder / name for folder in folders for name in _IGNORE_FILES if (folder / name).is_file()]
