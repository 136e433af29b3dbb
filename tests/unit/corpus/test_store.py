import copy
import dataclasses
import json
import os
import pickle
from pathlib import Path

import pytest

from grepseek_env.corpus import store as store_module
from grepseek_env.corpus.build import build_corpus
from grepseek_env.corpus.sidecar import FileStamp
from grepseek_env.corpus.store import CorpusStore
from grepseek_env.errors import CorpusChanged, CorpusError, CorpusInvalid, CorpusNotFound
from tests.support.odd_corpora import ordinary

CONTENT = ordinary(50)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "folder" / "passages.jsonl"
    path.parent.mkdir()
    path.write_bytes(CONTENT)
    return path


# What may be given


def test_a_file_a_folder_a_sidecar_and_a_view_mean_the_same(source: Path) -> None:
    store = CorpusStore.open(source)
    for path in (source.parent, store.sidecar, store.view, store.corpus_file, os.fspath(source)):
        assert CorpusStore.open(path, build=False) == store


def test_a_link_means_the_file_that_it_points_to(source: Path, tmp_path: Path) -> None:
    (tmp_path / "link.jsonl").symlink_to(source)
    store = CorpusStore.open(tmp_path / "link.jsonl")
    assert store.path == source
    assert store.sidecar.parent == source.parent


def test_a_relative_path_survives_a_change_of_folder(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(source.parent)
    store = CorpusStore.open("passages.jsonl")
    monkeypatch.chdir("/")
    store.check_unchanged()
    assert pickle.loads(pickle.dumps(store)) == store


def test_corpus_jsonl_counts_among_several(source: Path) -> None:
    (source.parent / "corpus.jsonl").write_bytes(CONTENT)
    assert CorpusStore.open(source.parent).path.name == "corpus.jsonl"


def test_several_files_are_ambiguous(source: Path) -> None:
    (source.parent / "other.jsonl").touch()
    with pytest.raises(CorpusInvalid, match=r"several \.jsonl files: other\.jsonl, passages\.jsonl"):
        CorpusStore.open(source.parent)


def test_a_folder_without_a_corpus_lists_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(CorpusNotFound, match=r"no \.jsonl file in .*it holds notes\.txt"):
        CorpusStore.open(tmp_path)


@pytest.mark.parametrize("path", ["/dev/null", "a\0b", "no/such/folder/x.jsonl", "x" * 5000])
def test_what_cannot_be_a_corpus(path: str) -> None:
    with pytest.raises(CorpusError):
        CorpusStore.open(path)


def test_a_file_inside_a_sidecar_is_no_corpus(source: Path) -> None:
    store = CorpusStore.open(source)
    with pytest.raises(CorpusInvalid, match="is part of a prepared corpus"):
        CorpusStore.open(store.sidecar / "manifest.json")


def test_not_prepared_and_not_to_be_built(source: Path) -> None:
    with pytest.raises(CorpusNotFound, match=f"is not prepared: run grepseek corpus build {source}"):
        CorpusStore.open(source, build=False)


def test_the_prepared_corpus_outlives_its_file(source: Path) -> None:
    store = CorpusStore.open(source)
    source.unlink()
    with pytest.raises(CorpusChanged, match="ctime"):
        store.check_unchanged()  # a name less is a change of the inode's record
    again = CorpusStore.open(store.sidecar)
    again.check_unchanged()
    assert again.digest == store.digest
    with pytest.raises(CorpusNotFound, match="is gone"):
        build_corpus(store.sidecar)


def test_a_damaged_manifest_is_told_and_can_be_made_anew(source: Path) -> None:
    store = CorpusStore.open(source)
    path = store.sidecar / "manifest.json"
    for text in ("", "[]", "{}", json.dumps({**store.manifest, "format": 99})):
        path.write_text(text)
        with pytest.raises(CorpusInvalid, match=r"manifest\.json cannot be used .*grepseek corpus build"):
            CorpusStore.open(source)
    assert build_corpus(source) == store


# The same file


@pytest.mark.parametrize("field", ["device", "inode", "size", "mtime", "ctime"])
def test_a_difference_in_any_field_is_named(source: Path, field: str) -> None:
    store = CorpusStore.open(source)
    now = store._stamp
    store._stamp = dataclasses.replace(now, **{field: getattr(now, field) + 1})
    old = getattr(store._stamp, field)
    with pytest.raises(CorpusChanged, match=rf"\({field} {old} -> {old - 1}\).*grepseek corpus build"):
        store.check_unchanged()


def test_an_edit_in_place_is_noticed_at_once(source: Path) -> None:
    store = CorpusStore.open(source)
    with source.open("r+b") as file:
        file.write(b"X")
    with pytest.raises(CorpusChanged, match="mtime"):
        store.check_unchanged()
    with pytest.raises(CorpusChanged, match=r"content of .* is not the one that was prepared"):
        CorpusStore.open(source)


def test_an_edit_that_puts_the_time_back_is_noticed(source: Path) -> None:
    store = CorpusStore.open(source)
    before = source.stat()
    with source.open("r+b") as file:
        file.write(b"X")
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(CorpusChanged, match=r"\(ctime"):
        store.check_unchanged()
    with pytest.raises(CorpusChanged, match="content"):
        CorpusStore.open(source)


def test_a_longer_file_is_noticed_without_reading(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    CorpusStore.open(source)
    with source.open("ab") as file:
        file.write(b"x\n")
    monkeypatch.setattr(store_module, "hash_file", None)
    with pytest.raises(CorpusChanged, match="size"):
        CorpusStore.open(source)


def test_a_replaced_file_is_noticed_at_the_next_opening(source: Path) -> None:
    store = CorpusStore.open(source)
    source.rename(source.with_name("kept"))  # so that the new file cannot get the old one's number
    source.write_bytes(CONTENT)
    with pytest.raises(CorpusChanged, match=r"passages\.jsonl: .*inode"):
        CorpusStore.open(source)
    assert store.corpus_file.read_bytes() == CONTENT


def test_a_vanished_view_is_noticed(source: Path) -> None:
    store = CorpusStore.open(source)
    store.corpus_file.unlink()
    with pytest.raises(CorpusChanged, match="is gone"):
        store.check_unchanged()
    with pytest.raises(CorpusChanged, match=r"the view cannot be read .* grepseek corpus build /"):
        CorpusStore.open(source)
    assert build_corpus(source) == store


def test_a_view_that_became_a_symbolic_link_is_noticed(source: Path) -> None:
    store = CorpusStore.open(source)
    store.corpus_file.unlink()
    store.corpus_file.symlink_to(source)
    with pytest.raises(CorpusChanged):
        store.check_unchanged()
    with pytest.raises(CorpusChanged, match="must hold one regular file"):
        CorpusStore.open(source)
    assert not build_corpus(source).corpus_file.is_symlink()


@pytest.mark.parametrize("what", ["touched", "linked", "moved"])
def test_the_same_content_is_recognised_and_the_record_refreshed(
    source: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = CorpusStore.open(source)
    match what:
        case "touched":
            source.touch()
        case "linked":
            os.link(source, source.with_name("second"))
        case _:
            source.parent.rename(source.parent.with_name("elsewhere"))
            source = source.parent.with_name("elsewhere") / source.name
    new = CorpusStore.open(source)
    assert new.digest == old.digest
    assert new.path == source
    new.check_unchanged()
    monkeypatch.setattr(store_module, "hash_file", None)  # the refreshed record is trusted
    assert CorpusStore.open(source) == new


def test_a_record_that_cannot_be_refreshed_does_not_matter(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    CorpusStore.open(source)
    source.touch()

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(store_module, "write_manifest", refuse)
    CorpusStore.open(source).check_unchanged()


# Copies and ends


def test_copies_are_the_store_itself(source: Path) -> None:
    store = CorpusStore.open(source)
    assert copy.copy(store) is store
    assert copy.deepcopy({"corpus": [store]})["corpus"][0] is store


def test_pickling_opens_by_path(source: Path) -> None:
    store = CorpusStore.open(source)
    data = pickle.dumps(store)
    assert len(data) < 1000
    other = pickle.loads(data)
    assert other is not store
    assert other == store
    assert hash(other) == hash(store)
    assert other.facts == store.facts


def test_a_pickled_store_is_not_taken_for_a_later_corpus(source: Path) -> None:
    data = pickle.dumps(CorpusStore.open(source))
    source.write_bytes(CONTENT + b"x\n")
    build_corpus(source)
    with pytest.raises(CorpusChanged, match="prepared again with other content"):
        pickle.loads(data)


def test_equality_goes_by_view_and_content(source: Path, tmp_path: Path) -> None:
    store = CorpusStore.open(source)
    elsewhere = build_corpus(source, into=tmp_path / "elsewhere")
    assert elsewhere.digest == store.digest
    assert elsewhere != store
    assert store != str(source)
    assert "50 lines" in repr(store)


def test_closing_frees_the_descriptor_and_may_be_repeated(source: Path) -> None:
    CorpusStore.open(source).close()
    before = len(os.listdir("/dev/fd"))  # noqa: PTH208 - descriptors, not files
    with CorpusStore.open(source) as store:
        assert len(os.listdir("/dev/fd")) == before + 1  # noqa: PTH208
    store.close()
    assert len(os.listdir("/dev/fd")) == before  # noqa: PTH208
    forgotten = CorpusStore.open(source)
    del forgotten
    assert len(os.listdir("/dev/fd")) == before  # noqa: PTH208


def test_stamp_differences_name_fields() -> None:
    stamp = FileStamp(1, 2, 3, 4, 5)
    assert stamp.differences(stamp) == []
    assert stamp.differences(FileStamp(1, 9, 3, 4, 6)) == ["inode 2 -> 9", "ctime 5 -> 6"]
