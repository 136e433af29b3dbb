"""The chat template of both recipes, and the check of a model's tokenizer against it.

A template may be used if the rendering of a longer chat starts with that of a shorter one: OpenRLHF finds what to train
on by rendering prefixes of a conversation, and rollouts grow by appending. The one beside this file is in the layout of
ChatML; its line break stands before a message and not behind it, so that a chat which ends with the assistant ends with
the token that ends a turn, and exactly the assistant's text and that token are trained.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from grepseek_env.actions import get_action_format
from grepseek_env.adapters.host import template_text
from grepseek_env.errors import ConfigError
from grepseek_env.tokens import ChatTokens

if TYPE_CHECKING:
    from typing import Any

__all__ = ["TEMPLATE_FILE", "check_template", "load_tokens", "template_of"]

TEMPLATE_FILE = Path(__file__).with_name("chat_template.jinja")


def template_of(chat_template: str) -> str | None:
    """Returns the text of a template: empty names the one of the recipes, "model" the tokenizer's own, else a file."""
    match chat_template:
        case "":
            return TEMPLATE_FILE.read_text(encoding="utf-8")
        case "model":
            return None
        case _:
            return template_text(chat_template)


def load_tokens(model: str, chat_template: str = "", *, action_format: str = "hermes") -> ChatTokens:
    """Loads a model's tokenizer with the template of a recipe and checks that they go together.

    Raises:
        ConfigError: the tokenizer cannot be loaded, or the template strips thoughts, renders earlier turns anew, or
            uses control tokens that the tokenizer does not know.
    """
    role = get_action_format(action_format).tool_role
    tokens = ChatTokens.load(model, chat_template=template_of(chat_template), roles=(role,))
    check_template(tokens.tokenizer)
    return tokens


def check_template(tokenizer: Any) -> None:
    """Checks that what ends an assistant's turn is one control token of the tokenizer, with nothing behind it.

    Raises:
        ConfigError: it is not; the message says what is.
    """
    chat = [{"role": "user", "content": "zqasked"}, {"role": "assistant", "content": "zqsaid"}]
    rendered = str(tokenizer.apply_chat_template(chat, tokenize=False))
    ending = rendered.rpartition("zqsaid")[2]
    ids = tokenizer(ending.rstrip("\n"), add_special_tokens=False)["input_ids"]
    if len(ids) != 1 or ids[0] not in tokenizer.all_special_ids:
        raise ConfigError(
            f"the chat template ends an assistant's turn with {ending!r}, which is no control token of this tokenizer "
            f"(it knows {', '.join(map(repr, tokenizer.all_special_tokens))}): give a template of this model's family "
            "with --chat-template"
        )
