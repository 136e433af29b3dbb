"""`GrepSeekEnv`: the Gymnasium environment. Wiring only; the rules are in `episode.py`."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import gymnasium

from grepseek_env.backend import open_backend
from grepseek_env.config import EnvConfig, Limits, RewardConfig, from_dict
from grepseek_env.episode import Episode, Pending, Rules
from grepseek_env.errors import ConfigError, EpisodeError, GrepSeekError
from grepseek_env.observation import load_tokenizer
from grepseek_env.render import render_trajectory, use_color
from grepseek_env.spaces import FreeText
from grepseek_env.tasks import load_question_set
from grepseek_env.types import SearchBackend

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from grepseek_env.corpus.store import CorpusStore
    from grepseek_env.engine.sandbox import Confine
    from grepseek_env.episode import Outcome, Result
    from grepseek_env.reward import RewardFunction
    from grepseek_env.tasks import QuestionSet
    from grepseek_env.trajectory import Trajectory
    from grepseek_env.types import CommandResult, Question

    Step = tuple[str, float, bool, bool, dict[str, Any]]

__all__ = ["DEFAULT_CORPUS", "GrepSeekEnv", "QuestionStream", "make_rules"]

DEFAULT_CORPUS = "world:tiny"


def make_rules(
    *,
    action_format: str = "hermes",
    max_turns: int = 6,
    max_observation_tokens: int = 2048,
    max_observation_chars: int = 8192,
    tokenizer: Any = None,
    reward: str | RewardConfig | Mapping[str, Any] | RewardFunction = "default",
    command_timeout: float | None = None,
    limits: Limits | None = None,
    system_prompt: str | None = None,
) -> Rules:
    """Builds an episode's rules from the environment's keywords; see `GrepSeekEnv`.

    Raises:
        ConfigError: an option has a value that cannot work.
    """
    limits = Limits() if limits is None else limits
    if not isinstance(limits, Limits):
        raise ConfigError(f"limits is {limits!r}; it must be a Limits record")
    if command_timeout is not None:
        limits = replace(limits, command_timeout=command_timeout)
    function: RewardFunction | None = None
    match reward:
        case RewardConfig():
            config = reward
        case str():
            config = RewardConfig.preset(reward)
        case dict():
            config = from_dict(RewardConfig, reward)
        case _ if callable(reward):
            config, function = RewardConfig(), reward
        case _:
            raise ConfigError(
                f"reward is {reward!r}; it must be 'default', 'paper', a RewardConfig, a dict or a callable"
            )
    env_config = EnvConfig(
        action_format=action_format,
        max_turns=max_turns,
        max_observation_tokens=max_observation_tokens,
        max_observation_chars=max_observation_chars,
        reward=config,
        limits=limits,
    )
    if system_prompt is not None and not isinstance(system_prompt, str):
        raise ConfigError(f"system_prompt is {system_prompt!r:.80}; it must be text, or None for the package's own")
    return Rules(env_config, load_tokenizer(tokenizer), function, system_prompt)


class QuestionStream:
    """Which question comes next: a fresh random order for every pass, or the file's order.

    The order of a pass is drawn when its first question is needed, from the environment's own generator, so the same
    seed gives the same questions.

    Args:
        questions: all questions.
        shuffle: False takes them in their own order.
        shard: (i, n) asks only every n-th question, from the i-th on, so that n streams never ask the same. Where
            there are fewer than n questions, each stream has one of them.

    Raises:
        ConfigError: `shard` is no such pair.
    """

    def __init__(self, questions: QuestionSet, *, shuffle: bool, shard: tuple[int, int] = (0, 1)) -> None:
        match shard:
            case (int(index), int(count)) if 0 <= index < count:
                self._places = range(index % len(questions), len(questions), count)
            case _:
                raise ConfigError(f"shard is {shard!r}; it must be a pair (i, n) with 0 <= i < n")
        self.questions = questions
        self.shuffle = shuffle
        self._order: list[int] = []

    def restart(self) -> None:
        """Forgets the rest of the current pass."""
        self._order = []

    def next(self, rng: Any) -> Question:
        """Returns the next question, drawing a new order with `rng` at the start of a pass."""
        if not self._order:
            count = len(self._places)
            self._order = rng.permutation(count)[::-1].tolist() if self.shuffle else list(range(count))[::-1]
        return self.questions[self._places[self._order.pop()]]


class GrepSeekEnv(gymnasium.Env[str, str]):
    """Answer a question by searching a text corpus with shell commands.

    The action is one policy turn as text: a command or the final answer, written in `action_format`. The observation
    is the question at first, then the clipped output of each command. The reward is 0 until the answer.

    Args:
        corpus: a JSONL or text file, a folder, a `CorpusStore`, or a name such as ``"world:tiny"`` or ``"wiki18"``.
        questions: a FlashRAG JSONL file, a list of dicts or `Question` records, or a name such as ``"world:tiny"`` or
            ``"nq"``. Default: the corpus's own questions where it is a generated world.
        split: "train" or "test" of a named set.
        action_format: "hermes" (the paper's transcript) or "plain" (the whole text is the command; ``answer: ...``
            ends).
        max_turns: policy turns, the answer included (the paper: 6). A command in the last turn is not run.
        max_observation_tokens: cap on tool output in tokens, where `tokenizer` is given (the paper: 2,048).
        max_observation_chars: cap on tool output in characters, where no tokenizer is given.
        tokenizer: a transformers or tokenizers object, or a name or folder for `AutoTokenizer`.
        reward: "default" (F1 + 0.1 x format), "paper" (F1 if the format is valid, else 0), a `RewardConfig`, a dict
            of its fields, or a callable ``(answer, golden_answers, format_valid) -> float``.
        mode: how commands are executed; never what they return. See `open_backend`.
        slices: how many slices of the corpus a command may work on side by side; None: as many as there are cores.
        sandbox: what the operating system keeps programs from: "auto", "require" or "off". See `open_backend`.
        backend: a `SearchBackend` to use in place of `corpus` and `mode`; it is not closed with the environment.
        command_timeout: seconds a command may run (default 60).
        limits: all limits of a command.
        system_prompt: text of the system message in place of the package's own; {turns}, {programs}, {cap} and
            {instructions} in it are filled in. See docs/prompts.md.
        shuffle: draw questions in random order; False takes them in the file's order.
        shard: (i, n) asks only every n-th question, from the i-th on: n such environments never ask the same.
        timing: add `command_seconds` to info. Off by default, so that the same seed gives the same info.
        render_mode: None, "ansi" (`render()` returns the transcript) or "human" (it is printed as it grows, in
            colour on a terminal).

    `reset(options={"question_id": ID})` chooses the question. Info holds `question_id`, `turn`, `action`,
    `output_truncated`, `timed_out`, `reward_valid`, where they apply `exit_code`, `refused`, `error`, and at the end
    `finish_reason` and `reward_breakdown`.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "human"], "render_fps": 4}  # noqa: RUF012 - gymnasium's way

    def __init__(
        self,
        *,
        corpus: str | os.PathLike[str] | CorpusStore = DEFAULT_CORPUS,
        questions: str | os.PathLike[str] | Sequence[Mapping[str, Any] | Question] | None = None,
        split: str = "train",
        action_format: str = "hermes",
        max_turns: int = 6,
        max_observation_tokens: int = 2048,
        max_observation_chars: int = 8192,
        tokenizer: Any = None,
        reward: str | RewardConfig | Mapping[str, Any] | RewardFunction = "default",
        mode: str = "auto",
        slices: int | None = None,
        sandbox: Confine = "auto",
        backend: SearchBackend | None = None,
        command_timeout: float | None = None,
        limits: Limits | None = None,
        system_prompt: str | None = None,
        shuffle: bool = True,
        shard: tuple[int, int] = (0, 1),
        timing: bool = False,
        render_mode: str | None = None,
    ) -> None:
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise ConfigError(f"render_mode is {render_mode!r}; it must be None, 'ansi' or 'human'")
        self.render_mode = render_mode
        self.rules = make_rules(
            action_format=action_format,
            max_turns=max_turns,
            max_observation_tokens=max_observation_tokens,
            max_observation_chars=max_observation_chars,
            tokenizer=tokenizer,
            reward=reward,
            command_timeout=command_timeout,
            limits=limits,
            system_prompt=system_prompt,
        )
        self.question_set = load_question_set(questions, corpus=corpus, split=split)
        self._shuffle, self._shard = shuffle, shard
        self._stream = QuestionStream(self.question_set, shuffle=shuffle, shard=shard)
        if backend is not None and not isinstance(backend, SearchBackend):
            raise ConfigError(f"backend is {backend!r:.200}; it must be a SearchBackend, as open_backend() makes them")
        self._owns_backend = backend is None
        self.backend = (
            open_backend(corpus, mode, limits=self.rules.config.limits, slices=slices, sandbox=sandbox)
            if backend is None
            else backend
        )
        self._timing = timing
        self._episode: Episode | None = None
        self._printed = 0
        self.observation_space = FreeText()
        self.action_space = FreeText()

    def sibling(self, index: int, count: int) -> GrepSeekEnv:
        """Returns an environment with episodes of its own that shares everything else, the backend included.

        It does not close the backend.

        Args:
            index: which of the siblings it is.
            count: siblings among which this environment's questions are dealt out; 1 gives it all of them.
        """
        first, step = self._shard
        other = copy.copy(self)
        other._shard = first + step * index, step * count  # noqa: SLF001 - its own class
        other._stream = QuestionStream(self.question_set, shuffle=self._shuffle, shard=other._shard)  # noqa: SLF001
        other._owns_backend = False  # noqa: SLF001
        other._episode, other._printed = None, 0  # noqa: SLF001
        other._np_random = other._np_random_seed = None  # noqa: SLF001
        other.observation_space, other.action_space = FreeText(), FreeText()
        return other

    @property
    def system_prompt(self) -> str:
        """The system message for a policy."""
        return self.rules.system_prompt

    @property
    def episode(self) -> Episode:
        """The current episode.

        Raises:
            EpisodeError: before the first `reset()`.
        """
        if self._episode is None:
            raise EpisodeError("no episode yet; call reset() first")
        return self._episode

    def trajectory(self, metadata: Mapping[str, Any] | None = None) -> Trajectory:
        """Returns the record of the current episode so far."""
        return self.episode.trajectory(metadata)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Starts an episode.

        Args:
            seed: restarts the order of questions.
            options: ``{"question_id": ID}`` asks that question.

        Returns:
            The question as the first observation, and info with its id.

        Raises:
            ConfigError: an unknown option, or no question has the id.
        """
        super().reset(seed=seed)
        if seed is not None:
            self._stream.restart()
        if options is not None and not isinstance(options, Mapping):
            raise ConfigError(f"reset options are {options!r}; they must be a dict such as {{'question_id': ID}}")
        options = dict(options or {})
        wanted = options.pop("question_id", None)
        if options:
            raise ConfigError(f"reset has no option {next(iter(options))!r}; the only one is 'question_id'")
        question = self._stream.next(self.np_random) if wanted is None else self.question_set.by_id(wanted)
        self._episode = Episode(self.rules, question)
        self._printed = 0
        self._show()
        return self._episode.prompt, self._episode.start_info()

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Plays one policy turn.

        Returns:
            Observation, reward, terminated (the policy answered), truncated (turn limit or infrastructure fault),
            info.

        Raises:
            EpisodeError: before `reset()` or after the end.
            ConfigError: the action is no text.
        """
        began = self.begin_step(action)
        if not isinstance(began, Pending):
            return began
        start = time.perf_counter()
        result = self._run(began)
        return self.end_step(result, time.perf_counter() - start)

    def begin_step(self, action: str) -> Step | Pending:
        """Does the first half of `step`, for drivers that run many environments' commands together.

        Returns:
            What `step` returns, or a command that has to be run; its result is due at `end_step`.

        Raises:
            EpisodeError: before `reset()`, after the end, or before the last command's result.
            ConfigError: the action is no text.
        """
        outcome = self.episode.submit(action)
        return outcome if isinstance(outcome, Pending) else self._told(outcome)

    def end_step(self, result: Result, seconds: float) -> Step:
        """Does the second half of `step`.

        Args:
            result: of the command, or the exception that took its place.
            seconds: how long the command took.

        Raises:
            EpisodeError: no command is due.
            GrepSeekError: an exception that is neither the policy's mistake nor an infrastructure fault.
        """
        outcome = self.episode.resume(result)
        if self._timing:
            outcome.info["command_seconds"] = seconds
        return self._told(outcome)

    def _told(self, outcome: Outcome) -> Step:
        self._show()
        return outcome.observation, outcome.reward, outcome.terminated, outcome.truncated, outcome.info

    def _run(self, pending: Pending) -> CommandResult | GrepSeekError:
        try:
            return self.backend.run(pending.command, timeout=pending.timeout, max_output_bytes=pending.max_output_bytes)
        except GrepSeekError as e:
            return e

    def render(self) -> str | None:
        """Returns the transcript so far in mode "ansi"; in mode "human" it has been printed already."""
        if self.render_mode == "ansi":
            return render_trajectory(self.trajectory())
        return None

    def _show(self) -> None:
        if self.render_mode != "human":
            return
        text = render_trajectory(self.trajectory(), color=use_color())
        print(text[self._printed :], end="", flush=True)
        self._printed = len(text)

    def close(self) -> None:
        """Frees what the environment opened; calling it again does nothing."""
        if self._owns_backend:
            self.backend.close()
