"""What commands see of a corpus in parts as one file: its name and size, or, where it must be, its bytes.

`stand_in` has the name and the size and takes no room; `empty` has the name; `assembled` is the corpus itself, copied
from its parts when it is first needed and kept.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from grepseek_env.commands.syntax import OperandKind
from grepseek_env.corpus.sidecar import CORPUS_NAME
from grepseek_env.corpus.view import FIXED_MTIME
from grepseek_env.engine.executor import execute
from grepseek_env.engine.plan import failed
from grepseek_env.errors import CorpusError, SpawnFailed
from grepseek_env.paths import atomic_file, cache_dir, file_lock

if TYPE_CHECKING:
    from collections.abc import Callable

    from grepseek_env.commands import Pipeline, Stage
    from grepseek_env.distributed.links import Links
    from grepseek_env.engine.loop import Bounds
    from grepseek_env.engine.sandbox import Sandbox
    from grepseek_env.types import CommandResult

__all__ = ["Views", "complaint", "reads_content"]

_NAMES = frozenset({"corpus.jsonl", "./corpus.jsonl"})
_FOLDER = frozenset({".", "./"})
_COPY_BYTES = 4 << 20
_KEPT_FREE = 1 << 30


class Views:
    """Folders in the place of the view that a corpus in one file has.

    Args:
        digest: of the corpus.
        size: its bytes.
    """

    def __init__(self, digest: str, size: int) -> None:
        self._digest, self._size = digest, size
        self._lock = threading.Lock()
        self._folder = Path(tempfile.mkdtemp(prefix="grepseek-parts-"))
        self.stand_in = self._made("stand-in", size)
        self.empty = self._made("empty", 0)

    @property
    def whole(self) -> Path:
        """The folder of the assembled corpus, whether it is there or not."""
        return cache_dir() / "whole" / self._digest / "view"

    def assembled(self, links: Links, sizes: list[int], check: Callable[[], None]) -> Path:
        """Returns a folder with the whole corpus, after copying it there if need be.

        Args:
            links: the ways to the parts.
            sizes: of the parts.
            check: called now and then; may raise.

        Raises:
            CorpusError: there is no room, or a part cannot be read.
            HostGone: a host was lost.
        """
        file = self.whole / CORPUS_NAME
        with self._lock, file_lock(self.whole.parent / "lock"):
            if file.is_file() and file.stat().st_size == self._size:
                return self.whole
            self.whole.mkdir(parents=True, exist_ok=True)
            if (free := shutil.disk_usage(self.whole).free) < self._size + _KEPT_FREE:
                raise CorpusError(
                    f"the corpus of {self._size:,} bytes has to be copied to {self.whole}, where {free:,} are free: "
                    "point GREPSEEK_CACHE to a larger disk, or pass whole_bytes=0 so that such commands are refused"
                )
            with atomic_file(file) as out:
                for number, size in enumerate(sizes):
                    for start in range(0, size, _COPY_BYTES):
                        check()
                        reply = links[number].call("read", start, min(_COPY_BYTES, size - start)).result()
                        if reply.error is not None:
                            raise reply.error
                        out.write(reply.data)
                out.flush()
                if (copied := out.tell()) != self._size:
                    raise CorpusError(f"the parts gave {copied:,} bytes in place of {self._size:,}: a part changed")
            os.utime(file, (FIXED_MTIME, FIXED_MTIME))
        return self.whole

    def close(self) -> None:
        """Removes what is only of use to this object."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _made(self, name: str, size: int) -> Path:
        folder = self._folder / name
        folder.mkdir()
        file = folder / CORPUS_NAME
        try:
            with file.open("wb") as out:
                out.truncate(size)
        except OSError as error:
            raise SpawnFailed(f"no file in the corpus's place can be made: {error}; point TMPDIR elsewhere") from error
        os.utime(file, (FIXED_MTIME, FIXED_MTIME))
        return folder


def reads_content(stage: Stage, number: int) -> bool:
    """Returns whether a stage may read the corpus by its name."""
    if stage.program in {"ls", "find"}:
        return False
    files = [operand.value for operand in stage.files if operand.kind is OperandKind.FILE]
    if any(name in _NAMES or name in _FOLDER for name in files):
        return True
    folder = stage.given("--recursive", "--files") or (stage.program == "rg" and number == 0)
    return stage.spec.dot and not stage.files and bool(folder)


def complaint(pipeline: Pipeline, empty: Sandbox, bounds: Bounds) -> CommandResult | None:
    """Returns what a command gives that fails whatever the corpus holds; None where that is not proven.

    A program that has at most one input, and of an empty one makes nothing but a failure and a message without a
    place in it, has not read it. What comes before it then does not matter.

    Args:
        pipeline: the command.
        empty: starts programs beside an empty corpus.
        bounds: what ends it early.
    """
    stages = pipeline.stages
    for number, stage in enumerate(stages):
        if any(reads_content(later, place) for place, later in enumerate(stages) if place > number):
            continue
        if len(stage.files) > 1 or stage.program in {"ls", "find"}:
            continue
        alone = _execute((stage.argv,), empty, bounds)
        code = alone.exit_code
        if code and failed(stage.argv, code) and alone.stderr and not alone.stdout and b"FNR=" not in alone.stderr:
            return _execute(pipeline.argv, empty, bounds)
    return None


def _execute(argvs: tuple[tuple[str, ...], ...], sandbox: Sandbox, bounds: Bounds) -> CommandResult:
    return execute(
        argvs,
        sandbox,
        timeout=bounds.timeout,
        max_output_bytes=bounds.max_output_bytes,
        cancels=bounds.cancels,
        signals=bounds.signals,
    )
