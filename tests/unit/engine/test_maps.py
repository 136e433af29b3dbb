from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.support.processes import linux_only

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = linux_only

CODE = """
import mmap, sys, threading
import numpy as np
from grepseek_env.engine import maps
with open(sys.argv[1], "r+b") as file:
    file.write(b"x" * (8 * mmap.PAGESIZE))
    file.flush()
    mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    other = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    maps.protect(mapped)
    file.truncate(3 * mmap.PAGESIZE)
if "other" in sys.argv:
    other[-1]
found = []
def read():
    found.append((mapped.find(b"\\0"), mapped[-1], int(np.frombuffer(mapped, np.uint8).sum(dtype=np.int64))))
threads = [threading.Thread(target=read) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
read()
assert len(set(found)) == 1, found
assert found[0] == (3 * mmap.PAGESIZE, 0, 3 * mmap.PAGESIZE * ord("x")), found
del mapped
assert not maps._MAPS
print("alive")
"""


def run(file: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", CODE, str(file), *args], capture_output=True, text=True, check=False)


def test_a_file_that_becomes_shorter_reads_as_zeros(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    done = run(file)
    assert (done.stdout, done.stderr, done.returncode) == ("alive\n", "", 0)


def test_other_maps_are_none_of_its_business(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert run(file, "other").returncode == -signal.SIGBUS
