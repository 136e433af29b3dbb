import os
import stat
from pathlib import Path

import pytest

from grepseek_env import paths
from grepseek_env.errors import ConfigError


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"GREPSEEK_CACHE": "/a/b", "XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/a/b"),
        ({"XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/x/grepseek-env"),
        ({"GREPSEEK_CACHE": "", "XDG_CACHE_HOME": "", "HOME": "/h"}, "/h/.cache/grepseek-env"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, "/h/.cache/grepseek-env"),
    ],
)
def test_cache_dir_takes_the_first_that_is_set(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, str], expected: str
) -> None:
    for name in ("GREPSEEK_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    assert paths.cache_dir() == Path(expected)


def test_a_relative_cache_is_pinned_to_the_current_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GREPSEEK_CACHE", "mine")
    assert paths.cache_dir() == tmp_path / "mine"


def test_no_home_at_all_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("GREPSEEK_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nowhere)
    with pytest.raises(ConfigError, match="set GREPSEEK_CACHE"):
        paths.cache_dir()


def test_atomic_write_replaces_the_whole_file(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_bytes(b"old and longer")
    paths.atomic_write(target, "né")
    assert target.read_bytes() == "né".encode()
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_atomic_write_leaves_the_old_file_and_no_remains_when_the_block_fails(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_bytes(b"old")

    def interrupted() -> None:
        with paths.atomic_file(target) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert target.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_atomic_write_replaces_a_link_and_spares_what_it_points_to(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"precious")
    (tmp_path / "file").symlink_to("other")
    paths.atomic_write(tmp_path / "file", b"new")
    assert (tmp_path / "other").read_bytes() == b"precious"
    assert not (tmp_path / "file").is_symlink()


def test_atomic_write_keeps_to_the_umask_and_the_mode(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        paths.atomic_write(tmp_path / "default", b"")
        paths.atomic_write(tmp_path / "private", b"", mode=0o600)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "default").stat().st_mode) == 0o644
    assert stat.S_IMODE((tmp_path / "private").stat().st_mode) == 0o600
