"""Command result -> the text that the policy reads: decode, clip, render.

Bytes are decoded once, here, with U+FFFD for what is no UTF-8. Output is cut at its end, never inside a character: what
is kept is always a prefix of the decoded output. All texts are stable, since a policy is trained on them; nothing in
them depends on speed or machine.
"""

from __future__ import annotations

import codecs
import os
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from grepseek_env.errors import ConfigError, SourceUnavailable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from grepseek_env.types import CommandResult

__all__ = ["Clipped", "TokenCounter", "byte_budget", "clip", "load_tokenizer", "render_result"]

TRUNCATED = "[output truncated]"
NO_OUTPUT = "[no output]"
BLANK_OUTPUT = "[only blank lines]"
STDERR_CHARS = 500

# Bytes a token may stand for where a tokenizer does not show its vocabulary. Public vocabularies stay below or near it
# (their longest entries are runs of spaces); a token that is longer only means that less than the cap is shown.
_UNKNOWN_TOKEN_BYTES = 128
# First guess of characters a token; a window of output is tokenised first, since all of a long output need not be.
_WINDOW_CHARS = 8


@dataclass(frozen=True, slots=True)
class Clipped:
    """Decoded output, clipped.

    Attributes:
        text: a prefix of the decoded output.
        truncated: there was more, either here or beyond the engine's byte budget.
    """

    text: str
    truncated: bool


@runtime_checkable
class TokenCounter(Protocol):
    """A tokenizer as far as clipping needs it; made by `load_tokenizer`."""

    @property
    def longest_token(self) -> int:
        """An upper bound of the bytes that one entry of the vocabulary stands for."""

    def count(self, text: str) -> int:
        """Returns the number of tokens of `text` alone: no special tokens added, none recognised in it."""

    def head(self, text: str, cap: int) -> int:
        """Returns how many leading characters hold the first `cap` tokens; all of them where `text` has no more."""


def clip(
    data: bytes,
    *,
    max_tokens: int | None = None,
    max_chars: int | None = None,
    tokenizer: Any = None,
    cut: bool = False,
) -> Clipped:
    """Decodes output and keeps its head.

    Args:
        data: output bytes.
        max_tokens: keep at most this many tokens, as the kept text alone is tokenised; needs `tokenizer`.
        max_chars: keep at most this many characters (code points). With neither limit all of it is kept.
        tokenizer: what `load_tokenizer` takes or returns. The text of a control token, such as ``<|im_end|>``, counts
            as the ordinary text it is.
        cut: `data` itself was cut at a byte budget, so bytes of an unfinished character at its end are dropped. A
            U+FFFD of the source, or a broken byte before the end, stays.

    Raises:
        ConfigError: tokens are to be counted without a tokenizer, or the tokenizer cannot be used.
    """
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(data, final=not cut)
    whole = len(text)
    if max_chars is not None:
        text = text[:max_chars]
    if max_tokens is not None:
        text = text[: _fitting(text, max_tokens, _counter(tokenizer))]
    return Clipped(text, truncated=cut or len(text) < whole)


def byte_budget(*, max_tokens: int | None = None, max_chars: int | None = None, tokenizer: Any = None) -> int:
    """Returns how many bytes of output the engine has to read so that `clip` can decide.

    That is one token more than the cap, each as long as the longest of the vocabulary, or one character more than the
    cap, each of four bytes. A tokenizer that drops text (such as white space) or has an entry for unknown words of any
    length may pack more into a token; its observations are then bounded by this budget, and marked as truncated.

    Raises:
        ConfigError: no limit is given, or tokens are to be counted without a usable tokenizer.
    """
    budgets = []
    if max_tokens is not None:
        budgets.append((max_tokens + 1) * _counter(tokenizer).longest_token)
    if max_chars is not None:
        budgets.append((max_chars + 1) * 4)
    if not budgets:
        raise ConfigError("byte_budget needs max_tokens or max_chars")
    return min(budgets)


def render_result(result: CommandResult, clipped: Clipped, *, timeout: float | None = None) -> str:
    r"""Returns the observation text of a command that ran, not yet wrapped by the action format.

    Args:
        result: what the command did.
        clipped: its stdout after `clip`. Line ends at the very end are not shown.
        timeout: the limit in seconds that is named when time ran out. What had been printed by then depends on speed
            and is left out.
    """
    if result.timed_out:
        limit = "its time limit" if timeout is None else f"the limit of {timeout:g} seconds"
        return f"[stopped: the command took longer than {limit}; search for something narrower]"
    if result.stdout:
        text = clipped.text.rstrip("\r\n")
        if clipped.truncated:
            return f"{text}\n{TRUNCATED}" if text else TRUNCATED
        return text or BLANK_OUTPUT
    if messages := _messages(result.stderr):
        return messages
    match result.exit_code:
        case 0 | 1 | None:  # 1 is "no match" to rg and grep: an answer, not an error
            return NO_OUTPUT
        case code:
            return f"[no output, exit code {code}]"


def _messages(stderr: bytes) -> str:
    head = clip(stderr, max_chars=STDERR_CHARS)
    text = head.text.rstrip("\r\n")
    return f"{text}\n{TRUNCATED}" if head.truncated else text


def load_tokenizer(value: Any) -> TokenCounter | None:
    """Makes a counter of what the user gave as tokenizer.

    Args:
        value: None (returned as it is), a transformers tokenizer, a `tokenizers.Tokenizer`, any object with
            `encode(text, add_special_tokens=False) -> token ids`, a counter, or a name or folder for `AutoTokenizer`.

    Raises:
        ConfigError: the object is no tokenizer, or transformers is needed and not installed.
        SourceUnavailable: no tokenizer of this name can be loaded from here.
    """
    match value:
        case None:
            return None
        case str() | os.PathLike():
            return _named(os.fspath(value))
        case _:
            return _counter(value)


@lru_cache(maxsize=4)
def _named(name: str) -> TokenCounter:
    try:
        from transformers import AutoTokenizer  # noqa: PLC0415 - optional, and slow to import
    except ImportError as error:
        raise ConfigError(
            f"tokenizer is {name!r}, which needs transformers: pip install 'grepseek-env[tokenizers]', or leave it out "
            "to cap observations by characters"
        ) from error
    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError, ImportError) as error:
        first_line = str(error).strip().partition("\n")[0]
        raise SourceUnavailable(
            f"no tokenizer {name!r} can be loaded ({first_line}); give the folder of a saved "
            "tokenizer, or leave it out to cap observations by characters"
        ) from error
    return _counter(tokenizer)


def _counter(tokenizer: Any) -> TokenCounter:
    if tokenizer is None:
        raise ConfigError("max_tokens needs a tokenizer; without one give max_chars")
    if isinstance(tokenizer, (_FastCounter, _SearchingCounter)):
        return tokenizer
    return _make_counter(_Same(tokenizer))


class _Same:
    """Cache key by identity: tokenizers compare and hash in ways of their own, some of them slowly."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.tokenizer is other.tokenizer

    def __hash__(self) -> int:
        return id(self.tokenizer)


@lru_cache(maxsize=4)
def _make_counter(key: _Same) -> TokenCounter:
    tokenizer = key.tokenizer
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if type(backend).__module__.partition(".")[0] == "tokenizers":
        # A copy of our own: the settings below would change the user's tokenizer, and its settings (a truncation that
        # training code has switched on) would change what is counted. The copy is never written to again, so threads
        # may share it.
        own = type(backend).from_str(backend.to_str())
        own.no_truncation()
        own.no_padding()
        own.encode_special_tokens = True
        return _FastCounter(own, _longest_token(own.get_vocab(with_added_tokens=True), own.decode))
    if not callable(getattr(tokenizer, "encode", None)):
        raise ConfigError(
            f"tokenizer is {tokenizer!r:.200}; it must be a tokenizer of transformers or tokenizers, have "
            "encode(text, add_special_tokens=False), or be a name for AutoTokenizer"
        )
    options: dict[str, bool] = {"add_special_tokens": False}
    if hasattr(tokenizer, "split_special_tokens"):  # transformers' mark; `verbose` stops its warning on long texts
        options |= {"split_special_tokens": True, "verbose": False}
    return _SearchingCounter(tokenizer, options, _UNKNOWN_TOKEN_BYTES)


def _longest_token(vocabulary: Mapping[str, int], decode: Any) -> int:
    """Returns the most bytes that an entry decodes to, plus one for a leading space that decoders strip.

    An entry never decodes to more bytes than its own UTF-8 form has (byte-level vocabularies write a byte as one
    character of one or two bytes), so decoding can stop at the first entry that could not win any more.
    """
    longest = 1
    for entry, index in sorted(vocabulary.items(), key=lambda item: len(item[0].encode()), reverse=True):
        if len(entry.encode()) <= longest:
            break
        longest = max(longest, len(decode([index], skip_special_tokens=False).encode()) + 1)
    return longest


def _fitting(text: str, cap: int, counter: TokenCounter) -> int:
    """Returns how many leading characters of `text` have at most `cap` tokens when they stand alone."""
    window = _WINDOW_CHARS * (cap + 1)
    end = counter.head(text[:window], cap)
    while end == window < len(text):
        window *= 4
        end = counter.head(text[:window], cap)
    if end == len(text):
        return end
    # Tokens near a cut may merge otherwise once the rest is gone, so the count is checked, not assumed.
    target = cap
    while counter.count(text[:end]) > cap:
        target -= 1
        end = min(counter.head(text[:end], max(target, 0)), end - 1)
    return end


@dataclass(frozen=True, slots=True)
class _FastCounter:
    """Counts with a `tokenizers.Tokenizer`, whose offsets say where each token lies in the text."""

    tokenizer: Any
    longest_token: int

    def count(self, text: str) -> int:
        return len(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def head(self, text: str, cap: int) -> int:
        offsets: Sequence[tuple[int, int]] = self.tokenizer.encode(text, add_special_tokens=False).offsets
        if len(offsets) <= cap:
            return len(text)
        # Tokens that share a character all have its offsets: where the next token starts before the last one ends, the
        # cut is inside that character, and goes before it.
        last_end = offsets[cap - 1][1] if cap > 0 else 0
        return min(last_end, offsets[cap][0])

    def __deepcopy__(self, memo: dict[int, Any]) -> _FastCounter:
        return self


@dataclass(frozen=True, slots=True)
class _SearchingCounter:
    """Counts with any `encode`; no offsets, so the place of the cut is searched."""

    tokenizer: Any
    options: Mapping[str, bool]
    longest_token: int

    def count(self, text: str) -> int:
        return len(self.tokenizer.encode(text, **self.options))

    def head(self, text: str, cap: int) -> int:
        if self.count(text) <= cap:
            return len(text)
        fits, exceeds = 0, len(text)
        while exceeds - fits > 1:
            middle = (fits + exceeds) // 2
            if self.count(text[:middle]) <= cap:
                fits = middle
            else:
                exceeds = middle
        return fits

    def __deepcopy__(self, memo: dict[int, Any]) -> _SearchingCounter:
        return self
