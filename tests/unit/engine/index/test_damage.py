import random
import re
import warnings
from pathlib import Path

import pytest

from grepseek_env.corpus.build import build_corpus
from grepseek_env.corpus.store import CorpusStore
from grepseek_env.engine.index import ALL, TokenIndex, build_index, index_info, verify_index
from grepseek_env.engine.index import layout as layout_module
from grepseek_env.engine.index.layout import index_path
from grepseek_env.engine.literals.records import Literal
from tests.support.indexing import draw_clauses, make, missed, mixed

NEEDLE = ((Literal(b"needle"),),)


@pytest.fixture
def built(tmp_path: Path) -> tuple[CorpusStore, bytes]:
    data = mixed(random.Random(3), 400)
    return make(tmp_path, data, block=32)[0], data


def rewrite(store: CorpusStore, data: bytes | bytearray) -> None:
    """Replaces the index by renaming, as a builder does."""
    temp = index_path(store).with_name("temp")
    temp.write_bytes(data)
    temp.replace(index_path(store))


def ignored(store: CorpusStore, reason: str) -> None:
    with pytest.warns(UserWarning, match="the index is ignored") as told:
        assert TokenIndex.open(store) is None
    assert len(told) == 1
    message = str(told[0].message)
    assert re.search(reason, message)
    assert message.endswith(f"grepseek corpus build {store.path} --index")


def test_no_index_is_no_matter(tmp_path: Path) -> None:
    (tmp_path / "text.jsonl").write_bytes(b"line\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store = build_corpus(tmp_path / "text.jsonl")
        assert TokenIndex.open(store) is None
        assert index_info(store) is None
        assert verify_index(store) is None


@pytest.mark.parametrize("seed", range(3))
def test_property_damage_never_changes_an_answer(built: tuple[CorpusStore, bytes], seed: int) -> None:
    store, data = built
    rng = random.Random(seed)
    good = index_path(store).read_bytes()
    noticed = 0
    for _ in range(25):
        bad = bytearray(good)
        for _ in range(rng.choice((1, 1, 3, 50))):
            bad[rng.randrange(len(bad))] ^= rng.randrange(1, 256)
        rewrite(store, bad)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            index = TokenIndex.open(store)
            for _ in range(8 if index is not None else 0):
                clauses = draw_clauses(rng, data)
                assert index is not None
                assert missed(index, data, clauses) is None, clauses
        assert len(told) <= 1
        assert index is not None or told
        noticed += bool(told)
        whole = verify_index(store)
        assert whole is not None
        assert not whole[0]
    assert noticed > 15


def test_damage_found_late_is_told_once(built: tuple[CorpusStore, bytes]) -> None:
    store, _ = built
    good = index_path(store).read_bytes()
    bad = bytearray(good)
    header = layout_module.read_header(index_path(store), store)
    at, size = header.sections["grams"]
    for place in range(at, at + size):
        bad[place] ^= 255
    pages = {page for name in ("sizes", "starts") for page in layout_module.pages_of(header, name)}
    if pages & set(layout_module.pages_of(header, "grams")):  # a small file: what is looked at first is hit too
        rewrite(store, bad)
        ignored(store, "is damaged at byte")
        return
    rewrite(store, bad)
    index = TokenIndex.open(store)
    assert index is not None
    with pytest.warns(UserWarning, match="is damaged and is not used any more") as told:
        assert [index.candidates(NEEDLE) for _ in range(5)] == [ALL] * 5
    assert len(told) == 1


@pytest.mark.parametrize("size", [0, 1, 100, 4095, 4096, 5000, -1])
def test_a_shorter_file(built: tuple[CorpusStore, bytes], size: int) -> None:
    store, _ = built
    rewrite(store, index_path(store).read_bytes()[:size])
    ignored(store, "does not begin like an index|header is damaged|it has [0-9,]+ bytes and should have")
    assert build_index(store).path.exists()
    assert TokenIndex.open(store) is not None


def test_a_longer_file(built: tuple[CorpusStore, bytes]) -> None:
    store, _ = built
    rewrite(store, index_path(store).read_bytes() + b"x")
    ignored(store, "bytes and should have")


def test_another_version(built: tuple[CorpusStore, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    store, _ = built
    monkeypatch.setattr(layout_module, "_FORMAT", 2)
    ignored(store, "another version")
    with pytest.warns(UserWarning, match="another version"):
        assert index_info(store) is None
    build_index(store)
    assert TokenIndex.open(store) is not None


def test_other_content(built: tuple[CorpusStore, bytes], tmp_path: Path) -> None:
    store, _ = built
    old = index_path(store).read_bytes()
    (tmp_path / "other.jsonl").write_bytes(b"other content\n")
    other = build_corpus(tmp_path / "other.jsonl")
    index_path(other).parent.mkdir()
    rewrite(other, old)
    ignored(other, "of other content")


def test_a_folder_in_its_place(built: tuple[CorpusStore, bytes]) -> None:
    store, _ = built
    index_path(store).unlink()
    index_path(store).mkdir()
    ignored(store, "cannot be used")
