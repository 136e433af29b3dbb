"""The sidecar folder beside a corpus: its layout, its manifest, and whether it still belongs to the file.

corpus.jsonl.grepseek/
    manifest.json       what was prepared (written last, so its presence says that everything else is whole)
    view/corpus.jsonl   the only thing commands see
    journal             finished parts of an interrupted build
    lock                held while building
"""

from __future__ import annotations

import dataclasses
import json
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from grepseek_env.corpus.facts import CorpusFacts
from grepseek_env.errors import CorpusInvalid

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

__all__ = [
    "CHUNK_BYTES",
    "CORPUS_NAME",
    "DIGEST_KIND",
    "FileStamp",
    "Finding",
    "Manifest",
    "Sidecar",
    "examine",
    "settled_stamp",
]

CORPUS_NAME = "corpus.jsonl"
CHUNK_BYTES = 64 << 20
DIGEST_KIND = "sha256-tree-64M"
_FORMAT = 1
_SUFFIX = ".grepseek"
_SETTLED_NS = 20_000_000  # time stamps tick every 4 to 10 ms: a younger file could change without a new stamp


@dataclass(frozen=True, slots=True)
class FileStamp:
    """What the file system says about a file without reading it; the times are nanoseconds since 1970."""

    device: int
    inode: int
    size: int
    mtime: int
    ctime: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileStamp:
        """Takes the five fields out of a stat result."""
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)

    def differences(self, now: FileStamp) -> list[str]:
        """Returns one text such as "size 10 -> 12" for each field in which `now` differs."""
        pairs = ((f.name, getattr(self, f.name), getattr(now, f.name)) for f in dataclasses.fields(self))
        return [f"{name} {old} -> {new}" for name, old, new in pairs if old != new]

    def same_file(self, other: FileStamp) -> bool:
        """Tells whether both name one inode."""
        return (self.device, self.inode) == (other.device, other.inode)


def settled_stamp(path: Path) -> FileStamp:
    """Returns the file's stamp once it is so old that a later change is sure to show in it (waits 20 ms at most)."""
    stamp = FileStamp.of(path.stat())
    wait = _SETTLED_NS - (time.time_ns() - max(stamp.mtime, stamp.ctime))
    if 0 < wait <= _SETTLED_NS:
        time.sleep(wait / 1e9)
        stamp = FileStamp.of(path.stat())
    return stamp


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a build found and made.

    Attributes:
        source: absolute path of the corpus file, links resolved.
        source_stamp: its state when it was read.
        view_kind: "link": the view is the file itself under a second name; "copy": it has its own bytes.
        view_reason: why it is a copy; empty for a link.
        view_stamp: the view file's state.
        digest: SHA-256, in hexadecimal, of the concatenated SHA-256s of the file's chunks of 64 MiB.
        chunks: those SHA-256s in hexadecimal, in order; none for an empty file.
        facts: what reading the file found.
    """

    source: Path
    source_stamp: FileStamp
    view_kind: Literal["link", "copy"]
    view_reason: str
    view_stamp: FileStamp
    digest: str
    chunks: tuple[str, ...]
    facts: CorpusFacts

    def to_json(self) -> dict[str, Any]:
        """Returns JSON values; `from_json` is the inverse."""
        values = dataclasses.asdict(self)
        return {"format": _FORMAT, "digest_kind": DIGEST_KIND, **values, "source": str(self.source)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Manifest:
        """Restores what `to_json` made.

        Raises:
            KeyError, TypeError, ValueError: these are not a manifest's values.
        """
        if (values["format"], values["digest_kind"]) != (_FORMAT, DIGEST_KIND):
            raise ValueError(f"format {values['format']!r}, digest {values['digest_kind']!r} are of another version")
        known = {f.name: values[f.name] for f in dataclasses.fields(cls)}
        return cls(
            **{
                **known,
                "source": Path(known["source"]),
                "source_stamp": FileStamp(**known["source_stamp"]),
                "view_stamp": FileStamp(**known["view_stamp"]),
                "chunks": tuple(known["chunks"]),
                "facts": CorpusFacts(**known["facts"]),
            }
        )


@dataclass(frozen=True, slots=True)
class Sidecar:
    """Paths inside a sidecar folder."""

    folder: Path

    @classmethod
    def beside(cls, source: Path) -> Sidecar:
        """Returns the sidecar that belongs to a corpus file by default."""
        return cls(source.with_name(source.name + _SUFFIX))

    @classmethod
    def recognise(cls, folder: Path) -> Sidecar | None:
        """Returns the sidecar that `folder` is, or whose view it is; else None."""
        own = cls(folder)
        if folder.is_dir() and (folder.name.endswith(_SUFFIX) or own._is_marked()):
            return own
        around = cls(folder.parent)
        return around if folder.name == around.view.name and around._is_marked() else None

    def _is_marked(self) -> bool:
        """Whether it holds what only a builder leaves: users' own folders may have a manifest.json or a journal too."""
        finished = self.manifest.is_file() and self.view.is_dir()
        return self.lock.is_file() and (finished or self.journal.is_file())

    @property
    def manifest(self) -> Path:
        """The manifest; there only when the corpus is prepared."""
        return self.folder / "manifest.json"

    @property
    def view(self) -> Path:
        """The folder that commands run in."""
        return self.folder / "view"

    @property
    def corpus_file(self) -> Path:
        """The one file of the view."""
        return self.view / CORPUS_NAME

    @property
    def journal(self) -> Path:
        """Checkpoints of a build under way."""
        return self.folder / "journal"

    @property
    def partial(self) -> Path:
        """The copy under way, where the view cannot be a link."""
        return self.folder / "copy.partial"

    @property
    def lock(self) -> Path:
        """The file that a builder holds a lock on."""
        return self.folder / "lock"

    def default_source(self) -> Path | None:
        """Returns the file that this folder's name says it stands beside, or None."""
        name = self.folder.name
        if name == _SUFFIX or not name.endswith(_SUFFIX):
            return None
        return self.folder.with_name(name[: -len(_SUFFIX)])

    def read(self) -> Manifest | None:
        """Returns the manifest, or None when nothing is prepared here.

        Raises:
            CorpusInvalid: the manifest is damaged or of another version of this package.
        """
        try:
            return Manifest.from_json(json.loads(self.manifest.read_bytes()))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            remedy = "prepare the corpus again: grepseek corpus build FILE"
            raise CorpusInvalid(f"{self.manifest} cannot be used ({error}); {remedy}") from error


@dataclass(frozen=True, slots=True)
class Finding:
    """How a prepared corpus compares with the files now.

    Attributes:
        changed: reasons why the corpus is certainly not the prepared one; empty when it may be.
        recheck: files whose content must be compared before it is trusted: sizes agree, some other field does not.
    """

    changed: tuple[str, ...] = ()
    recheck: tuple[Path, ...] = ()

    @property
    def intact(self) -> bool:
        """Nothing differs at all."""
        return not self.changed and not self.recheck


def examine(sidecar: Sidecar, manifest: Manifest) -> Finding:
    """Compares a manifest with the files on disk by their stamps alone.

    The source may be gone: the view holds the corpus by itself.
    """
    try:
        seen = sorted(entry.name for entry in sidecar.view.iterdir())
        status = sidecar.corpus_file.lstat()
    except OSError as error:
        return Finding(changed=(f"the view cannot be read ({error})",))
    if seen != [CORPUS_NAME] or not stat.S_ISREG(status.st_mode):
        return Finding(changed=(f"{sidecar.view} must hold one regular file {CORPUS_NAME} alone; it holds {seen}",))
    view = FileStamp.of(status)
    try:
        source = FileStamp.of(manifest.source.stat())
    except OSError:
        source = None
    changed: list[str] = []
    recheck: list[Path] = []
    if view.size != manifest.view_stamp.size:
        changed.append(f"{sidecar.corpus_file}: {', '.join(manifest.view_stamp.differences(view))}")
    elif view != manifest.view_stamp:
        recheck.append(sidecar.corpus_file)
    if source is not None and not (manifest.view_kind == "link" and source.same_file(view)):
        differences = manifest.source_stamp.differences(source)
        if manifest.view_kind == "link" or source.size != manifest.source_stamp.size:
            changed.append(f"{manifest.source}: {', '.join(differences) or 'no longer the file in the view'}")
        elif differences:
            recheck.append(manifest.source)
    return Finding(tuple(changed), tuple(recheck))
