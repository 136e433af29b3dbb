"""Wrappers: other views of the same episode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium

from grepseek_env.spaces import ChatMessages

if TYPE_CHECKING:
    from grepseek_env.env import GrepSeekEnv
    from grepseek_env.trajectory import Message

__all__ = ["MessagesWrapper"]


class MessagesWrapper(gymnasium.Wrapper["list[Message]", str, str, str], gymnasium.utils.RecordConstructorArgs):
    """Makes the observation the whole chat so far: a list of {"role", "content"} messages, the system message first.

    The list is a fresh one every step, ready for a chat template. The last message is never the policy's own.

    Args:
        env: a GrepSeek environment.
        tool_role: role of the messages that carry tool output ("user" suits most chat templates, "tool" some).
    """

    def __init__(self, env: gymnasium.Env[str, str], tool_role: str = "user") -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self, tool_role=tool_role)
        super().__init__(env)  # type: ignore[arg-type]  # gymnasium types the wrapped env by the wrapper's own spaces
        self._tool_role = tool_role
        self.observation_space = ChatMessages()

    def _messages(self) -> list[Message]:
        env: GrepSeekEnv = self.unwrapped  # type: ignore[assignment]
        return env.trajectory().messages(self._tool_role)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[list[Message], dict[str, Any]]:
        """Starts an episode; returns the system and user messages."""
        _, info = self.env.reset(seed=seed, options=options)
        return self._messages(), info

    def step(self, action: str) -> tuple[list[Message], float, bool, bool, dict[str, Any]]:
        """Plays one policy turn; returns the chat with it and its observation appended."""
        _, reward, terminated, truncated, info = self.env.step(action)
        return self._messages(), float(reward), terminated, truncated, info
