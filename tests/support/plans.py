"""Runs a plan as its records define it, stage by stage and slice by slice: slow, plain, no executor involved."""

from __future__ import annotations

import itertools
import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from grepseek_env.corpus.facts import CorpusFacts, ScanState, scan
from grepseek_env.engine.combiners import combine
from grepseek_env.engine.plan import Head, Merge, exit_code, failed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grepseek_env.engine.plan import Argv, Sliced

Feed: TypeAlias = Literal["file", "pipe", "seek"]
"""How slices come: as files, through pipes, or so but the last one as the corpus file seeked to its start."""
FEEDS: tuple[Feed, ...] = ("file", "pipe", "seek")
CHUNK = 37  # prime and small, so that chunks end everywhere


class Ran(NamedTuple):
    stdout: bytes
    exit_code: int


def facts_of(data: bytes) -> CorpusFacts:
    """Returns the facts of a corpus, whose lines are not looked at as JSON."""
    state = ScanState()
    scan(state, data, Path("corpus.jsonl"))
    return state.facts(looked_at=0, first_malformed_line=None)


class PlanRunner:
    """Runs plans over `data`, whose slices lie between `cuts`.

    Args:
        folder: an empty folder to work in.
        programs: the folder of the programs.
    """

    def __init__(self, folder: Path, programs: Path, data: bytes, cuts: Sequence[int], locale: str = "C") -> None:
        self.folder = folder
        self.parts = [data[a:b] for a, b in itertools.pairwise((0, *cuts, len(data)))]
        self.before = [data[:a] for a in (0, *cuts)]
        self._env = {"PATH": str(programs), "LC_ALL": locale, "HOME": str(folder)}
        self._programs = programs
        (folder / "whole").write_bytes(data)
        for number, part in enumerate(self.parts):
            (folder / str(number)).mkdir()
            (folder / str(number) / "corpus.jsonl").write_bytes(part)

    def run(self, plan: Sliced, feed: Feed) -> Ran:
        """Returns stdout and exit code of the whole command."""
        argvs = plan.mapped if feed == "file" else plan.piped
        assert argvs is not None, "this plan cannot be run from stdin"
        outputs, codes = [], []
        for number, part in enumerate(self.parts):
            bad = False
            last = number + 1 == len(self.parts)
            stream: bytes | int = b"" if feed == "file" else len(self.before[-1]) if feed == "seek" and last else part
            for argv in argvs:
                stream, code = self._one(argv, stream, self.folder / str(number))
                bad = bad or failed(argv, code)
            outputs.append(stream)
            codes.append(code)
            if bad:
                break
        stdout = self._combined(plan, outputs)
        code = exit_code(plan.exits, self._deciding(plan, outputs, codes))
        for argv in plan.tail:
            stdout, code = self._one(argv, stdout, self.folder / "0")
        return Ran(stdout, code)

    def _deciding(self, plan: Sliced, outputs: list[bytes], codes: list[int]) -> list[int]:
        """Returns the codes of the slices that an executor would have looked at."""
        if not isinstance(plan.combiner, Head):
            return codes
        seen = itertools.accumulate(output.count(b"\n") for output in outputs)
        last = next((i for i, lines in enumerate(seen) if lines >= plan.combiner.lines), len(codes) - 1)
        return codes[: last + 1]

    def _combined(self, plan: Sliced, outputs: list[bytes]) -> bytes:
        if not isinstance(plan.combiner, Merge):
            chunks = ([out[i : i + CHUNK] for i in range(0, len(out), CHUNK)] for out in outputs)
            return b"".join(combine(plan.combiner, chunks, self._base))
        if len(outputs) == 1:
            return outputs[0]
        with tempfile.TemporaryDirectory() as folder:
            names = [f"{folder}/{number}" for number in range(len(outputs))]
            for name, output in zip(names, outputs, strict=True):
                Path(name).write_bytes(output)
            merged, _ = self._one((*plan.combiner.argv, *names), b"", self.folder)
        return merged

    def _base(self, number: int) -> tuple[int, int]:
        before = self.before[number]
        return before.count(b"\n"), len(before)

    def _one(self, argv: Argv, stdin: bytes | int, cwd: Path) -> tuple[bytes, int]:
        """Runs one program on these bytes, or on the whole corpus from this offset on."""
        with (self.folder / "whole").open("rb") as whole:
            if isinstance(stdin, int):
                os.lseek(whole.fileno(), stdin, os.SEEK_SET)
            done = subprocess.run(
                [word.encode() for word in argv],
                executable=self._programs / argv[0],
                **({"stdin": whole} if isinstance(stdin, int) else {"input": stdin}),
                capture_output=True,
                cwd=cwd,
                env=self._env,
                timeout=60,
                check=False,
            )
        return done.stdout, done.returncode if done.returncode >= 0 else 128 - done.returncode
