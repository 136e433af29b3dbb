"""The programs are found by several threads of a fresh process at once, as where parts of a corpus are opened."""

from __future__ import annotations

import subprocess
import sys

_FRESH = """
import sysconfig, time
from concurrent.futures import ThreadPoolExecutor

def slowly(vars, was=getattr(sysconfig, "_init_posix")):
    time.sleep(0.2)
    was(vars)

sysconfig._init_posix = slowly
from grepseek_env.engine.programs import open_programs

with ThreadPoolExecutor(8) as pool:
    print(len({found.folder for found in pool.map(lambda _: open_programs(), range(8))}))
"""


def test_half_filled_paths_of_python_ended_with_a_traceback() -> None:
    done = subprocess.run([sys.executable, "-c", _FRESH], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1\n"
