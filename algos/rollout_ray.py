"""Episodes on the hosts of a Ray cluster, for one trajectory set that the caller writes.

Each worker is an actor with an environment and a policy of its own, in which `parallel` episodes are under way as in
`algos.rollout_many`: an episode goes on as soon as its command has returned. The driver hands out jobs one by one, so a
slow host gets fewer, and takes the records as they come. A worker that is lost is started again; its episodes count as
failed by the infrastructure and are played again within the same budget.
"""

from __future__ import annotations

import importlib
from collections import deque
from typing import TYPE_CHECKING, Any

from algos.rollout_commands import Commands
from algos.rollout_many import StopWhenAllFail, check_bounds
from algos.rollout_play import aplay, failed
from grepseek_env.env import GrepSeekEnv
from grepseek_env.errors import ConfigError, EngineFault, GrepSeekError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import gymnasium

    from algos.rollout_play import Job
    from grepseek_env.episode import Rules
    from grepseek_env.trajectory import Trajectory
    from policies.base import Policy

    AnyEnv = gymnasium.Env[Any, Any] | Callable[[], gymnasium.Env[Any, Any]]
    OnDone = Callable[[Job, Trajectory], None]

__all__ = ["play_on_ray"]

_RESTARTS = 16


def play_on_ray(
    env: AnyEnv,
    rules: Rules,
    policy: Policy,
    jobs: Iterable[Job],
    on_done: OnDone,
    *,
    workers: int | None = None,
    parallel: int = 1,
    retries: int = 1,
    timing: bool = False,
) -> None:
    """Plays episodes on a cluster and hands over each record as its episode ends, in this thread.

    Args:
        env: an environment, or better a function that makes one; it is sent to each worker, as is `policy`.
        rules: of the episodes.
        policy: who plays; forks of it do.
        jobs: the episodes, read as they are needed.
        on_done: called with one record at a time.
        workers: how many; None: one for every node of the cluster that has cores.
        parallel: episodes under way at a time in each worker.
        retries: how often an episode that the infrastructure failed is played again.
        timing: see `algos.rollout_play.play`.

    Raises:
        ConfigError: an option cannot work, Ray is not installed, or there is no cluster to be joined.
        EngineFault: many episodes in a row failed, or workers cannot be started.
        GrepSeekError: an error that is no failure of one episode.
    """
    check_bounds(parallel=parallel, retries=retries)
    if workers is not None and workers < 1:
        raise ConfigError(f"workers is {workers}; it must be at least 1, or None for one a node")
    ray = _joined()
    count = workers or max(1, sum(bool(node["Alive"] and node["Resources"].get("CPU")) for node in ray.nodes()))
    checked = StopWhenAllFail(on_done, limit=max(16, 4 * parallel * count))
    remote = ray.remote(_Worker).options(
        num_cpus=1,
        max_concurrency=parallel,
        max_restarts=_RESTARTS,
        max_task_retries=0,
        scheduling_strategy="SPREAD",
    )
    try:
        sent = ray.put((env, policy))
    except TypeError as error:
        raise ConfigError(
            f"the environment or the policy cannot be sent to workers ({error}): pass a function that makes the "
            "environment, and a policy whose model is behind a server"
        ) from error
    actors = [remote.remote(sent, parallel, timing) for _ in range(count)]

    def lost(job: Job, error: EngineFault) -> None:
        checked(job, failed(rules, policy, job, error))

    try:
        _Driver(ray, actors, jobs, checked, lost, parallel, retries).drive()
    finally:
        for actor in actors:
            ray.kill(actor)


def _joined() -> Any:
    try:
        ray = importlib.import_module("ray")  # an optional package, and a heavy one
    except ImportError as error:
        raise ConfigError(f"Ray cannot be imported ({error}): pip install 'grepseek-env[ray]'") from error
    if not ray.is_initialized():
        try:
            ray.init(address="auto", log_to_driver=False)
        except (ConnectionError, RuntimeError) as error:
            raise ConfigError(
                f"no Ray cluster is running here ({error}): call ray.init(), or `ray start --head`"
            ) from error
    return ray


class _Driver:
    """Hands out jobs and takes records."""

    def __init__(
        self,
        ray: Any,
        actors: list[Any],
        jobs: Iterable[Job],
        on_done: OnDone,
        on_lost: Callable[[Job, EngineFault], None],
        parallel: int,
        retries: int,
    ) -> None:
        self._ray, self._actors, self._on_done, self._on_lost = ray, actors, on_done, on_lost
        self._jobs = iter(jobs)
        self._again: deque[tuple[Job, int]] = deque()  # with the retries left
        self._retries = retries
        self._free = deque(list(range(len(actors))) * parallel)
        self._flying: dict[Any, tuple[int, Job, int]] = {}

    def drive(self) -> None:
        """Plays all jobs."""
        self._start()
        while self._flying:
            done, _ = self._ray.wait(list(self._flying), num_returns=1)
            for ref in done:
                worker, job, left = self._flying.pop(ref)
                self._free.append(worker)
                self._take(ref, job, left)
            self._start()

    def _start(self) -> None:
        while self._free and (following := self._next()) is not None:
            worker, (job, left) = self._free.popleft(), following
            self._flying[self._actors[worker].play.remote(job)] = worker, job, left

    def _next(self) -> tuple[Job, int] | None:
        if self._again:
            return self._again.popleft()
        job = next(self._jobs, None)
        return None if job is None else (job, self._retries)

    def _take(self, ref: Any, job: Job, left: int) -> None:
        try:
            played = self._ray.get(ref)
        except self._ray.exceptions.RayActorError as error:
            if not left:
                self._on_lost(job, EngineFault(f"the worker that played this was lost: {error}"))
                return
            self._again.append((job, left - 1))
            return
        if isinstance(played, GrepSeekError):
            raise played
        if played.reward_valid or not left:
            self._on_done(job, played)
        else:
            self._again.append((job, left - 1))


class _Worker:
    """An environment and a policy on some host; an asyncio actor, whose calls run side by side."""

    def __init__(self, sent: tuple[AnyEnv, Policy], parallel: int, timing: bool) -> None:  # noqa: FBT001 - sent by Ray
        env, policy = sent
        made = env() if callable(env) else env
        own = made.unwrapped
        assert isinstance(own, GrepSeekEnv)  # noqa: S101 - the driver has looked
        self._env, self._policy, self._parallel, self._timing = own, policy, parallel, timing
        self._idle: list[Policy] = []
        self._commands: Commands | None = None

    async def play(self, job: Job) -> Trajectory | GrepSeekError:
        """Plays one episode."""
        if self._commands is None:
            self._commands = Commands(self._env.backend, self._parallel)
        policy = self._idle.pop() if self._idle else self._policy.fork()
        try:
            record = await aplay(self._env.rules, policy, job, self._commands.run, timing=self._timing)
        except GrepSeekError as error:
            return error
        self._idle.append(policy)
        return record
