"""The manifest of a corpus in parts: which files, in which order, with which content; and cutting a file into parts."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grepseek_env.config import from_dict
from grepseek_env.corpus.facts import CorpusFacts
from grepseek_env.corpus.reading import hash_file, meter, opened, read_blocks, tree_digest
from grepseek_env.corpus.sidecar import CHUNK_BYTES, DIGEST_KIND
from grepseek_env.corpus.slicer import cuts, ranges
from grepseek_env.errors import ConfigError, CorpusChanged, CorpusInvalid, CorpusNotFound
from grepseek_env.paths import atomic_file, atomic_write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grepseek_env.corpus.store import CorpusStore

__all__ = ["SUFFIX", "PartFile", "PartsManifest", "is_manifest", "joined_facts", "split_corpus"]

SUFFIX = ".parts.json"
MOST_PARTS = 1024
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class PartFile:
    """One part: a file of whole lines.

    Attributes:
        path: absolute; the same on every host that may have to read it.
        digest: of its content, as `CorpusStore.digest`; empty where nobody has written it down.
        host: the only host that has the file, by the address that Ray knows it by; empty where any host has it.
    """

    path: Path
    digest: str = ""
    host: str = ""


@dataclass(frozen=True, slots=True)
class PartsManifest:
    """A corpus in parts, in their order.

    Attributes:
        parts: one or more.
        digest: of the corpus, as `CorpusStore.digest` has it of the one file that was cut; empty where the parts never
            were one file.
    """

    parts: tuple[PartFile, ...]
    digest: str = ""

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> PartsManifest:
        """Reads a manifest; paths in it are relative to its folder.

        Raises:
            CorpusNotFound: there is no such file.
            CorpusInvalid: it is no manifest; says what is wrong with it.
        """
        file = Path(path)
        try:
            values = json.loads(file.read_bytes())
        except (FileNotFoundError, NotADirectoryError) as error:
            raise CorpusNotFound(f"there is no manifest of parts {file}") from error
        except (ValueError, RecursionError) as error:
            raise CorpusInvalid(f"{file} is not JSON ({error}); a manifest of parts is") from error
        if not isinstance(values, dict) or values.get("format") != _FORMAT:
            raise CorpusInvalid(f'{file} is no manifest of parts: it must be an object with "format": {_FORMAT}')
        rows = values.get("parts")
        if not isinstance(rows, list) or not 0 < len(rows) <= MOST_PARTS:
            raise CorpusInvalid(f'{file}: "parts" must be a list of 1 to {MOST_PARTS} parts')
        folder = file.absolute().parent
        parts = tuple(_part(row, folder, f"{file}, part {number}") for number, row in enumerate(rows))
        digest = values.get("digest", "")
        if not isinstance(digest, str):
            raise CorpusInvalid(f'{file}: "digest" is {digest!r}; it must be text, or be left out')
        return cls(parts, digest)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes the manifest; parts beside it are named relative to it."""
        file = Path(path).absolute()
        rows = [{key: value for key, value in _row(part, file.parent).items() if value} for part in self.parts]
        values = {"format": _FORMAT, "digest": self.digest, "digest_kind": DIGEST_KIND, "parts": rows}
        atomic_write(file, json.dumps(values, indent=1) + "\n")


def _part(row: object, folder: Path, where: str) -> PartFile:
    if isinstance(row, str):
        row = {"path": row}
    if not isinstance(row, dict) or not all(isinstance(value, str) for value in row.values()) or not row.get("path"):
        raise CorpusInvalid(f'{where} is {row!r:.200}; it must be a path, or an object such as {{"path": "a.jsonl"}}')
    try:
        return from_dict(PartFile, {**row, "path": folder / row["path"]})
    except ConfigError as error:
        raise CorpusInvalid(f"{where}: {error}") from error


def _row(part: PartFile, folder: Path) -> dict[str, str]:
    beside = part.path.parent == folder
    return {**dataclasses.asdict(part), "path": part.path.name if beside else str(part.path)}


def is_manifest(path: object) -> bool:
    """Returns whether `path` names a manifest of parts: such names end in `.parts.json`."""
    return isinstance(path, (str, os.PathLike)) and os.fspath(path).endswith(SUFFIX)


def whole_digest(manifest: PartsManifest, digests: Sequence[str]) -> str:
    """Returns the digest of the corpus: the recorded one, else the SHA-256 over the digests of its parts."""
    return manifest.digest or hashlib.sha256(b"parts" + b"".join(map(bytes.fromhex, digests))).hexdigest()


def joined_facts(parts: Sequence[CorpusFacts], names: Sequence[object]) -> CorpusFacts:
    """Returns the facts of the parts' concatenation.

    Args:
        parts: facts of each part, in order.
        names: of each, for messages.

    Raises:
        CorpusInvalid: the concatenation could not be searched exactly; names the part.
    """
    for facts, name in zip(parts[:-1], names, strict=False):
        if not facts.final_newline:
            raise CorpusInvalid(f"{name} does not end with a line break, so its last line would go on in the next part")
    for facts, name in zip(parts[1:], list(names)[1:], strict=True):
        if facts.leading_bom:
            raise CorpusInvalid(f"{name} starts with a byte-order mark, which only the first part may")
    before = [sum(facts.lines for facts in parts[:number]) for number in range(len(parts))]
    malformed = [n + f.first_malformed_line for n, f in zip(before, parts, strict=True) if f.first_malformed_line]
    invalid = [n + f.first_invalid_utf8_line for n, f in zip(before, parts, strict=True) if f.first_invalid_utf8_line]
    return CorpusFacts(
        bytes=sum(f.bytes for f in parts),
        lines=sum(f.lines for f in parts),
        kind="jsonl"
        if all(f.kind == "jsonl" or not f.bytes for f in parts) and any(f.bytes for f in parts)
        else "plain",
        looked_at=sum(f.looked_at for f in parts),
        first_malformed_line=min(malformed, default=None),
        longest_line=max(f.longest_line for f in parts),
        blank_lines=sum(f.blank_lines for f in parts),
        crlf_lines=sum(f.crlf_lines for f in parts),
        lone_cr=sum(f.lone_cr for f in parts),
        invalid_utf8_lines=sum(f.invalid_utf8_lines for f in parts),
        first_invalid_utf8_line=min(invalid, default=None),
        final_newline=parts[-1].final_newline,
        leading_bom=parts[0].leading_bom,
        ascii_only=all(f.ascii_only for f in parts),
        unicode_escapes=any(f.unicode_escapes for f in parts),
    )


def split_corpus(
    store: CorpusStore, parts: int, into: str | os.PathLike[str] | None = None, *, progress: bool = False
) -> Path:
    """Cuts a corpus into files of whole lines and about equal size, and writes their manifest.

    What an earlier, stopped call has written is compared and kept.

    Args:
        store: the corpus.
        parts: how many; fewer are made where lines are too long.
        into: the folder; None takes `<file>.parts` beside the file.
        progress: show a bar on stderr.

    Returns:
        the manifest's path.

    Raises:
        ConfigError: `parts` is out of range.
        CorpusChanged: the corpus changed meanwhile.
    """
    if not 1 <= parts <= MOST_PARTS:
        raise ConfigError(f"parts is {parts}; it must be from 1 to {MOST_PARTS}")
    folder = store.path.with_name(store.path.name + ".parts") if into is None else Path(into)
    folder.mkdir(parents=True, exist_ok=True)
    stem, suffix, size = store.path.stem, store.path.suffix or ".txt", store.facts.bytes
    with opened(store.corpus_file) as file, meter(size, f"cutting {store.path.name}", enabled=progress) as advance:
        store.check_unchanged()
        found = ranges(cuts(file.fileno(), size, parts), size)
        made = []
        for number, (start, end) in enumerate(found):
            path = folder / f"{stem}.part-{number:04d}-of-{len(found):04d}{suffix}"
            file.seek(start)
            made.append(PartFile(path.absolute(), _copy(file, path, end - start, start, advance)))
        store.check_unchanged()
    manifest = folder / f"{stem}{SUFFIX}"
    PartsManifest(tuple(made), store.digest).write(manifest)
    return manifest


def _copy(file: Any, path: Path, size: int, start: int, advance: Any) -> str:
    """Writes the next `size` bytes to `path` unless it holds them already; returns their digest."""
    if path.is_file() and path.stat().st_size == size:
        wanted = _digest(file, path, size)
        if tree_digest(hash_file(path)) == wanted:
            advance(size)
            return wanted
        file.seek(start)
    hashes: list[str] = []
    try:
        with atomic_file(path) as out:
            for at in range(0, size, CHUNK_BYTES):
                sha = hashlib.sha256()
                for block in read_blocks(file, path, min(CHUNK_BYTES, size - at)):
                    sha.update(block)
                    out.write(block)
                    advance(len(block))
                hashes.append(sha.hexdigest())
    except CorpusChanged as error:
        raise CorpusChanged(f"the corpus became shorter while {path} was written: {error}") from error
    return tree_digest(hashes)


def _digest(file: Any, path: Path, size: int) -> str:
    hashes: list[str] = []
    for at in range(0, size, CHUNK_BYTES):
        sha = hashlib.sha256()
        for block in read_blocks(file, path, min(CHUNK_BYTES, size - at)):
            sha.update(block)
        hashes.append(sha.hexdigest())
    return tree_digest(hashes)
