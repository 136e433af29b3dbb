"""Slices of a corpus as files of their own: made on request, whole or absent, known to belong to the corpus.

corpus.jsonl.grepseek/slices/<N>/
    slices.json             what was made, from which corpus (written last)
    <i>/corpus.jsonl        slice i, under the one name that commands know
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import secrets
import shutil
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from grepseek_env.corpus.prepare import explained
from grepseek_env.corpus.reading import meter, opened, read_blocks, tree_digest
from grepseek_env.corpus.sidecar import CHUNK_BYTES, CORPUS_NAME, FileStamp, Sidecar, settled_stamp
from grepseek_env.corpus.slicer import cuts, ranges
from grepseek_env.corpus.view import FIXED_MTIME
from grepseek_env.errors import ConfigError, CorpusChanged, CorpusError
from grepseek_env.paths import atomic_write, file_lock, sync_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from io import FileIO
    from pathlib import Path

    from grepseek_env.corpus.store import CorpusStore

__all__ = ["MOST_SLICES", "SliceFile", "SliceSet", "build_slices", "find_slices", "open_slices"]

MOST_SLICES = 1024
_FORMAT = 1
_RECORD = "slices.json"
_SPARE_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class SliceFile:
    """One slice.

    Attributes:
        folder: the folder that holds it and nothing else.
        stamp: its file's state when it was made.
        sha256: of its bytes, hexadecimal.
    """

    folder: Path
    stamp: FileStamp
    sha256: str

    @property
    def file(self) -> Path:
        """The file, which bears the corpus's name."""
        return self.folder / CORPUS_NAME


@dataclass(frozen=True, slots=True)
class SliceSet:
    """All slices of one partition.

    Attributes:
        folder: where they are.
        digest: that of the corpus that they were cut from.
        files: the slices in order; together they are the corpus.
    """

    folder: Path
    digest: str
    files: tuple[SliceFile, ...]

    def to_json(self) -> dict[str, Any]:
        """Returns JSON values; `from_json` is the inverse."""
        slices = [{"stamp": dataclasses.asdict(each.stamp), "sha256": each.sha256} for each in self.files]
        return {"format": _FORMAT, "digest": self.digest, "slices": slices}

    @classmethod
    def from_json(cls, folder: Path, values: Mapping[str, Any]) -> SliceSet:
        """Restores what `to_json` made.

        Raises:
            KeyError, TypeError, ValueError: these are not its values.
        """
        if values["format"] != _FORMAT:
            raise ValueError(f"format {values['format']!r} is of another version")
        files = tuple(
            SliceFile(folder / str(number), FileStamp(**each["stamp"]), str(each["sha256"]))
            for number, each in enumerate(values["slices"])
        )
        return cls(folder, str(values["digest"]), files)

    def problem(self, digest: str, size: int) -> str:
        """Returns why these are not the slices of a corpus with this digest and size; empty if they are."""
        if self.digest != digest:
            return "they were cut from other content"
        if sum(each.stamp.size for each in self.files) != size:
            return "their sizes do not add up to the corpus"
        for each in self.files:
            try:
                differences = each.stamp.differences(FileStamp.of(each.file.lstat()))
            except OSError as error:
                return f"{each.file} cannot be used ({error})"
            if differences:
                return f"{each.file} changed ({', '.join(differences)})"
        return ""


def build_slices(store: CorpusStore, count: int, *, progress: bool = False) -> SliceSet:
    """Cuts a corpus into `count` files of about equal size, unless that is done already; a full copy of it.

    Where lines are too long for so many slices there are fewer.

    Raises:
        ConfigError: `count` is not 1 to 1024.
        CorpusChanged: the corpus is not what was prepared.
        CorpusError: there is no room, or the sidecar cannot be written.
    """
    if not 1 <= count <= MOST_SLICES:
        raise ConfigError(f"slices is {count!r}; it must be 1 to {MOST_SLICES}, best the number of cores")
    sidecar = Sidecar(store.sidecar)
    folder = _folder(sidecar, count)
    with explained(store.path, sidecar), file_lock(sidecar.lock):
        found = _read(folder)
        if found is not None and not found.problem(store.digest, store.facts.bytes):
            return found
        folder.parent.mkdir(exist_ok=True)
        for left in folder.parent.glob(".*.partial"):
            shutil.rmtree(left)
        _check_room(folder.parent, store.facts.bytes)
        partial = folder.with_name(f".{folder.name}.{secrets.token_hex(6)}.partial")
        try:
            _write_all(store, partial, count, progress=progress)
            if folder.exists():
                shutil.rmtree(folder)
            partial.rename(folder)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        sync_dir(folder.parent)
        return open_slices(store, count)


def open_slices(store: CorpusStore, count: int) -> SliceSet:
    """Returns the slices that `build_slices` made.

    Raises:
        CorpusError: there are none, or they are not of this corpus as it is now.
    """
    folder = _folder(Sidecar(store.sidecar), count)
    found = _read(folder)
    again = f"make them: grepseek corpus build {store.path} --slices {count}"
    if found is None:
        raise CorpusError(f"{folder} holds no slices: {again}")
    if problem := found.problem(store.digest, store.facts.bytes):
        raise CorpusError(f"the slices in {folder} cannot be used, {problem}: {again}")
    return found


def find_slices(store: CorpusStore, count: int | None = None) -> SliceSet | None:
    """Returns the slices that were made, None where there are none; those that do not fit any more are not used.

    Args:
        store: the corpus.
        count: how many slices; None takes the largest set that fits.

    Warns:
        UserWarning: slices are there and do not fit.
    """
    parent = _folder(Sidecar(store.sidecar), 1).parent
    try:
        there = sorted((int(each.name) for each in parent.iterdir() if each.name.isdecimal()), reverse=True)
    except OSError:
        return None
    for number in there if count is None else [number for number in there if number == count]:
        try:
            return open_slices(store, number)
        except CorpusError as error:
            warnings.warn(f"slices are ignored: {error}", stacklevel=2)
    return None


def _folder(sidecar: Sidecar, count: int) -> Path:
    return sidecar.folder / "slices" / str(count)


def _read(folder: Path) -> SliceSet | None:
    try:
        return SliceSet.from_json(folder, json.loads((folder / _RECORD).read_bytes()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # not there, or damaged: made anew
        return None


def _check_room(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed + _SPARE_BYTES:
        raise CorpusError(
            f"slices are a copy of the corpus: {needed + _SPARE_BYTES:,} bytes are needed in {folder}, {free:,} are "
            "free. Without them slices are fed by pipe, which needs none"
        )


def _write_all(store: CorpusStore, partial: Path, count: int, *, progress: bool) -> None:
    size = store.facts.bytes
    made: list[SliceFile] = []
    whole = _TreeHash()
    with opened(store.corpus_file) as source, meter(size, "cutting slices", enabled=progress) as advance:
        for number, (start, end) in enumerate(ranges(cuts(source.fileno(), size, count), size)):
            folder = partial / str(number)
            folder.mkdir(parents=True)
            sha256 = _write_one(source, store.corpus_file, folder / CORPUS_NAME, end - start, whole, advance)
            made.append(SliceFile(folder, settled_stamp(folder / CORPUS_NAME), sha256))
    if whole.finish() != store.digest:
        raise CorpusChanged(
            f"the content of {store.corpus_file} is not the one that was prepared: prepare it again with "
            f"grepseek corpus build {store.path}"
        )
    record = SliceSet(partial, store.digest, tuple(made)).to_json()
    atomic_write(partial / _RECORD, json.dumps(record, indent=1) + "\n")


def _write_one(
    source: FileIO, path: Path, target: Path, size: int, whole: _TreeHash, advance: Callable[[int], object]
) -> str:
    digest = hashlib.sha256()
    with target.open("xb", buffering=0) as file:
        for block in read_blocks(source, path, size) if size else ():
            view = block
            while view:
                view = view[file.write(view) :]
            digest.update(block)
            whole.update(block)
            advance(len(block))
        os.fsync(file.fileno())
    target.chmod(0o444)
    os.utime(target, (FIXED_MTIME, FIXED_MTIME))
    return digest.hexdigest()


class _TreeHash:
    """The corpus's digest, of blocks of any size."""

    def __init__(self) -> None:
        self._chunks: list[str] = []
        self._sha = hashlib.sha256()
        self._length = 0

    def update(self, block: memoryview) -> None:
        while block:
            piece = block[: CHUNK_BYTES - self._length]
            self._sha.update(piece)
            self._length += len(piece)
            block = block[len(piece) :]
            if self._length == CHUNK_BYTES:
                self._next()

    def finish(self) -> str:
        if self._length:
            self._next()
        return tree_digest(self._chunks)

    def _next(self) -> None:
        self._chunks.append(self._sha.hexdigest())
        self._sha, self._length = hashlib.sha256(), 0
