"""Writes the page: markup, style and script of `assets/`, and the trajectories, packed.

Trajectories are JSON, gzipped and in base64, some dozens together, and the browser unpacks what it shows. So the page
stays responsive with tens of thousands of them, and whatever a trajectory holds, no byte of it can end an element or
become markup: the packed text has no `<`. The script writes text nodes only, and the page's own content policy lets no
other script run and nothing be loaded.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import math
import re
from dataclasses import dataclass, field
from importlib import resources
from typing import IO, TYPE_CHECKING, Any

from tqdm import tqdm

from grepseek_env.errors import ConfigError
from grepseek_env.paths import atomic_file
from grepseek_env.view.records import FLAGS, ROW, detail, row

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from grepseek_env.trajectory import Trajectory
    from grepseek_env.view.runs import Run

__all__ = ["Page", "write_page"]

_CHUNK_BYTES = 400_000  # of JSON: unpacked in a few milliseconds
_SCRIPTS = ("base.js", "data.js", "list.js", "detail.js", "overview.js", "app.js")


@dataclass(frozen=True, slots=True)
class Page:
    """What was written.

    Attributes:
        path: the file.
        trajectories: number of them.
        questions: number of different questions.
        bytes: size of the file.
        unfinished: last lines left out because they were still being written.
    """

    path: Path
    trajectories: int
    questions: int
    bytes: int
    unfinished: int


class _Names:
    """Gives every different value a place."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._places: dict[Any, int] = {}

    def place(self, key: Any, value: Any = None) -> int:
        if key not in self._places:
            self._places[key] = len(self.values)
            self.values.append(key if value is None else value)
        return self._places[key]


@dataclass
class _Index:
    """What the page knows without unpacking a trajectory."""

    rows: list[list[Any]] = field(default_factory=list)
    chunks: list[int] = field(default_factory=list)  # the first row of each chunk
    runs: _Names = field(default_factory=_Names)
    questions: _Names = field(default_factory=_Names)
    policies: _Names = field(default_factory=_Names)
    finishes: _Names = field(default_factory=_Names)
    systems: _Names = field(default_factory=_Names)

    def question(self, t: Trajectory) -> int:
        # The same question in two runs is one question, so that their answers stand side by side.
        value = {"id": t.question_id, "text": t.question, "golden": list(t.golden_answers)}
        return self.questions.place((t.question_id, t.question), value)

    def packed(self, title: str) -> dict[str, Any]:
        return {
            "title": title,
            "fields": ROW,
            "flags": list(FLAGS.items()),
            "rows": self.rows,
            "chunks": self.chunks,
            "runs": self.runs.values,
            "questions": self.questions.values,
            "policies": self.policies.values,
            "finishes": self.finishes.values,
            "systems": self.systems.values,
        }


def write_page(
    runs: Sequence[Run], out: Path, *, title: str | None = None, limit: int | None = None, progress: bool = False
) -> Page:
    """Writes the page; it appears whole or not at all.

    Args:
        runs: what to show; see `find_runs`.
        out: the HTML file.
        title: default: the runs' names.
        limit: trajectories of each run.
        progress: show a progress bar.

    Raises:
        TrajectoryError: a line of a run is malformed; names file and line.
        ConfigError: the runs hold no trajectory.
        OSError: the file cannot be written.
    """
    title = title or ", ".join(run.name for run in runs)
    index = _Index()
    out.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(out) as file:
        head, foot = _frame(title)
        file.write(head)
        chunk: list[dict[str, Any]] = []
        size = 0
        with tqdm(unit="trajectory", disable=not progress) as bar:
            for run in runs:
                for t, seconds in run.read(limit):
                    record = detail(t, seconds)
                    record["system"] = index.systems.place(record["system"])
                    index.rows.append(
                        row(
                            t,
                            seconds,
                            run=index.runs.place(run.name),
                            question=index.question(t),
                            policy=index.policies.place(str(t.metadata.get("policy", "?"))),
                            finish=index.finishes.place(t.finish_reason),
                        )
                    )
                    chunk.append(record)
                    size += sum(len(turn.text) + len(turn.observation) for turn in t.turns) + 500
                    bar.update()
                    if size >= _CHUNK_BYTES:
                        _write_chunk(file, index, chunk)
                        chunk, size = [], 0
        if not index.rows:
            raise ConfigError(f"{', '.join(str(run.path) for run in runs)}: no trajectories yet; run it first")
        if chunk:
            _write_chunk(file, index, chunk)
        _write_block(file, "index", index.packed(title))
        file.write(foot)
    return Page(
        path=out,
        trajectories=len(index.rows),
        questions=len(index.questions.values),
        bytes=out.stat().st_size,
        unfinished=sum(run.unfinished for run in runs),
    )


def _write_chunk(file: IO[bytes], index: _Index, chunk: list[dict[str, Any]]) -> None:
    _write_block(file, f"chunk-{len(index.chunks)}", chunk)
    index.chunks.append(len(index.rows) - len(chunk))


def _write_block(file: IO[bytes], name: str, value: Any) -> None:
    # ASCII JSON: lone surrogates, which no encoding can hold, travel as escapes. No time stamp: the same page again.
    data = gzip.compress(json.dumps(_finite(value), separators=(",", ":")).encode("ascii"), 6, mtime=0)
    file.write(b'<script type="text/plain" id="%s">' % name.encode())
    file.write(base64.b64encode(data))
    file.write(b"</script>\n")


def _finite(value: Any) -> Any:
    """Returns the value with null for numbers that JSON does not know and browsers do not read: NaN, infinities."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {key: _finite(item) for key, item in value.items()}
        case list() | tuple():
            return [_finite(item) for item in value]
        case _:
            return value


def _asset(name: str) -> str:
    return (resources.files("grepseek_env.view") / "assets" / name).read_text(encoding="utf-8")


def _frame(title: str) -> tuple[bytes, bytes]:
    """Returns what comes before and after the trajectories."""
    style = _asset("page.css")
    script = '"use strict";\n(() => {\n' + "".join(map(_asset, _SCRIPTS)) + "})();\n"
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    values = {"POLICY": policy, "TITLE": html.escape(title), "STYLE": style, "SCRIPT": script}
    head, _, foot = _asset("page.html").partition("@DATA@")
    # In one pass: a title may look like a placeholder.
    head, foot = (re.sub(r"@([A-Z]+)@", lambda found: values[found[1]], part) for part in (head, foot))
    return head.encode(errors="replace"), foot.encode()


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
