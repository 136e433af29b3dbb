"""What is known about a corpus after reading it once, and the reading itself."""

from __future__ import annotations

import codecs
import dataclasses
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from grepseek_env.errors import CorpusInvalid

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["CorpusFacts", "ScanState", "scan"]

_PIECE = 1 << 18  # small enough that a piece stays in the second-level cache while it is looked at from all sides
_KEPT = 8  # bytes of the prefix that a border may need: BOM 2, character 3, \uXXXX 5
_NEWLINE, _RETURN, _BACKSLASH, _SMALL_U = b"\n\r\\u"
_UNICODE_ESCAPE = re.compile(rb"\\u(?!00[0-7])[0-9a-fA-F]{4}")

# What must not stand at a line start: slices begin there, and rg would take it for an encoding mark.
_MARKS = (
    (b"\xef\xbb\xbf", "starts with a byte-order mark (EF BB BF), which rg drops at a slice's start and grep keeps",
     "remove it: sed '2,$s/^\\xEF\\xBB\\xBF//' FILE > CLEAN"),
    (b"\xff\xfe", "starts with FF FE, the mark of UTF-16, which rg would decode",
     "convert the file: iconv -f UTF-16 -t UTF-8 FILE > CLEAN; or remove the two bytes"),
    (b"\xfe\xff", "starts with FE FF, the mark of UTF-16, which rg would decode",
     "convert the file: iconv -f UTF-16 -t UTF-8 FILE > CLEAN; or remove the two bytes"),
)  # fmt: skip
_NUL = ("holds a NUL byte, at which rg and grep take the file for binary", "remove it: tr -d '\\000' < FILE > CLEAN")
_PACKED = (
    (b"\x1f\x8b", "gzip", "gunzip -k"),
    (b"\x28\xb5\x2f\xfd", "zstd", "unzstd"),
    (b"\xfd7zXZ", "xz", "unxz -k"),
    (b"BZh", "bzip2", "bunzip2 -k"),
    (b"PK\x03\x04", "zip", "unzip"),
    (b"PAR1", "Parquet", "convert it to JSONL, for example with the datasets library:"),
)


@dataclass(frozen=True, slots=True)
class CorpusFacts:
    r"""Facts of a corpus; lines are counted from 1, lengths are in bytes.

    Attributes:
        bytes: size of the file.
        lines: number of lines; an unterminated last line counts.
        kind: "jsonl" when every line looked at is a JSON object, else "plain". Both are searched alike.
        looked_at: non-blank lines that were parsed to tell the kind: the first thousand and others evenly spread.
        first_malformed_line: the first line looked at that is no JSON object; None where all are.
        longest_line: length of the longest line, its newline not counted.
        blank_lines: lines with nothing before their end (LF or CR LF).
        crlf_lines: lines that end in CR LF.
        lone_cr: carriage returns that are not part of a line's end.
        invalid_utf8_lines: lines that are not valid UTF-8.
        first_invalid_utf8_line: the first of them, or None.
        final_newline: no unterminated last line; true of an empty file too.
        leading_bom: the file begins with EF BB BF.
        ascii_only: no byte above 127.
        unicode_escapes: JSON escapes such as ``\u00e9`` occur, so that text beyond ASCII must be searched so.
    """

    bytes: int
    lines: int
    kind: Literal["jsonl", "plain"]
    looked_at: int
    first_malformed_line: int | None
    longest_line: int
    blank_lines: int
    crlf_lines: int
    lone_cr: int
    invalid_utf8_lines: int
    first_invalid_utf8_line: int | None
    final_newline: bool
    leading_bom: bool
    ascii_only: bool
    unicode_escapes: bool


@dataclass(slots=True)
class ScanState:
    """What is known after a prefix of the file; continuing from it equals reading everything in one go.

    Attributes:
        size: bytes of the prefix.
        newlines: newline bytes in it.
        longest: length of the longest finished line.
        blank: finished blank lines.
        returns: carriage returns.
        crlf: carriage returns followed by a newline.
        bad: lines known not to be UTF-8.
        first_bad: number of the first of them, 0 for none.
        leading_bom: the prefix begins with a byte-order mark.
        ascii_only: no byte above 127 so far.
        escapes: a JSON escape beyond ASCII was seen.
        open_length: bytes of the line that the prefix leaves unfinished.
        open_bad: that line is already counted in `bad`.
        pending: how many bytes at the end begin an unfinished UTF-8 character.
        tail: the last few bytes of the prefix.
    """

    size: int = 0
    newlines: int = 0
    longest: int = 0
    blank: int = 0
    returns: int = 0
    crlf: int = 0
    bad: int = 0
    first_bad: int = 0
    leading_bom: bool = False
    ascii_only: bool = True
    escapes: bool = False
    open_length: int = 0
    open_bad: bool = False
    pending: int = 0
    tail: bytes = b""

    def to_json(self) -> dict[str, Any]:
        """Returns JSON values; `from_json` is the inverse."""
        return {**dataclasses.asdict(self), "tail": self.tail.hex()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> ScanState:
        """Restores a state written by `to_json`."""
        return cls(**{**values, "tail": bytes.fromhex(values["tail"])})

    def facts(self, *, looked_at: int, first_malformed_line: int | None) -> CorpusFacts:
        """Closes the file here; the two arguments come from parsing sample lines."""
        unfinished = self.pending > 0 and not self.open_bad
        bad = self.bad + unfinished
        lines = self.newlines + (self.open_length > 0)
        only_return = self.open_length == 1 and self.tail.endswith(b"\r")
        return CorpusFacts(
            bytes=self.size,
            lines=lines,
            kind="jsonl" if looked_at and first_malformed_line is None else "plain",
            looked_at=looked_at,
            first_malformed_line=first_malformed_line,
            longest_line=max(self.longest, self.open_length),
            blank_lines=self.blank + only_return,
            crlf_lines=self.crlf,
            lone_cr=self.returns - self.crlf,
            invalid_utf8_lines=bad,
            first_invalid_utf8_line=(self.first_bad or lines) if bad else None,
            final_newline=self.open_length == 0,
            leading_bom=self.leading_bom,
            ascii_only=self.ascii_only,
            unicode_escapes=self.escapes,
        )


def scan(state: ScanState, data: bytes | memoryview, path: Path, *, piece_bytes: int = _PIECE) -> None:
    """Advances `state` over `data`, the bytes that follow its prefix.

    Args:
        state: is changed in place; after an error it is of no more use.
        data: any length; lines and characters may be split anywhere.
        path: the file's name for error messages.
        piece_bytes: bytes looked at together; the result does not depend on it.

    Raises:
        CorpusInvalid: a NUL byte, or a byte-order mark where no tool could be exact; names the line and the way out.
    """
    for start in range(0, len(data), piece_bytes):
        _scan_piece(state, bytes(data[start : start + piece_bytes]), path)


def _scan_piece(state: ScanState, piece: bytes, path: Path) -> None:
    array = np.frombuffer(piece, np.uint8)
    ends = np.flatnonzero(array == _NEWLINE)
    if state.size == 0:
        _refuse_packed(piece, path)
    _refuse(state, piece, array, ends, path)
    _scan_returns(state, piece)
    if not state.escapes:
        border = state.tail[-5:] + piece[:5]
        # numpy looks for the two bytes ten times as fast as `in` does
        near = bool(((array[:-1] == _BACKSLASH) & (array[1:] == _SMALL_U)).any())
        state.escapes = bool(_UNICODE_ESCAPE.search(border) or (near and _UNICODE_ESCAPE.search(piece)))
    if state.pending or not piece.isascii():
        state.ascii_only = False
        _scan_utf8(state, piece)
    elif ends.size:
        state.open_bad = False
    _scan_lengths(state, piece, array, ends)
    state.size += len(piece)
    state.tail = (state.tail + piece[-_KEPT:])[-_KEPT:]


def _refuse_packed(piece: bytes, path: Path) -> None:
    for magic, kind, remedy in _PACKED:
        if piece.startswith(magic):
            raise CorpusInvalid(f"{path} is a {kind} file, not lines of text. Unpack it first: {remedy} {path}")


def _refuse(
    state: ScanState, piece: bytes, array: np.ndarray[Any, Any], ends: np.ndarray[Any, Any], path: Path
) -> None:
    found: list[tuple[int, str, str]] = []
    nul = piece.find(b"\0")
    if nul >= 0:
        found.append((nul, *_NUL))
    if state.open_length < 3:  # the line that was open may show only now what it starts with
        head = (state.tail[len(state.tail) - state.open_length :] + piece[:3])[:3]
        if head == _MARKS[0][0] and state.newlines == 0:
            state.leading_bom = True
        else:
            found.extend((0, what, remedy) for mark, what, remedy in _MARKS if head.startswith(mark))
    starts = ends[ends < len(piece) - 1] + 1
    for at in starts[array[starts] >= 0xEF].tolist():
        found.extend((at, what, remedy) for mark, what, remedy in _MARKS if piece.startswith(mark, at))
    if found:
        at, what, remedy = min(found)
        line = state.newlines + piece.count(b"\n", 0, at) + 1
        raise CorpusInvalid(f"{path}: line {line} {what}. To use the file, {remedy}")


def _scan_returns(state: ScanState, piece: bytes) -> None:
    if state.tail.endswith(b"\r") and piece.startswith(b"\n"):
        state.crlf += 1
    if b"\r" in piece:
        state.returns += piece.count(b"\r")
        state.crlf += piece.count(b"\r\n")


def _scan_lengths(state: ScanState, piece: bytes, array: np.ndarray[Any, Any], ends: np.ndarray[Any, Any]) -> None:
    if not ends.size:
        state.open_length += len(piece)
        return
    lengths = np.diff(ends, prepend=-1 - state.open_length) - 1
    state.longest = max(state.longest, int(lengths.max()))
    state.blank += int(np.count_nonzero(lengths == 0))
    before = ends[lengths == 1] - 1  # the only byte of a one-byte line; -1: it came before this piece
    state.blank += int(np.count_nonzero(array[before[before >= 0]] == _RETURN))
    state.blank += int(before.size and before[0] < 0 and state.tail.endswith(b"\r"))
    state.newlines += int(ends.size)
    state.open_length = len(piece) - 1 - int(ends[-1])


def _scan_utf8(state: ScanState, piece: bytes) -> None:
    data = state.tail[len(state.tail) - state.pending :] + piece if state.pending else piece
    state.pending = 0
    if state.open_bad:  # counted already: go on after that line
        end = piece.find(b"\n")
        if end < 0:
            return
        data = piece[end:]
        state.open_bad = False
    try:
        used = codecs.utf_8_decode(data, "strict", False)[1]  # noqa: FBT003 - not the end: an unfinished character stays
    except UnicodeDecodeError:
        _scan_bad_utf8(state, data)
    else:
        state.pending = len(data) - used


def _scan_bad_utf8(state: ScanState, data: bytes) -> None:
    *finished, unfinished = data.split(b"\n")
    bad = [number for number, line in enumerate(finished, state.newlines + 1) if not _is_utf8(line)]
    try:
        state.pending = len(unfinished) - codecs.utf_8_decode(unfinished, "strict", False)[1]  # noqa: FBT003
    except UnicodeDecodeError:
        bad.append(state.newlines + len(finished) + 1)
        state.open_bad = True
    state.bad += len(bad)
    state.first_bad = state.first_bad or bad[0]


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True
