"""What the rollouts of one process share: rules, the renderer of turns, and a backend that is off the event loop."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from grepseek_env.backend import open_backend, open_corpus
from grepseek_env.daemon.address import default_socket
from grepseek_env.daemon.find import find_daemon
from grepseek_env.env import make_rules
from grepseek_env.errors import CommandRefused, ConfigError, EngineFault
from grepseek_env.paths import cache_dir, file_lock
from grepseek_env.tokens import ChatTokens
from grepseek_env.trajectory import TrajectoryWriter

if TYPE_CHECKING:
    from grepseek_env.adapters.options import AgentOptions
    from grepseek_env.engine.sandbox import Confine
    from grepseek_env.episode import Pending, Result
    from grepseek_env.trajectory import Trajectory
    from grepseek_env.types import SearchBackend

__all__ = ["Host", "ensure_daemon", "template_text"]

_FIRST_WAIT = 0.5  # seconds; the waits double
# The daemon ends when its starter is gone, however that ended: its standard input is a pipe that nobody writes to.
_DAEMON = """
import os, signal, sys, threading
sys.path[:] = {path!r}
def watch():
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)
threading.Thread(target=watch, daemon=True).start()
from grepseek_env.cli import main
sys.exit(main(["serve", "--corpus", {corpus!r}, "--sandbox", {sandbox!r}]))
"""


def template_text(chat_template: str) -> str | None:
    """Returns the text of a template that is named as in `AgentOptions.chat_template`.

    Raises:
        ConfigError: there is no such file.
    """
    if chat_template in {"", "chatml"}:
        return chat_template or None
    return _text(chat_template, "chat template")


def _text(path: str, what: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as e:
        raise ConfigError(f"the {what} cannot be read: {e}; give the path of a file on this host") from e


def ensure_daemon(corpus: str, sandbox: Confine = "auto") -> subprocess.Popen[str] | None:
    """Starts the daemon of a corpus on this host, unless one is there.

    Any number of processes may ask at once; one of them starts it. It ends with that process, and whoever still needs
    it then asks again. One that is there is left as it is, whatever its sandbox: who opens it says what is wanted.

    Args:
        corpus: path or name.
        sandbox: of a daemon that is started here; see `open_backend`.

    Returns:
        The daemon that was started here, None where one was there.

    Raises:
        EngineFault: it does not start; what it said is in the message.
    """
    with open_corpus(corpus) as store:
        digest = store.digest
    socket = default_socket(digest).path
    with file_lock(cache_dir() / f"daemon-{digest[:16]}.lock"):
        try:
            found = find_daemon(digest, address=socket)
        except EngineFault:
            found = None
        if found is not None:
            found.close()
            return None
        log = cache_dir() / f"daemon-{digest[:16]}.log"
        with log.open("w", encoding="utf-8") as errors:
            process = subprocess.Popen(
                [sys.executable, "-c", _DAEMON.format(path=sys.path, corpus=corpus, sandbox=sandbox)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,  # Ctrl-C is for the trainer, which may still have commands to run
            )
        line = process.stdout.readline() if process.stdout is not None else ""
        if not line.startswith("serving"):
            with process:  # closes its pipes and waits for it
                process.kill()
            said = log.read_text(encoding="utf-8", errors="replace").strip()[-2000:]
            raise EngineFault(f"no daemon could be started for {corpus}: {said or 'it said nothing'}")
        return process


class Host:
    """What the rollouts of one process share.

    Args:
        options: how they are played.
        tokenizer: the model's, of transformers.

    Raises:
        ConfigError: an option cannot be used, or the chat template cannot be rendered turn by turn.
    """

    def __init__(self, options: AgentOptions, tokenizer: Any) -> None:
        self.options = options
        self.rules = make_rules(
            action_format=options.action_format,
            max_turns=options.max_turns,
            max_observation_tokens=options.max_observation_tokens,
            tokenizer=tokenizer,
            reward=options.reward,
            command_timeout=options.command_timeout,
            system_prompt=_text(options.system_prompt, "system prompt") if options.system_prompt else None,
        )
        self.role = self.rules.action_format.tool_role
        self.tokens = ChatTokens(tokenizer, chat_template=template_text(options.chat_template), roles=(self.role,))
        self._pool = ThreadPoolExecutor(options.threads, thread_name_prefix="grepseek-command")
        self._lock = threading.Lock()
        self._backend: SearchBackend | None = None
        self._daemon: subprocess.Popen[str] | None = None
        self._writer: TrajectoryWriter | None = None

    async def run(self, pending: Pending) -> Result:
        """Runs a command in a thread, so that the other rollouts of this event loop go on."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._run, pending)

    def record(self, trajectory: Trajectory) -> None:
        """Keeps a trajectory, if that was asked for."""
        if not self.options.record:
            return
        with self._lock:
            if self._writer is None:
                folder = Path(self.options.record)
                folder.mkdir(parents=True, exist_ok=True)
                self._writer = TrajectoryWriter(folder / f"trajectories-{os.uname().nodename}-{os.getpid()}.jsonl")
            self._writer.write(trajectory)

    def close(self) -> None:
        """Closes the backend, and stops the daemon if this process started it; again does nothing."""
        self._pool.shutdown()
        with self._lock:
            if self._backend is not None:
                self._backend.close()
            if self._writer is not None:
                self._writer.close()
            self._end_daemon()
            self._backend, self._writer = None, None

    def _run(self, pending: Pending) -> Result:
        wait = _FIRST_WAIT
        for left in range(self.options.fault_retries, -1, -1):
            backend: SearchBackend | None = None
            try:
                backend = self._opened()
                return backend.run(pending.command, timeout=pending.timeout, max_output_bytes=pending.max_output_bytes)
            except CommandRefused as refused:
                return refused
            except EngineFault as fault:
                if not left:
                    return fault
                self._drop(backend)
            time.sleep(wait)
            wait *= 2
        raise AssertionError("the last try returns")  # pragma: no cover - for the type checker

    def _opened(self) -> SearchBackend:
        with self._lock:
            if self._backend is None:
                o = self.options
                confine = cast("Confine", o.sandbox)  # the options have checked it
                if o.daemon == "start":
                    started = ensure_daemon(o.corpus, confine)
                    if started is not None:
                        self._end_daemon()
                        self._daemon = started
                where = {"start": True, "find": None, "off": False}.get(o.daemon, o.daemon)
                self._backend = open_backend(o.corpus, daemon=where, limits=self.rules.config.limits, sandbox=confine)
            return self._backend

    def _end_daemon(self) -> None:
        if self._daemon is not None:
            with self._daemon:  # closes its standard input, which ends it, and waits
                self._daemon = None

    def _drop(self, backend: SearchBackend | None) -> None:
        """Has the next command open the backend anew: its daemon may be gone for good."""
        with self._lock:
            if backend is not None and self._backend is backend:
                backend.close()
                self._backend = None
