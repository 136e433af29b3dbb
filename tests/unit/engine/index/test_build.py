import errno
import json
import os
import random
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from grepseek_env import cli
from grepseek_env.corpus.build import build_corpus
from grepseek_env.corpus.store import CorpusStore
from grepseek_env.engine.index import ALL, TokenIndex, build_index, index_info, verify_index
from grepseek_env.engine.index import build as build_module
from grepseek_env.engine.index import runs as runs_module
from grepseek_env.engine.index.layout import index_path, read_header
from grepseek_env.engine.index.runs import Run, RunMaker, RunTable
from grepseek_env.engine.literals.records import Literal
from grepseek_env.errors import ConfigError, CorpusChanged, CorpusError
from tests.support.indexing import dictionary_of, inverted, make, missed, mixed, small_runs
from tests.support.odd_corpora import REFUSED, odd, ordinary

CONTENT = ordinary(600)

_SLOW_BUILD = """
import os, signal, sys, time
from grepseek_env.corpus.store import CorpusStore
from grepseek_env.engine.index import build, lists, runs

signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may ignore it
where, path = sys.argv[1:]
build.check_run_bytes = lambda *_: 4000
runs.UNIT = 4000

def slow(module, name):
    real = getattr(module, name)
    def call(*given):
        time.sleep(0.02)
        os.write(1, b"at it\\n")
        return real(*given)
    setattr(module, name, call)

slow(*((runs.RunMaker, "make") if where == "runs" else (lists, "encode")))
build.build_index(CorpusStore.open(path), block_bytes=64, workers=2)
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CorpusStore]:
    (tmp_path / "text.jsonl").write_bytes(CONTENT)
    with build_corpus(tmp_path / "text.jsonl") as opened:
        yield opened


def names(store: CorpusStore) -> list[str]:
    return sorted(each.name for each in index_path(store).parent.iterdir())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("run_bytes", [3000, 1 << 40])
def test_it_holds_each_token_with_its_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, run_bytes: int
) -> None:
    data = mixed(random.Random(seed), 400)
    small_runs(monkeypatch, run_bytes)
    _, index = make(tmp_path, data, block=48)
    wanted = inverted(data, 48, run_bytes)
    held = dictionary_of(index)
    assert held.keys() == wanted.keys()
    for token, blocks in held.items():
        if blocks is None:
            assert 2 * len(wanted[token]) > index.info.blocks
        else:
            assert blocks == wanted[token]
    assert index.info.tokens == len(wanted)
    assert index.info.postings == sum(map(len, wanted.values()))


@pytest.mark.parametrize("name", sorted(set(odd()) - REFUSED - {"huge_line"}))
def test_odd_corpora_hold_each_token_with_its_blocks(tmp_path: Path, name: str) -> None:
    _, index = make(tmp_path, odd()[name], block=256)
    wanted = inverted(odd()[name], 256)
    held = dictionary_of(index)
    assert held.keys() == wanted.keys()
    assert all(blocks is None or blocks == wanted[token] for token, blocks in held.items())


@pytest.mark.slow
def test_the_file_depends_on_the_content_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = set()
    data = CONTENT + b"".join(mixed(random.Random(seed), 400) + b"\n" for seed in range(3)) + b"huge " * 3000 + b"\nend"
    for number, (workers, run_bytes) in enumerate(((1, 4000), (2, 4000), (2, 9000), (4, 50_000), (1, 1 << 30))):
        small_runs(monkeypatch, run_bytes, most_block=6000, unit=4000)
        store, _ = make(tmp_path / str(number), data, workers=workers)
        made.add(index_path(store).read_bytes())
    assert len(made) == 1


def test_nothing_else_is_left(store: CorpusStore) -> None:
    info = build_index(store, block_bytes=512)
    assert names(store) == ["tokens"]
    assert info.path == index_path(store)
    assert info.bytes == info.path.stat().st_size
    assert (info.digest, info.corpus_bytes, info.block_bytes) == (store.digest, len(CONTENT), 512)
    assert index_info(store) == info
    assert "of the corpus" in str(info)
    assert [each.name for each in store.view.iterdir()] == ["corpus.jsonl"]


def test_it_is_made_once_and_again_where_that_is_asked_for(store: CorpusStore) -> None:
    first = build_index(store).path.stat()
    assert build_index(store).path.stat() == first
    assert build_index(store, rebuild=True).path.stat().st_ino != first.st_ino
    again = build_index(store).path.stat()
    assert build_index(store, block_bytes=1024).path.stat().st_ino != again.st_ino


class Stopped(Exception):
    pass


def stop_after(monkeypatch: pytest.MonkeyPatch, count: int) -> list[int]:
    """Lets `count` runs be made, then raises; returns the list of the numbers of those made."""
    made: list[int] = []
    real = RunMaker.make

    def make_run(self: RunMaker, run: Run) -> RunTable:
        if len(made) == count:
            raise Stopped
        made.append(run.number)
        return real(self, run)

    monkeypatch.setattr(RunMaker, "make", make_run)
    return made


def test_an_interrupted_build_goes_on(store: CorpusStore, monkeypatch: pytest.MonkeyPatch) -> None:
    small_runs(monkeypatch, len(CONTENT) // 10)
    whole = build_index(store, block_bytes=64).path.read_bytes()
    build_index(store, rebuild=True)
    with monkeypatch.context() as patch:
        first = stop_after(patch, 4)
        with pytest.raises(Stopped):
            build_index(store, block_bytes=64, workers=1)
    assert "tokens" in names(store)  # the one with other blocks is still there
    assert {"runs.partial"} < set(names(store))
    with monkeypatch.context() as patch:
        rest = stop_after(patch, 100)
        assert build_index(store, block_bytes=64, workers=2).path.read_bytes() == whole
    assert first == [0, 1, 2, 3]
    assert sorted(rest) == list(range(4, max(rest) + 1))
    assert len(rest) > 4
    assert names(store) == ["tokens"]


def test_runs_that_are_damaged_or_of_another_build_are_made_again(
    store: CorpusStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_runs(monkeypatch, len(CONTENT) // 10)
    whole = build_index(store, block_bytes=64).path.read_bytes()
    index_path(store).unlink()
    with monkeypatch.context() as patch:
        stop_after(patch, 4)
        with pytest.raises(Stopped):
            build_index(store, block_bytes=64, workers=1)
    folder = index_path(store).parent / "runs.partial"
    files = sorted(folder.glob("run.*"))
    files[0].write_bytes(files[0].read_bytes()[:-1])
    data = bytearray(files[1].read_bytes())
    data[len(data) // 2] ^= 16
    files[1].write_bytes(data)
    (folder / ".run.000003.tmp").write_bytes(b"half")
    with monkeypatch.context() as patch:
        rest = stop_after(patch, 100)
        assert build_index(store, block_bytes=64, workers=1).path.read_bytes() == whole
    assert rest[:3] == [0, 1, 4]
    folder.mkdir()
    (folder / "plan.json").write_text(json.dumps({"format": 1, "plan": {"digest": "other"}}))
    (folder / "run.000000").write_bytes(b"of something else")
    assert build_index(store, block_bytes=64, rebuild=True).path.read_bytes() == whole
    assert names(store) == ["tokens"]


def test_a_full_disk_keeps_what_is_done(store: CorpusStore, monkeypatch: pytest.MonkeyPatch) -> None:
    small_runs(monkeypatch, len(CONTENT) // 10)
    real = os.write
    written: list[int] = []

    def full(fd: int, data: Any) -> int:
        written.append(len(data))
        if len(written) > 12:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data)

    with monkeypatch.context() as patch:
        patch.setattr(runs_module.os, "write", full)
        with pytest.raises(CorpusError, match="no room"):
            build_index(store, block_bytes=64, workers=1)
    folder = index_path(store).parent / "runs.partial"
    assert [each.name for each in sorted(folder.iterdir())] == ["plan.json", *(f"run.00000{i}" for i in range(4))]
    assert names(store) == ["runs.partial"]
    build_index(store, block_bytes=64)
    assert names(store) == ["tokens"]


def test_a_disk_that_is_full_at_the_end_leaves_no_half_index(
    store: CorpusStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: IO[bytes]) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file.name)

    with monkeypatch.context() as patch:
        patch.setattr(build_module, "_pad", full)
        with pytest.raises(CorpusError, match="no room"):
            build_index(store)
    assert names(store) == ["runs.partial"]


@pytest.mark.parametrize(
    ("how", "where"),
    [
        (signal.SIGKILL, "runs"),
        (signal.SIGINT, "lists"),
        pytest.param(signal.SIGKILL, "lists", marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, "runs", marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, "runs", marks=pytest.mark.slow),
    ],
)
def test_a_killed_builder_leaves_its_runs_and_no_lock(
    store: CorpusStore, monkeypatch: pytest.MonkeyPatch, how: signal.Signals, where: str
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _SLOW_BUILD, where, str(store.path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as builder:
        assert builder.stdout is not None
        for _ in range(6):
            assert builder.stdout.readline() == b"at it\n"
        builder.send_signal(how)
        builder.stdout.read()
    left = {name for name in names(store) if not name.startswith(".tokens.")}
    assert left == {"runs.partial"}
    assert how != signal.SIGINT or names(store) == ["runs.partial"]
    runs = len(list((index_path(store).parent / "runs.partial").glob("run.*")))
    assert runs >= 3
    small_runs(monkeypatch, 4000, most_block=runs_module.MOST_BLOCK)
    made = stop_after(monkeypatch, 1000)
    info = build_index(store, block_bytes=64)
    assert len(made) == (0 if where == "lists" else -(-len(CONTENT) // 4000) - runs)
    assert names(store) == ["tokens"]
    assert info == build_index(store, block_bytes=64)
    held, wanted = dictionary_of(TokenIndex(info.path, read_header(info.path, store))), inverted(CONTENT, 64, 4000)
    assert all(blocks is None or blocks == wanted[token] for token, blocks in held.items())
    assert held.keys() == wanted.keys()


def test_too_little_room_is_told_before(store: CorpusStore, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 1 << 20})
    monkeypatch.setattr(build_module.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(CorpusError, match="an index needs about"):
        build_index(store)


def test_lines_too_long_to_look_at_are_always_candidates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_runs(monkeypatch, 4000, most_block=1000)
    lines = [b"short line number %d of no interest" % number for number in range(400)]
    lines[100] = b"needle " + b"y" * 800  # looked at
    lines[200] = b"needle " + b"y" * 1200  # not looked at, in the middle of a run
    lines[300] = b"needle " + b"y" * 9000  # longer than a run
    data = b"".join(line + b"\n" for line in lines)
    store, index = make(tmp_path, data, block=64)
    for text in (b" interest", b"needle", b"yyyyyy", b"zebra", b"number 77 of"):
        assert missed(index, data, ((Literal(text),),)) is None
    got = index.candidates(((Literal(b" zebra "),),), limit_bytes=len(data))
    at = [data.index(lines[200]), data.index(lines[300])]
    assert got is not ALL
    assert [begin <= place < end for (begin, end), place in zip(got.spans().tolist(), at, strict=True)] == [True, True]
    store.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 0}, "workers is 0"),
        ({"workers": 1000}, "workers is 1000"),
        ({"block_bytes": 8}, "block_bytes is 8"),
        ({"block_bytes": 1 << 20}, "block_bytes is 1048576"),
        ({"memory": 1 << 20}, "memory is 1,048,576"),
    ],
)
def test_options_that_cannot_work(store: CorpusStore, options: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_index(store, **options)
    assert not index_path(store).parent.exists()


def test_without_numba_it_says_what_is_missing(store: CorpusStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grepseek_env.engine.index.lists", None)
    monkeypatch.delattr("grepseek_env.engine.index.lists")
    with pytest.raises(ConfigError, match="needs numba"):
        build_index(store)


def test_a_corpus_that_changed_is_not_indexed(store: CorpusStore) -> None:
    with store.path.open("ab") as file:
        file.write(b"more\n")
    with pytest.raises(CorpusChanged):
        build_index(store)


def test_two_builders_make_one(store: CorpusStore) -> None:
    made = []
    threads = [threading.Thread(target=lambda: made.append(build_index(store))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [made[0]] * 3
    assert names(store) == ["tokens"]


def test_bars(store: CorpusStore, capsys: pytest.CaptureFixture[str]) -> None:
    build_index(store, progress=True)
    err = capsys.readouterr().err
    assert "indexing: 100%" in err
    assert "writing index: 100%" in err


def test_the_console_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "text.jsonl"
    path.write_bytes(CONTENT)

    def run(*argv: str) -> tuple[int, list[str]]:
        code = cli.main(["corpus", *argv])
        return code, capsys.readouterr().out.splitlines()

    assert not any(line.startswith("index") for line in run("build", str(path))[1])
    assert run("verify", str(path))[0] == 0
    code, out = run("build", str(path), "--index", "--workers", "1")
    assert code == 0
    assert out[-1].startswith("index ")
    assert run("info", str(path)) == (0, out)
    code, out = run("verify", str(path))
    assert code == 0
    assert out[-1].endswith("index as it was written, of the recorded content")
    with CorpusStore.open(path) as store:
        file = index_path(store)
        data = bytearray(file.read_bytes())
        data[9000] ^= 1
        file.write_bytes(data)
        code, out = run("verify", str(path))
        assert code == 1
        assert "damaged at byte 4,096" in out[-1]
        assert out[-1].endswith(f"grepseek corpus build {path} --index")
        assert run("build", str(path), "--index")[0] == 0
        assert verify_index(store) == (True, f"{file}: index as it was written, of the recorded content")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert TokenIndex.open(store) is not None
