"""Each test is named after what went wrong, here or elsewhere."""

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from grepseek_env.corpus.build import build_corpus
from grepseek_env.corpus.prepare import prepare
from grepseek_env.corpus.sidecar import Sidecar
from grepseek_env.corpus.store import CorpusStore
from grepseek_env.corpus.view import install_link
from grepseek_env.errors import CorpusChanged
from tests.support.odd_corpora import ordinary

CONTENT = ordinary(400)
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the usual second file system, in a folder of our own

_SLOW_BUILD = """
import signal, sys, time
from pathlib import Path
from grepseek_env.corpus import prepare as module
from grepseek_env.corpus.sidecar import Sidecar

signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may ignore it
real = module.scan
def slow(state, data, path):
    print(state.size, flush=True)
    real(state, data, path)
    time.sleep(0.02)
module.scan = slow
source = Path(sys.argv[1])
module.prepare(source, Sidecar.beside(source), chunk_bytes=1000)
"""

_LIMITED_COPY = """
import os, sys
from pathlib import Path
from grepseek_env.corpus import view
from grepseek_env.corpus.build import build_corpus
from grepseek_env.errors import CorpusError

def refuse(*_):
    raise OSError(18, "cross-device")
view.os.link = refuse
try:
    build_corpus(sys.argv[1])
except CorpusError as error:
    print(error)
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "passages.jsonl"
    path.write_bytes(CONTENT)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_killed_builder_leaves_a_checkpoint_and_no_lock(source: Path, how: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _SLOW_BUILD, str(source)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as builder:
        assert builder.stdout is not None
        for line in builder.stdout:
            if int(line) >= 5000:
                break
        builder.send_signal(how)
        builder.stdout.read()
    sidecar = Sidecar.beside(source)
    assert sorted(path.name for path in sidecar.folder.iterdir()) == ["journal", "lock"]
    manifest = prepare(source, sidecar, chunk_bytes=1000)
    assert sidecar.corpus_file.read_bytes() == CONTENT
    assert len(manifest.chunks) == -(-len(CONTENT) // 1000)


def test_two_processes_building_at_once_agree(source: Path) -> None:
    code = "import sys; from grepseek_env.corpus.store import CorpusStore; print(CorpusStore.open(sys.argv[1]).digest)"
    builders = [
        subprocess.Popen([sys.executable, "-c", code, str(source)], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    digests = {builder.communicate()[0].strip() for builder in builders}
    assert [builder.returncode for builder in builders] == [0, 0]
    assert digests == {CorpusStore.open(source).digest}


def test_a_file_size_limit_is_a_full_disk_and_leaves_no_manifest(source: Path) -> None:
    result = subprocess.run(
        ["bash", "-c", 'ulimit -f 16; exec "$0" -c "$1" "$2"', sys.executable, _LIMITED_COPY, str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "no room to prepare" in result.stdout, result.stderr
    assert "--into FOLDER" in result.stdout
    sidecar = Sidecar.beside(source)
    assert not sidecar.manifest.exists()
    assert not sidecar.corpus_file.exists()
    assert build_corpus(source).corpus_file.read_bytes() == CONTENT


@pytest.mark.skipif(not SHARED_MEMORY.is_dir(), reason="needs a second file system")
def test_another_file_system_takes_a_copy(source: Path) -> None:
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY) as folder:
        if os.stat(folder).st_dev == source.stat().st_dev:  # noqa: PTH116
            pytest.skip("the tests' own folder is on the same file system")
        store = build_corpus(source, into=Path(folder) / "sidecar")
        assert store.manifest["view_kind"] == "copy"
        assert store.corpus_file.read_bytes() == CONTENT
        assert CorpusStore.open(Path(folder) / "sidecar", build=False) == store
        store.close()


def test_renaming_between_two_names_of_one_inode_leaves_neither_behind(source: Path) -> None:
    store = build_corpus(source)
    install_link(source, Sidecar(store.sidecar))
    assert sorted(path.name for path in store.sidecar.iterdir()) == ["lock", "manifest.json", "view"]


def test_a_change_right_after_the_build_is_noticed(source: Path) -> None:
    for number in range(20):  # time stamps tick in milliseconds: a build must not end within the tick of its file
        source.write_bytes(CONTENT + str(number).encode() + b"\n")
        store = build_corpus(source)
        with source.open("r+b") as file:
            file.write(b"X")
        with pytest.raises(CorpusChanged):
            store.check_unchanged()
        store.close()


def test_a_second_name_for_the_file_does_not_cost_the_corpus(source: Path, tmp_path: Path) -> None:
    store = build_corpus(source)
    build_corpus(source, into=tmp_path / "other")  # a second hard link: the ctime of the shared inode changes
    with pytest.raises(CorpusChanged, match=r"\(ctime .*open it again"):
        store.check_unchanged()
    assert CorpusStore.open(source, build=False) == store


def test_a_mark_of_utf16_in_mid_line_is_only_broken_text(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_bytes(b'{"a": "\xff\xfe"}\n{"b": "\xef\xbb\xbf"}\n')
    facts = build_corpus(path).facts
    assert (facts.invalid_utf8_lines, facts.first_invalid_utf8_line, facts.leading_bom) == (1, 1, False)


def test_one_line_of_megabytes_is_not_copied_again_and_again(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_bytes(b"x" * (48 << 20))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    facts = build_corpus(path).facts
    spent = resource.getrusage(resource.RUSAGE_SELF).ru_utime - before
    assert (facts.lines, facts.longest_line) == (1, 48 << 20)
    assert spent < 20  # processor time, not wall time: quadratic copying takes minutes


def test_opening_a_prepared_corpus_reads_no_content(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build_corpus(source)
    for name in ("hash_file", "prepare"):
        monkeypatch.setattr(f"grepseek_env.corpus.store.{name}", None)
    assert CorpusStore.open(source).digest == json.loads((Sidecar.beside(source).manifest).read_bytes())["digest"]


def test_the_copied_folder_of_a_corpus_is_not_served_from_the_old_one(source: Path, tmp_path: Path) -> None:
    build_corpus(source)
    folder = tmp_path / "copied"
    folder.mkdir()
    subprocess.run(["cp", "-r", "--", os.fspath(source), f"{source}.grepseek", os.fspath(folder)], check=True)
    copied = folder / source.name
    copied.write_bytes(CONTENT + b"more\n")
    with pytest.raises(CorpusChanged, match="grepseek corpus build"):
        CorpusStore.open(copied)
    assert build_corpus(copied).corpus_file.samefile(copied)
