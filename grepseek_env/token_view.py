"""The episode as token ids: `TokensWrapper`, for algorithms that work on tokens rather than text."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium.spaces import Space
from numpy.typing import NDArray

from grepseek_env.errors import ConfigError, EpisodeError
from grepseek_env.tokens import ChatTokens, TokenContext

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from grepseek_env.env import GrepSeekEnv
    from grepseek_env.tokens import TokenTrajectory

__all__ = ["TokenIds", "TokensWrapper"]

_Ids = NDArray[np.int64]
_SAMPLE_LENGTH = 16


class TokenIds(Space[_Ids]):
    """Token ids of any number up to `max_length`, as one-dimensional arrays of int64.

    With `AsyncVectorEnv` pass `shared_memory=False`: ids have no fixed size to share.
    """

    def __init__(
        self, vocabulary: int, max_length: int = 1 << 20, *, seed: int | np.random.Generator | None = None
    ) -> None:
        if vocabulary < 1 or max_length < 1:
            raise ConfigError(f"TokenIds needs vocabulary and max_length of at least 1, not {vocabulary}, {max_length}")
        self.vocabulary = vocabulary
        self.max_length = max_length
        super().__init__(shape=None, dtype=None, seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        """Ids of no fixed number do not flatten."""
        return False

    def sample(self, mask: Any | None = None, probability: Any | None = None) -> _Ids:
        """Returns a few random ids.

        Raises:
            ConfigError: a mask or probabilities were given; ids have none.
        """
        if mask is not None or probability is not None:
            raise ConfigError("TokenIds.sample takes neither mask nor probability; call it without")
        length = int(self.np_random.integers(0, min(self.max_length, _SAMPLE_LENGTH) + 1))
        return self.np_random.integers(0, self.vocabulary, size=length, dtype=np.int64)

    def contains(self, x: Any) -> bool:
        """Tells whether `x` is an array, tuple or list of ids of the vocabulary."""
        if not isinstance(x, (np.ndarray, tuple, list)) or len(x) > self.max_length:
            return False
        ids = np.asarray(x)
        if ids.size == 0:
            return ids.ndim == 1
        return ids.ndim == 1 and ids.dtype.kind in "iu" and bool(ids.min() >= 0 and ids.max() < self.vocabulary)

    def to_jsonable(self, sample_n: Iterable[_Ids]) -> list[list[int]]:
        """Returns the ids as lists."""
        return [[int(i) for i in ids] for ids in sample_n]

    def from_jsonable(self, sample_n: Sequence[Any]) -> list[_Ids]:
        """Returns the ids of JSON lists."""
        return [np.asarray(ids, dtype=np.int64) for ids in sample_n]

    def __repr__(self) -> str:
        return f"TokenIds({self.vocabulary}, {self.max_length})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TokenIds) and (self.vocabulary, self.max_length) == (
            other.vocabulary,
            other.max_length,
        )

    def __hash__(self) -> int:
        return hash((TokenIds, self.vocabulary, self.max_length))


class TokensWrapper(gymnasium.Wrapper[_Ids, "Sequence[int] | str", str, str], gymnasium.utils.RecordConstructorArgs):
    """Makes the observation all token ids so far: what the policy's next turn is sampled after.

    The action is the ids that were sampled. They are kept as they are and never tokenised again; their text, up to the
    first stop string of the action format, is what the environment reads. An action that is text is tokenised once.

    Info has `mask` (an array: which ids the policy wrote) and `spans` (`TokenSpan` records: who wrote which range).
    `tokens()` returns the whole episode, also after its end.

    Args:
        env: a GrepSeek environment.
        tokenizer: a tokenizer of transformers with a chat template, or its folder or name.
        chat_template: a template to use in place of the tokenizer's; "chatml" is a prefix-stable one.

    Raises:
        ConfigError: the chat template cannot be used turn by turn; the message says why.
    """

    def __init__(self, env: gymnasium.Env[str, str], tokenizer: Any, chat_template: str | None = None) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self, tokenizer=tokenizer, chat_template=chat_template)
        super().__init__(env)  # type: ignore[arg-type]  # gymnasium types the wrapped env by the wrapper's own spaces
        own: GrepSeekEnv = self.unwrapped  # type: ignore[assignment]
        self._format = own.rules.action_format
        role = self._format.tool_role
        if isinstance(tokenizer, (str, os.PathLike)):
            self._tokens = ChatTokens.load(os.fspath(tokenizer), chat_template=chat_template, roles=(role,))
        else:
            self._tokens = ChatTokens(tokenizer, chat_template=chat_template, roles=(role,))
        self._context = TokenContext(self._tokens, role=role)
        space = TokenIds(len(self._tokens.tokenizer))
        self.observation_space = space
        self.action_space = space  # type: ignore[assignment]  # text is taken too, but not sampled

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[_Ids, dict[str, Any]]:
        """Starts an episode; returns the ids of the system message, the question and the start of a turn."""
        observation, info = self.env.reset(seed=seed, options=options)
        own: GrepSeekEnv = self.unwrapped  # type: ignore[assignment]
        self._context.start(
            [{"role": "system", "content": own.system_prompt}, {"role": "user", "content": str(observation)}]
        )
        return self._ids(), self._info(info)

    def step(self, action: Sequence[int] | str) -> tuple[_Ids, float, bool, bool, dict[str, Any]]:
        """Plays one policy turn.

        After the last turn of an episode nothing is added behind it.

        Raises:
            EpisodeError: before `reset()` or after the end.
            ConfigError: the action holds no ids of the vocabulary.
        """
        if not len(self._context):
            raise EpisodeError("call reset() before the first step()")
        if isinstance(action, str):
            text, ids = action, self._tokens.assistant(action)
        else:
            if not self.action_space.contains(action):
                raise ConfigError(f"action is {action!r:.80}; it must be token ids below {len(self._tokens.tokenizer)}")
            ids = [int(i) for i in action]
            text = self._text(ids)
        observation, reward, terminated, truncated, info = self.env.step(text)
        self._context.sampled(ids)
        if not (terminated or truncated):
            self._context.observed(str(observation))
        return self._ids(), float(reward), terminated, truncated, self._info(info)

    def tokens(self) -> TokenTrajectory:
        """Returns the episode so far: ids, mask and spans."""
        return self._context.trajectory()

    def _text(self, ids: Sequence[int]) -> str:
        text = self._tokens.decode(ids)
        ends = [at + len(s) for s in self._format.stop_strings if (at := text.find(s)) >= 0]
        return text[: min(ends)] if ends else text

    def _ids(self) -> _Ids:
        return np.asarray(self._context.ids, dtype=np.int64)

    def _info(self, info: dict[str, Any]) -> dict[str, Any]:
        view = self._context.trajectory()
        return {**info, "mask": np.asarray(view.mask, dtype=np.bool_), "spans": view.spans}
