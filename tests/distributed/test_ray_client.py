"""A corpus in parts on a cluster that is reached through Ray's client server, from a process of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.odd_corpora import ordinary
from tests.support.parting import Parted
from tests.support.slicing import even_cuts

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.ray

_CLIENT = """
import sys
from grepseek_env.distributed.open import open_parts
with open_parts(sys.argv[1], memory=0) as backend:
    for command in sys.argv[2:]:
        result = backend.run(command)
        print(result.exit_code, result.stdout)
"""


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@pytest.fixture
def address() -> Iterator[str]:
    ports = [_free_port() for _ in range(2)]
    os.environ["RAY_AUTH_MODE"] = "token"
    with tempfile.TemporaryDirectory(prefix="ray") as folder:  # a short name: sockets have to fit
        head = subprocess.Popen(
            [Path(sys.executable).with_name("ray"), "start", "--head", "--block", f"--port={ports[0]}",
             f"--ray-client-server-port={ports[1]}", "--min-worker-port=20002", "--max-worker-port=29999",
             "--num-cpus=2", "--include-dashboard=false", f"--temp-dir={folder}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": "."},
            start_new_session=True,
        )  # fmt: skip
        try:
            for _ in range(720):  # the first start after an installation compiles Ray's modules
                with socket.socket() as s:
                    if s.connect_ex((socket.gethostbyname(socket.gethostname()), ports[1])) == 0:
                        break
                assert head.poll() is None, f"ray start ended with {head.returncode}"
                time.sleep(0.25)
            else:
                pytest.fail("the cluster's client server did not come up within three minutes")
            yield f"ray://127.0.0.1:{ports[1]}"
        finally:
            head.send_signal(signal.SIGTERM)
            head.wait(timeout=60)
            del os.environ["RAY_AUTH_MODE"]


def test_through_the_client_server(address: str, tmp_path: Path) -> None:
    data = ordinary(120)
    corpus = Parted(tmp_path, data, even_cuts(data, 2))
    commands = [
        "wc corpus.jsonl",
        "grep -n Ulm corpus.jsonl | tail -n 2",
        "sort -r corpus.jsonl | head -n 1",
        "rg 'bad('",
    ]
    done = subprocess.run(
        [sys.executable, "-c", _CLIENT, f"{address}{corpus.manifest}", *commands],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    wanted = [corpus.wanted(command) for command in commands]
    assert done.stdout.splitlines() == [f"{each.exit_code} {each.stdout}" for each in wanted]
