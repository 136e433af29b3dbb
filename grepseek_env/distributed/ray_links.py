"""Ray actors as the hosts of parts. Ray itself is imported when it is needed."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import pickle
import time
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from grepseek_env.distributed.hosts import PartHost
from grepseek_env.distributed.links import HostGone
from grepseek_env.errors import ConfigError, EngineFault, PartLost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grepseek_env.distributed.hosts import HostOptions
    from grepseek_env.distributed.links import Link
    from grepseek_env.distributed.parts import PartFile, PartsManifest

__all__ = ["RayConnect", "connect", "loss_errors", "need_ray"]

_CONTROL = "control"  # a group of calls that do not wait behind commands
_OWN_BYTES = 512 << 20  # of an actor, beside its part
_RESTARTS = 16
_PATIENCE = 60.0  # seconds that a lost host has to come back
_TRIES = 3  # to reach a client server: it forks while its own threads use gRPC, and now and then the child dies of it
_CHILD_DIED = "Starting Ray client server failed"


def need_ray() -> Any:
    """Imports Ray.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        ray = importlib.import_module("ray")  # an optional package, and a heavy one
    except ImportError as error:
        raise ConfigError(f"Ray cannot be imported ({error}): pip install 'grepseek-env[ray]'") from error
    return ray


def connect(address: str = "") -> Any:
    """Joins a cluster, unless this process belongs to one; returns the module `ray`.

    Args:
        address: `HOST:PORT` of a cluster's Ray client server; empty for the cluster of this process, of
            `$RAY_ADDRESS`, or of this machine.

    Raises:
        ConfigError: Ray is not installed, or this process belongs to another cluster.
        EngineFault: there is no cluster there.
    """
    ray = need_ray()
    if ray.is_initialized():
        return ray
    where = f"ray://{address}" if address else os.environ.get("RAY_ADDRESS", "auto")
    for left in range(_TRIES - 1, -1, -1):
        try:
            ray.init(address=where, log_to_driver=False)
        except (ConnectionError, RuntimeError, ValueError) as error:
            if left and _CHILD_DIED in str(error):
                continue
            raise EngineFault(
                f"no Ray cluster can be reached at {where} ({error}): start one with `ray start --head`, or call "
                "ray.init()"
            ) from error
        break
    return ray


def loss_errors(ray: Any) -> tuple[type[Exception], ...]:
    """Returns what a call raises when its actor, the actor's node, or the result there is lost.

    Args:
        ray: the module.
    """
    errors = ray.exceptions
    return errors.RayActorError, errors.ObjectLostError, errors.OutOfMemoryError, errors.NodeDiedError


@dataclass(frozen=True, slots=True)
class RayConnect:
    """Makes the links; can be sent to other processes.

    Attributes:
        address: see `connect`.
        memory: bytes that an actor asks of its node; None: those of its part and half a gigabyte, so that no node gets
            more parts than it can keep in memory. 0 asks for nothing.
    """

    address: str = ""
    memory: int | None = None

    def __call__(self, manifest: PartsManifest, options: HostOptions, at_once: int) -> RayLinks:
        """Starts the actors, or finds those of another backend of this job over the same parts."""
        return RayLinks(manifest.parts, options, at_once, connect(self.address), self.memory)


class RayLinks:
    """The ways to actors.

    Args:
        parts: the files.
        options: how commands are run.
        at_once: commands under way at a time.
        ray: the module.
        memory: see `RayConnect`.
    """

    def __init__(
        self, parts: Sequence[PartFile], options: HostOptions, at_once: int, ray: Any, memory: int | None
    ) -> None:
        self._parts, self._options, self._at_once, self._ray, self._memory = parts, options, at_once, ray, memory
        self._remote = ray.remote(concurrency_groups={_CONTROL: 4})(PartHost)
        self._mine: set[int] = set()
        self._actors = [self._actor(number) for number in range(len(parts))]
        self.where = "in Ray actors"

    def __getitem__(self, number: int) -> Link:
        return _RayLink(number, self._actors[number], self._ray)

    def __len__(self) -> int:
        return len(self._actors)

    def revive(self, number: int) -> None:
        """Waits for Ray to restart an actor, and makes another where it does not."""
        ray, ends = self._ray, time.monotonic() + _PATIENCE
        while (left := ends - time.monotonic()) > 0:
            ping = self._actors[number].ping.options(concurrency_group=_CONTROL)
            try:
                ray.get(ping.remote(), timeout=left)
            except ray.exceptions.ActorUnavailableError:
                time.sleep(0.1)
            except loss_errors(ray):
                time.sleep(0.1)
                self._actors[number] = self._actor(number)
            except ray.exceptions.GetTimeoutError:
                break
            else:
                return
        part = self._parts[number]
        raise PartLost(
            f"the host of part {number} ({part.path}) did not come back in {_PATIENCE:.0f} seconds: is there a node "
            f"{'at ' + part.host if part.host else 'with memory for it'}? See `ray status`"
        )

    def close(self) -> None:
        """Ends the actors that were started here."""
        if not self._ray.is_initialized():
            return
        for number in self._mine:
            self._ray.kill(self._actors[number])

    def _actor(self, number: int) -> Any:
        """Finds the actor of a part, or starts it."""
        part = self._parts[number]
        key = hashlib.sha256(pickle.dumps((str(part.path), part.digest, self._options))).hexdigest()[:16]
        name = f"grepseek-part-{number}-{key}"
        try:
            return self._ray.get_actor(name)
        except ValueError:
            self._mine.add(number)
        asked = self._memory
        if asked is None:
            asked = _OWN_BYTES + (part.path.stat().st_size if part.path.exists() else 0)
        return self._remote.options(
            name=name,
            get_if_exists=True,
            num_cpus=0,  # the actor's own scheduler shares the node's cores out
            memory=asked or None,
            resources={f"node:{part.host}": 0.001} if part.host else None,
            scheduling_strategy="SPREAD",
            max_restarts=_RESTARTS,
            max_task_retries=0,
            max_concurrency=2 * self._at_once,
        ).remote(part, self._options)


class _RayLink:
    def __init__(self, number: int, actor: Any, ray: Any) -> None:
        self._number, self._actor, self._ray = number, actor, ray

    def call(self, method: str, *arguments: Any) -> Future[Any]:
        answer: Future[Any] = Future()

        def told(done: Future[Any]) -> None:
            error = done.exception()
            if error is None:
                answer.set_result(done.result())
            elif isinstance(error, loss_errors(self._ray)):
                answer.set_exception(HostGone(self._number, str(error)))
            elif isinstance(error, self._ray.exceptions.RayError):
                answer.set_exception(EngineFault(f"the host of part {self._number} failed: {error}"))
            else:
                answer.set_exception(error)

        try:
            getattr(self._actor, method).remote(*arguments).future().add_done_callback(told)
        except self._ray.exceptions.RayActorError as error:
            answer.set_exception(HostGone(self._number, str(error)))
        return answer

    def tell(self, method: str, *arguments: Any) -> None:
        if self._ray.is_initialized():
            with contextlib.suppress(self._ray.exceptions.RayActorError):  # what it was to end has ended
                getattr(self._actor, method).options(concurrency_group=_CONTROL).remote(*arguments)
