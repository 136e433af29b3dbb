from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from grepseek_env.backend import open_corpus
from grepseek_env.bench.engine import machine as module
from grepseek_env.bench.engine.machine import FreshCache, OtherWork, check_room, machine, memory_available
from grepseek_env.engine.local import LocalBackend
from grepseek_env.errors import CorpusError

BURN = "import time; end = time.process_time() + {}\nwhile time.process_time() < end: pass"


def test_room_is_checked_where_the_folder_will_be(tmp_path: Path) -> None:
    check_room(tmp_path / "not" / "yet", 1000, "a thing")
    with pytest.raises(CorpusError, match=rf"a thing takes 1\d+ MB, and {tmp_path} has .* free: choose a smaller"):
        check_room(tmp_path / "not" / "yet", 10**18, "a thing")


def test_ones_own_programs_are_no_other_work(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = {"seconds": 100.0}
    monkeypatch.setattr(module, "_busy_seconds", lambda: busy["seconds"])
    monkeypatch.setattr(module.os, "cpu_count", lambda: 2)
    own = module._own_seconds()
    work = OtherWork()
    start = time.monotonic()
    subprocess.run([sys.executable, "-c", BURN.format(0.2)], check=True)
    spent = module._own_seconds() - own
    assert spent > 0.15
    busy["seconds"] += spent
    share = work.share()
    assert share is not None
    assert share * 2 * (time.monotonic() - start) < 0.1
    busy["seconds"] += 50.0
    share = work.share()
    assert share is not None
    assert share * 2 * (time.monotonic() - start) > 40


@pytest.mark.slow
def test_programs_of_a_launcher_are_ones_own() -> None:
    with LocalBackend(open_corpus("world:tiny"), mode="sequential") as backend:
        before = module._own_seconds()
        backend.run("awk 'BEGIN { while (i < 60000000) i++ }' corpus.jsonl")
        assert module._own_seconds() - before > 0.1


def test_what_is_unknown_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_busy_seconds", lambda: None)
    assert OtherWork().share() is None


def test_files_are_read_afresh_and_left_as_they_are(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(name.encode() * 100_000)
    files = [tmp_path / "a", tmp_path / "b"]
    cache = FreshCache(files)
    assert cache.renew()
    assert [file.read_bytes() for file in files] == [b"a" * 100_000, b"b" * 100_000]
    with pytest.raises(FileNotFoundError):
        FreshCache([tmp_path / "c"]).renew()


def test_fresh_files_are_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"a")
    patient, impatient = FreshCache([file], seconds=1e6), FreshCache([file], seconds=0.0)
    assert [patient.renew(), patient.renew()] == [True, False]
    assert [impatient.renew(), impatient.renew()] == [True, True]


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="needs Linux's /proc")
def test_this_machine_is_described() -> None:
    values = machine()
    assert values["cores"] >= 1
    assert values["cpu"]
    available = memory_available()
    assert available is not None
    assert 0 < available <= values["memory_bytes"]
    assert module._busy_seconds()
