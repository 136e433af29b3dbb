"""Reading a prepared corpus again to compare it with its record, and saying what is known about it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from grepseek_env.corpus.reading import hash_file, meter, tree_digest
from grepseek_env.corpus.samples import is_json_object
from grepseek_env.corpus.sidecar import CHUNK_BYTES, Manifest

if TYPE_CHECKING:
    from pathlib import Path

    from grepseek_env.corpus.store import CorpusStore

__all__ = ["VerifyReport", "info", "verify"]

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What reading a corpus again has shown; `str()` says it in words.

    Attributes:
        expected: the recorded digest.
        found: the digest of each file that was read: the view's, and the source's where the view is a copy of it.
        different: for each of these files that differs, the offset in bytes of the first chunk that does.
        lines_parsed: non-blank lines parsed as JSON; None unless it was a deep check.
        malformed_lines: how many of them are no JSON object.
        first_malformed_line: the number, from 1, of the first.
    """

    expected: str
    found: dict[Path, str]
    different: dict[Path, int]
    lines_parsed: int | None = None
    malformed_lines: int = 0
    first_malformed_line: int | None = None

    @property
    def ok(self) -> bool:
        """The content is the recorded one and, in a deep check, every line is a JSON object."""
        return not self.different and not self.malformed_lines

    def __str__(self) -> str:
        lines = [
            f"{path}: content as recorded (digest {self.expected})"
            if path not in self.different
            else f"{path}: CHANGED from byte {self.different[path]:,} on or a little later: digest {digest}, recorded "
            f"{self.expected}. Prepare the corpus again: grepseek corpus build"
            for path, digest in self.found.items()
        ]
        if self.first_malformed_line is not None:
            lines.append(
                f"{self.malformed_lines:,} of {self.lines_parsed:,} lines are no JSON object, the first is line "
                f"{self.first_malformed_line:,}. They are searched like any other line"
            )
        elif self.lines_parsed is not None:
            lines.append(f"all {self.lines_parsed:,} lines that are not blank are JSON objects")
        return "\n".join(lines)


def verify(store: CorpusStore, *, deep: bool = False, progress: bool = False) -> VerifyReport:
    """Reads the corpus again and compares its digest with the recorded one.

    Args:
        store: the opened corpus.
        deep: also parse every line as JSON (about 100 MB/s).
        progress: show a bar on stderr.
    """
    manifest = Manifest.from_json(store.manifest)
    files = [store.corpus_file]
    if manifest.view_kind == "copy" and store.path.exists():
        files.append(store.path)
    found: dict[Path, str] = {}
    different: dict[Path, int] = {}
    for path in files:
        chunks = hash_file(path, progress=progress)
        found[path] = tree_digest(chunks)
        if found[path] != manifest.digest:
            pairs = zip(chunks, manifest.chunks, strict=False)
            equal = next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(chunks), len(manifest.chunks)))
            different[path] = equal * CHUNK_BYTES
    if not deep:
        return VerifyReport(manifest.digest, found, different)
    parsed, malformed, first = _parse_all(store.corpus_file, progress=progress)
    return VerifyReport(manifest.digest, found, different, parsed, malformed, first)


def _parse_all(path: Path, *, progress: bool) -> tuple[int, int, int | None]:
    parsed, malformed = 0, 0
    first: int | None = None
    with path.open("rb") as file, meter(os.fstat(file.fileno()).st_size, "parsing", enabled=progress) as advance:
        for number, line in enumerate(file, 1):
            advance(len(line))
            text = line.removeprefix(_BOM) if number == 1 else line
            if not text.strip():
                continue
            parsed += 1
            if not is_json_object(text):
                malformed += 1
                first = first or number
    return parsed, malformed, first


def info(store: CorpusStore) -> str:
    """Returns what is known about a corpus, one fact a line, for people to read."""
    facts, manifest = store.facts, Manifest.from_json(store.manifest)
    kind = f"{facts.kind}, {facts.looked_at:,} lines looked at"
    if facts.first_malformed_line is not None:
        kind += f"; line {facts.first_malformed_line:,} is no JSON object"
    invalid = f"{facts.invalid_utf8_lines:,}"
    if facts.first_invalid_utf8_line is not None:
        invalid += f", the first is line {facts.first_invalid_utf8_line:,}"
    text = "ASCII only" if facts.ascii_only else "UTF-8"
    if facts.unicode_escapes:
        text += r"; JSON escapes such as \u00e9 occur: search for them as they are written"
    view = "hard link to the file" if manifest.view_kind == "link" else f"copy ({manifest.view_reason})"
    rows = (
        ("file", store.path),
        ("sidecar", store.sidecar),
        ("view", f"{store.corpus_file}: {view}"),
        ("digest", f"{store.digest} (SHA-256 over the SHA-256s of 64 MiB chunks)"),
        ("bytes", f"{facts.bytes:,}"),
        ("lines", f"{facts.lines:,}, the longest of {facts.longest_line:,} bytes"),
        ("kind", kind),
        ("text", text),
        ("blank lines", f"{facts.blank_lines:,}"),
        ("CR LF lines", f"{facts.crlf_lines:,}"),
        ("lone CR", f"{facts.lone_cr:,}"),
        ("not UTF-8", invalid),
        ("final newline", "yes" if facts.final_newline else "no"),
        ("leading BOM", "yes" if facts.leading_bom else "no"),
    )
    return "\n".join(f"{name:<14} {value}" for name, value in rows)
