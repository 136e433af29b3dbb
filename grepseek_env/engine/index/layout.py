"""The index file: where things are in it, and how damage is noticed.

    index/tokens
        header        4 KiB: a magic line, JSON, SHA-256
        lists         the blocks of each token, coded (see `codes`), token after token
        texts         each token's text after a newline, in order of hashes within 256 parts; a newline at the end
        grams         a row of bits for each of 2048 classes of three bytes: the groups of `texts` in which one begins
        sizes         bytes of each token's list, one byte each, 16 tokens a bucket
        first         high half of the hash of each bucket's first token, 32 bits
        texts_at      where each bucket's texts begin, 32 bits, and the end
        lists_at      where each bucket's lists begin, 64 bits, and the end
        starts        where every 64th block begins, 64 bits
        within        where each block begins from there on, 32 bits, and the end of the corpus
        sums          a 64-bit sum of every 64 KiB after the header

All numbers are little-endian. The file is replaced by renaming only, never written in place.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from grepseek_env.errors import CorpusError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from grepseek_env.corpus.store import CorpusStore

__all__ = [
    "BUCKET",
    "EXTRA",
    "GROUP_SHIFT",
    "HEADER_BYTES",
    "PAGE_BYTES",
    "ROWS",
    "SECTIONS",
    "SPECIALS",
    "Header",
    "IndexInfo",
    "index_path",
    "pages_of",
    "read_header",
]

HEADER_BYTES = 4096
PAGE_BYTES = 1 << 16
PADDING = 128  # zeros after each section: kernels load 64 bytes at a time
BUCKET = 16  # tokens of one row of the dictionary's table
GROUP_SHIFT = 9  # `grams` speaks of groups of 512 bytes of `texts`
ROWS = 2048
SECTIONS = ("lists", "texts", "grams", "sizes", "first", "texts_at", "lists_at", "starts", "within")
SPECIALS = ("\u212a".encode(), "\u017f".encode(), "\u0131".encode(), "\u0130".encode())
"""Code points that programs take for ASCII letters when case is ignored; each has a list of its blocks."""
EXTRA = ("digits", "long", "kelvin", "long_s", "dotless_i", "dotted_i", "big")
"""Lists beside those of tokens: blocks with cut digits, with other cut tokens, with each of `SPECIALS`, and blocks too
long to be looked at."""

_FORMAT = 1
_MAGIC = b"grepseek tokens\n"
_SHA_BYTES = 32


@dataclass(frozen=True, slots=True)
class IndexInfo:
    """What an index is of and how large it is.

    Attributes:
        path: the file.
        bytes: its size.
        digest: that of the corpus.
        corpus_bytes: size of the corpus.
        block_bytes: least size of a block.
        blocks: how many there are.
        tokens: different tokens.
        postings: blocks of all tokens together.
    """

    path: Path
    bytes: int
    digest: str
    corpus_bytes: int
    block_bytes: int
    blocks: int
    tokens: int
    postings: int

    @property
    def share(self) -> float:
        """Size of the index as a part of the corpus; 0 for an empty corpus."""
        return self.bytes / self.corpus_bytes if self.corpus_bytes else 0.0

    def __str__(self) -> str:
        return (
            f"{self.bytes:,} bytes ({self.share:.1%} of the corpus), {self.tokens:,} tokens in {self.blocks:,} blocks "
            f"of {self.block_bytes:,} bytes or a little more: {self.path}"
        )


@dataclass(frozen=True, slots=True)
class Header:
    """The header's values.

    Attributes:
        digest: that of the corpus.
        corpus_bytes: its size.
        block_bytes: least size of a block.
        blocks: how many.
        buckets: rows of the dictionary's table.
        tokens: different tokens.
        postings: blocks of all tokens together.
        sections: (offset, bytes) of each of `SECTIONS`.
        extra: (offset in `lists`, bytes, blocks) of each of `EXTRA`.
        sums: (offset, bytes) of the pages' sums.
        sums_sha256: of these.
    """

    digest: str
    corpus_bytes: int
    block_bytes: int
    blocks: int
    buckets: int
    tokens: int
    postings: int
    sections: dict[str, tuple[int, int]]
    extra: tuple[tuple[int, int, int], ...]
    sums: tuple[int, int]
    sums_sha256: str

    def to_bytes(self) -> bytes:
        """Returns the 4 KiB that begin the file."""
        text = json.dumps({"format": _FORMAT, "byte_order": sys.byteorder, **asdict(self)}).encode()
        body = (_MAGIC + text + b"\n").ljust(HEADER_BYTES - _SHA_BYTES, b"\0")
        return body + hashlib.sha256(body).digest()

    @classmethod
    def from_bytes(cls, data: bytes) -> Header:
        """Restores what `to_bytes` made.

        Raises:
            ValueError: these bytes are no header, or one of another version; the text says which.
        """
        body, sha = data[:-_SHA_BYTES], data[-_SHA_BYTES:]
        if len(data) != HEADER_BYTES or not data.startswith(_MAGIC):
            raise ValueError("it does not begin like an index")
        if hashlib.sha256(body).digest() != sha:
            raise ValueError("its header is damaged")
        values: Mapping[str, Any] = json.loads(body[len(_MAGIC) :].rstrip(b"\0"))
        if (values.get("format"), values.get("byte_order")) != (_FORMAT, sys.byteorder):
            raise ValueError(
                f"format {values.get('format')!r}, {values.get('byte_order')!r}-endian, is of another version"
            )
        known = {name: values[name] for name in cls.__dataclass_fields__}
        known["sections"] = {name: (int(at), int(size)) for name, (at, size) in known["sections"].items()}
        known["extra"] = tuple((int(at), int(size), int(count)) for at, size, count in known["extra"])
        known["sums"] = tuple(known["sums"])
        return cls(**known)

    def info(self, path: Path) -> IndexInfo:
        """Returns what there is to tell about the index at `path`."""
        size = self.sums[0] + self.sums[1]
        return IndexInfo(
            path, size, self.digest, self.corpus_bytes, self.block_bytes, self.blocks, self.tokens, self.postings
        )


def index_path(store: CorpusStore) -> Path:
    """Returns where the index of a corpus is, whether there is one or not."""
    return store.sidecar / "index" / "tokens"


def pages_of(header: Header, name: str) -> range:
    """Returns the numbers of the pages that a section lies on."""
    at, size = header.sections[name]
    return range((at - HEADER_BYTES) // PAGE_BYTES, -(-(at + size - HEADER_BYTES) // PAGE_BYTES))


def read_header(path: Path, store: CorpusStore) -> Header:
    """Reads the header of an index and compares it with the file and the corpus.

    Raises:
        FileNotFoundError: there is no index.
        CorpusError: it cannot be used; the message says why.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            header = Header.from_bytes(file.read(HEADER_BYTES))
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise CorpusError(f"{path} cannot be used: {error}") from error
    if header.digest != store.digest or header.corpus_bytes != store.facts.bytes:
        raise CorpusError(f"{path} is of other content (digest {header.digest[:12]}, the corpus {store.digest[:12]})")
    if size != sum(header.sums):
        raise CorpusError(f"{path} is damaged: it has {size:,} bytes and should have {sum(header.sums):,}")
    return header
