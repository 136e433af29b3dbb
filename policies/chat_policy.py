"""`ChatPolicy`: a chat model that plays episodes.

Where the model takes token ids, the episode is kept as token ids: what was sampled goes back into the next prompt as it
is, never tokenised again.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from grepseek_env.tokens import TokenContext
from policies.base import Policy, PolicyStop
from policies.budgets import Budget
from policies.chat import ModelError, Sampling
from policies.reasoning import without_thoughts

if TYPE_CHECKING:
    from grepseek_env.tokens import TokenTrajectory
    from policies.base import EpisodeStart
    from policies.chat import ChatModel, Completion, Message

__all__ = ["ChatPolicy", "turn_seed"]


def turn_seed(seed: int, turn: int) -> int:
    """Returns the seed of one turn of an episode: a hash, so that neighbouring episodes share none. It fits 31 bits."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{turn}".encode()).digest()[:4], "big") >> 1


class ChatPolicy(Policy):
    """Plays episodes with a chat model; its forks share the model.

    Args:
        model: writes the turns.
        sampling: how; `stop` empty takes the stop strings of the action format, `seed` is mixed into every episode's.
        budget: how many tokens an episode may have. The model's own context limits it too.
        name: shown in tables; the model's by default.

    Raises:
        ConfigError: the model's chat template cannot be used turn by turn.
    """

    def __init__(
        self,
        model: ChatModel,
        sampling: Sampling | None = None,
        *,
        budget: Budget | None = None,
        name: str | None = None,
    ) -> None:
        self.model = model
        self.name = name or model.name
        self.sampling = sampling or Sampling()
        budget = budget or Budget()
        limits = [n for n in (budget.context_tokens, model.context_tokens) if n is not None]
        self.budget = replace(budget, context_tokens=min(limits, default=None))
        self._tokens = model.renderer
        self._context: TokenContext | None = None

    def begin(self, start: EpisodeStart) -> None:
        """Opens the conversation."""
        self.completion = None
        self._start = start
        self._role = start.action_format.tool_role
        self._messages: list[Message] = [{"role": "system", "content": start.system_prompt}]
        self._turn = 0
        self._sampled = 0
        self._known = 0  # tokens of the conversation, where the model tells
        write = start.action_format.render_action("thought", answer="x")
        self._thinks = bool(start.action_format.thought(write))
        if self._tokens is not None:
            self._context = TokenContext(self._tokens, role=self._role)

    def act(self, observation: str) -> str:
        """Asks the model for the next turn."""
        sampling, ids = self._request(observation)
        [completion] = self.model.complete([self._messages], sampling, **ids.many())
        return self._accept(completion)

    async def aact(self, observation: str) -> str:
        """Asks the model for the next turn; others may ask at the same time."""
        sampling, ids = self._request(observation)
        return self._accept(await self.model.acomplete(self._messages, sampling, **ids.one()))

    def tokens(self) -> TokenTrajectory | None:
        """Returns the episode so far as token ids; None for a model that takes messages alone."""
        return None if self._context is None else self._context.trajectory()

    def describe(self) -> dict[str, Any]:
        """Returns the model, how it is sampled, its budget and, where any is not at its default, its options."""
        # The budget tells the context that holds in the end.
        options = {name: value for name, value in self.model.options.items() if name != "context_tokens"}
        return {
            "policy": self.name,
            "model": self.model.name,
            "sampling": {**asdict(self.sampling), "stop": list(self.sampling.stop)},
            "budget": asdict(self.budget),
            **({"model_options": options} if options else {}),
        }

    def close(self) -> None:
        """Closes the model."""
        self.model.close()

    def _request(self, observation: str) -> tuple[Sampling, _Ids]:
        role = "user" if self._turn == 0 else self._role
        self._messages.append({"role": role, "content": observation})
        ids = None
        if self._context is not None:
            if self._turn == 0:
                self._context.start(self._messages)
            else:
                self._context.observed(observation)
            ids = self._context.ids
            self._known = len(ids)
        allowed = self.budget.of_turn(self.sampling.max_tokens, sampled=self._sampled, context=self._known)
        sampling = replace(
            self.sampling,
            max_tokens=allowed,
            stop=self.sampling.stop or self._start.action_format.stop_strings,
            seed=turn_seed(self._start.seed + (self.sampling.seed or 0), self._turn),
        )
        return sampling, _Ids(ids)

    def _accept(self, completion: Completion) -> str:
        match completion.finish_reason:
            case "error":
                raise ModelError(completion.error or f"{self.model.name} failed")
            case "context":
                raise PolicyStop(completion.error or "the model's context is full")
            case "stop" | "length":
                pass
        text = completion.text if self._thinks else without_thoughts(completion.text)
        self.completion = completion
        self._messages.append({"role": "assistant", "content": text})
        self._turn += 1
        self._sampled += completion.completion_tokens or len(completion.token_ids or ())
        self._known = (completion.prompt_tokens or 0) + (completion.completion_tokens or 0)
        if self._context is not None:
            if completion.token_ids is None:
                raise ModelError(f"{self.model.name} takes token ids and returned none; that is a fault of the model")
            self._context.sampled(completion.token_ids, completion.logprobs)
        return text


class _Ids:
    """Token ids of a prompt as keywords of a model's two methods; no keyword where there are none."""

    def __init__(self, ids: tuple[int, ...] | None) -> None:
        self._ids = ids

    def one(self) -> dict[str, Any]:
        return {} if self._ids is None else {"prompt_ids": self._ids}

    def many(self) -> dict[str, Any]:
        return {} if self._ids is None else {"prompt_ids": [self._ids]}
