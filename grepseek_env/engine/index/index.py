"""`TokenIndex`: an open index, and the candidate blocks that it gives for clauses of literals."""

from __future__ import annotations

import enum
import hashlib
import mmap
import os
import re
import threading
import warnings
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from grepseek_env.engine.index.build import load_kernels
from grepseek_env.engine.index.layout import (
    EXTRA,
    HEADER_BYTES,
    PADDING,
    PAGE_BYTES,
    SECTIONS,
    SPECIALS,
    Header,
    IndexInfo,
    index_path,
    pages_of,
    read_header,
)
from grepseek_env.engine.maps import protect
from grepseek_env.errors import CorpusError, EngineFault

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from grepseek_env.corpus.store import CorpusStore
    from grepseek_env.engine.narrow import Clause, Literal

__all__ = ["ALL", "Candidates", "Everything", "TokenIndex", "index_info", "verify_index"]

_DIRECTORY = ("sizes", "first", "texts_at", "lists_at", "starts", "within")
_ASCII = re.compile(rb"[\x00-\x7f]+")
_MOST_TEXT = 4096
_MOST_CLAUSES = 64
_MOST_LITERALS = 4096
_SPECIAL_BITS = {text: 1 << bit for bit, text in enumerate(SPECIALS)}
_NUMBER_COST = 4  # nanoseconds to decode one number
_BYTES_A_NANOSECOND = 8  # that are searched
_BLOCK_COST = 200  # nanoseconds to begin with a block


class Everything(enum.Enum):
    """The type of `ALL`."""

    ALL = "all"


ALL: Final = Everything.ALL
"""Every block is a candidate, or so many that narrowing is not worth it."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Blocks that may hold matching lines; all others hold none.

    Attributes:
        blocks: their numbers in order, (n,) of 32 bits.
        bytes: of all of them together.
    """

    blocks: NDArray[np.uint32]
    bytes: int
    _index: TokenIndex = field(repr=False)

    def __len__(self) -> int:
        return len(self.blocks)

    def spans(self) -> NDArray[np.int64]:
        """Returns where they begin and end in the corpus, (n, 2) in bytes, in order; neighbours are one span."""
        return self._index.spans(self.blocks)


class _Room:
    """Memory of one query at a time. What is not touched is not there."""

    def __init__(self, blocks: int, row_bytes: int) -> None:
        from grepseek_env.engine.index import room  # noqa: PLC0415 - numba is slow to import

        sizes = {
            "marks": blocks + 64,
            "listed": 4 * blocks + 64,
            "marks2": blocks + 64,
            "listed2": 4 * blocks + 64,
            "decoded": 4 * blocks + 64,
            "row": row_bytes + 64,
            "ids": 4 * room.MOST_IDS + 64,
            "table": room.PIECE_BYTES * (room.PIECES + 2),
            "text": 2 * _MOST_TEXT,
            "clauses": 32 * (_MOST_CLAUSES + 1),
            "bytes": 8,
        }
        self._arrays = {name: np.zeros(sizes[name], np.uint8) for name in room.ROOM}
        self.listed = self._arrays["listed"].view(np.uint32)
        addresses = {name: _at(array) for name, array in self._arrays.items()}
        addresses["table"] += room.PIECE_BYTES  # the row before it says where the first ids begin
        self.words = np.array([addresses[name] for name in room.ROOM], np.uint64)
        self.address = _at(self.words)


@final
class TokenIndex:
    """The token index of a corpus; any number of threads may ask it.

    Make one with `build_index`, open it with `TokenIndex.open`. Its pages are read, and checked, when they are first
    needed; damage found then is told once, and every block is a candidate from then on.

    Attributes:
        info: what it is of and how large it is.
    """

    def __init__(self, path: Path, header: Header) -> None:
        from grepseek_env.engine.index import query, words  # noqa: PLC0415 - numba is slow to import

        self.info: IndexInfo = header.info(path)
        self._query: Any = query.candidate_blocks
        self._kernels: Any = words
        self._header = header
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size != sum(header.sums):
                raise CorpusError(f"{path} was replaced while it was opened: try again")
            self._map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
            self._file = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._file)
        self._written = self._stamp()
        protect(self._map)  # pages that are cut off read as zeros, which their sums tell
        self._bytes = np.frombuffer(self._map, np.uint8)
        self._sums = self._read_sums()
        self._checked = np.zeros(len(self._sums), np.uint8)
        self._extra = np.array([(at, size, count) for at, size, count in header.extra], np.uint64)
        self._words = np.array([self._word(name) for name in words.WORDS], np.uint64)
        self._address = _at(self._words)
        self._rooms: list[_Room] = []
        self._broken = False
        self._lock = threading.Lock()
        for name in _DIRECTORY:
            self._check(pages_of(header, name))

    @classmethod
    def open(cls, store: CorpusStore) -> TokenIndex | None:
        """Returns a corpus's index; None where there is none, or where numba cannot be imported.

        Warns:
            UserWarning: there is one that is damaged, of other content or of another version, or that cannot be opened;
                it is not used.
        """
        path = index_path(store)
        if not path.exists():
            return None
        try:
            return cls(path, read_header(path, store))
        except FileNotFoundError:  # removed in between
            return None
        except CorpusError as error:
            warnings.warn(f"the index is ignored: {error}. {_remedy(store)}", stacklevel=2)
            return None
        except OSError as error:  # such as too many open files: searches work without it
            warnings.warn(f"the index is ignored: {path} cannot be opened: {error}", stacklevel=2)
            return None
        except ImportError:
            return None

    def candidates(self, clauses: tuple[Clause, ...], *, limit_bytes: int | None = None) -> Candidates | Everything:
        """Returns the blocks in which lines may stand that hold a literal of each clause.

        Args:
            clauses: all of them must hold; one holds where any of its literals stands in the line.
            limit_bytes: more bytes than this are not worth it; None takes half of the corpus.

        Returns:
            the candidates, perhaps none; `ALL` where nothing can be said, or they would have more than `limit_bytes`.
        """
        if self._broken:
            return ALL
        numbers, texts = _encode(clauses)
        most = self.info.corpus_bytes // 2 if limit_bytes is None else limit_bytes
        try:
            room = self._rooms.pop()
        except IndexError:
            room = _Room(self.info.blocks, int(self._words[self._kernels.WORDS.index("row_bytes")]))
        count = self._query(self._address, room.address, _at(numbers), _at(texts), max(0, most))
        if count == self._kernels.BROKEN or self._stamp() != self._written:
            self._tell_broken()
            return ALL
        if count == self._kernels.NOTHING_PROVEN:
            self._rooms.append(room)
            return ALL
        found = Candidates(room.listed[:count].copy(), int(room.words[-1]), self)
        self._rooms.append(room)
        return found

    def spans(self, blocks: NDArray[np.uint32]) -> NDArray[np.int64]:
        """Returns where blocks, given in order, begin and end in the corpus, (n, 2); neighbours are one span.

        Raises:
            EngineFault: the index was written to since it was opened.
        """
        out = np.empty((len(blocks), 2), np.int64)
        pairs = self._kernels.spans(self._address, _at(blocks), len(blocks), _at(out))
        if self._stamp() != self._written:
            self._tell_broken()
            raise EngineFault(f"the index {self.info.path} was changed while a command used it; run the command again")
        return out[:pairs]

    def verify(self) -> int:
        """Reads and sums all of it; returns the offset in the file at which the first damaged page begins, or -1."""
        self._checked[:] = 0
        page = int(self._kernels.check_pages(self._address, 0, len(self._sums)))
        return -1 if page == len(self._sums) else HEADER_BYTES + page * PAGE_BYTES

    def _stamp(self) -> tuple[int, int]:
        """Returns what tells whether the file was written to, which pages that were checked before would not."""
        status = os.fstat(self._file)
        return status.st_size, status.st_mtime_ns

    def _read_sums(self) -> NDArray[np.uint64]:
        header = self._header
        at, size = header.sums
        pages = -(-(at - HEADER_BYTES) // PAGE_BYTES)
        raw = self._bytes[at : at + size]
        if size != pages * 8 or hashlib.sha256(raw.tobytes()).hexdigest() != header.sums_sha256:
            raise CorpusError(f"{self.info.path} is damaged: its sums are not those that were written")
        for name in SECTIONS:
            begin, length = header.sections[name]
            if begin < HEADER_BYTES or begin + length > at - PADDING:
                raise CorpusError(f"{self.info.path} is damaged: its part {name} is not inside the file")
        if len(header.extra) != len(EXTRA):
            raise CorpusError(f"{self.info.path} is of another version")
        return np.frombuffer(raw.tobytes(), np.uint64)

    def _word(self, name: str) -> int:
        header = self._header
        mean = header.corpus_bytes // max(1, header.blocks)
        match name:
            case "file":
                return _at(self._bytes)
            case "pages":
                return len(self._sums)
            case "checked":
                return _at(self._checked)
            case "sums":
                return _at(self._sums)
            case "file_end":
                return _at(self._bytes) + header.sums[0]
            case "blocks":
                return header.blocks
            case "buckets":
                return header.buckets
            case "texts_bytes":
                return header.sections["texts"][1]
            case "row_bytes":
                return header.sections["grams"][1] // 2048
            case "groups":
                return (header.sections["texts"][1] >> 9) + 1
            case "extra":
                return _at(self._extra)
            case "cost":
                return (_BLOCK_COST + mean // _BYTES_A_NANOSECOND) // _NUMBER_COST
            case _:
                return _at(self._bytes) + header.sections[name][0]

    def _check(self, pages: range) -> None:
        page = int(self._kernels.check_pages(self._address, pages.start, pages.stop))
        if page != pages.stop:
            raise CorpusError(
                f"{self.info.path} is damaged at byte {HEADER_BYTES + page * PAGE_BYTES:,} or a little later"
            )

    def _tell_broken(self) -> None:
        with self._lock:
            told, self._broken = self._broken, True
        if not told:
            warnings.warn(
                f"the index {self.info.path} is damaged and is not used any more: delete it and make it again, with "
                "grepseek corpus build --index",
                stacklevel=3,
            )


def index_info(store: CorpusStore) -> IndexInfo | None:
    """Returns what a corpus's index is, looking at its header alone; None where there is none that can be used.

    Warns:
        UserWarning: there is one of other content or of another version, or its header is damaged.
    """
    path = index_path(store)
    try:
        return read_header(path, store).info(path)
    except FileNotFoundError:
        return None
    except CorpusError as error:
        warnings.warn(f"the index is ignored: {error}. {_remedy(store)}", stacklevel=2)
        return None


def verify_index(store: CorpusStore) -> tuple[bool, str] | None:
    """Reads all of a corpus's index; returns whether it is whole and a line that says so, None where there is none.

    Raises:
        ConfigError: numba, which computes its sums, cannot be imported here.
    """
    path = index_path(store)
    try:
        header = read_header(path, store)
        load_kernels()
        index = TokenIndex(path, header)
    except FileNotFoundError:
        return None
    except CorpusError as error:
        return False, f"{error}. {_remedy(store)}"
    damaged = index.verify()
    if damaged >= 0:
        return False, f"{path}: DAMAGED at byte {damaged:,} or a little later. {_remedy(store)}"
    return True, f"{path}: index as it was written, of the recorded content"


def _remedy(store: CorpusStore) -> str:
    return f"Make it again: grepseek corpus build {store.path} --index"


def _at(array: NDArray[Any]) -> int:
    return int(array.ctypes.data)


def _encode(clauses: tuple[Clause, ...]) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    """Returns a query as `query.candidate_blocks` takes it."""
    known = [clause for clause in clauses if 0 < len(clause) <= _MOST_LITERALS][:_MOST_CLAUSES]
    numbers = [len(known)]
    texts: list[bytes] = []
    at = 0
    for clause in known:
        numbers.append(len(clause))
        for literal in clause:
            text, specials, unknown = _text(literal)
            numbers += (at, len(text), specials, unknown)
            texts.append(text)
            at += len(text)
    texts.append(bytes(64))
    return np.array(numbers, np.uint32), np.frombuffer(b"".join(texts), np.uint8)


def _text(literal: Literal) -> tuple[bytes, int, int]:
    """Returns what must stand in the text for a literal, the bits of `SPECIALS`, and 1 if nothing can be said."""
    text, specials, unknown = literal.text, 0, 0
    if literal.fold:
        for special in literal.specials:
            bit = _SPECIAL_BITS.get(special)
            if bit is None:
                unknown = 1
            else:
                specials |= bit
        if not text.isascii():  # other programs fold these bytes too: only what stands between them is sure
            text = max(_ASCII.findall(text), key=len, default=b"")
    return text[:_MOST_TEXT].lower(), specials, unknown
