"""The daemon that rollouts share, and their options."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from grepseek_env.adapters.host import ensure_daemon
from grepseek_env.adapters.options import AgentOptions
from grepseek_env.backend import open_backend, open_corpus
from grepseek_env.daemon.client import DaemonClient
from grepseek_env.engine.sandbox import CONFINE
from grepseek_env.errors import ConfigError, EngineFault
from tests.support.arena import needs
from tests.support.daemons import eventually
from tests.support.processes import linux_only

if TYPE_CHECKING:
    from grepseek_env.engine.sandbox import Confine

LINES = '{"id": "0", "contents": "\\"A\\"\\nUlm"}\n{"id": "1", "contents": "\\"B\\"\\nBonn"}\n'


def test_options_travel_through_the_environment() -> None:
    options = AgentOptions(corpus="wiki18", turn_tokens=9, command_timeout=1.5, sandbox="require")
    assert AgentOptions.from_environ(options.to_environ()) == options
    assert AgentOptions().to_environ() == {}
    with pytest.raises(ConfigError, match="did you mean 'GREPSEEK_AGENT_CORPUS'"):
        AgentOptions.from_environ({"GREPSEEK_AGENT_CORPS": "x"})
    with pytest.raises(ConfigError, match="must be a whole number"):
        AgentOptions.from_environ({"GREPSEEK_AGENT_MAX_TURNS": "six"})
    with pytest.raises(ConfigError, match="sandbox is 'on'; it must be one of 'auto'"):
        AgentOptions.from_environ({"GREPSEEK_AGENT_SANDBOX": "on"})
    with pytest.raises(ConfigError, match="at least 1"):
        AgentOptions.from_environ({"GREPSEEK_AGENT_THREADS": "0"})


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GREPSEEK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    path = tmp_path / "corpus.jsonl"
    path.write_text(LINES, encoding="utf-8")
    open_corpus(path).close()
    return path


@linux_only
@pytest.mark.parametrize("sandbox", CONFINE)
def test_the_daemon_has_the_sandbox_that_was_asked_for(corpus: Path, sandbox: Confine) -> None:
    needs()
    started = ensure_daemon(str(corpus), sandbox)
    assert started is not None
    with started, open_backend(corpus, daemon=True, sandbox=sandbox) as client:
        assert isinstance(client, DaemonClient)
        assert client.sandbox == sandbox


@pytest.mark.slow
def test_one_daemon_a_host_and_it_ends_with_its_starter(corpus: Path) -> None:
    code = f"""
import sys
from grepseek_env.adapters.host import ensure_daemon
process = ensure_daemon({str(corpus)!r})
print(process.pid, flush=True)
sys.stdin.read()
"""
    starter = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert starter.stdout is not None
    try:
        assert int(starter.stdout.readline())
        assert ensure_daemon(str(corpus)) is None  # it is there
        with pytest.raises(ConfigError, match="sandbox 'auto', not 'require'"):
            open_backend(corpus, daemon=True, sandbox="require")
        with open_backend(corpus, daemon=True) as client:
            assert isinstance(client, DaemonClient)
            assert client.run("rg -c Ulm corpus.jsonl").stdout == b"1\n"
            socket = Path(client.address)
    finally:
        os.kill(starter.pid, signal.SIGKILL)  # as Ray ends its actors: nothing can be tidied up
        starter.wait()
        starter.stdout.close()
        assert starter.stdin is not None
        starter.stdin.close()
    eventually(lambda: not socket.exists(), "the daemon has ended")


@pytest.mark.slow
def test_a_daemon_that_does_not_start_says_why(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grepseek_env.adapters.host._DAEMON", "import sys; sys.exit('out of luck {path!r:.0}')")
    with pytest.raises(EngineFault, match="out of luck"):
        ensure_daemon(str(corpus))
