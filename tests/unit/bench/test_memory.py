from __future__ import annotations

import mmap
import subprocess
import sys
import time
from pathlib import Path

import pytest

from grepseek_env.bench.engine import memory
from grepseek_env.bench.engine.memory import MemorySampler, Peak

MB = 1_000_000

needs_proc = pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux's /proc")


def look_for(sampler: MemorySampler, looks: int = 4) -> None:
    start = sampler._looks
    while sampler._looks < start + looks:
        time.sleep(0.001)


@needs_proc
def test_memory_of_this_process_is_seen_above_what_there_was() -> None:
    before = bytearray(30 * MB)
    with MemorySampler() as sampler:
        data = bytearray(b"x") * (40 * MB)
        look_for(sampler)
        del data
    assert before
    here = sampler.peak().here
    assert here is not None
    assert 39 * MB < here < 60 * MB


@needs_proc
def test_memory_of_programs_below_is_seen_apart() -> None:
    script = "import sys; data = bytearray(b'x') * 40_000_000; print('ready', flush=True); sys.stdin.read()"
    command = ["bash", "-c", f'{sys.executable} -c "{script}" | cat']  # two levels down
    with MemorySampler() as sampler:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        with process:
            assert process.stdout
            process.stdout.readline()
            look_for(sampler)
            process.communicate()
    peak = sampler.peak()
    assert peak.here is not None
    assert peak.programs is not None
    assert 39 * MB < peak.programs < 80 * MB
    assert peak.here < 20 * MB


@needs_proc
def test_mapped_pages_are_not_counted(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"x" * 40 * MB)
    with (
        MemorySampler() as sampler,
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
    ):
        assert mapped.rfind(b"y") == -1
        look_for(sampler)
    here = sampler.peak().here
    assert here is not None
    assert here < 10 * MB


def test_what_cannot_be_seen_is_not_zero(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with MemorySampler() as sampler:
        pass
    assert sampler.peak() == Peak(None, None)
    monkeypatch.setattr(memory, "_PROC", tmp_path)
    with MemorySampler() as sampler:
        time.sleep(0.05)
    assert sampler.peak() == Peak(None, None)
