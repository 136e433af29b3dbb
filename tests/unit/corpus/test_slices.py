from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from grepseek_env.corpus import slices as slices_module
from grepseek_env.corpus.slices import MOST_SLICES, build_slices, find_slices, open_slices
from grepseek_env.corpus.store import CorpusStore
from grepseek_env.engine.local import LocalBackend
from grepseek_env.errors import ConfigError, CorpusChanged, CorpusError
from tests.support.odd_corpora import REFUSED, odd, ordinary

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CorpusStore]:
    (tmp_path / "corpus.jsonl").write_bytes(ordinary(300))
    with CorpusStore.open(tmp_path / "corpus.jsonl") as opened:
        yield opened


def folders(store: CorpusStore) -> list[str]:
    return sorted(each.name for each in (store.sidecar / "slices").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(odd()) - REFUSED - {"huge_line"}))
@pytest.mark.parametrize("count", [1, 3, 7])
def test_slices_are_whole_lines_and_together_the_corpus(tmp_path: Path, name: str, count: int) -> None:
    (tmp_path / "corpus.jsonl").write_bytes(odd()[name])
    with CorpusStore.open(tmp_path / "corpus.jsonl") as store:
        parts = [each.file.read_bytes() for each in build_slices(store, count).files]
    assert b"".join(parts) == odd()[name]
    assert len(parts) <= count
    assert all(part.endswith(b"\n") for part in parts[:-1])


def test_they_are_made_once_and_found_again(store: CorpusStore) -> None:
    assert find_slices(store) is None
    made = build_slices(store, 3)
    before = made.files[0].file.stat()
    assert build_slices(store, 3) == made == open_slices(store, 3) == find_slices(store) == find_slices(store, 3)
    assert made.files[0].file.stat() == before
    assert find_slices(store, 2) is None
    assert len(build_slices(store, 2).files) == 2
    assert find_slices(store) == made
    assert folders(store) == ["2", "3"]
    store.check_unchanged()  # the view is as it was


@pytest.mark.parametrize("count", [0, -1, MOST_SLICES + 1])
def test_a_count_that_cannot_work_is_named(store: CorpusStore, count: int) -> None:
    with pytest.raises(ConfigError, match=rf"slices is {count}"):
        build_slices(store, count)


def test_slices_of_other_content_are_ignored_with_a_warning_and_made_anew(tmp_path: Path) -> None:
    file = tmp_path / "corpus.jsonl"
    file.write_bytes(ordinary(300))
    with CorpusStore.open(file) as store:
        build_slices(store, 2)
    file.unlink()
    file.write_bytes(ordinary(300, seed=2))
    shutil.rmtree(tmp_path / "corpus.jsonl.grepseek" / "view")
    (tmp_path / "corpus.jsonl.grepseek" / "manifest.json").unlink()
    with CorpusStore.open(file) as store:
        with pytest.warns(UserWarning, match=r"slices are ignored.*other content.*--slices 2"):
            assert find_slices(store) is None
        with pytest.raises(CorpusError, match="other content"):
            open_slices(store, 2)
        made = build_slices(store, 2)
        assert b"".join(each.file.read_bytes() for each in made.files) == file.read_bytes()


@pytest.mark.parametrize("damage", ["touched", "cut", "gone", "record"])
def test_damage_is_noticed(store: CorpusStore, damage: str) -> None:
    file = build_slices(store, 2).files[1].file
    match damage:
        case "touched":
            os.utime(file, (1, 1))
        case "cut":
            file.chmod(0o644)
            os.truncate(file, 10)
        case "gone":
            file.unlink()
        case _:
            (file.parents[1] / "slices.json").write_text("{")
    with pytest.warns(UserWarning, match="slices are ignored"):
        assert find_slices(store) is None
    assert find_slices(store, 3) is None
    build_slices(store, 2)
    assert find_slices(store) == open_slices(store, 2)


def test_a_full_disk_and_an_interruption_leave_nothing_half_made(
    store: CorpusStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(BaseException):
        pass

    def stop(*_: object) -> str:
        raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(slices_module.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 5, 5))
        with pytest.raises(CorpusError, match="fed by pipe, which needs none"):
            build_slices(store, 2)
    with monkeypatch.context() as patch:
        patch.setattr(slices_module, "settled_stamp", stop)
        with pytest.raises(Interrupted):
            build_slices(store, 2)
    assert folders(store) == []
    (store.sidecar / "slices" / ".2.0123.partial").mkdir()  # of a builder that was killed
    build_slices(store, 2)
    assert folders(store) == ["2"]


def test_a_corpus_that_is_not_the_prepared_one_gives_no_slices(store: CorpusStore) -> None:
    status = store.corpus_file.stat()
    with store.corpus_file.open("r+b") as file:
        file.write(b"[")
    os.utime(store.corpus_file, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(CorpusChanged, match="not the one that was prepared"):
        build_slices(store, 2)
    assert folders(store) == []


def test_several_builders_at_once_make_one_set(store: CorpusStore) -> None:
    code = (
        "import sys; from grepseek_env.corpus.slices import build_slices; "
        "from grepseek_env.corpus.store import CorpusStore; build_slices(CorpusStore.open(sys.argv[1]), 4)"
    )
    # No multiprocessing: its helper process stays, and other tests count children.
    builders = [subprocess.Popen([sys.executable, "-c", code, store.path]) for _ in range(3)]
    assert [builder.wait() for builder in builders] == [0, 0, 0]
    assert folders(store) == ["4"]
    assert find_slices(store) is not None


def test_a_backend_takes_them_or_says_that_there_are_none(store: CorpusStore) -> None:
    with pytest.raises(CorpusError, match="--slices 3"):
        LocalBackend(store, mode="sliced", feeding="file", slices=3)
    build_slices(store, 3)
    with LocalBackend(store, mode="sliced", feeding="file", slices=3) as backend:
        assert backend.run("wc -l corpus.jsonl").stdout == b"300 corpus.jsonl\n"
