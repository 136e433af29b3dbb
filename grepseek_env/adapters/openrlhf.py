"""Episodes as rollouts of OpenRLHF, for `--train.agent_func_path`.

OpenRLHF's `MultiTurnAgentExecutor.execute` drives an agent; it tokenises what the agent returns as text, appends it to
what was sampled and calls the engine again. Around it, per rollout:

- `_Tokenizer` stands in for the tokenizer: the opening and the feedback are handed over as the token ids of the full
  chat template, in which text of a control token is ordinary text.
- `_Engine` stands in for the engine: it caps a turn, and keeps what was sampled.
- `EpisodeAgent` plays the episode state machine; commands run off the event loop.

A failure of the infrastructure that outlasts all retries ends that rollout alone. It gets the mean reward of the other
rollouts of its group, so that its advantage is 0 and nothing is learnt from it, and `fault` 1 in the logs.
"""

from __future__ import annotations

import asyncio
import copy
import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from grepseek_env.adapters.host import Host
from grepseek_env.adapters.options import AgentOptions
from grepseek_env.episode import Episode, Pending
from grepseek_env.errors import ConfigError, EngineFault
from grepseek_env.tasks.qa import question_from_dict, question_to_dict
from grepseek_env.tokens import TokenContext

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grepseek_env.types import Question

__all__ = ["EpisodeAgent", "executor_class", "label_of", "question_of"]

# What depends on how an episode ended; all of it is left out of the means where a fault ended it.
_SCORES = ("f1", "em", "format")
_NO_MATCH = 1  # exit code of a search that found nothing, which is no failure


def label_of(question: Question) -> str:
    """Returns the label of a row of the prompt dataset: the question with its golden answers, as JSON."""
    record = question_to_dict(replace(question, evidence=(), metadata={}))
    return json.dumps(record, ensure_ascii=False, sort_keys=True)


def question_of(label: str) -> Question:
    """Reads a label.

    Raises:
        ConfigError: the text is no label.
        QuestionsError: the question in it cannot be used.
    """
    try:
        return question_from_dict(json.loads(label), where="the label")
    except json.JSONDecodeError as e:
        raise ConfigError(
            f"the label is {label!r:.80}, not the JSON of a question; make the dataset with "
            "`python -m algos.openrlhf prepare` and pass --data.label_key label"
        ) from e


class EpisodeAgent:
    """One rollout; has the methods of OpenRLHF's `AgentInstanceBase`.

    Args:
        host: what the rollouts of this process share.
        question: what is asked.
        max_length: tokens of the whole rollout.

    Raises:
        ConfigError: the opening leaves no room for a turn.
    """

    def __init__(self, host: Host, question: Question, max_length: int) -> None:
        self.episode = Episode(host.rules, question)
        self.context = TokenContext(host.tokens, role=host.role)
        self._host = host
        self.max_length = max_length
        self._sampled: list[Any] = []
        self._due: list[int] = []
        messages = [
            {"role": "system", "content": host.rules.system_prompt},
            {"role": "user", "content": self.episode.prompt},
        ]
        self.context.start(messages)
        if max_length - len(self.context) < host.options.least_tokens:
            raise ConfigError(
                f"the prompt of question {question.id!r} has {len(self.context)} tokens and --data.max_len is "
                f"{max_length}, which leaves no room for a turn: raise it, or leave such questions out "
                "(`python -m algos.openrlhf prepare` does)"
            )

    @property
    def fault(self) -> str | None:
        """Why the infrastructure failed, None where it did not."""
        return self.episode.error

    def take_ids(self) -> list[int]:
        """Returns the ids of the text that was returned last."""
        ids, self._due = self._due, []
        return ids

    def sampled(self, output: Any) -> None:
        """Takes what the engine returned for the next turn."""
        self._sampled.append(output)

    async def reset(self, states: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Returns the opening of the episode in place of the dataset's prompt."""
        self._due = list(self.context.ids)
        return {**states, "observation": self._text(self._due)}

    async def step(self, states: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Takes a turn of the policy; runs its command."""
        self.context.sampled(self._sampled[-1].token_ids)
        outcome = self.episode.submit(states["action_text"])
        if isinstance(outcome, Pending):
            outcome = self.episode.resume(await self._host.run(outcome))
        if not self.episode.done:
            feedback = self._host.tokens.observation(
                outcome.observation, role=self._host.role, ended=self.context.ended
            )
            # OpenRLHF would cut what is too long, and end without a last step: the end is told here instead.
            if len(self.context) + len(feedback) + self._host.options.least_tokens > self.max_length:
                outcome = self.episode.stop()
            else:
                self.context.observed(outcome.observation)
                self._due = feedback
        return {
            "rewards": np.float64(outcome.reward),
            "scores": self._f1(),
            "environment_feedback": self._text(self._due),
            "done": self.episode.done,
            "extra_logs": self.logs(),
        }

    def logs(self) -> dict[str, float]:
        """Returns the numbers that are logged of a rollout; every rollout has the same ones."""
        breakdown = self.episode.breakdown
        turns = self.episode.turns
        ran = [t for t in turns if t.command is not None]
        failed = [t for t in ran if t.refused or t.timed_out or (t.exit_code or 0) > _NO_MATCH]
        numbers = {
            "f1": self._f1(),
            "em": 0.0 if breakdown is None else breakdown.em,
            "format": 0.0 if breakdown is None else breakdown.format_valid,
            "turns": len(turns),
            "commands": len(ran),
            "failed": len(failed),
            "malformed": sum(t.kind == "malformed" for t in turns),
            "output_truncated": sum(t.output_truncated for t in turns),
            "budget": self.episode.finish_reason == "budget",
            "fault": self.fault is not None,
        }
        return {name: float(value) for name, value in numbers.items()}

    def record(self) -> None:
        """Keeps the trajectory with what was sampled, if that was asked for."""
        if not self._host.options.record:
            return
        trajectory = self.episode.trajectory({"policy": "openrlhf"})
        turns = [
            replace(t, token_ids=tuple(s.token_ids), logprobs=_logprobs(s), finish_reason=s.finish_reason)
            for t, s in zip(trajectory.turns, self._sampled, strict=True)
        ]
        self._host.record(replace(trajectory, turns=tuple(turns)))

    def _f1(self) -> float:
        return 0.0 if self.episode.breakdown is None else float(self.episode.breakdown.f1)

    def _text(self, ids: Sequence[int]) -> str:
        """Returns ids as text; OpenRLHF carries it along and reads the ids."""
        return str(self._host.tokens.tokenizer.decode(ids, skip_special_tokens=False)) if ids else ""


def _logprobs(output: Any) -> tuple[float, ...] | None:
    if output.logprobs is None:
        return None
    return tuple(float(place[i].logprob) for i, place in zip(output.token_ids, output.logprobs, strict=True))


class _Tokenizer:
    """Stands in for the tokenizer of one rollout: asked for the ids of a text, it hands over those of its agent."""

    def __init__(self, tokenizer: Any, agent: EpisodeAgent) -> None:
        self._tokenizer = tokenizer
        self._agent = agent

    def __call__(self, text: str, **_: Any) -> dict[str, Any]:
        del text
        return {"input_ids": np.asarray([self._agent.take_ids()], dtype=np.int64)}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


class _Engine:
    """Stands in for the engine of one rollout: it caps a turn and keeps what was sampled."""

    def __init__(self, engine: Any, agent: EpisodeAgent, turn_tokens: int) -> None:
        self._engine = engine
        self._agent = agent
        self._turn_tokens = turn_tokens

    async def generate(self, prompt_token_ids: list[int], sampling_params: Any, **rest: Any) -> Any:
        sampling_params.max_tokens = min(sampling_params.max_tokens, self._turn_tokens)  # OpenRLHF passes a copy
        output = await self._engine.generate(prompt_token_ids, sampling_params, **rest)
        if output is None or output.outputs[0].finish_reason not in {"stop", "length"}:
            reason = "nothing" if output is None else f"finish reason {output.outputs[0].finish_reason!r}"
            raise EngineFault(f"the engine ended a turn with {reason}; its log says why")
        self._agent.sampled(output.outputs[0])
        return output

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


@dataclass(slots=True)
class _Group:
    """The rollouts of one question that are under way together."""

    running: int = 0
    valid: list[dict[str, float]] = field(default_factory=list)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def leave(self) -> None:
        self.running -= 1
        if not self.running:
            self.over.set()

    def mean(self, why: str) -> dict[str, float]:
        """Returns the mean of the valid rollouts' rewards and scores."""
        if not self.valid:
            raise EngineFault(f"every rollout of a question failed, so there is nothing to learn from: {why}")
        return {name: sum(v[name] for v in self.valid) / len(self.valid) for name in self.valid[0]}


def executor_class() -> type:
    """Returns the class `AgentExecutor` that OpenRLHF looks for; it reads `AgentOptions` from the environment.

    Raises:
        ConfigError: OpenRLHF is not installed.
    """
    try:
        from openrlhf.utils.agent import AgentInstanceBase, MultiTurnAgentExecutor  # noqa: PLC0415 - optional
    except ImportError as e:
        raise ConfigError(f"rollouts of OpenRLHF need it: pip install 'grepseek-env[openrlhf]' ({e})") from e

    class AgentInstance(EpisodeAgent, AgentInstanceBase):  # type: ignore[misc]
        """An episode, as OpenRLHF knows agents."""

    class AgentExecutor(MultiTurnAgentExecutor):  # type: ignore[misc]
        """Plays one question's episode with OpenRLHF's own loop."""

        def __init__(self) -> None:
            super().__init__(AgentInstance)
            self.options = AgentOptions.from_environ()
            self._host: Host | None = None
            self._groups: dict[tuple[int, str, str], _Group] = {}

        def host(self, tokenizer: Any) -> Host:
            """Returns what the rollouts of this process share."""
            if self._host is None:
                # A processor of a model that also sees holds the tokenizer.
                self._host = Host(self.options, getattr(tokenizer, "tokenizer", tokenizer))
            return self._host

        def close(self) -> None:
            """Closes the backend and what was started for it."""
            if self._host is not None:
                self._host.close()
                self._host = None

        async def execute(
            self,
            prompt: str,
            label: str,
            sampling_params: Any,
            max_length: int,
            hf_tokenizer: Any,
            llm_engine: Any,
            images: Any = None,
        ) -> dict[str, Any]:
            """Plays an episode; see OpenRLHF's `AgentExecutorBase`."""
            if images:
                raise ConfigError("the dataset has images; these episodes are text alone: drop --data.image_key")
            # OpenRLHF starts all rollouts of a question before any of them ends, with one object of parameters.
            key = (id(sampling_params), prompt, label)
            group = self._groups.setdefault(key, _Group())
            group.running += 1
            try:
                agent = AgentInstance(self.host(hf_tokenizer), question_of(label), max_length)
                response = await self._drive(agent, prompt, label, sampling_params, hf_tokenizer, llm_engine)
                if agent.fault is None:
                    scores = {name: response["extra_logs"][name] for name in _SCORES}
                    group.valid.append({"reward": response["reward"], "scores": response["scores"], **scores})
            finally:
                group.leave()
                if not group.running:
                    self._groups.pop(key, None)
            if agent.fault is not None:
                await group.over.wait()
                mean = group.mean(agent.fault)
                response |= {"reward": mean["reward"], "scores": mean["scores"]}
                response["extra_logs"] |= {name: mean[name] for name in _SCORES}
            return response

        async def _drive(
            self, agent: EpisodeAgent, prompt: str, label: str, params: Any, tokenizer: Any, engine: Any
        ) -> dict[str, Any]:
            params = copy.deepcopy(params)
            params.stop = list(agent.episode.rules.action_format.stop_strings)
            params.stop_token_ids = [self.host(tokenizer).tokens.end_token]
            params.include_stop_str_in_output = True
            params.skip_special_tokens = True
            params.max_tokens = None  # the cap of a turn is ours, that of the episode OpenRLHF's
            runner = copy.copy(self)
            runner.agent_instance_cls = lambda: agent  # OpenRLHF makes instances without arguments
            response: dict[str, Any] = await MultiTurnAgentExecutor.execute(
                runner,
                prompt,
                label,
                params,
                agent.max_length,
                _Tokenizer(tokenizer, agent),
                _Engine(engine, agent, self.options.turn_tokens),
            )
            agent.record()
            response["truncated"] = agent.episode.finish_reason in {"budget", "turn_limit"} or response["truncated"]
            return response

    return AgentExecutor
