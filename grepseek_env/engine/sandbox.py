"""What a program of a command is given: its folder, environment, limits, and a session of its own.

`Sandbox.start` is the only place where a command's program is started. The command language is the first wall (it
never lets a program write, execute or open another file), this is the second: no terminal, no inherited environment,
nothing but /dev/null to read from, resource limits.
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from grepseek_env.config import Limits
from grepseek_env.errors import ConfigError, SpawnFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from grepseek_env.engine.programs import Programs

__all__ = ["LIMITS_ENFORCED", "LOCALES", "Sandbox"]

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


@dataclass(frozen=True, slots=True)
class Sandbox:
    """Starts programs of one backend's commands.

    Attributes:
        programs: what can be started.
        view: the working folder, with the corpus in it.
        limits: what each program may use.
        locale: LC_ALL; "C" or "C.UTF-8".
    """

    programs: Programs
    view: Path
    limits: Limits = field(default_factory=Limits)
    locale: str = "C"

    def __post_init__(self) -> None:
        if self.locale not in LOCALES:
            raise ConfigError(f"locale is {self.locale!r}; it must be one of {', '.join(map(repr, LOCALES))}")

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
            temp = tempfile.mkdtemp(prefix="grepseek-sort-")
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
    ) -> subprocess.Popen[bytes]:
        """Starts one program in a session of its own, so that its process id names its group too.

        The limits are set right after the start, so a program's first instructions run without. It gets the
        descriptors in `inherited` under their own numbers.

        Raises:
            SpawnFailed: the program is not there or the operating system refuses.
        """
        if (path := self.programs.paths.get(argv[0])) is None:
            raise SpawnFailed(f"{argv[0]!r} is none of the programs: {', '.join(self.programs.paths)}")
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ()) & _NEVER_BLOCKED
        if blocked:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked)
        try:
            process = subprocess.Popen(
                [word.encode() for word in argv],  # UTF-8 like the corpus, whatever the locale of this process
                executable=path,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                cwd=self.view,
                env=environment,
                start_new_session=True,
                pass_fds=inherited,
            )
        except (OSError, ValueError) as error:  # ValueError: a NUL, which no checked command has
            raise SpawnFailed(self._why(argv[0], path, error)) from error
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
            raise SpawnFailed(f"{argv[0]} was stopped: its limits could not be set: {error}") from error
        return process

    def _why(self, name: str, path: str, error: Exception) -> str:
        if not self.view.is_dir():
            return f"{name} was not started: the corpus view {self.view} is gone; build the corpus again"
        if not self.programs.folder.is_dir():
            return f"{name} was not started: the program folder {self.programs.folder} is gone; open the backend again"
        return f"{name} was not started ({path}): {error}"


def _within(kind: int, soft: int, hard: int) -> tuple[int, int]:
    """Lowers a wish to what this process itself may have, since only root may give more."""
    _, most = resource.getrlimit(kind)
    return (soft, hard) if most == resource.RLIM_INFINITY else (min(soft, most), min(hard, most))
