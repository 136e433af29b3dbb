"""What a program of a command is given: its folder, environment, limits, and what the operating system forbids it.

`Sandbox.start` is the only place where a command's program is started. The command language is the first wall (it
never lets a program write, execute or open another file), this is the second. Its layers:

- no shell: programs are started with their arguments, nothing is expanded;
- nothing inherited: /dev/null on stdin, PATH, LC_ALL, HOME and a private TMPDIR, three descriptors, a session;
- resource limits, no core files; the size of the output and the run time are bounded where the output is read;
- `sed --sandbox` and `gawk --sandbox`, where these versions have it;
- and, on Linux, a launcher that gave up everything before it starts programs: no new privileges; Landlock (reads the
  corpus, the programs and their libraries, writes nowhere but into sort's temporary folder, no TCP, no signals to
  others); a list of system calls (no sockets, no forks, no other programs); root becomes nobody; a bounded number of
  processes where a control group may be made.

`grepseek doctor` tries them on this machine. Not covered: whether a file exists, its size and its times can be seen
by a program (stat). On macOS there is no launcher, and so no boundary behind the command language but limits.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import math
import os
import resource
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from grepseek_env.config import Limits
from grepseek_env.engine.confine import landlock
from grepseek_env.engine.confine.client import LAUNCHERS
from grepseek_env.engine.confine.launcher import Profile
from grepseek_env.engine.started import Direct
from grepseek_env.errors import ConfigError, LauncherLost, SandboxMissing, SandboxWarning, SpawnFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from grepseek_env.engine.confine.launcher import Launcher
    from grepseek_env.engine.programs import Programs
    from grepseek_env.engine.started import Started

    Confine = Literal["auto", "require", "off"]

__all__ = ["CONFINE", "LIMITS_ENFORCED", "LOCALES", "NEEDED_LAYERS", "Sandbox", "check_confine"]

# "auto" takes what there is and warns once; "require" refuses to start anything without the layers named below.
CONFINE = ("auto", "require", "off")
NEEDED_LAYERS: Mapping[str, str] = {
    "no_new_privs": "setuid programs",
    "landlock": "files outside the corpus",
    "seccomp": "sockets and other programs",
}

# prlimit(2) sets the limits of another process; without it (macOS) only time-outs and output bounds hold.
# Setting them in the child instead needs code between fork and exec, which forces a full fork: 183 ms beside 4 GB.
LIMITS_ENFORCED = hasattr(resource, "prlimit")

LOCALES = ("C", "C.UTF-8")

# Programs that write temporary files; commands without them are spared the folder.
_SPILLING = frozenset({"sort"})

# RLIMIT_CPU adds up a program's threads, and sort, the only one with several here, starts at most eight.
_MOST_THREADS = min(8, os.cpu_count() or 1)

_LONGEST_SECONDS = 1e9  # rlimits are integers; an infinite time-out means as good as none

# A thread may have these blocked, and a started program inherits that: `head` could then not stop those before it.
_NEVER_BLOCKED = frozenset({signal.SIGPIPE, signal.SIGXCPU, signal.SIGXFSZ})

_LINUX = sys.platform.startswith("linux")
_CORPUS = "corpus.jsonl"
# Read by C libraries when a program starts. Everything else of theirs may be missing.
_SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/ld.so.preload", "/dev/null")
_LOCALES = ("/usr/lib/locale", "/usr/lib64/locale", "/usr/share/locale")


def check_confine(value: object) -> None:
    """Checks a `sandbox=` option.

    Raises:
        ConfigError: it is none of `CONFINE`.
    """
    if value not in CONFINE:
        raise ConfigError(f"sandbox is {value!r}; it must be one of {', '.join(map(repr, CONFINE))}")


@dataclass(frozen=True, slots=True)
class Sandbox:
    """Starts programs of one backend's commands.

    Attributes:
        programs: what can be started.
        view: the working folder, with the corpus in it.
        limits: what each program may use.
        locale: LC_ALL; "C" or "C.UTF-8".
        confine: an entry of `CONFINE`.
        folders: other views that commands may be run in, such as those of slices; they share one launcher.
    """

    programs: Programs
    view: Path
    limits: Limits = field(default_factory=Limits)
    locale: str = "C"
    confine: Confine = "auto"
    folders: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        if self.locale not in LOCALES:
            raise ConfigError(f"locale is {self.locale!r}; it must be one of {', '.join(map(repr, LOCALES))}")
        check_confine(self.confine)

    @contextlib.contextmanager
    def environment(self, argvs: Sequence[Sequence[str]]) -> Iterator[dict[str, str]]:
        """Gives the whole environment of a pipeline's programs, and a temporary folder for as long as they need it.

        Raises:
            SpawnFailed: no temporary folder can be made.
        """
        values = {"PATH": str(self.programs.folder), "LC_ALL": self.locale, "HOME": str(self.programs.home)}
        if all(argv[0] not in _SPILLING for argv in argvs):
            yield values
            return
        try:
            temp = self._make_temp()
        except OSError as error:
            raise SpawnFailed(f"no folder for temporary files can be made: {error}; point TMPDIR to one") from error
        try:
            yield {**values, "TMPDIR": temp}
        finally:
            shutil.rmtree(temp, ignore_errors=True)

    def rlimits(self, timeout: float) -> list[tuple[int, tuple[int, int]]]:
        """Returns the resource limits of a program that may run for `timeout` seconds, for `start`."""
        cpu = self.limits.cpu_seconds
        if cpu is None:
            cpu = (math.ceil(min(timeout, _LONGEST_SECONDS)) + 1) * _MOST_THREADS
        wanted = (
            # One more for the hard limit: SIGXCPU first, which says what happened, then SIGKILL.
            (resource.RLIMIT_CPU, cpu, cpu + 1),
            (resource.RLIMIT_AS, self.limits.memory_bytes, self.limits.memory_bytes),
            (resource.RLIMIT_FSIZE, self.limits.temp_file_bytes, self.limits.temp_file_bytes),
            (resource.RLIMIT_NOFILE, self.limits.open_files, self.limits.open_files),
            (resource.RLIMIT_CORE, 0, 0),
        )
        return [(kind, _within(kind, soft, hard)) for kind, soft, hard in wanted] if LIMITS_ENFORCED else []

    def start(
        self,
        argv: Sequence[str],
        *,
        stdin: int,
        stdout: int,
        stderr: int,
        environment: dict[str, str],
        rlimits: Sequence[tuple[int, tuple[int, int]]],
        inherited: Sequence[int] = (),
    ) -> Started:
        """Starts one program in a session of its own, so that its process id names its group too.

        The limits are set right after the start, so a program's first instructions run without. It gets the
        descriptors in `inherited` under their own numbers.

        Raises:
            SpawnFailed: the program is not there or the operating system refuses.
            SandboxMissing: it could not be confined as is required.
        """
        if (path := self.programs.paths.get(argv[0])) is None:
            raise SpawnFailed(f"{argv[0]!r} is none of the programs: {', '.join(self.programs.paths)}")
        # UTF-8 like the corpus, whatever the locale of this process
        words = [word.encode() for word in (argv[0], *self.programs.options.get(argv[0], ()), *argv[1:])]
        try:
            if self.confine != "off" and _LINUX:
                return self._launch(words, (stdin, stdout, stderr), environment, rlimits, inherited)
            if self.confine == "require":
                raise SandboxMissing(_ONLY_LINUX)
            if self.confine == "auto":
                _warn(_ONLY_LINUX)
            return self._start(path, words, (stdin, stdout, stderr), environment, rlimits, inherited)
        except (OSError, ValueError) as error:  # ValueError: a NUL, which no checked command has
            raise SpawnFailed(self._why(argv[0], path, error)) from error

    def report(self) -> Mapping[str, Any]:
        """Returns what confines the programs that cannot make files: layer -> (in force, how).

        Raises:
            SpawnFailed: no launcher can be started.
            SandboxMissing: a layer is missing that is required.
        """
        if self.confine == "off" or not _LINUX:
            if self.confine == "require":
                raise SandboxMissing(_ONLY_LINUX)
            return {}
        return self._launcher(spill=False).report

    def _launch(
        self,
        words: list[bytes],
        handles: tuple[int, int, int],
        environment: dict[str, str],
        rlimits: Sequence[tuple[int, tuple[int, int]]],
        inherited: Sequence[int],
    ) -> Started:
        name = words[0].decode()
        spill = name in _SPILLING
        limits = [(kind, soft, hard) for kind, (soft, hard) in rlimits]
        values = {key.encode(): value.encode() for key, value in environment.items()}
        for attempt in (1, 2):
            launcher = self._launcher(spill=spill)
            for handle in inherited:  # opened by their names in /dev/fd, which asks who made them
                if launcher.report["uid"] not in {os.geteuid(), -1}:
                    os.fchown(handle, launcher.report["uid"], -1)
            try:
                return launcher.spawn(
                    name,
                    words,
                    folder=os.fsencode(self.view),
                    environment=values,
                    limits=limits,
                    handles=handles,
                    inherited=inherited,
                )
            except LauncherLost as lost:
                LAUNCHERS.drop(launcher)
                if attempt == 2 or not lost.untold:  # a program that was started may have written something
                    raise
            except (PermissionError, FileNotFoundError):
                LAUNCHERS.drop(launcher)  # a program was replaced after the launcher had looked at it
                if attempt == 2:
                    raise
        raise AssertionError  # both attempts return or raise

    def _launcher(self, *, spill: bool) -> Launcher:
        """Returns the launcher for this view, another one if the corpus file was replaced since it was made."""
        folders = self.folders if self.view in self.folders else (*self.folders, self.view)
        root = _spill_root() if spill else ""
        # By identity: it holds mappings. The launcher's profile keeps it, so no other can have its number.
        key = (id(self.programs), folders, root)
        file = os.path.join(self.view, _CORPUS)  # noqa: PTH118 - every start of a program
        launcher = LAUNCHERS.get(key, lambda: self._profile(folders, root))
        if launcher.profile.files.get(file) != _identity(file):
            LAUNCHERS.drop(launcher)
            launcher = LAUNCHERS.get(key, lambda: self._profile(folders, root))
        missing = [layer for layer in NEEDED_LAYERS if not launcher.report[layer][0]]
        if missing:
            told = "; ".join(f"{layer} ({NEEDED_LAYERS[layer]}): {launcher.report[layer][1]}" for layer in missing)
            if self.confine == "require":
                raise SandboxMissing(f"programs cannot be confined as sandbox='require' wants: {told}")
            _warn(f"programs run without {told}; run policies you do not trust in a container")
        return launcher

    def _profile(self, folders: tuple[Path, ...], spill: str) -> Profile:
        programs = self.programs
        runs, reads = landlock.EXECUTE | landlock.READ_FILE, landlock.READ_FILE
        converters = {os.path.join(os.path.dirname(each), "gconv") for each in programs.libraries if "/libc." in each}  # noqa: PTH118, PTH120
        rules = [(path, runs) for path in (*map(os.path.realpath, programs.paths.values()), *programs.loaders)]
        rules += [(path, reads) for path in (*_SYSTEM_FILES, *sorted(converters))]
        rules += [(path, reads | landlock.READ_DIR) for path in (*programs.libraries, *_LOCALES)]
        files = [os.path.join(folder, _CORPUS) for folder in folders]  # noqa: PTH118 - strings throughout
        rules += [(str(folder), landlock.READ_DIR) for folder in folders]
        rules += [(file, reads) for file in files]
        if spill:
            rules.append((spill, landlock.SPILL))
        return Profile(
            programs={name: os.fsencode(path) for name, path in programs.paths.items()},
            rules=[(os.fsencode(path), rights) for path, rights in rules],
            reachable=[os.fsencode(path) for path in (*files, *map(str, folders), *programs.libraries)],
            spill=os.fsencode(spill),
            files={file: _identity(file) for file in files},
            source=programs,
        )

    def _make_temp(self) -> str:
        try:
            temp = _spill_root() + os.sep + secrets.token_hex(8)
            Path(temp).mkdir(mode=0o700)
        except FileNotFoundError:  # whoever cleans up temporary files took the folder of an idle process
            _make_spill_root.cache_clear()
            temp = _spill_root() + os.sep + secrets.token_hex(8)
            Path(temp).mkdir(mode=0o700)
        if (user := self._user()) is not None:
            os.chown(temp, user, user)
        return temp

    def _user(self) -> int | None:
        """Returns whom a temporary folder must belong to; None: whoever makes it."""
        if self.confine == "off" or not _LINUX or os.geteuid() != 0:
            return None
        user: int = self._launcher(spill=True).report["uid"]
        return user or None

    def _start(
        self,
        path: str,
        words: list[bytes],
        handles: tuple[int, int, int],
        environment: dict[str, str],
        rlimits: Sequence[tuple[int, tuple[int, int]]],
        inherited: Sequence[int],
    ) -> Started:
        """Starts a program as a child of this process, with nothing but limits."""
        stdin, stdout, stderr = handles
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ()) & _NEVER_BLOCKED
        if blocked:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked)
        try:
            process = subprocess.Popen(
                words,
                executable=path,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                cwd=self.view,
                env=environment,
                start_new_session=True,
                pass_fds=inherited,
            )
        finally:
            if blocked:
                signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
        try:
            with contextlib.suppress(ProcessLookupError):  # it ended and somebody took its exit status
                for kind, values in rlimits:
                    resource.prlimit(process.pid, kind, values)
        except (OSError, ValueError) as error:
            process.kill()
            process.wait()
            raise OSError(f"its limits could not be set: {error}") from error
        return Direct(process)

    def _why(self, name: str, path: str, error: Exception) -> str:
        if not self.view.is_dir():
            return f"{name} was not started: the corpus view {self.view} is gone; build the corpus again"
        if not self.programs.folder.is_dir():
            return f"{name} was not started: the program folder {self.programs.folder} is gone; open the backend again"
        return f"{name} was not started ({path}): {error}"


_ONLY_LINUX = (
    "programs are not confined by the operating system, which can be done on Linux only: the command language and "
    "limits are all there is; run policies you do not trust in a container"
)


@functools.cache
def _warn(text: str) -> None:
    """Warns once a process."""
    warnings.warn(f"{text} (sandbox='off' says that you know)", SandboxWarning, stacklevel=2)


def _spill_root() -> str:
    """Returns the folder in which commands have their temporary folders; it goes with this process."""
    return _make_spill_root(os.getpid(), tempfile.gettempdir())


@functools.cache
def _make_spill_root(owner: int, temp: str) -> str:
    """Makes it, for one process: a fork must not use a folder that its parent removes."""
    folder = tempfile.mkdtemp(prefix="grepseek-spill-", dir=temp)
    Path(folder).chmod(0o711)

    def remove() -> None:
        if os.getpid() == owner:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder


def _identity(file: str) -> tuple[int, int]:
    try:
        status = os.stat(file)  # noqa: PTH116 - every start of a program
    except OSError:
        return 0, 0
    return status.st_dev, status.st_ino


def _within(kind: int, soft: int, hard: int) -> tuple[int, int]:
    """Lowers a wish to what this process itself may have, since only root may give more."""
    _, most = resource.getrlimit(kind)
    return (soft, hard) if most == resource.RLIM_INFINITY else (min(soft, most), min(hard, most))
