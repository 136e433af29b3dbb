"""A small corpus on which commands are run in every way that narrows, as if it were large, against bash."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pytest

from grepseek_env.commands import parse
from grepseek_env.corpus.store import CorpusStore
from grepseek_env.engine import estimate, fastpath, narrowed, scanning
from grepseek_env.engine.index import build_index
from grepseek_env.engine.local import LocalBackend
from grepseek_env.engine.narrow import narrow
from grepseek_env.errors import CommandRefused
from tests.support.bash_batch import bash_batch
from tests.support.oracle import DEADLINE, oracle
from tests.support.slicing import difference

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

    from grepseek_env.types import CommandResult


@dataclass(frozen=True)
class Way:
    """One way to run commands.

    Attributes:
        mode: of the backend.
        index: an index is used.
        buffer: bytes that are read at a time.
        large: what is only done on large corpora is done.
        batch: commands come all at once.
        memory: the corpus is searched without the kernels.
    """

    mode: str
    index: bool = False
    buffer: int = 1 << 18
    large: bool = True
    batch: bool = False
    memory: bool = False

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Makes the engine take this way."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(scanning, "_BUFFER", self.buffer)
            patch.setattr(scanning, "_FREE", scanning._Free())
            if self.large:
                patch.setattr(fastpath, "FIRST_BYTES", 64)
                for module in (narrowed, estimate):
                    patch.setattr(module, "MOST_BYTES", 0)
                    patch.setattr(module, "QUICK_BYTES", 0)
                patch.setattr(estimate, "_NEAR_PART", 3)
            if self.memory:
                patch.setattr(narrowed, "are_loaded", lambda: False)
            yield


WAYS = {
    "narrowed, index": Way("narrowed", index=True),
    "narrowed": Way("narrowed", buffer=1000),
    "narrowed, small": Way("narrowed", index=True, large=False),
    "auto, index": Way("auto", index=True, buffer=300),
    "auto": Way("auto"),
    "auto, small": Way("auto", large=False, memory=True),
    "auto, index, batch": Way("auto", index=True, batch=True),
    "narrowed, batch": Way("narrowed", batch=True, buffer=2000),
}


class Corpus:
    """A corpus with an index of small blocks.

    Args:
        folder: an empty folder to work in.
        data: the corpus.
        locale: LC_ALL of the programs.
        block: bytes of a block of the index.
    """

    def __init__(self, folder: Path, data: bytes, locale: str = "C", *, block: int = 64) -> None:
        self.data, self.locale = data, locale
        (folder / "lines.jsonl").write_bytes(data)
        self._open = contextlib.ExitStack()
        self.store = self._open.enter_context(CorpusStore.open(folder / "lines.jsonl"))
        build_index(self.store, workers=1, block_bytes=block)
        self._backends: dict[tuple[str, bool], LocalBackend] = {}
        self.programs = self.backend(WAYS["auto"]).program_dir
        self.narrowed = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def backend(self, way: Way) -> LocalBackend:
        key = (way.mode, way.index)
        if key not in self._backends:
            made = LocalBackend(self.store, mode=way.mode, index=way.index, locale=self.locale, cache_bytes=0)
            self._backends[key] = self._open.enter_context(made)
        return self._backends[key]

    def accepted(self, commands: Sequence[str]) -> list[str]:
        """Returns the commands that are accepted, and counts those that can be narrowed."""
        found = []
        for command in commands:
            with contextlib.suppress(CommandRefused):
                known = narrow(parse(command), self.store.facts, locale=self.locale)
                self.narrowed += bool(known.filters or known.replay)
                found.append(command)
        return found

    def results(self, commands: Sequence[str], way: Way) -> list[CommandResult]:
        with way.taken():
            backend = self.backend(way)
            if way.batch:
                return list(backend.run_many(commands, timeout=DEADLINE))
            return [backend.run(command, timeout=DEADLINE) for command in commands]

    def differences(self, commands: Sequence[str], way: Way) -> list[str]:
        """Compares output, exit codes and messages with bash, a process for each command."""
        commands = self.accepted(commands)
        wrong = []
        for command, ours in zip(commands, self.results(commands, way), strict=True):
            ask = partial(oracle, command, self.store.view, self.programs, locale=self.locale)
            wrong.append(difference(command, ours, ask(), ask))
        return [text for text in wrong if text]

    def differences_of_many(self, commands: Sequence[str], ways: Sequence[Way]) -> list[str]:
        """Compares output and exit codes with bash, one process for all of them."""
        commands = self.accepted(commands)
        wanted = bash_batch(commands, self.store.view, self.programs, locale=self.locale)
        chosen = [(command, want) for command, want in zip(commands, wanted, strict=True) if want is not None]
        wrong = []
        for way in ways:
            for (command, want), ours in zip(chosen, self.results([c for c, _ in chosen], way), strict=True):
                if (ours.stdout, ours.exit_code) != want:
                    wrong.append(f"{way}: {command}\n  ours {ours.exit_code} {ours.stdout[:300]!r}\n  bash {want!r}")
        return wrong
