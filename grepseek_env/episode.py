"""The episode state machine that the environment, vector environments and asynchronous adapters share.

A turn is two halves, so that a driver may run many episodes' commands together:

    submit(text) -> Outcome                     the turn is over (answer, malformed, refused, turn limit), or
                 -> Pending(command, ...)       a command has to be run; give its result to
    resume(result) -> Outcome

No I/O happens here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from grepseek_env.actions import get_action_format
from grepseek_env.config import EnvConfig
from grepseek_env.errors import CommandRefused, ConfigError, CorpusChanged, EngineFault, EpisodeError, GrepSeekError
from grepseek_env.observation import byte_budget, clip, render_result
from grepseek_env.prompts import system_prompt
from grepseek_env.reward import RewardBreakdown, compute_reward
from grepseek_env.trajectory import Trajectory, Turn
from grepseek_env.types import CommandResult, FinalAnswer, MalformedAction, ToolCall

if TYPE_CHECKING:
    from collections.abc import Mapping

    from grepseek_env.actions.formats import ActionFormat
    from grepseek_env.reward import RewardFunction
    from grepseek_env.types import Action, Question

__all__ = ["Episode", "Outcome", "Pending", "Rules"]

_TURN_LIMIT = "[turn limit reached; the command was not run]"
_PENDING = (
    "a command is still running, or was interrupted: call resume() with its result, or reset() to start another episode"
)
_FAULT = "[the environment failed; this episode does not count]"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What `step()` returns: observation, reward, the two end flags and an info dict of its own."""

    observation: str
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Pending:
    """A command that has to be run before the turn can end.

    Attributes:
        command: as the policy wrote it; the backend checks it.
        timeout: seconds.
        max_output_bytes: what the observation can show.
    """

    command: str
    timeout: float
    max_output_bytes: int


Result: TypeAlias = CommandResult | GrepSeekError


@dataclass(frozen=True, slots=True)
class Rules:
    """Everything that stays the same from episode to episode.

    Attributes:
        config: the validated options.
        tokenizer: counts observation tokens; None caps by characters.
        reward_function: scores in place of `config.reward`.
        template: text of the system message in place of the package's own; see `grepseek_env.prompts.system_prompt`.
        action_format: looked up from the config.
        system_prompt: text of the system message.
        max_output_bytes: bytes of output that decide any observation.
    """

    config: EnvConfig = field(default_factory=EnvConfig)
    tokenizer: Any = None
    reward_function: RewardFunction | None = None
    template: str | None = None
    action_format: ActionFormat = field(init=False)
    system_prompt: str = field(init=False)
    max_output_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        c = self.config
        fmt = get_action_format(c.action_format)
        cap = (
            f"{c.max_observation_chars} characters" if self.tokenizer is None else f"{c.max_observation_tokens} tokens"
        )
        prompt = system_prompt(fmt, max_turns=c.max_turns, cap=cap, template=self.template)
        object.__setattr__(self, "action_format", fmt)
        object.__setattr__(self, "system_prompt", prompt)
        object.__setattr__(self, "max_output_bytes", byte_budget(**self._caps()))

    def _caps(self) -> dict[str, Any]:
        if self.tokenizer is None:
            return {"max_chars": self.config.max_observation_chars}
        return {"max_tokens": self.config.max_observation_tokens, "tokenizer": self.tokenizer}

    def observe(self, result: CommandResult) -> tuple[str, bool]:
        """Returns the observation text of a result and whether output was left out."""
        clipped = clip(result.stdout, cut=result.output_truncated, **self._caps())
        text = render_result(result, clipped, timeout=self.config.limits.command_timeout)
        return self.action_format.render_observation(text), clipped.truncated


class Episode:
    """One question from its first observation to the end."""

    def __init__(self, rules: Rules, question: Question) -> None:
        self.rules = rules
        self.question = question
        self.prompt = rules.action_format.render_question(question.question)
        self.turns: list[Turn] = []
        self.actions: list[Action] = []
        self.finish_reason: str | None = None
        self.answer: str | None = None
        self.breakdown: RewardBreakdown | None = None
        self.error: str | None = None
        self._pending: tuple[str, ToolCall] | None = None

    @property
    def done(self) -> bool:
        """Tells whether the episode has ended."""
        return self.finish_reason is not None

    def start_info(self) -> dict[str, Any]:
        """Returns the info dict of `reset()`."""
        return {"question_id": self.question.id, "turn": 0}

    def submit(self, text: str) -> Outcome | Pending:
        """Takes a policy turn.

        Raises:
            EpisodeError: the episode is over, or the result of the last command is still due.
            ConfigError: the action is no text.
        """
        if not isinstance(text, str):
            raise ConfigError(f"an action is text; got {type(text).__name__}: {text!r:.80}")
        if self.done:
            raise EpisodeError(f"the episode has ended ({self.finish_reason}); call reset() before the next step()")
        if self._pending is not None:
            raise EpisodeError(_PENDING)
        action = self.rules.action_format.parse(text)
        self.actions.append(action)
        last = len(self.actions) >= self.rules.config.max_turns
        match action:
            case FinalAnswer(answer=answer):
                return self._finish(Turn(text, "final_answer"), "answer", answer=answer)
            case MalformedAction(message=message):
                observation = self.rules.action_format.render_observation(message)
                turn = Turn(text, "malformed", observation)
                return self._finish(turn, "turn_limit") if last else self._continue(turn)
            case ToolCall(command=command):
                if last:
                    observation = self.rules.action_format.render_observation(_TURN_LIMIT)
                    return self._finish(Turn(text, "tool_call", observation, command), "turn_limit")
                self._pending = (text, action)
                c = self.rules.config
                return Pending(command, c.limits.command_timeout, self.rules.max_output_bytes)

    def resume(self, result: Result) -> Outcome:
        """Ends the turn with the result of its command, or with the exception that took its place.

        Raises:
            EpisodeError: no command is due.
            GrepSeekError: an exception that is neither the policy's mistake nor an infrastructure fault.
        """
        if self._pending is None:
            raise EpisodeError("no command is due; call submit() first")
        (text, call), self._pending = self._pending, None
        match result:
            case CommandResult():
                observation, truncated = self.rules.observe(result)
                return self._continue(
                    Turn(
                        text,
                        "tool_call",
                        observation,
                        call.command,
                        exit_code=result.exit_code,
                        output_truncated=truncated,
                        timed_out=result.timed_out,
                    )
                )
            case CommandRefused():
                observation = self.rules.action_format.render_observation(str(result))
                return self._continue(Turn(text, "tool_call", observation, call.command, refused=result.reason))
            case EngineFault() | CorpusChanged():
                self.error = f"{type(result).__name__}: {result}"
                observation = self.rules.action_format.render_observation(_FAULT)
                return self._finish(Turn(text, "tool_call", observation, call.command), "fault")
            case _:
                raise result

    def stop(self, error: GrepSeekError | None = None) -> Outcome:
        """Ends the episode between two turns.

        Args:
            error: why the policy's infrastructure failed: the episode does not count. None: the policy cannot go on
                (its token budget is used up), which truncates the episode; reward 0, and valid.

        Raises:
            EpisodeError: the episode is over, or the result of the last command is still due.
        """
        if self.done:
            raise EpisodeError(f"the episode has ended ({self.finish_reason}); there is nothing to stop")
        if self._pending is not None:
            raise EpisodeError(_PENDING)
        if error is not None:
            self.error = f"{type(error).__name__}: {error}"
        info = {"question_id": self.question.id, "turn": len(self.turns), "reward_valid": error is None}
        return self._end("budget" if error is None else "fault", "", info)

    def _continue(self, turn: Turn) -> Outcome:
        self.turns.append(turn)
        return Outcome(turn.observation, 0.0, terminated=False, truncated=False, info=self._info(turn))

    def _finish(self, turn: Turn, reason: str, *, answer: str | None = None) -> Outcome:
        self.turns.append(turn)
        return self._end(reason, turn.observation, self._info(turn), answer=answer)

    def _end(self, reason: str, observation: str, info: dict[str, Any], *, answer: str | None = None) -> Outcome:
        self.finish_reason, self.answer = reason, answer
        self.breakdown = compute_reward(
            self.rules.reward_function or self.rules.config.reward,
            answer=answer,
            golden_answers=self.question.golden_answers,
            format_valid=reason == "answer" and self.rules.action_format.format_valid(self.actions),
        )
        reward = 0.0 if reason == "fault" else self.breakdown.reward
        info["finish_reason"] = reason
        info["reward_breakdown"] = self.breakdown.as_info()
        if self.error is not None:
            info["error"] = self.error
        return Outcome(observation, reward, terminated=reason == "answer", truncated=reason != "answer", info=info)

    def _info(self, turn: Turn) -> dict[str, Any]:
        info: dict[str, Any] = {
            "question_id": self.question.id,
            "turn": len(self.turns),
            "action": turn.kind,
            "output_truncated": turn.output_truncated,
            "timed_out": turn.timed_out,
            "reward_valid": self.error is None,
        }
        if turn.exit_code is not None:
            info["exit_code"] = turn.exit_code
        if turn.refused is not None:
            info["refused"] = turn.refused
        return info

    def trajectory(self, metadata: Mapping[str, Any] | None = None) -> Trajectory:
        """Returns the record of what has happened so far; an unfinished episode's finish_reason is "abandoned"."""
        breakdown = self.breakdown
        return Trajectory(
            question_id=self.question.id,
            question=self.question.question,
            golden_answers=self.question.golden_answers,
            action_format=self.rules.config.action_format,
            system_prompt=self.rules.system_prompt,
            prompt=self.prompt,
            turns=tuple(self.turns),
            finish_reason=self.finish_reason or "abandoned",  # type: ignore[arg-type]
            answer=self.answer,
            reward=breakdown.reward if breakdown is not None and self.error is None else 0.0,
            reward_valid=self.error is None,
            breakdown=breakdown.as_info() if breakdown is not None else {},
            error=self.error,
            metadata=dict(metadata or {}),
        )
