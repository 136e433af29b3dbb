"""A tiny policy for worlds of one-fact passages: a tokenizer that splits names alike everywhere, and a small decoder.

Half a million parameters can learn to search only if a name is the same tokens in the question, in a command and in an
answer. So words that start with a capital letter never carry the space before them, and what every turn repeats, the
tags and the JSON around a command, is one token each. The checkpoint is in the layout of the Hub (the architecture is
Qwen3's), so that it loads in transformers, vLLM and trainers.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grepseek_env.actions.parser import TOOL_NAME
from grepseek_env.errors import ConfigError
from policies.tiny_model import END_OF_TEXT, END_OF_TURN, save_random_model

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

__all__ = ["TEMPLATE", "make_tiny_policy", "make_world_tokenizer"]

_START = "<|im_start|>"
_CONTROL = (END_OF_TEXT, _START, END_OF_TURN)
# What every episode repeats, one token each: ordinary text, which a policy has to write like any other.
_WHOLE = (
    f'{{"name": "{TOOL_NAME}", "arguments": {{"command": "',
    '"}}',
    '{"id": "',
    '", "contents": "',
    " corpus.jsonl | head -n ",
    *(f"<{slash}{tag}>" for tag in ("think", "tool_call", "tool_response", "answer") for slash in ("", "/")),
)
# A word with a capital letter, the space before one, and all else with the space before it.
_WORDS = r"[A-Z][a-z]*| (?=[A-Z])|\n| ?[^A-Z\s]+|\s"
_LEAST_VOCABULARY = 256 + len(_CONTROL) + len(_WHOLE)

# The system message is left out, since the policy is trained for one task, and each turn costs two tokens.
TEMPLATE = (
    "{% for message in messages %}"
    f"{{% if message['role'] == 'assistant' %}}{{{{ message['content'] + '{END_OF_TURN}' }}}}"
    f"{{% elif message['role'] != 'system' %}}{{{{ '{_START}' + message['content'] }}}}{{% endif %}}"
    "{% endfor %}"
)


def make_world_tokenizer(texts: Iterable[str], vocab: int = 720, *, min_frequency: int = 20) -> Any:
    """Trains a BPE on texts of a world and returns it as a tokenizer of transformers, with a chat template.

    Args:
        texts: transcripts and questions; the same texts, the same tokenizer.
        vocab: size of the vocabulary at most.
        min_frequency: pairs that are rarer are not merged, so that names are split into syllables rather than learnt
            by heart.

    Raises:
        ConfigError: the vocabulary is too small to hold every byte.
    """
    import transformers  # noqa: PLC0415
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: PLC0415

    if vocab < _LEAST_VOCABULARY:
        raise ConfigError(f"vocab is {vocab}; every byte and whole token needs an entry: {_LEAST_VOCABULARY}")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab - len(_WHOLE),
        min_frequency=min_frequency,
        special_tokens=list(_CONTROL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    whole = re.compile("|".join(map(re.escape, _WHOLE)))
    tokenizer.train_from_iterator((part for text in texts for part in whole.split(text) if part), trainer)
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in _WHOLE])
    make: Any = transformers.PreTrainedTokenizerFast  # untyped there
    return make(
        tokenizer_object=tokenizer,
        eos_token=END_OF_TURN,
        pad_token=END_OF_TEXT,
        additional_special_tokens=[_START],
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def make_tiny_policy(
    out: str | os.PathLike[str],
    tokenizer: Any,
    *,
    hidden: int = 128,
    layers: int = 3,
    head_dim: int = 32,
    widening: int = 2,
    context: int = 320,
    seed: int = 0,
) -> Path:
    """Saves a model with random weights and its tokenizer into a folder, which must not exist yet.

    Args:
        out: the folder; it appears when it is complete.
        tokenizer: of transformers, as `make_world_tokenizer` returns it.
        hidden: width of the residual stream; a multiple of `head_dim`.
        layers: decoder layers.
        head_dim: width of an attention head.
        widening: width of the feed-forward layers over `hidden`.
        context: tokens of an episode.
        seed: of the weights; the same seed and tokenizer, the same files.

    Returns:
        The folder.

    Raises:
        ConfigError: the folder exists, or the sizes do not fit together.
    """
    return save_random_model(
        Path(out),
        tokenizer,
        hidden=hidden,
        intermediate=widening * hidden,
        layers=layers,
        head_dim=head_dim,
        key_value_heads=hidden // head_dim,
        context=context,
        seed=seed,
        draw=lambda model: _scale_weights(model, hidden, layers),
    )


def _scale_weights(model: Any, hidden: int, layers: int) -> None:
    """Draws matrices by their fan-in, and what is added to the residual stream small beside the embeddings.

    The usual 0.02 everywhere is meant for widths of thousands; at a hundred, attention would start out almost blind.
    """
    import torch  # noqa: PLC0415

    embedding = 1 / math.sqrt(hidden)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() < 2:
                continue
            if "embed_tokens" in name:
                weight.normal_(std=embedding)
            elif name.endswith(("o_proj.weight", "down_proj.weight")):
                weight.normal_(std=embedding / math.sqrt(2 * layers * weight.shape[1]))
            else:
                weight.normal_(std=1 / math.sqrt(weight.shape[1]))
