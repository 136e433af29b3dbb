"""Many episodes at once: continuous batching over one backend.

`parallel` episodes are under way. Each goes on by itself: when its command has returned its policy is asked at once,
and when it has ended the next episode takes its place, so nobody waits for the slowest. Policies with a batching model
have all turns that wait answered together (see `policies.chat`).
"""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import TYPE_CHECKING

from algos.rollout_commands import Commands, run_command
from algos.rollout_play import aplay, play
from grepseek_env.errors import ConfigError, EngineFault
from policies.chat import run_async

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from algos.rollout_play import Job
    from grepseek_env.env import GrepSeekEnv
    from grepseek_env.trajectory import Trajectory
    from policies.base import Policy

    OnDone = Callable[[Job, Trajectory], None]

__all__ = ["StopWhenAllFail", "check_bounds", "play_many"]

_LEAST_STREAK = 16
_PATIENCE = 30.0


def play_many(
    env: GrepSeekEnv,
    policy: Policy,
    jobs: Iterable[Job],
    on_done: OnDone,
    *,
    parallel: int = 1,
    retries: int = 1,
    timing: bool = False,
) -> None:
    """Plays episodes, `parallel` at a time, and hands over each record as its episode ends.

    With `parallel=1` everything happens in this thread and the policy itself plays; otherwise forks of it play.

    Args:
        env: its rules and its backend are used; its own episode is left alone.
        policy: who plays.
        jobs: the episodes, read as they are needed.
        on_done: called with one record at a time, in the order in which episodes end.
        parallel: episodes under way at a time.
        retries: how often an episode that the infrastructure failed is played again.
        timing: see `algos.rollout_play.play`.

    Raises:
        ConfigError: `parallel` or `retries` cannot work.
        EngineFault: many episodes in a row failed, so that going on makes no sense.
        GrepSeekError: an error that is no failure of one episode, such as an option that cannot work.
    """
    check_bounds(parallel=parallel, retries=retries)
    checked = StopWhenAllFail(on_done, limit=max(_LEAST_STREAK, 4 * parallel))
    if parallel == 1:
        for job in jobs:
            for left in range(retries, -1, -1):
                record = play(env.rules, policy, job, partial(run_command, env.backend), timing=timing)
                if record.reward_valid or not left:
                    checked(job, record)
                    break
        return
    _in_loop(_Crew(env, policy, jobs, checked, parallel=parallel, retries=retries, timing=timing))


def check_bounds(*, parallel: int, retries: int) -> None:
    """Makes sure that two options of `play_many` can work.

    Raises:
        ConfigError: one cannot.
    """
    if parallel < 1:
        raise ConfigError(f"parallel is {parallel}; it must be at least 1")
    if retries < 0:
        raise ConfigError(f"retries is {retries}; it must be 0 or more")


class StopWhenAllFail:
    """Passes records on, and raises once so many in a row have failed that all will.

    Args:
        on_done: gets the records.
        limit: how many in a row.
    """

    def __init__(self, on_done: OnDone, limit: int) -> None:
        self._on_done = on_done
        self._limit = limit
        self._failed = 0

    def __call__(self, job: Job, record: Trajectory) -> None:
        """Takes an episode's record.

        Raises:
            EngineFault: too many in a row have failed.
        """
        self._on_done(job, record)
        self._failed = 0 if record.reward_valid else self._failed + 1
        if self._failed >= self._limit:
            raise EngineFault(
                f"the last {self._failed} episodes all failed, the newest with {record.error}; "
                "put that right and run the same again: what is complete is kept"
            )


class _Crew:
    """Workers of one event loop, each with a fork of the policy, and the commands they wait for."""

    def __init__(
        self,
        env: GrepSeekEnv,
        policy: Policy,
        jobs: Iterable[Job],
        on_done: OnDone,
        *,
        parallel: int,
        retries: int,
        timing: bool,
    ) -> None:
        self._env = env
        self._policy = policy
        self._jobs = iter(jobs)
        self._on_done = on_done
        self._parallel = parallel
        self._retries = retries
        self._timing = timing
        self.ended = threading.Event()

    async def work(self) -> None:
        """Plays all jobs.

        A worker's error, or cancelling, ends the other workers and the commands that run.
        """
        commands = Commands(self._env.backend, self._parallel)
        workers = [asyncio.ensure_future(self._worker(commands)) for _ in range(self._parallel)]
        whole = False
        try:
            await asyncio.gather(*workers)
            whole = True
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            commands.close(cancel=not whole)
            self.ended.set()

    async def _worker(self, commands: Commands) -> None:
        policy = self._policy.fork()
        for job in self._jobs:
            for left in range(self._retries, -1, -1):
                record = await aplay(self._env.rules, policy, job, commands.run, timing=self._timing)
                if record.reward_valid or not left:
                    self._on_done(job, record)
                    break


def _in_loop(crew: _Crew) -> None:
    try:
        run_async(crew.work())
    except BaseException:  # Ctrl-C: the caller closes files that workers may write, so they have to end first
        crew.ended.wait(_PATIENCE)
        raise
