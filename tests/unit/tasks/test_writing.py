from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from grepseek_env.errors import CorpusError
from grepseek_env.tasks import World, WorldConfig
from grepseek_env.tasks.world import writing
from grepseek_env.tasks.world.writing import write_corpus


@dataclass
class Numbers:
    """Chunks of 1,000 bytes, and optionally Ctrl-C at one of them."""

    chunks: int | None = 9
    fails_at: int | None = None
    key: str = "numbers"
    made: list[int] = field(default_factory=list)

    def chunk(self, number: int) -> bytes:
        if number == self.fails_at:
            raise KeyboardInterrupt
        self.made.append(number)
        return (b"%09d\n" % number) * 100


@pytest.fixture(autouse=True)
def often_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "_NOTE_BYTES", 3_000)


@pytest.mark.parametrize("stop", range(9))
def test_an_interrupted_run_leaves_no_file_and_is_continued(tmp_path: Path, stop: int) -> None:
    path, whole = tmp_path / "corpus.jsonl", tmp_path / "whole.jsonl"
    write_corpus(Numbers(), whole)
    with pytest.raises(KeyboardInterrupt):
        write_corpus(Numbers(fails_at=stop), path)
    assert not path.exists()
    again = Numbers()
    write_corpus(again, path)
    assert path.read_bytes() == whole.read_bytes()
    assert again.made == list(range(stop - stop % 3, 9))  # noted after every third chunk
    assert sorted(p.name for p in tmp_path.iterdir() if not p.name.endswith(".lock")) == ["corpus.jsonl", "whole.jsonl"]


@pytest.mark.parametrize(
    "note",
    [
        "{",
        "{}",
        '{"key": "other", "chunks": 3, "size": 3000}',
        '{"key": "numbers", "chunks": 9, "size": 99999}',
    ],
)
def test_a_note_that_does_not_fit_is_not_believed(tmp_path: Path, note: str) -> None:
    path = tmp_path / "corpus.jsonl"
    (tmp_path / ".corpus.jsonl.part").write_bytes(b"x" * 5000)
    (tmp_path / ".corpus.jsonl.part.json").write_text(note)
    write_corpus(Numbers(), path)
    assert path.read_bytes()[:10] == b"000000000\n"
    assert path.stat().st_size == 9000


def test_a_limit_ends_with_the_last_line_that_fits(tmp_path: Path) -> None:
    path = write_corpus(Numbers(chunks=None), tmp_path / "corpus.jsonl", limit=2_345)
    assert path.stat().st_size == 2_340
    exact = write_corpus(Numbers(chunks=None), tmp_path / "exact.jsonl", limit=2_000)
    assert exact.stat().st_size == 2_000


def test_a_file_that_is_there_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text("mine\n")
    write_corpus(Numbers(), path)
    assert path.read_text() == "mine\n"


def test_a_full_disk_and_a_locked_folder_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CorpusError, match=r"more bytes are needed, but .* are free"):
        write_corpus(Numbers(), tmp_path / "a.jsonl", expected=1 << 60)
    (tmp_path / "file").write_text("")
    with pytest.raises(CorpusError, match="GREPSEEK_CACHE"):
        write_corpus(Numbers(), tmp_path / "file" / "a.jsonl")

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(writing.os, "fsync", full)
    with pytest.raises(CorpusError, match="No space left on device"):
        write_corpus(Numbers(), tmp_path / "b.jsonl")
    assert not (tmp_path / "b.jsonl").exists()


@pytest.mark.slow
def test_workers_do_not_change_the_bytes(tmp_path: Path) -> None:
    world = World(WorldConfig(passages=13_000, background=0.9))
    one = world.write(tmp_path / "one.jsonl").read_bytes()
    assert world.write(tmp_path / "two.jsonl", workers=2).read_bytes() == one
    assert len(one.splitlines()) == 13_000


def test_processes_that_want_the_same_world_at_once_all_get_it(tmp_path: Path) -> None:
    code = "from grepseek_env.tasks import resolve_corpus as r; print(r('world:tiny?seed=5'))"
    env = {**os.environ, "GREPSEEK_CACHE": str(tmp_path)}
    running = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=env) for _ in range(3)
    ]
    paths = {process.communicate()[0].strip() for process in running}
    assert all(process.returncode == 0 for process in running)
    (path,) = paths
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["id"] for line in lines] == [str(i) for i in range(288)]


def test_progress_only_when_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = World()
    world.write(tmp_path / "a.jsonl")
    assert capsys.readouterr() == ("", "")
    world.write(tmp_path / "b.jsonl", progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "corpus" in err
