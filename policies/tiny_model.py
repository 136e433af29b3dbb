"""Tiny language models with random weights, saved in the layout of the Hub.

They have the architecture of Qwen3, so that one checkpoint loads in transformers, vLLM and trainers, a byte-level BPE
trained on the given texts, and a prefix-stable chat template. They are for tests and for experiments on a CPU.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grepseek_env.errors import ConfigError
from grepseek_env.tokens import CHATML

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["END_OF_TEXT", "END_OF_TURN", "make_tiny_model", "make_tokenizer", "quiet", "save_random_model"]

END_OF_TEXT = "<|endoftext|>"
END_OF_TURN = "<|im_end|>"
_CONTROL = (END_OF_TEXT, "<|im_start|>", END_OF_TURN)
# One token each, and ordinary text, as in the vocabulary of Qwen3. The answer's tags are none, as there.
_TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
# Bytes and control tokens alone.
_LEAST_VOCABULARY = 256 + len(_CONTROL) + len(_TAGS)


def make_tokenizer(texts: Iterable[str], vocab: int = 1024, *, chat_template: str = CHATML) -> Any:
    """Trains a byte-level BPE on texts and returns it as a tokenizer of transformers, with a chat template.

    Args:
        texts: what it is trained on; the same texts, the same tokenizer.
        vocab: size of the vocabulary, control tokens and tags included.
        chat_template: Jinja text.

    Raises:
        ConfigError: the vocabulary is too small to hold every byte.
    """
    import transformers  # noqa: PLC0415
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: PLC0415

    if vocab < _LEAST_VOCABULARY:
        raise ConfigError(f"vocab is {vocab}; every byte, control token and tag needs an entry: {_LEAST_VOCABULARY}")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab - len(_TAGS),
        special_tokens=list(_CONTROL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in _TAGS])
    make: Any = transformers.PreTrainedTokenizerFast  # untyped there
    return make(
        tokenizer_object=tokenizer,
        eos_token=END_OF_TURN,
        pad_token=END_OF_TEXT,
        additional_special_tokens=["<|im_start|>"],
        chat_template=chat_template,
        clean_up_tokenization_spaces=False,
    )


def make_tiny_model(
    out: str | os.PathLike[str],
    texts: Iterable[str],
    *,
    vocab: int = 1024,
    hidden: int = 64,
    layers: int = 2,
    head_dim: int = 32,
    context: int = 4096,
    seed: int = 0,
    chat_template: str = CHATML,
) -> Path:
    """Saves a model with random weights and a tokenizer of texts into a folder, which must not exist yet.

    Args:
        out: the folder; it appears when it is complete.
        texts: the tokenizer is trained on them.
        vocab: size of the vocabulary.
        hidden: width of the residual stream; a multiple of `head_dim`.
        layers: decoder layers.
        head_dim: width of an attention head.
        context: tokens of prompt and completion together.
        seed: of the weights; the same seed and texts, the same files.
        chat_template: Jinja text.

    Returns:
        The folder.

    Raises:
        ConfigError: the folder exists, or the sizes do not fit together.
    """
    out = Path(out)
    check_sizes(out, hidden, head_dim)
    return save_random_model(
        out,
        make_tokenizer(texts, vocab, chat_template=chat_template),
        hidden=hidden,
        intermediate=4 * hidden,
        layers=layers,
        head_dim=head_dim,
        key_value_heads=max(1, hidden // head_dim // 2),
        context=context,
        seed=seed,
    )


def check_sizes(out: Path, hidden: int, head_dim: int) -> None:
    """Refuses a folder that exists and widths that do not fit together.

    Raises:
        ConfigError: with what to do.
    """
    if out.exists():
        raise ConfigError(f"{out} exists; choose another folder for the model, or remove it")
    if hidden % head_dim:
        raise ConfigError(f"hidden is {hidden}; it must be a multiple of head_dim, {head_dim}")


def save_random_model(
    out: Path,
    tokenizer: Any,
    *,
    hidden: int,
    intermediate: int,
    layers: int,
    head_dim: int,
    key_value_heads: int,
    context: int,
    seed: int,
    draw: Callable[[Any], None] | None = None,
) -> Path:
    """Saves a Qwen3 model with random weights and its tokenizer; `make_tiny_model` has the arguments' meanings.

    Args:
        out: the folder; it appears when it is complete.
        tokenizer: of transformers.
        hidden: width of the residual stream; a multiple of `head_dim`.
        intermediate: width of the feed-forward layers.
        layers: decoder layers.
        head_dim: width of an attention head.
        key_value_heads: heads of keys and values.
        context: tokens of prompt and completion together.
        seed: of the weights.
        draw: draws the weights again in its own way, from torch's generator.

    Returns:
        The folder.

    Raises:
        ConfigError: the folder exists, or the sizes do not fit together.
    """
    import torch  # noqa: PLC0415
    from transformers import Qwen3Config, Qwen3ForCausalLM  # noqa: PLC0415

    check_sizes(out, hidden, head_dim)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=hidden // head_dim,
        num_key_value_heads=key_value_heads,
        head_dim=head_dim,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
        if draw is not None:
            draw(model)
    model.generation_config.eos_token_id = [tokenizer.eos_token_id, tokenizer.pad_token_id]
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        with quiet():
            model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        for file in temporary.iterdir():
            file.chmod(0o644)
        temporary.chmod(0o755)
        temporary.rename(out)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return out


@contextmanager
def quiet() -> Iterator[None]:
    """Keeps the progress bar of a write that takes no time away."""
    import transformers  # noqa: PLC0415

    logging: Any = transformers.utils.logging  # untyped there
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
