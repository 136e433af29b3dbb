"""Who is compared: a way to have many environments, with a mode in which their commands are executed."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv

from grepseek_env.bench.timed import TimedBackend
from grepseek_env.bench.vector.mix import EPISODE
from grepseek_env.config import closest
from grepseek_env.corpus.store import CorpusStore
from grepseek_env.engine.local import MODES, LocalBackend
from grepseek_env.env import GrepSeekEnv
from grepseek_env.errors import ConfigError
from grepseek_env.vector import GrepSeekVectorEnv

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["DEFAULT", "Contestant", "Ready", "parse_contestants"]

DEFAULT = "vector:auto,vector:sequential,sync:sequential,async:sequential"

_OPTIONS: dict[str, Any] = {
    "questions": [{"id": str(i), "question": "What is it?", "golden_answers": ["it"]} for i in range(1024)],
    "max_turns": EPISODE + 1,
    # Hundreds of processes may share a few cores, and a time-out would be another answer.
    "command_timeout": 3600.0,
}


@dataclass(frozen=True, slots=True)
class Ready:
    """A contestant's environments.

    Attributes:
        envs: them.
        backend: adds up the time inside commands; None where that is not in this process.
    """

    envs: VectorEnv[Any, Any, Any]
    backend: TimedBackend | None


@dataclass(frozen=True, slots=True)
class Contestant:
    """One way.

    Attributes:
        kind: "vector" (`GrepSeekVectorEnv`), "sync" or "async" (Gymnasium's, each environment with its own backend).
        mode: of the backends.
    """

    kind: str
    mode: str

    @property
    def name(self) -> str:
        """How tables call it."""
        return f"{self.kind}:{self.mode}"

    @property
    def warms_up(self) -> bool:
        """The first command loads what later ones use."""
        return self.mode != "sequential"

    def open(self, store: CorpusStore, num_envs: int) -> contextlib.AbstractContextManager[Ready]:
        """Gives environments that are closed at the end of the block."""
        return _KINDS[self.kind](store, num_envs, self.mode)


@contextlib.contextmanager
def _vector(store: CorpusStore, num_envs: int, mode: str) -> Iterator[Ready]:
    with contextlib.closing(LocalBackend(store, mode=mode)) as local:
        backend = TimedBackend(local)
        yield Ready(GrepSeekVectorEnv(num_envs, backend=backend, disjoint=False, **_OPTIONS), backend)


@contextlib.contextmanager
def _sync(store: CorpusStore, num_envs: int, mode: str) -> Iterator[Ready]:
    with contextlib.ExitStack() as stack:
        backends = [stack.enter_context(contextlib.closing(LocalBackend(store, mode=mode))) for _ in range(num_envs)]
        yield Ready(SyncVectorEnv([partial(GrepSeekEnv, backend=each, **_OPTIONS) for each in backends]), None)


@contextlib.contextmanager
def _async(store: CorpusStore, num_envs: int, mode: str) -> Iterator[Ready]:
    envs = AsyncVectorEnv([partial(_in_worker, store.path, mode)] * num_envs, shared_memory=False)
    whole = False
    try:
        yield Ready(envs, None)
        whole = True
    finally:
        envs.close(terminate=not whole)


def _in_worker(path: Path, mode: str) -> GrepSeekEnv:
    return GrepSeekEnv(backend=LocalBackend(CorpusStore.open(path), mode=mode), **_OPTIONS)


_KINDS: dict[str, Callable[[CorpusStore, int, str], contextlib.AbstractContextManager[Ready]]] = {
    "vector": _vector,
    "sync": _sync,
    "async": _async,
}


def parse_contestants(text: str) -> tuple[Contestant, ...]:
    """Returns the contestants of a list such as ``vector:auto,async:sequential``; an empty one means `DEFAULT`.

    Raises:
        ConfigError: there is no such kind or mode, or one comes twice.
    """
    found = []
    for name in filter(None, (text or DEFAULT).replace(" ", "").split(",")):
        kind, _, mode = name.partition(":")
        for what, given, known in (("kind", kind, list(_KINDS)), ("mode", mode, list(MODES))):
            if given not in known:
                raise ConfigError(
                    f"contestant {name!r}: no {what} {given!r}{closest(given, known)}; there are {', '.join(known)}"
                )
        found.append(Contestant(kind, mode))
    if len(set(found)) < len(found):
        raise ConfigError(f"contestants are {text!r}; name each once")
    return tuple(found)
