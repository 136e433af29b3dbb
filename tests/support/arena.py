"""A place to be attacked in: a corpus, secrets beside it, canaries outside, a port that listens."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from grepseek_env.config import Limits
from grepseek_env.corpus.store import CorpusStore
from grepseek_env.engine.programs import open_programs
from grepseek_env.engine.sandbox import NEEDED_LAYERS, Sandbox
from tests.support.processes import children

if TYPE_CHECKING:
    from grepseek_env.engine.programs import Programs

__all__ = ["CANARY", "GOLDEN", "SECRET", "Arena", "needs"]

SECRET, GOLDEN, CANARY = "TOPSECRET-5b1f", "GOLDENANSWER-77aa", "CANARY-RAN-31c0"
LIMITS = Limits(memory_bytes=256 << 20, temp_file_bytes=1 << 20)


class Arena:
    """Everything an attack could reach.

    Attributes:
        outside: a folder of secrets and programs.
        store: the corpus; questions and answers lie in the same folder as its file.
        port: where somebody listens on 127.0.0.1.
    """

    def __init__(self, root: Path) -> None:
        self.outside = root / "outside"
        self.outside.mkdir()
        (self.outside / "secret.txt").write_text(f"{SECRET}\n")
        (self.outside / "run.sh").write_text(f"#!/bin/sh\necho {CANARY}\ntouch {self.outside}/ran\n")
        (self.outside / "run.sh").chmod(0o755)
        (self.outside / "prog.awk").write_text(f'BEGIN {{ print "{CANARY}" }}\n')
        self.own = root / "own"
        self.own.mkdir()
        (self.own / "questions.jsonl").write_text(
            json.dumps({"id": "1", "question": "who?", "golden_answers": [GOLDEN]}) + "\n"
        )
        lines = [json.dumps({"id": str(n), "contents": f'"T{n}"\nEinstein met {"a" * 40} {n}'}) for n in range(50)]
        (self.own / "corpus.jsonl").write_text("\n".join(lines) + "\n")
        self.store = CorpusStore.open(self.own / "corpus.jsonl")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        self._before = self._snapshot()

    def sandbox(self, programs: Programs | None = None) -> Sandbox:
        """Returns the operating system's layers alone: no table, no options that confine sed or awk."""
        return Sandbox(replace(programs or open_programs(), options={}), self.store.view, LIMITS)

    def fill(self, text: str) -> str:
        """Puts in where things are."""
        return text.replace("{out}", str(self.outside)).replace("{port}", str(self.port))

    def check(self, *outputs: bytes) -> None:
        """Fails if anything was read, written, run, connected or left behind."""
        for output in outputs:
            for word in (SECRET, GOLDEN, CANARY, "root:x:0"):
                assert word.encode() not in output
        assert self._snapshot() == self._before
        with pytest.raises(BlockingIOError):
            self._listener.accept()
        for _ in range(400):  # what a killed program had begun to start ends a moment after it
            if not children():
                return
            time.sleep(0.005)
        pytest.fail(f"left behind: {children()}")

    def close(self) -> None:
        """Lets go of everything."""
        self._listener.close()
        self.store.close()

    def _snapshot(self) -> dict[str, tuple[int, int, int, bytes]]:
        found = {}
        for folder in (self.outside, self.own):
            for path in sorted([folder, *folder.rglob("*")]):
                status = path.lstat()
                content = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
                found[str(path)] = (status.st_mode, status.st_uid, status.st_mtime_ns, content)
        with contextlib.suppress(OSError):
            found["parent"] = (os.getpriority(os.PRIO_PROCESS, 0), 0, 0, b"")
        return found


def needs(*layers: str) -> None:
    """Skips a test where this machine cannot have a layer, saying why."""
    report = Sandbox(open_programs(), Path("/")).report()
    for layer in layers or tuple(NEEDED_LAYERS):
        if not report or not report[layer][0]:
            pytest.skip(f"no {layer} here: {report[layer][1] if report else 'Linux only'}")
