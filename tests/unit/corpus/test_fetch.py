import errno
import gzip
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from grepseek_env.corpus import fetch as fetch_module
from grepseek_env.corpus.fetch import SOURCES, fetch
from grepseek_env.corpus.store import CorpusStore
from grepseek_env.errors import ConfigError, CorpusError, CorpusInvalid, CorpusNotFound, SourceUnavailable
from tests.support.odd_corpora import ordinary

CONTENT = ordinary(200)
FREE = 100_000_000_000


class FakeHub(ModuleType):
    """As much of huggingface_hub as is used: one file, a cache, and whatever the network does."""

    def __init__(self, folder: Path) -> None:
        super().__init__("huggingface_hub")
        self.constants = SimpleNamespace(HF_HUB_CACHE=str(folder / "not" / "made" / "yet"))
        self.packed = folder / "blob.gz"
        self.packed.write_bytes(gzip.compress(CONTENT))
        self.cached = False
        self.calls: list[tuple[str, str, str]] = []
        self.failure: Exception | None = None

    def try_to_load_from_cache(self, repo_id: str, filename: str, *, repo_type: str) -> str | None:
        assert (repo_id, filename, repo_type) == ("PeterJinGo/wiki-18-corpus", "wiki-18.jsonl.gz", "dataset")
        return str(self.packed) if self.cached else None

    def hf_hub_download(self, repo_id: str, filename: str, *, repo_type: str) -> str:
        self.calls.append((repo_id, filename, repo_type))
        if self.failure is not None:
            raise self.failure
        return str(self.packed)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    fake = FakeHub(tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", fake)
    set_free(monkeypatch, lambda _path: FREE)
    return fake


def set_free(monkeypatch: pytest.MonkeyPatch, free: Callable[[Path], int]) -> None:
    real = shutil.disk_usage

    def usage(path: Path) -> object:
        return real(path)._replace(free=free(Path(path)))

    monkeypatch.setattr(fetch_module.shutil, "disk_usage", usage)


def test_fetch_downloads_and_unpacks_once(hub: FakeHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = fetch("wiki18", tmp_path / "into")
    assert path == tmp_path / "into" / "wiki-18.jsonl"
    assert path.read_bytes() == CONTENT
    assert hub.calls == [("PeterJinGo/wiki-18-corpus", "wiki-18.jsonl.gz", "dataset")]
    assert "unpacking wiki-18.jsonl" in capsys.readouterr().err
    assert CorpusStore.open(path).facts.lines == 200
    assert fetch("wiki18", tmp_path / "into", progress=False) == path
    assert len(hub.calls) == 1


def test_the_cache_folder_is_the_default(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not hub.calls
    monkeypatch.setenv("GREPSEEK_CACHE", str(tmp_path / "cache"))
    assert fetch("wiki18", progress=False) == tmp_path / "cache" / "corpora" / "wiki-18.jsonl"


def test_a_finished_download_is_used_again(hub: FakeHub, tmp_path: Path) -> None:
    hub.cached = True
    hub.failure = ConnectionError("no network")
    assert fetch("wiki18", tmp_path / "into", progress=False).read_bytes() == CONTENT


@pytest.mark.parametrize(
    "failure",
    [
        ConnectionError("no route to the Hub"),
        FileNotFoundError("no route to the Hub"),  # the Hub's LocalEntryNotFoundError is one
        ValueError("no route to the Hub"),
        RuntimeError("no route to the Hub"),
    ],
)
def test_an_unreachable_hub_is_said_plainly(hub: FakeHub, tmp_path: Path, failure: Exception) -> None:
    hub.failure = failure
    expected = r"wiki18 \(wiki-18\.jsonl\.gz of the Hub data set PeterJinGo/wiki-18-corpus\) could not be loaded: "
    with pytest.raises(SourceUnavailable, match=expected + "no route to the Hub.*any JSONL") as caught:
        fetch("wiki18", tmp_path / "into", progress=False)
    assert caught.value.__cause__ is failure
    assert not (tmp_path / "into" / "wiki-18.jsonl").exists()


def test_errors_of_the_http_library_are_the_hubs_too(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class HTTPError(Exception):
        pass

    monkeypatch.setitem(sys.modules, "httpx", SimpleNamespace(HTTPError=HTTPError))  # type: ignore[arg-type]
    hub.failure = HTTPError("")
    with pytest.raises(SourceUnavailable, match="could not be loaded: HTTPError"):
        fetch("wiki18", tmp_path / "into", progress=False)


def test_a_missing_library_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"pip install 'grepseek-env\[hub\]'"):
        fetch("wiki18", tmp_path / "into", progress=False)


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(CorpusNotFound, match=r"'wiki81' \(did you mean 'wiki18'\?\); known: wiki18"):
        fetch("wiki81")


def test_too_little_room_is_told_before_the_download(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = SOURCES["wiki18"]
    both = source.packed_bytes + source.unpacked_bytes + fetch_module._SPARE_BYTES
    set_free(monkeypatch, lambda _path: both - 1)
    with pytest.raises(CorpusError, match=f"needs about {both:,} bytes in {tmp_path}/into; {both - 1:,} are free"):
        fetch("wiki18", tmp_path / "into", progress=False)
    assert not hub.calls
    hub.cached = True  # then only the unpacked file counts
    assert fetch("wiki18", tmp_path / "into", progress=False).exists()


def test_a_disk_that_fills_up_meanwhile_is_told(hub: FakeHub, tmp_path: Path) -> None:
    hub.failure = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(CorpusError, match="no room for wiki18 in") as caught:
        fetch("wiki18", tmp_path / "into", progress=False)
    assert not isinstance(caught.value, SourceUnavailable)


def cut_short(data: bytes) -> bytes:
    return data[:-20]


def other_content(data: bytes) -> bytes:
    return b"<html>" + data


def broken_inside(data: bytes) -> bytes:
    return data[:50] + bytes(9) + data[59:]


@pytest.mark.parametrize("damage", [cut_short, other_content, broken_inside])
def test_a_damaged_download_is_told_and_leaves_no_corpus(
    hub: FakeHub, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    hub.packed.write_bytes(damage(hub.packed.read_bytes()))
    with pytest.raises(CorpusInvalid, match=r"blob\.gz is damaged .*fetch again"):
        fetch("wiki18", tmp_path / "into", progress=False)
    assert [path.name for path in (tmp_path / "into").iterdir()] == [".wiki-18.jsonl.lock"]


def test_an_interrupted_unpacking_starts_over(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.cached = True

    def interrupt(_handle: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as inner:
        inner.setattr(fetch_module.os, "fsync", interrupt)
        with pytest.raises(KeyboardInterrupt):
            fetch("wiki18", tmp_path / "into", progress=False)
    assert [path.name for path in (tmp_path / "into").iterdir()] == [".wiki-18.jsonl.lock"]
    assert fetch("wiki18", tmp_path / "into", progress=False).read_bytes() == CONTENT
