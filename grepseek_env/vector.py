"""`GrepSeekVectorEnv`: many episodes in step over one backend, without worker processes.

    envs = gymnasium.make_vec("GrepSeek-v0", num_envs=64)

All commands of a step are run together, as many at a time as there are cores; nothing is copied between processes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from grepseek_env.env import GrepSeekEnv
from grepseek_env.episode import Pending
from grepseek_env.errors import ConfigError, EpisodeError, GrepSeekError

if TYPE_CHECKING:
    from grepseek_env.env import Step
    from grepseek_env.types import CommandResult

__all__ = ["GrepSeekVectorEnv"]

Observations: TypeAlias = tuple[str, ...]


class GrepSeekVectorEnv(VectorEnv[Observations, Sequence[str], NDArray[Any]]):
    """`num_envs` GrepSeek environments in step; `gymnasium.make_vec("GrepSeek-v0", num_envs=N)` makes one.

    Each sub-environment plays episode for episode what a single `GrepSeekEnv` plays. Actions are a sequence of N
    texts, observations a tuple of N texts, rewards and end flags arrays of shape (N,); info follows Gymnasium's vector
    convention: a value an environment, and beside each key a boolean mask under ``_key``.

    Args:
        num_envs: how many.
        autoreset_mode: when an environment whose episode has ended starts the next one. "NextStep": in the following
            step, which ignores its action. "SameStep": in the step itself; info then holds `final_obs` and
            `final_info`. "Disabled": when `reset` is called with ``options={"reset_mask": MASK}``.
        disjoint: deal the questions out, so that no two sub-environments ask the same: number i then plays what
            ``GrepSeekEnv(shard=(i, N), ...)`` plays. Where there are fewer questions than sub-environments, some have
            the same one. False gives all questions to each, as Gymnasium's own vector environments do.
        max_episode_steps: what a spec may inject; an episode's turns are bounded by `max_turns`.
        options: every other keyword of `GrepSeekEnv`. `timing` adds the seconds of all commands of the step.

    Raises:
        ConfigError: an option has a value that cannot work.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 - gymnasium's way
        **GrepSeekEnv.metadata,
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    def __init__(
        self,
        num_envs: int = 1,
        *,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        disjoint: bool = True,
        max_episode_steps: int | None = None,
        **options: Any,
    ) -> None:
        if type(num_envs) is not int or num_envs < 1:
            raise ConfigError(f"num_envs is {num_envs!r}; it must be a whole number of at least 1")
        self.autoreset_mode = _mode(autoreset_mode)
        self.num_envs = num_envs
        self._first = GrepSeekEnv(**options)  # never plays: it owns what the others share
        if max_episode_steps is not None and max_episode_steps < self._first.rules.config.max_turns:
            self._first.close()
            raise ConfigError(f"max_episode_steps is {max_episode_steps}; bound turns with max_turns instead")
        deal = num_envs if disjoint else 1
        self.envs = [self._first.sibling(i if disjoint else 0, deal) for i in range(num_envs)]
        self.backend = self._first.backend
        self.question_set = self._first.question_set
        self.render_mode = self._first.render_mode
        self.metadata = {**self.metadata, "autoreset_mode": self.autoreset_mode}
        self.single_observation_space = self._first.observation_space
        self.single_action_space = self._first.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._observations: list[str] = [""] * num_envs
        self._ended = np.ones(num_envs, dtype=np.bool_)
        self._started = False

    @property
    def system_prompt(self) -> str:
        """The system message for a policy."""
        return self._first.system_prompt

    @property
    def np_random_seed(self) -> tuple[int | None, ...]:  # type: ignore[override]
        """The seeds of the sub-environments."""
        return tuple(env.np_random_seed for env in self.envs)

    @property  # type: ignore[misc]  # gymnasium's own vector environments cannot be given generators either
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """The random generators of the sub-environments."""
        return tuple(env.np_random for env in self.envs)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Starts an episode in every sub-environment, or in those of a mask.

        Args:
            seed: restarts the order of questions: an integer gives sub-environment i the seed + i; a sequence has one
                for each, None to go on.
            options: ``reset_mask``, a boolean array of shape (N,), resets only where it is true; ``question_id``
                asks this question everywhere, or, as a list, one in each sub-environment (None: the next in its
                order).

        Returns:
            All current observations, and the info of those that were reset.

        Raises:
            ConfigError: seeds, mask or questions do not fit the number of environments, an unknown option, or no
                question has the id.
            EpisodeError: a mask leaves out environments that have never been reset.
        """
        seeds = self._per_env("seed", [seed + i for i in range(self.num_envs)] if isinstance(seed, int) else seed)
        if options is not None and not isinstance(options, Mapping):
            raise ConfigError(f"reset options are {options!r}; they must be a dict such as {{'question_id': ID}}")
        left = dict(options or {})
        mask = self._mask(left.pop("reset_mask", None))
        wanted = self._per_env("question_id", left.pop("question_id", None))
        for question_id in wanted:
            if question_id is not None:  # all are looked up before the first episode is given up
                self.question_set.by_id(question_id)
        if not self._started and not mask.all():
            raise EpisodeError("some environments have never been reset; call reset() without a reset_mask first")
        infos: dict[str, Any] = {}
        for i in np.flatnonzero(mask).tolist():
            asked = left if wanted[i] is None else {**left, "question_id": wanted[i]}
            self._observations[i], info = self.envs[i].reset(seed=seeds[i], options=asked)
            self._ended[i] = False
            infos = self._add_info(infos, info, i)
        self._started = True
        return tuple(self._observations), infos

    def _per_env(self, name: str, value: Any) -> list[Any]:
        if isinstance(value, (list, tuple, np.ndarray)):
            if len(value) != self.num_envs:
                raise ConfigError(f"{name} has {len(value)} values for {self.num_envs} environments; give one for each")
            return list(value)
        return [value] * self.num_envs

    def _mask(self, mask: Any) -> NDArray[np.bool_]:
        if mask is None:
            return np.ones(self.num_envs, dtype=np.bool_)
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != (self.num_envs,):
            raise ConfigError(f"reset_mask is {mask!r:.200}; it must be a boolean array of shape ({self.num_envs},)")
        if not mask.any():
            raise ConfigError("reset_mask is false everywhere; name at least one environment to reset")
        return mask

    def step(
        self, actions: Sequence[str]
    ) -> tuple[Observations, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Plays one policy turn in every sub-environment.

        Args:
            actions: N texts; the one of an environment that starts its next episode in this step is ignored.

        Returns:
            Observations, rewards, terminated, truncated, info.

        Raises:
            EpisodeError: before `reset()`, or with autoreset off for an environment whose episode has ended.
            ConfigError: there are not N actions, or one is no text.
        """
        acting = self._acting(actions)
        steps: list[Step] = []
        pending: list[tuple[int, Pending]] = []
        for i, (env, action) in enumerate(zip(self.envs, actions, strict=True)):
            if not acting[i]:
                observation, info = env.reset()
                steps.append((observation, 0.0, False, False, info))
                continue
            began = env.begin_step(action)
            if isinstance(began, Pending):
                pending.append((i, began))
                steps.append(("", 0.0, False, False, {}))  # its place, until the command has returned
            else:
                steps.append(began)
        start = time.perf_counter()
        results = self._run([each for _, each in pending])
        seconds = time.perf_counter() - start
        for (i, _), result in zip(pending, results, strict=True):
            steps[i] = self.envs[i].end_step(result, seconds)
        return self._batched(steps)

    def _acting(self, actions: Sequence[str]) -> list[bool]:
        """Returns who acts; everything that can be wrong with a call is found here, before any episode has gone on."""
        if not self._started:
            raise EpisodeError("no episodes yet; call reset() first")
        if isinstance(actions, str) or len(actions) != self.num_envs:
            raise ConfigError(f"actions are {actions!r:.80}; they must be {self.num_envs} texts, one an environment")
        acting: list[bool] = (~self._ended).tolist()
        if self.autoreset_mode is AutoresetMode.DISABLED and not all(acting):
            ended = np.flatnonzero(self._ended).tolist()
            raise EpisodeError(
                f"the episodes of environments {ended} have ended; call reset(options={{'reset_mask': MASK}}) with a "
                "boolean array that is true for them"
            )
        for i, action in enumerate(actions):
            if acting[i] and not isinstance(action, str):
                raise ConfigError(f"an action is text; environment {i} got {type(action).__name__}: {action!r:.80}")
        return acting

    def _run(self, pending: Sequence[Pending]) -> list[CommandResult | GrepSeekError]:
        """Runs all commands together, in one call for each pair of bounds; usually there is only one pair."""
        results: list[CommandResult | GrepSeekError] = [GrepSeekError()] * len(pending)
        groups: dict[tuple[float, int], list[int]] = {}
        for place, each in enumerate(pending):
            groups.setdefault((each.timeout, each.max_output_bytes), []).append(place)
        for (timeout, most), places in groups.items():
            commands = [pending[place].command for place in places]
            try:
                done = self.backend.run_many(commands, timeout=timeout, max_output_bytes=most)
            except GrepSeekError as error:
                done = [error] * len(places)
            for place, result in zip(places, done, strict=True):
                results[place] = result
        return results

    def _batched(
        self, steps: Sequence[Step]
    ) -> tuple[Observations, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        infos: dict[str, Any] = {}
        same_step = self.autoreset_mode is AutoresetMode.SAME_STEP
        for i, (seen, _, terminated, truncated, told) in enumerate(steps):
            observation, info = seen, told
            if same_step and (terminated or truncated):
                infos = self._add_info(infos, {"final_obs": observation, "final_info": info}, i)
                observation, info = self.envs[i].reset()
            self._observations[i] = observation
            infos = self._add_info(infos, info, i)
        terminations = np.fromiter((step[2] for step in steps), np.bool_, self.num_envs)
        truncations = np.fromiter((step[3] for step in steps), np.bool_, self.num_envs)
        if not same_step:
            self._ended = terminations | truncations
        rewards = np.fromiter((step[1] for step in steps), np.float64, self.num_envs)
        return tuple(self._observations), rewards, terminations, truncations, infos

    def render(self) -> tuple[str | None, ...]:  # type: ignore[override]  # gymnasium has no None within
        """Returns the transcripts in mode "ansi"; in mode "human" they have been printed already."""
        return tuple(env.render() for env in self.envs)

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Calls a method of every sub-environment, or reads an attribute.

        Raises:
            AttributeError: they have none of this name.
        """
        values = [env.get_wrapper_attr(name) for env in self.envs]
        return tuple(value(*args, **kwargs) if callable(value) else value for value in values)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Returns an attribute of every sub-environment.

        Raises:
            AttributeError: they have none of this name.
        """
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Sets an attribute of every sub-environment: a list or tuple has one value for each, anything else is for all.

        Raises:
            ConfigError: there are not N values.
        """
        for env, value in zip(self.envs, self._per_env(name, values), strict=True):
            env.set_wrapper_attr(name, value)

    def close_extras(self, **_kwargs: Any) -> None:
        """Frees what the environments share."""
        self._first.close()


def _mode(mode: object) -> AutoresetMode:
    try:
        return AutoresetMode(mode)
    except ValueError:
        known = ", ".join(repr(each.value) for each in AutoresetMode)
        raise ConfigError(f"autoreset_mode is {mode!r}; it must be one of {known}") from None
