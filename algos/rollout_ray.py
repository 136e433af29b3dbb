"""Episodes on the hosts of a Ray cluster, for one trajectory set that the caller writes.

Each worker is an actor with an environment and a policy of its own, in which `parallel` episodes are under way as in
`algos.rollout_many`: an episode goes on as soon as its command has returned. The driver hands out jobs one by one, so a
slow host gets fewer, and takes the records as they come. A worker gets jobs once it has opened its environment; one
that cannot be placed yet gets none. A worker that is lost is replaced; its episodes count as failed by the
infrastructure and are played again within the same budget.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from algos.rollout_commands import Commands
from algos.rollout_many import StopWhenAllFail, check_bounds
from algos.rollout_play import aplay, failed
from grepseek_env.distributed.ray_links import connect, loss_errors
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

_LOSSES = 16  # of one worker, after which something is wrong with it
_PATIENCE = 120.0  # seconds that a cluster has to place a worker while there is none
_TICK = 0.25


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
        ConfigError: an option cannot work, or Ray is not installed.
        EngineFault: there is no cluster, no worker can be started, one is lost again and again, or many episodes in a
            row failed.
        GrepSeekError: an error that is no failure of one episode, such as an environment that a worker cannot open.
    """
    check_bounds(parallel=parallel, retries=retries)
    if workers is not None and workers < 1:
        raise ConfigError(f"workers is {workers}; it must be at least 1, or None for one a node")
    ray = connect()
    count = workers or max(1, sum(bool(node["Alive"] and node["Resources"].get("CPU")) for node in ray.nodes()))
    checked = StopWhenAllFail(on_done, limit=max(16, 4 * parallel * count))
    remote = ray.remote(_Worker).options(num_cpus=1, max_concurrency=parallel + 1, scheduling_strategy="SPREAD")
    try:
        sent = ray.put((env, policy))
    except TypeError as error:
        raise ConfigError(
            f"the environment or the policy cannot be sent to workers ({error}): pass a function that makes the "
            "environment, and a policy whose model is behind a server"
        ) from error

    def start() -> Any:
        return remote.remote(sent, parallel, timing)

    def lost(job: Job, error: EngineFault) -> None:
        checked(job, failed(rules, policy, job, error))

    driver = _Driver(ray, start, jobs, checked, lost, parallel, retries)
    try:
        driver.drive(count)
    finally:
        driver.close()


@dataclass(slots=True, eq=False)
class _Place:
    """A worker's place; whoever is lost in it is replaced.

    Attributes:
        actor: who fills it.
        placed: the actor runs somewhere.
        ready: it has opened its environment.
        busy: episodes under way there.
        losses: how many were lost.
    """

    actor: Any
    placed: bool = False
    ready: bool = False
    busy: int = 0
    losses: int = 0


class _Driver:
    """Hands out jobs and takes records.

    Args:
        ray: the module.
        start: starts a worker.
        jobs: the episodes.
        on_done: gets records.
        on_lost: gets jobs whose last try ended with their worker.
        parallel: episodes a worker.
        retries: tries that an episode has beside its first.
    """

    def __init__(
        self,
        ray: Any,
        start: Callable[[], Any],
        jobs: Iterable[Job],
        on_done: OnDone,
        on_lost: Callable[[Job, EngineFault], None],
        parallel: int,
        retries: int,
    ) -> None:
        self._ray, self._hire, self._on_done, self._on_lost = ray, start, on_done, on_lost
        self._jobs = iter(jobs)
        self._parallel, self._retries = parallel, retries
        self._losses = loss_errors(ray)
        self._places: list[_Place] = []
        self._next: deque[tuple[Job, int]] = deque()  # with the retries left
        self._flying: dict[Any, tuple[_Place, Any, Job, int]] = {}
        self._asked: dict[Any, tuple[_Place, Any]] = {}  # who was asked to open its environment, or whether it runs

    def drive(self, workers: int) -> None:
        """Plays all jobs."""
        if not self._more():
            return
        for _ in range(workers):
            self._places.append(_Place(self._hire()))
            self._ask(self._places[-1])
        ends = time.monotonic() + _PATIENCE
        while self._more():
            self._hand_out()
            all_ready = all(place.ready for place in self._places)
            refs = [*self._flying, *self._asked]
            for ref in self._ray.wait(refs, num_returns=1, timeout=None if all_ready else _TICK)[0]:
                if ref in self._asked:
                    self._answered(ref, *self._asked.pop(ref))
                else:
                    self._take(ref, *self._flying.pop(ref))
            if any(place.placed for place in self._places):
                ends = time.monotonic() + _PATIENCE
            elif time.monotonic() > ends:
                raise EngineFault(
                    f"the cluster has placed no worker in {_PATIENCE:.0f} seconds; each needs a free core: see "
                    "`ray status`"
                )

    def close(self) -> None:
        """Ends the workers."""
        for place in self._places:
            self._ray.kill(place.actor)

    def _more(self) -> bool:
        """Returns whether anything is left to be played; the next job lies ready then."""
        if not self._next and (job := next(self._jobs, None)) is not None:
            self._next.append((job, self._retries))
        return bool(self._next or self._flying)

    def _hand_out(self) -> None:
        while free := [place for place in self._places if place.ready and place.busy < self._parallel]:
            if not self._more() or not self._next:
                return
            place = min(free, key=lambda each: each.busy)
            job, left = self._next.popleft()
            place.busy += 1
            self._flying[place.actor.play.remote(job)] = place, place.actor, job, left

    def _ask(self, place: _Place) -> None:
        method = place.actor.open if place.placed else place.actor.ping
        self._asked[method.remote()] = place, place.actor

    def _answered(self, ref: Any, place: _Place, actor: Any) -> None:
        try:
            error = self._ray.get(ref)
        except self._losses as gone:
            if not place.losses and not place.ready:
                raise EngineFault(f"a worker cannot be started: {gone}") from gone
            self._replace(place, actor, gone)
            return
        if error is not None:
            raise error
        if place.placed:
            place.ready = True
        else:
            place.placed = True
            self._ask(place)

    def _take(self, ref: Any, place: _Place, actor: Any, job: Job, left: int) -> None:
        if place.actor is actor:
            place.busy -= 1
        try:
            played = self._ray.get(ref)
        except self._losses as gone:
            self._replace(place, actor, gone)
            if left:
                self._next.append((job, left - 1))
            else:
                self._on_lost(job, EngineFault(f"the worker that played this was lost: {gone}"))
            return
        if isinstance(played, GrepSeekError):
            raise played
        if played.reward_valid or not left:
            self._on_done(job, played)
        else:
            self._next.append((job, left - 1))

    def _replace(self, place: _Place, actor: Any, why: Exception) -> None:
        if place.actor is not actor:
            return  # another of its episodes has told
        place.losses += 1
        if place.losses > _LOSSES:
            raise EngineFault(f"a worker was lost {place.losses} times, the last time with: {why}") from why
        self._ray.kill(actor)  # one that only cannot be reached
        place.actor, place.placed, place.ready, place.busy = self._hire(), False, False, 0
        self._ask(place)


class _Worker:
    """An environment and a policy on some host; an asyncio actor, whose calls run side by side."""

    def __init__(self, sent: tuple[AnyEnv, Policy], parallel: int, timing: bool) -> None:  # noqa: FBT001 - sent by Ray
        self._made, self._policy = sent
        self._parallel, self._timing = parallel, timing
        self._idle: list[Policy] = []
        self._env: GrepSeekEnv | None = None
        self._commands: Commands | None = None

    async def ping(self) -> None:
        """Returns as soon as the worker runs."""

    async def open(self) -> GrepSeekError | None:
        """Opens the environment; returns what is wrong with it."""
        try:
            own = (self._made() if callable(self._made) else self._made).unwrapped
        except GrepSeekError as error:
            return error
        assert isinstance(own, GrepSeekEnv)  # noqa: S101 - the driver has looked
        self._env, self._commands = own, Commands(own.backend, self._parallel)
        return None

    async def play(self, job: Job) -> Trajectory | GrepSeekError:
        """Plays one episode."""
        assert self._env is not None  # noqa: S101 - opened before
        assert self._commands is not None  # noqa: S101 - the same
        policy = self._idle.pop() if self._idle else self._policy.fork()
        try:
            record = await aplay(self._env.rules, policy, job, self._commands.run, timing=self._timing)
        except GrepSeekError as error:
            return error
        self._idle.append(policy)
        return record
