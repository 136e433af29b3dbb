import errno
import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from grepseek_env.corpus import prepare as prepare_module
from grepseek_env.corpus import view as view_module
from grepseek_env.corpus.build import build_corpus
from grepseek_env.corpus.journal import Journal
from grepseek_env.corpus.prepare import prepare
from grepseek_env.corpus.sidecar import Manifest, Sidecar
from grepseek_env.corpus.store import CorpusStore
from grepseek_env.errors import ConfigError, CorpusChanged, CorpusError, CorpusInvalid, CorpusNotFound
from tests.support.odd_corpora import odd, ordinary

CHUNK = 4096
CONTENT = ordinary(300)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "passages.jsonl"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def no_links(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(src: object, dst: object) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(src), None, str(dst))

    monkeypatch.setattr(view_module.os, "link", refuse)


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def build(source: Path) -> Manifest:
    return prepare(source, Sidecar.beside(source), chunk_bytes=CHUNK)


def content_of(manifest: Manifest) -> tuple[object, ...]:
    return manifest.digest, manifest.chunks, manifest.facts, manifest.view_kind


def test_a_build_makes_the_view_and_the_manifest_and_nothing_else(source: Path) -> None:
    store = build_corpus(source)
    assert store.sidecar == source.with_name("passages.jsonl.grepseek")
    assert names(store.sidecar) == ["lock", "manifest.json", "view", "view/corpus.jsonl"]
    assert store.corpus_file.read_bytes() == CONTENT
    assert store.corpus_file.samefile(source)
    assert not store.corpus_file.is_symlink()
    written = json.loads((store.sidecar / "manifest.json").read_bytes())
    assert written == json.loads(json.dumps(store.manifest))
    assert Manifest.from_json(written).facts == store.facts


def test_the_digest_is_the_documented_one(source: Path) -> None:
    manifest = build(source)
    chunks = [hashlib.sha256(CONTENT[at : at + CHUNK]) for at in range(0, len(CONTENT), CHUNK)]
    assert len(chunks) > 3
    assert manifest.chunks == tuple(chunk.hexdigest() for chunk in chunks)
    assert manifest.digest == hashlib.sha256(b"".join(chunk.digest() for chunk in chunks)).hexdigest()


def test_an_empty_file_has_a_digest_too(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    assert build_corpus(tmp_path / "empty.jsonl").digest == hashlib.sha256(b"").hexdigest()


@pytest.mark.parametrize("name", ["nul", "inner_bom", "utf16_bom_lines"])
def test_a_refused_corpus_leaves_nothing(tmp_path: Path, name: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(odd()[name])
    with pytest.raises(CorpusInvalid, match=r"bad\.jsonl: line \d+"):
        build_corpus(path)
    assert names(tmp_path) == ["bad.jsonl"]


def test_a_corpus_that_became_bad_is_refused_and_not_served(source: Path) -> None:
    build_corpus(source)
    source.write_bytes(CONTENT[:100] + b"\0" + CONTENT[100:])
    with pytest.raises(CorpusInvalid):
        build_corpus(source)
    with pytest.raises(CorpusChanged):
        CorpusStore.open(source)


def test_a_second_build_reads_nothing(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = build_corpus(source)

    def forbidden(*_: object) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr(prepare_module, "scan", forbidden)
    assert build_corpus(source) == first


def test_a_changed_corpus_is_prepared_again(source: Path) -> None:
    first = build_corpus(source)
    source.write_bytes(CONTENT + b'{"new": 1}\n')
    second = build_corpus(source)
    assert second.facts.lines == first.facts.lines + 1
    assert second.digest != first.digest
    assert CorpusStore.open(source) == second


def test_a_replaced_file_gets_a_new_view(source: Path) -> None:
    build_corpus(source)
    new = source.with_name("new")
    new.write_bytes(CONTENT[::-1])
    new.replace(source)
    store = build_corpus(source)
    assert store.corpus_file.samefile(source)
    assert names(store.sidecar) == ["lock", "manifest.json", "view", "view/corpus.jsonl"]


# Interruption


@pytest.fixture
def interrupt_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int, str], None]]:
    """Breaks a build off at its n-th checkpoint: "before" it is written, "after", or in the "middle" of it."""

    def arm(number: int, when: str) -> None:
        left = [number]
        real = Journal.add

        def add(self: Journal, file: Any, digest: str) -> None:
            left[0] -= 1
            if left[0] == 0:
                match when:
                    case "after":
                        real(self, file, digest)
                    case "middle":
                        file.write(b'["' + digest[:9].encode())
                raise KeyboardInterrupt
            real(self, file, digest)

        monkeypatch.setattr(Journal, "add", add)

    yield arm
    monkeypatch.undo()


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "middle", "after"])
@pytest.mark.parametrize("linked", [True, False])
def test_interrupted_at_every_checkpoint_and_continued(
    source: Path, interrupt_at: Callable[[int, str], None], request: pytest.FixtureRequest, when: str, *, linked: bool
) -> None:
    patch = request.getfixturevalue("monkeypatch")
    if not linked:
        request.getfixturevalue("no_links")
    whole = content_of(build(source))
    chunks = len(whole[1])  # type: ignore[arg-type]
    sidecar = Sidecar.beside(source)
    for number in range(1, chunks + 1):
        shutil.rmtree(sidecar.folder)
        with patch.context() as inner:
            scanned: list[int] = []
            real = prepare_module.scan

            def counted(state: Any, data: Any, path: Path, real: Any = real, scanned: list[int] = scanned) -> None:
                scanned.append(len(data))
                real(state, data, path)

            add = Journal.add
            interrupt_at(number, when)
            with pytest.raises(KeyboardInterrupt):
                build(source)
            inner.setattr(Journal, "add", add)
            assert not sidecar.manifest.exists()
            assert set(names(sidecar.folder)) <= {"journal", "lock", "copy.partial"}
            inner.setattr(prepare_module, "scan", counted)
            assert content_of(build(source)) == whole
            finished = number if when == "after" else number - 1
            assert sum(scanned) == max(0, len(CONTENT) - finished * CHUNK)
        assert names(sidecar.folder) == ["lock", "manifest.json", "view", "view/corpus.jsonl"]
        assert sidecar.corpus_file.read_bytes() == CONTENT
        patch.setattr(Journal, "add", add)


def test_a_journal_of_a_file_that_changed_is_not_used(
    source: Path, interrupt_at: Callable[[int, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    add = Journal.add
    interrupt_at(3, "after")
    with pytest.raises(KeyboardInterrupt):
        build(source)
    monkeypatch.setattr(Journal, "add", add)
    source.write_bytes(CONTENT.swapcase())
    assert build(source).chunks[0] == hashlib.sha256(CONTENT.swapcase()[:CHUNK]).hexdigest()


def test_a_journal_of_garbage_is_not_used(source: Path) -> None:
    expected = content_of(build(source))
    sidecar = Sidecar.beside(source)
    for garbage in (b"", b"\xff\n", b"{}\n", b"[]\n", b'{"format": 1}\n["x", {}]\n', b"null\n"):
        sidecar.manifest.unlink()
        sidecar.journal.write_bytes(garbage)
        assert content_of(build(source)) == expected


def test_what_a_killed_builder_left_is_cleared(source: Path) -> None:
    sidecar = Sidecar.beside(source)
    sidecar.folder.mkdir()
    os.link(source, sidecar.folder / "trial.0123")
    (sidecar.folder / ".manifest.json.0123.tmp").write_bytes(b"half")
    build(source)
    assert names(sidecar.folder) == ["lock", "manifest.json", "view", "view/corpus.jsonl"]


def test_a_file_that_changes_while_it_is_read_is_refused(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = prepare_module.scan

    def meddle(state: Any, data: Any, path: Path) -> None:
        real(state, data, path)
        with source.open("r+b") as file:
            file.write(b"X")

    monkeypatch.setattr(prepare_module, "scan", meddle)
    with pytest.raises(CorpusChanged, match=r"changed while it was read \(mtime"):
        build(source)
    assert not Sidecar.beside(source).manifest.exists()


def test_a_file_that_shrinks_while_it_is_read_is_refused(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare_module, "scan", lambda _state, _data, _path: os.truncate(source, 10))
    with pytest.raises(CorpusChanged, match="became shorter while it was read"):
        build(source)


# Several builders


def test_builders_at_the_same_time_read_once(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scanned: list[int] = []
    real = prepare_module.scan

    def counted(state: Any, data: Any, path: Path) -> None:
        scanned.append(len(data))
        real(state, data, path)

    monkeypatch.setattr(prepare_module, "scan", counted)
    together = threading.Barrier(6)
    stores: list[CorpusStore] = []

    def one() -> None:
        together.wait()
        stores.append(build_corpus(source))

    threads = [threading.Thread(target=one) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(stores) == 6
    assert len(set(stores)) == 1
    assert sum(scanned) == len(CONTENT)


def test_builders_at_the_same_time_of_a_refused_corpus_are_all_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(odd()["nul"])
    together = threading.Barrier(6)
    errors: list[BaseException] = []

    def one() -> None:
        together.wait()
        try:
            build_corpus(path)
        except CorpusInvalid as error:
            errors.append(error)

    threads = [threading.Thread(target=one) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) == 6
    assert names(tmp_path) == ["bad.jsonl"]


# Where no link is possible


@pytest.mark.usefixtures("no_links")
def test_without_links_the_view_is_a_copy_that_says_why(source: Path) -> None:
    store = build_corpus(source)
    assert store.corpus_file.read_bytes() == CONTENT
    assert not store.corpus_file.samefile(source)
    assert store.manifest["view_kind"] == "copy"
    assert "no hard link to" in store.manifest["view_reason"]
    assert os.strerror(errno.EXDEV) in store.manifest["view_reason"]
    assert store.corpus_file.stat().st_mtime == view_module.FIXED_MTIME
    assert names(store.sidecar) == ["lock", "manifest.json", "view", "view/corpus.jsonl"]


@pytest.mark.usefixtures("no_links")
def test_a_changed_source_of_a_copy_is_noticed(source: Path) -> None:
    build_corpus(source)
    source.write_bytes(CONTENT.swapcase())
    with pytest.raises(CorpusChanged, match=r"the content of .*passages"):
        CorpusStore.open(source)
    source.write_bytes(CONTENT[:-1])
    with pytest.raises(CorpusChanged, match=r"passages\.jsonl: size"):
        CorpusStore.open(source)
    assert build_corpus(source).corpus_file.read_bytes() == CONTENT[:-1]


@pytest.mark.usefixtures("no_links")
def test_too_little_room_for_a_copy_is_told_before(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(source)._replace(free=5000)
    monkeypatch.setattr(prepare_module.shutil, "disk_usage", lambda _path: usage)
    with pytest.raises(CorpusError, match=r"a copy of the corpus needs [\d,]+ bytes in .*; 5,000 are free.*into="):
        build_corpus(source)
    assert names(source.parent) == ["passages.jsonl"]
    monkeypatch.undo()
    assert build_corpus(source).corpus_file.read_bytes() == CONTENT


def test_another_error_of_link_is_not_taken_for_a_reason_to_copy(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(view_module.os, "link", broken)
    with pytest.raises(CorpusError, match=f"cannot prepare .*{os.strerror(errno.EIO)}"):
        build_corpus(source)


# Where to


def test_into_chooses_the_sidecar(source: Path, tmp_path: Path) -> None:
    store = build_corpus(source, into=tmp_path / "deep" / "er")
    assert store.sidecar == tmp_path / "deep" / "er"
    assert not Sidecar.beside(source).folder.exists()
    assert CorpusStore.open(tmp_path / "deep" / "er") == store
    assert build_corpus(source, into=tmp_path / "deep" / "er") == store
    assert build_corpus(tmp_path / "deep" / "er") == store
    (tmp_path / "broken off").mkdir()
    (tmp_path / "broken off" / "lock").touch()
    assert build_corpus(source, into=tmp_path / "broken off").digest == store.digest


def test_into_spares_folders_with_other_things(source: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(ConfigError, match=r"holds thesis\.tex; it must be a folder, new or empty"):
        build_corpus(source, into=tmp_path / "mine")
    with pytest.raises(ConfigError, match="is a file"):
        build_corpus(source, into=source)
    assert names(tmp_path / "mine") == ["thesis.tex"]


def test_a_folder_that_cannot_be_written_names_into(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, *_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(CorpusError, match=r"cannot write into .*\.grepseek .*--into FOLDER"):
        CorpusStore.open(source)


def test_a_full_disk_is_told_and_what_is_done_is_kept(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, room = Journal.add, [3]

    def add(self: Journal, file: Any, digest: str) -> None:
        room[0] -= 1
        if room[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(self, file, digest)

    monkeypatch.setattr(Journal, "add", add)
    with pytest.raises(CorpusError, match=r"no room to prepare .*What is done so far is kept"):
        build(source)
    found = Journal.read(Sidecar.beside(source).journal)
    assert found is not None
    assert len(found.chunks) == 3
    assert not Sidecar.beside(source).manifest.exists()


def test_strangers_in_the_view_are_refused(source: Path) -> None:
    store = build_corpus(source)
    (store.view / ".ignore").write_text("*\n")
    with pytest.raises(CorpusChanged, match="must hold one regular file"):
        CorpusStore.open(source)
    with pytest.raises(CorpusInvalid, match=r"holds \['\.ignore'\], which commands would see"):
        build_corpus(source)


def test_no_such_file(tmp_path: Path) -> None:
    (tmp_path / "passages.jsonl").touch()
    with pytest.raises(CorpusNotFound, match=r"did you mean 'passages\.jsonl'"):
        build_corpus(tmp_path / "pasages.jsonl")
