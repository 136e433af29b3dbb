"""`CorpusStore`: a prepared corpus, pinned to the file that was prepared."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from typing import TYPE_CHECKING, Any, final

from grepseek_env.corpus.locate import locate
from grepseek_env.corpus.prepare import prepare, write_manifest
from grepseek_env.corpus.reading import hash_file, tree_digest
from grepseek_env.corpus.sidecar import FileStamp, Manifest, Sidecar, examine, settled_stamp
from grepseek_env.errors import CorpusChanged, CorpusNotFound
from grepseek_env.paths import file_lock

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from grepseek_env.corpus.facts import CorpusFacts

__all__ = ["CorpusStore"]


@final
class CorpusStore:
    """A corpus that has been read, checked and given a view; make one with `CorpusStore.open` or `build_corpus`.

    It is cheap to copy (copies are the store itself) and to send to another process (which opens it by its path).
    Two stores are equal when view and content are.

    Attributes:
        path: the corpus file that was prepared; absolute, links resolved.
        sidecar: the folder with everything made from it.
        view: the folder that commands run in; it holds one regular file and nothing else.
        corpus_file: that file.
        digest: SHA-256 tree digest of the content, hexadecimal (see `Manifest.digest`).
        facts: what reading the file found.
        manifest: everything recorded about the build, as JSON values.
    """

    def __init__(self, sidecar: Sidecar, manifest: Manifest) -> None:
        self.path: Path = manifest.source
        self.sidecar: Path = sidecar.folder
        self.view: Path = sidecar.view
        self.corpus_file: Path = sidecar.corpus_file
        self.digest: str = manifest.digest
        self.facts: CorpusFacts = manifest.facts
        self.manifest: dict[str, Any] = manifest.to_json()
        self._name = os.fspath(self.corpus_file)
        self._stamp = manifest.view_stamp
        # While it is held, the file system cannot give the inode's number to another file.
        self._pin: int | None = os.open(self.corpus_file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.check_unchanged()
        except BaseException:
            self.close()
            raise

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, build: bool = True, progress: bool = False) -> CorpusStore:
        """Opens a corpus, preparing it first when that has not been done.

        A file whose content is the same but whose stamp differs (it was moved, touched or linked) is read once more
        and its record brought up to date.

        Args:
            path: a file of lines; or a folder that holds one .jsonl file or a corpus.jsonl; or a sidecar folder.
            build: prepare what is not prepared; otherwise that is an error.
            progress: show a bar on stderr while the file is read.

        Raises:
            CorpusNotFound: there is no such corpus, or it is not prepared and `build` is false.
            CorpusInvalid: the content cannot be searched exactly, or the folder is ambiguous.
            CorpusChanged: the content is not what was prepared.
            CorpusError: it could not be prepared.
        """
        located = locate(path)
        sidecar = located.sidecar
        manifest = sidecar.read()
        if manifest is None:
            if not build:
                raise CorpusNotFound(f"{located.source} is not prepared: run grepseek corpus build {located.source}")
            return cls(sidecar, prepare(located.source, sidecar, progress=progress))
        manifest = dataclasses.replace(manifest, source=located.source)
        return cls(sidecar, _confirmed(sidecar, manifest, progress=progress))

    def check_unchanged(self) -> None:
        """Compares the view's file with the one that was opened; costs one stat.

        Raises:
            CorpusChanged: names each of device, inode, size, mtime, ctime that differs.
        """
        try:
            now = FileStamp.of(os.lstat(self._name))
        except OSError as error:
            raise CorpusChanged(f"the corpus {self._name} is gone ({error}): {_remedy(self.path)}") from error
        if now != self._stamp:
            differences = ", ".join(self._stamp.differences(now))
            raise CorpusChanged(
                f"the corpus {self._name} changed after it was opened ({differences}). If its content is the same, "
                f"open it again; otherwise {_remedy(self.path)}"
            )

    def close(self) -> None:
        """Lets go of the file; calling it again does nothing."""
        if self._pin is not None:
            pin, self._pin = self._pin, None
            os.close(pin)

    def __enter__(self) -> CorpusStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_pin", None) is not None:
            with contextlib.suppress(OSError):
                self.close()

    def __copy__(self) -> CorpusStore:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> CorpusStore:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (os.fspath(self.sidecar), self.digest)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CorpusStore):
            return NotImplemented
        return (self.view, self.digest) == (other.view, other.digest)

    def __hash__(self) -> int:
        return hash((self.view, self.digest))

    def __repr__(self) -> str:
        facts = self.facts
        return f"CorpusStore({str(self.path)!r}, {facts.lines} lines, {facts.bytes} bytes, digest {self.digest[:12]})"


def _reopen(sidecar: str, digest: str) -> CorpusStore:
    store = CorpusStore.open(sidecar, build=False)
    if store.digest != digest:
        store.close()
        raise CorpusChanged(
            f"{sidecar} was prepared again with other content (digest {store.digest[:12]}, expected {digest[:12]}): "
            "open the corpus anew instead of using the store sent from another process"
        )
    return store


def _remedy(source: Path) -> str:
    return f"prepare it again: grepseek corpus build {source}"


def _confirmed(sidecar: Sidecar, manifest: Manifest, *, progress: bool) -> Manifest:
    """Returns the manifest if the files are those that it speaks of, reading them where their stamps leave a doubt."""
    finding = examine(sidecar, manifest)
    if finding.intact:
        return manifest
    if finding.changed:
        reasons = "; ".join(finding.changed)
        raise CorpusChanged(f"the corpus is not the one that was prepared ({reasons}): {_remedy(manifest.source)}")
    before = {path: settled_stamp(path) for path in finding.recheck}
    for path in finding.recheck:
        if tree_digest(hash_file(path, progress=progress)) != manifest.digest:
            raise CorpusChanged(f"the content of {path} is not the one that was prepared: {_remedy(manifest.source)}")
    view = before.get(sidecar.corpus_file, manifest.view_stamp)
    source = view if manifest.view_kind == "link" else before.get(manifest.source, manifest.source_stamp)
    refreshed = dataclasses.replace(manifest, view_stamp=view, source_stamp=source)
    with (
        contextlib.suppress(OSError),
        file_lock(sidecar.lock),
    ):  # a sidecar that cannot be written is read again next time
        write_manifest(sidecar, refreshed)
    return refreshed
