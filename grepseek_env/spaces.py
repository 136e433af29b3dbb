"""`FreeText`, a Gymnasium space of any Unicode text, and `ChatMessages`, one of chats made of it.

`gymnasium.spaces.Text` cannot serve: its character set is alphanumeric by default and a full one takes seconds to build
and megabytes to pickle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gymnasium.spaces import Space

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    from numpy.typing import NDArray

from grepseek_env.errors import ConfigError

__all__ = ["ChatMessages", "FreeText"]

# Samples mix what a policy meets: words, digits, quotes, pipes, white space, accents, an emoji.
_SAMPLE_ALPHABET = "abcdefghijklmnopqrstuvwxyzABCXYZ0123456789 .,-'\"|\\/<>{}$\n\té漢🧠"
_SAMPLE_LENGTH = 64


class FreeText(Space[str]):
    """Any `str` of at most `max_length` characters, the empty one included.

    With `AsyncVectorEnv` pass `shared_memory=False`: text has no fixed size to share.
    """

    def __init__(self, max_length: int = 1 << 20, *, seed: int | np.random.Generator | None = None) -> None:
        if type(max_length) is not int or max_length < 1:
            raise ConfigError(f"FreeText max_length is {max_length!r}; it must be a whole number of at least 1")
        self.max_length = max_length
        super().__init__(shape=None, dtype=None, seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        """Text does not flatten into an array."""
        return False

    def sample(self, mask: Any | None = None, probability: Any | None = None) -> str:
        """Returns a short random text.

        Raises:
            ConfigError: a mask or probabilities were given; text has none.
        """
        if mask is not None or probability is not None:
            raise ConfigError("FreeText.sample takes neither mask nor probability; call it without")
        length = int(self.np_random.integers(0, min(self.max_length, _SAMPLE_LENGTH) + 1))
        picks: NDArray[np.int64] = self.np_random.integers(0, len(_SAMPLE_ALPHABET), size=length)
        return "".join(_SAMPLE_ALPHABET[i] for i in picks)

    def contains(self, x: Any) -> bool:
        """Tells whether `x` is text of allowed length."""
        return isinstance(x, str) and len(x) <= self.max_length

    def to_jsonable(self, sample_n: Iterable[str]) -> list[str]:
        """Returns the texts as a list."""
        return list(sample_n)

    def from_jsonable(self, sample_n: Sequence[Any]) -> list[str]:
        """Returns the texts of a JSON list."""
        return [str(x) for x in sample_n]

    def __repr__(self) -> str:
        return f"FreeText({self.max_length})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FreeText) and self.max_length == other.max_length

    def __hash__(self) -> int:
        return hash((FreeText, self.max_length))


class ChatMessages(Space["list[dict[str, str]]"]):
    """A chat: a list of {"role": ..., "content": ...} messages of plain text, at least one."""

    def __init__(self, *, seed: int | np.random.Generator | None = None) -> None:
        self._text = FreeText()
        super().__init__(shape=None, dtype=None, seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        """A chat does not flatten into an array."""
        return False

    def sample(self, mask: Any | None = None, probability: Any | None = None) -> list[dict[str, str]]:
        """Returns a chat of one random user message.

        Raises:
            ConfigError: a mask or probabilities were given; text has none.
        """
        if mask is not None or probability is not None:
            raise ConfigError("ChatMessages.sample takes neither mask nor probability; call it without")
        self._text._np_random = self.np_random  # noqa: SLF001  one generator, so that seeding the chat seeds its text
        return [{"role": "user", "content": self._text.sample()}]

    def contains(self, x: Any) -> bool:
        """Tells whether `x` is a chat."""
        return (
            isinstance(x, list)
            and len(x) > 0
            and all(
                isinstance(m, dict) and m.keys() == {"role", "content"} and all(isinstance(v, str) for v in m.values())
                for m in x
            )
        )

    def to_jsonable(self, sample_n: Iterable[list[dict[str, str]]]) -> list[list[dict[str, str]]]:
        """Returns the chats as a list."""
        return list(sample_n)

    def from_jsonable(self, sample_n: Sequence[Any]) -> list[list[dict[str, str]]]:
        """Returns the chats of a JSON list."""
        return [list(x) for x in sample_n]

    def __repr__(self) -> str:
        return "ChatMessages()"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ChatMessages)

    def __hash__(self) -> int:
        return hash(ChatMessages)
