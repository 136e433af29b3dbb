"""Tries forbidden acts from inside a sandbox: what an attacker could do who runs code of his own in a program.

Python is started in the place of a program, with everything that confines programs, and tries. What a layer claims is
believed only after that.
"""

from __future__ import annotations

import json
import os
import sys
import sysconfig
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from grepseek_env.engine.executor import execute
from grepseek_env.engine.programs import needed_files, open_programs
from grepseek_env.engine.sandbox import Sandbox

if TYPE_CHECKING:
    from grepseek_env.engine.programs import Programs
    from grepseek_env.types import CommandResult

__all__ = ["ACTS", "Act", "attempt", "python_programs", "try_acts"]

_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Act:
    """Something that must not work.

    Attributes:
        layer: what should prevent it.
        what: in words.
        code: Python that raises unless it works; `canary` is the path of a file outside, `parent` the process id of
            whoever asks.
    """

    layer: str
    what: str
    code: str


ACTS: tuple[Act, ...] = (
    Act("landlock", "read a file outside the corpus folder", "open(canary).read()"),
    Act("landlock", "write a file outside the corpus folder", "open(canary + '.new', 'w').write('x')"),
    Act("landlock", "read what other processes were started with", "open(f'/proc/{parent}/environ', 'rb').read()"),
    Act("seccomp", "write into the corpus", "open('corpus.jsonl', 'a').write('x')"),
    Act("seccomp", "change the corpus's mode and times", "os.chmod('corpus.jsonl', 0o777); os.utime('corpus.jsonl')"),
    Act("seccomp", "open a socket", "import socket; socket.socket()"),
    Act("seccomp", "fork", "os.fork() or os._exit(0)"),
    Act("seccomp", "stop another process", "os.kill(parent, 0)"),
    Act("user", "become root", "os.setuid(0); open(canary).read()"),
    Act("seccomp", "start another program", "os.execv('/proc/self/exe', ['python', '-c', 'print(\"done\")'])"),
)


def python_programs() -> Programs:
    """Returns programs with this Python among them, under the name `python`."""
    known = open_programs()
    python = os.path.realpath(sys.executable)
    needed = needed_files([python])
    folders = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), "/lib", "/lib64", "/usr/lib"}
    libdir = sysconfig.get_config_var("LIBDIR")
    return replace(
        known,
        paths={**known.paths, "python": python},
        versions={**known.versions, "python": sys.version.split()[0]},
        libraries=(*known.libraries, *needed["libraries"], *sorted(folders), *([libdir] if libdir else [])),
        loaders=(*known.loaders, *needed["loaders"]),
    )


def attempt(sandbox: Sandbox, code: str, canary: str, *, timeout: float = _SECONDS) -> CommandResult:
    """Runs an act; it worked if its output is `done`.

    Args:
        sandbox: of programs that `python_programs` gave.
        code: see `Act`.
        canary: a file that it may not touch.
        timeout: seconds.
    """
    text = f"import os\ncanary, parent = {canary!r}, {os.getpid()}\n{code}\nprint('done')\n"
    return execute([["python", "-I", "-S", "-c", text]], sandbox, timeout=timeout, max_output_bytes=1 << 20)


def try_acts(programs: Programs | None = None) -> dict[Act, str]:
    """Tries all acts in a folder of their own; returns what came of each: `done`, or why not."""
    with tempfile.TemporaryDirectory(prefix="grepseek-probe-") as temp:
        view = Path(temp) / "view"
        view.mkdir()
        (view / "corpus.jsonl").write_text("{}\n")
        canary = Path(temp) / "canary"
        canary.write_text("secret")
        sandbox = Sandbox(programs or python_programs(), view)
        tried = [act.code for act in ACTS]
        lines = (
            "import json, os, sys",
            f"canary, parent = {str(canary)!r}, {os.getpid()}",
            f"for act in json.loads({json.dumps(tried)!r}):",
            "    try:",
            "        exec(act)",
            "        print('done', flush=True)",
            "    except BaseException as error:",
            "        print(f'{type(error).__name__}: {error}'.splitlines()[0], flush=True)",
        )
        result = execute([["python", "-I", "-S", "-c", "\n".join(lines)]], sandbox, timeout=_SECONDS)
        told = result.stdout.decode("utf-8", "replace").splitlines()
        error = result.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        return {act: told[number] if number < len(told) else error for number, act in enumerate(ACTS)}
