"""What bash makes of many commands, asked of one bash: starting it costs more than most commands do."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
from typing import TYPE_CHECKING, NamedTuple

from tests.support.oracle import oracle

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

BASH = shutil.which("bash") or "/bin/bash"
PATIENCE = 20  # seconds for one command; a few drawn patterns take grep for ever
SCRIPT = r"""while IFS= read -r -d '' command <&3; do
  eval "$command" 3<&- </dev/null 2>/dev/null
  printf '\0%s\0%s\0' "$TOKEN" "$?"
done"""


class Printed(NamedTuple):
    stdout: bytes
    exit_code: int


def bash_batch(
    commands: Sequence[str], view: Path, program_dir: Path, *, locale: str = "C", patience: float = PATIENCE
) -> list[Printed | None]:
    """Returns what each command prints and its exit code; None where it takes too long.

    Args:
        commands: none changes the shell itself: each is a pipeline of programs.
        view: where they run.
        program_dir: PATH.
        locale: LC_ALL.
        patience: seconds for one command.
    """
    token = secrets.token_hex(16)
    source = view.parent / "commands.nul"
    source.write_bytes(b"".join(command.encode() + b"\0" for command in commands))
    with source.open("rb") as file:
        process = subprocess.Popen(
            [BASH, "--noprofile", "--norc", "-c", f"exec 3<&0; {SCRIPT}"],
            stdin=file,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=view,
            env={"PATH": str(program_dir), "LC_ALL": locale, "HOME": str(view), "TOKEN": token},
            start_new_session=True,
        )
    with process:
        try:
            stdout, _ = process.communicate(timeout=patience + 0.1 * len(commands))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return [_alone(command, view, program_dir, locale, patience) for command in commands]
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    found: list[Printed | None] = []
    mark = b"\0" + token.encode() + b"\0"
    while stdout:
        printed, _, stdout = stdout.partition(mark)
        code, _, stdout = stdout.partition(b"\0")
        found.append(Printed(printed, int(code)))
    assert len(found) == len(commands)
    return found


def _alone(command: str, view: Path, program_dir: Path, locale: str, patience: float) -> Printed | None:
    try:
        done = oracle(command, view, program_dir, locale=locale, deadline=patience)
    except subprocess.TimeoutExpired:
        return None
    return Printed(done.stdout, done.exit_code)
