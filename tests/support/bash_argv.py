"""What bash makes of commands: the arguments of every stage, asked of bash itself, many commands a process."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

from grepseek_env.commands import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Argv = tuple[tuple[str, ...], ...]
BASH = shutil.which("bash") or "bash"

# Each program is a function that passes on what it reads and adds its own arguments, so that the output of a pipeline
# lists the stages in order. Words that are no programs of ours run nothing: PATH is empty.
SCRIPT = r"""
dump() { local x; while IFS= read -r -d '' x; do printf '%s\0' "$x"; done; printf '%s\0' "$#" "$@"; }
@FUNCTIONS@
while IFS= read -r -d '' command <&3; do
  eval "$command" </dev/null 2>/dev/null
  printf 'END\0%s\0' "$?"
done
"""


def bash_argv(commands: Sequence[str], folder: Path) -> list[Argv | None]:
    """Returns for each command the arguments of its stages as bash passes them, or None where bash rejects it.

    Args:
        commands: texts without NUL.
        folder: where `corpus.jsonl` lies, and nothing else.
    """
    functions = "\n".join(f'{name}() {{ dump {name} "$@"; }}' for name in COMMANDS)
    read_end = folder.parent / "commands.nul"
    read_end.write_bytes(b"".join(command.encode() + b"\0" for command in commands))
    with read_end.open("rb") as source:
        done = subprocess.run(
            [BASH, "--noprofile", "--norc", "-c", f"exec 3<&0; {SCRIPT.replace('@FUNCTIONS@', functions)}"],
            stdin=source,
            capture_output=True,
            cwd=folder,
            env={"PATH": "/nonexistent", "LC_ALL": "C", "HOME": "/nonexistent"},
            timeout=120,
            check=True,
        )
    fields = done.stdout.split(b"\0")[:-1]
    results: list[Argv | None] = []
    at = 0
    while at < len(fields):
        stages: list[tuple[str, ...]] = []
        while fields[at] != b"END":
            count = int(fields[at])
            stages.append(tuple(field.decode() for field in fields[at + 1 : at + 1 + count]))
            at += 1 + count
        results.append(tuple(stages) if fields[at + 1] == b"0" else None)
        at += 2
    assert len(results) == len(commands)
    return results


def bash_c_argv(command: str, folder: Path, stubs: Path) -> Argv:
    """The same for one command, as `bash -c` runs real programs: stand-ins in `stubs` that list their arguments."""
    done = subprocess.run(
        [BASH, "--noprofile", "--norc", "-c", command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        cwd=folder,
        env={"PATH": str(stubs), "LC_ALL": "C", "HOME": "/nonexistent"},
        timeout=60,
        check=True,
    )
    fields = done.stdout.split(b"\0")[:-1]
    stages: list[tuple[str, ...]] = []
    while fields:
        count = int(fields[0])
        stages.append(tuple(field.decode() for field in fields[1 : 1 + count]))
        fields = fields[1 + count :]
    return tuple(stages)


def make_stubs(folder: Path) -> Path:
    """Fills a folder with a stand-in for each program."""
    folder.mkdir()
    for name in COMMANDS:
        path = folder / name
        path.write_text(
            f"#!{BASH}\nwhile IFS= read -r -d '' x; do printf '%s\\0' \"$x\"; done\n"
            'printf \'%s\\0\' "$(( $# + 1 ))" "${0##*/}" "$@"\n',
            encoding="ascii",
        )
        path.chmod(0o755)
    return folder
