"""Makes a sidecar: lock, read and check once, digest, view, manifest; whole or absent, and continued if interrupted."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import sys
from typing import IO, TYPE_CHECKING

from grepseek_env.corpus.facts import scan
from grepseek_env.corpus.journal import Header, Journal
from grepseek_env.corpus.reading import ChunkHasher, meter, opened, read_blocks, tree_digest
from grepseek_env.corpus.samples import look_at_samples
from grepseek_env.corpus.sidecar import CHUNK_BYTES, FileStamp, Manifest, Sidecar, examine, settled_stamp
from grepseek_env.corpus.view import install_copy, install_link, why_no_link
from grepseek_env.errors import CorpusChanged, CorpusError, CorpusInvalid
from grepseek_env.paths import atomic_write, file_lock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import FileIO
    from pathlib import Path

__all__ = ["explained", "prepare", "write_manifest"]

_SPARE_BYTES = 16 << 20
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


def prepare(source: Path, sidecar: Sidecar, *, progress: bool = False, chunk_bytes: int = CHUNK_BYTES) -> Manifest:
    """Prepares `source` (absolute, links resolved) into `sidecar`, unless that is done already and still fits.

    Raises:
        CorpusInvalid: the content cannot be searched exactly; names the line.
        CorpusChanged: the file changed while it was read.
        CorpusError: the sidecar cannot be written, or the disk is full.
    """
    with explained(source, sidecar), file_lock(sidecar.lock, on_wait=_say_waiting if progress else None):
        _sweep(sidecar)
        try:
            manifest = _still_fits(source, sidecar)
            if manifest is None:
                manifest = _build(source, sidecar, progress=progress, chunk_bytes=chunk_bytes)
        except CorpusInvalid:
            sidecar.journal.unlink(missing_ok=True)
            sidecar.partial.unlink(missing_ok=True)
            _leave(sidecar)
            raise
        except (CorpusError, OSError):
            _leave(sidecar)
            raise
    return manifest


def write_manifest(sidecar: Sidecar, manifest: Manifest) -> None:
    """Writes the manifest as a whole; hold the lock."""
    atomic_write(sidecar.manifest, json.dumps(manifest.to_json(), indent=1) + "\n")


@contextlib.contextmanager
def explained(source: Path, sidecar: Sidecar) -> Iterator[None]:
    """Turns what the operating system may answer into errors that say what to do."""
    try:
        yield
    except CorpusError:
        raise
    except OSError as error:
        if error.errno in _FULL:
            raise CorpusError(
                f"no room to prepare {source} in {sidecar.folder} ({error}). What is done so far is kept: free some "
                "space and run it again, or choose a folder on another disk (into=..., --into FOLDER)"
            ) from error
        if error.errno in _FORBIDDEN and not (error.filename and str(error.filename) == str(source)):
            raise CorpusError(
                f"cannot write into {sidecar.folder} ({error}): prepare it into a folder that you may write, with "
                f"into=... (grepseek corpus build {source} --into FOLDER), and open that folder"
            ) from error
        raise CorpusError(f"cannot prepare {source} in {sidecar.folder}: {error}") from error


def _say_waiting() -> None:
    print("another process is preparing this corpus; waiting for it", file=sys.stderr)


def _sweep(sidecar: Sidecar) -> None:
    """Removes what a killed builder may have left: trial links and temporary files; hold the lock."""
    for pattern in ("trial.*", ".*.tmp"):
        for path in sidecar.folder.glob(pattern):
            path.unlink()


def _still_fits(source: Path, sidecar: Sidecar) -> Manifest | None:
    try:
        manifest = sidecar.read()
    except CorpusInvalid:  # damaged or of another version: made anew
        return None
    if manifest is None or manifest.source != source or not examine(sidecar, manifest).intact:
        return None
    return manifest


def _leave(sidecar: Sidecar) -> None:
    """Removes the folder if there is nothing in it worth keeping: no manifest, no checkpoints."""
    with contextlib.suppress(OSError):  # what a user put there stays, and the first error is the one to tell
        if not sidecar.manifest.exists() and not sidecar.journal.exists():
            if sidecar.view.is_dir() and not sidecar.corpus_file.exists():
                sidecar.view.rmdir()
            if [entry.name for entry in sidecar.folder.iterdir()] == [sidecar.lock.name]:
                sidecar.lock.unlink()
                sidecar.folder.rmdir()


def _open_journal(source: Path, sidecar: Sidecar, chunk_bytes: int) -> Journal:
    """Returns the journal to go on with: the one found when it fits the file, else a new one."""
    stamp = FileStamp.of(source.stat())
    found = Journal.read(sidecar.journal)
    if found is not None:
        same = found.header == Header(str(source), stamp, chunk_bytes, found.header.no_link)
        copied = sidecar.partial.stat().st_size if sidecar.partial.exists() else 0
        if same and (not found.header.no_link or copied >= found.state.size):
            return found
    sidecar.partial.unlink(missing_ok=True)
    no_link = why_no_link(source, sidecar)  # before the stamp is taken: linking changes the ctime
    return Journal(sidecar.journal, Header(str(source), settled_stamp(source), chunk_bytes, no_link))


def _build(source: Path, sidecar: Sidecar, *, progress: bool, chunk_bytes: int) -> Manifest:
    journal = _open_journal(source, sidecar, chunk_bytes)
    stamp = journal.header.stamp
    copying = bool(journal.header.no_link)
    if copying:
        _check_room(stamp.size - journal.state.size, sidecar)
    with opened(source) as file, journal.start() as checkpoints:
        _read_all(file, source, journal, checkpoints, sidecar.partial if copying else None, progress=progress)
        looked_at, malformed = look_at_samples(file.fileno(), stamp.size)
        _check_same(source, stamp, FileStamp.of(os.fstat(file.fileno())))
    if copying:
        install_copy(sidecar)
    else:
        install_link(source, sidecar)
    view = FileStamp.of(sidecar.corpus_file.lstat())
    now = FileStamp.of(source.stat())
    if not copying and not now.same_file(view):
        raise CorpusChanged(f"{source} was replaced while it was prepared: run it again")
    # making the link has changed the ctime, and nothing else may have changed
    _check_same(source, stamp, FileStamp(now.device, now.inode, now.size, now.mtime, stamp.ctime))
    manifest = Manifest(
        source=source,
        source_stamp=now,
        view_kind="copy" if copying else "link",
        view_reason=journal.header.no_link,
        view_stamp=view,
        digest=tree_digest(journal.chunks),
        chunks=tuple(journal.chunks),
        facts=journal.state.facts(looked_at=looked_at, first_malformed_line=malformed),
    )
    write_manifest(sidecar, manifest)
    sidecar.journal.unlink(missing_ok=True)
    return manifest


def _check_room(needed: int, sidecar: Sidecar) -> None:
    free = shutil.disk_usage(sidecar.folder).free
    if free < needed + _SPARE_BYTES:
        raise CorpusError(
            f"a copy of the corpus needs {needed + _SPARE_BYTES:,} bytes in {sidecar.folder}; {free:,} are free. "
            "Choose a folder on the file system of the corpus, where a link needs none, with into=... (--into FOLDER)"
        )


def _check_same(source: Path, before: FileStamp, after: FileStamp) -> None:
    if differences := before.differences(after):
        raise CorpusChanged(f"{source} changed while it was read ({', '.join(differences)}): run it again")


def _read_all(
    file: FileIO, source: Path, journal: Journal, checkpoints: IO[bytes], copy_to: Path | None, *, progress: bool
) -> None:
    """Reads from where the journal ends to the file's end: scan, digest, copy, one checkpoint a chunk."""
    size, chunk_bytes = journal.header.stamp.size, journal.header.chunk_bytes
    begin = journal.state.size
    file.seek(begin)
    with contextlib.ExitStack() as stack:
        advance = stack.enter_context(meter(size, f"reading {source.name}", enabled=progress, done=begin))
        hasher = stack.enter_context(ChunkHasher())
        copy = stack.enter_context(_copy_at(copy_to, begin)) if copy_to else None
        for offset in range(begin, size, chunk_bytes):
            for block in read_blocks(file, source, min(chunk_bytes, size - offset)):
                hasher.update(block)
                scan(journal.state, block, source)
                if copy is not None:
                    copy.write(block)
                advance(len(block))
            if copy is not None:
                copy.flush()
                os.fsync(copy.fileno())  # a checkpoint must not outlive the bytes that it speaks of
            journal.add(checkpoints, hasher.finish())


@contextlib.contextmanager
def _copy_at(path: Path, offset: int) -> Iterator[IO[bytes]]:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    with os.fdopen(handle, "r+b") as file:
        file.truncate(offset)
        file.seek(offset)
        yield file
