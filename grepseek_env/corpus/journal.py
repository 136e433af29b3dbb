"""Checkpoints of a build: one line a finished chunk, so that an interrupted build goes on after the last of them."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

from grepseek_env.corpus.facts import ScanState
from grepseek_env.corpus.sidecar import FileStamp
from grepseek_env.paths import atomic_write

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Header", "Journal"]

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Header:
    """What a journal is about; with another header nothing in it can be used.

    Attributes:
        source: absolute path of the corpus file.
        stamp: the file's state when reading began.
        chunk_bytes: length of every chunk but the last.
        no_link: why the view will be a copy; empty when it will be a link.
    """

    source: str
    stamp: FileStamp
    chunk_bytes: int
    no_link: str

    def to_json(self) -> dict[str, Any]:
        """Returns JSON values; `from_json` is the inverse."""
        return {"format": _FORMAT, **dataclasses.asdict(self)}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Header:
        """Restores a header.

        Raises:
            KeyError, TypeError, ValueError: these are not its values.
        """
        if values.pop("format") != _FORMAT:
            raise ValueError("journal of another version")
        return cls(**{**values, "stamp": FileStamp(**values["stamp"])})


@dataclass(slots=True)
class Journal:
    """The checkpoints read so far and the place to add more.

    It is no truth to rely on, only work saved: a line torn by a crash is dropped with all that follow.

    Attributes:
        path: the file.
        header: what it is about.
        chunks: SHA-256s of the finished chunks, in hexadecimal.
        state: the scan after them.
        lines: their checkpoints as they stand in the file.
    """

    path: Path
    header: Header
    chunks: list[str] = field(default_factory=list)
    state: ScanState = field(default_factory=ScanState)
    lines: list[bytes] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Journal | None:
        """Returns what an interrupted build left, or None where there is nothing to go on with."""
        try:
            first, *rest = path.read_bytes().split(b"\n")
            journal = cls(path, Header.from_json(json.loads(first)))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        for line in rest:
            try:
                digest, values = json.loads(line)
                state = ScanState.from_json(values)
            except (ValueError, KeyError, TypeError):
                break
            journal.chunks.append(digest)
            journal.lines.append(line)
            journal.state = state
        return journal

    def start(self) -> IO[bytes]:
        """Writes the header and the checkpoints taken over, and returns the file for `add`."""
        header = json.dumps(self.header.to_json()).encode()
        atomic_write(self.path, b"".join(line + b"\n" for line in (header, *self.lines)))
        return self.path.open("ab", buffering=0)

    def add(self, file: IO[bytes], digest: str) -> None:
        """Records that a chunk is finished and that `state` includes it."""
        line = json.dumps([digest, self.state.to_json()]).encode()
        file.write(line + b"\n")
        self.chunks.append(digest)
        self.lines.append(line)
