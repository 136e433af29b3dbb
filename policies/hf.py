"""`HFModel`: a model of transformers in this process, on a GPU or the CPU.

Conversations are completed in batches with left padding and the KV cache. Every row draws with its own random numbers,
so that its completion depends on its own seed, not on its place in the batch. (Padding changes the last bits of the
logits, so a completion may still differ where two tokens are almost equally likely.)
"""

from __future__ import annotations

import json
import random
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grepseek_env.errors import ConfigError
from grepseek_env.tokens import CHATML, ChatTokens
from policies.chat import ChatModel, Completion, ModelError, per_conversation, raise_if_all_failed
from policies.turn_options import turn_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policies.chat import Message, Sampling

__all__ = ["HFModel"]


@dataclass(frozen=True, slots=True)
class _Row:
    place: int
    prompt: list[int]
    sampling: Sampling
    room: int  # tokens that the context leaves

    @property
    def max_tokens(self) -> int:
        return min(self.sampling.max_tokens, self.room)


class HFModel(ChatModel):
    """A causal language model of transformers.

    Args:
        path: a folder in the layout of the Hub, or a name on it. A LoRA adapter's folder loads its base model too.
        device: "auto" takes a GPU where there is one; else what torch calls a device.
        dtype: "auto" as saved, or "float32", "bfloat16", "float16".
        adapter: folder of a LoRA adapter to put onto the model (needs peft).
        chat_template: text of a Jinja template to use in place of the tokenizer's; "chatml" is a prefix-stable one.
        token_prompts: policies send token ids, so that what was sampled is never tokenised again; needs a
            prefix-stable chat template. False sends messages, which any template renders.
        batch_size: conversations a batch; more are done one batch after another. Halved while memory does not suffice.
        context_tokens: prompt and completion together; None takes the model's own limit.
        attention: transformers' `attn_implementation`.
        trust_remote_code: run code that comes with the checkpoint.

    Raises:
        ConfigError: the model cannot be loaded, an option cannot work, or torch, transformers or peft is missing.
    """

    def __init__(
        self,
        path: str,
        *,
        device: str = "auto",
        dtype: str = "auto",
        adapter: str | None = None,
        chat_template: str | None = None,
        token_prompts: bool = True,
        batch_size: int = 64,
        context_tokens: int | None = None,
        attention: str | None = None,
        trust_remote_code: bool = False,
    ) -> None:
        if batch_size < 1:
            raise ConfigError(f"batch_size is {batch_size}; it must be at least 1")
        self.options = turn_options(HFModel, locals(), leave_out=("adapter", "batch_size", "device"))
        self.name = f"hf:{path}" if adapter is None else f"hf:{path}+{adapter}"
        self._batch_size = batch_size
        path, adapter = _base_of(path, adapter)
        self._model, self.tokenizer = _load(path, adapter, device, dtype, attention, trust=trust_remote_code)
        if chat_template is not None:
            self.tokenizer.chat_template = CHATML if chat_template == "chatml" else chat_template
        config = self._model.config.get_text_config()  # a model that also sees pictures has several
        limits = (context_tokens, getattr(config, "max_position_embeddings", None))
        self.context_tokens = min((n for n in limits if n is not None), default=None)
        self.renderer = ChatTokens(self.tokenizer) if token_prompts else None
        self._ends = _end_tokens(self._model, self.tokenizer)
        pad = self.tokenizer.pad_token_id
        self._pad: int = self._ends[0] if pad is None else pad
        self._model.generation_config = _bare_generation(self._ends, self._pad)
        self._lock = threading.Lock()

    def complete(
        self,
        conversations: Sequence[Sequence[Message]],
        sampling: Sampling | Sequence[Sampling],
        *,
        prompt_ids: Sequence[Sequence[int]] | None = None,
    ) -> list[Completion]:
        """Completes conversations in as few batches as they fit into."""
        samplings = per_conversation(sampling, len(conversations))
        prompts = [self._render(c) for c in conversations] if prompt_ids is None else [list(p) for p in prompt_ids]
        done: dict[int, Completion] = {}
        rows: list[_Row] = []
        for place, (prompt, own) in enumerate(zip(prompts, samplings, strict=True)):
            room = own.max_tokens if self.context_tokens is None else self.context_tokens - len(prompt)
            if room < 1:
                error = f"the prompt has {len(prompt)} tokens, the model's context {self.context_tokens}"
                done[place] = Completion("", "context", prompt_tokens=len(prompt), error=error)
            else:
                rows.append(_Row(place, prompt, own, room))
        with self._lock:
            if self._model is None:
                raise ModelError(f"{self.name} was closed; make another model")
            rows.sort(key=lambda row: len(row.prompt))  # little padding
            for at in range(0, len(rows), self._batch_size):
                self._batch(rows[at : at + self._batch_size], done)
        return raise_if_all_failed([done[i] for i in range(len(conversations))])

    def close(self) -> None:
        """Frees the model's memory."""
        with self._lock:
            if self._model is not None and self._model.device.type == "cuda":
                import torch  # noqa: PLC0415

                self._model = None
                torch.cuda.empty_cache()
            self._model = None

    def _render(self, messages: Sequence[Message]) -> list[int]:
        text = self.tokenizer.apply_chat_template(
            [dict(m) for m in messages], tokenize=False, add_generation_prompt=True
        )
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _batch(self, rows: Sequence[_Row], done: dict[int, Completion]) -> None:
        """Completes rows together, in halves where memory does not suffice for all."""
        import torch  # noqa: PLC0415

        try:
            for row, completion in zip(rows, self._generate(rows), strict=True):
                done[row.place] = completion
        except torch.cuda.OutOfMemoryError as e:
            torch.cuda.empty_cache()
            if len(rows) == 1:
                error = f"{self.name}: {e}; lower context_tokens, or take a smaller dtype"
                done[rows[0].place] = Completion("", "error", error=error)
                return
            half = (len(rows) + 1) // 2
            self._batch(rows[:half], done)
            self._batch(rows[half:], done)

    def _generate(self, rows: Sequence[_Row]) -> list[Completion]:
        import torch  # noqa: PLC0415

        start = time.perf_counter()
        width = max(len(row.prompt) for row in rows)
        ids = torch.full((len(rows), width), self._pad, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for i, row in enumerate(rows):
            ids[i, width - len(row.prompt) :] = torch.tensor(row.prompt)
            mask[i, width - len(row.prompt) :] = 1
        draw = _Draw(rows)
        stops = _Stops(rows, width, self.tokenizer, frozenset(self._ends))
        with torch.inference_mode():
            out = self._model.generate(
                input_ids=ids.to(self._model.device),
                attention_mask=mask.to(self._model.device),
                max_new_tokens=max(row.max_tokens for row in rows),
                do_sample=False,  # `draw` has chosen the token already
                use_cache=True,
                logits_processor=[draw],
                stopping_criteria=[stops],
            )
        logprobs = draw.logprobs()
        seconds = time.perf_counter() - start
        made = []
        for i, row in enumerate(rows):
            sampled = out[i, width : width + stops.lengths[i]].tolist()
            text, reason = self._read(sampled, row.sampling.stop)
            made.append(
                Completion(
                    text,
                    reason,
                    token_ids=tuple(sampled),
                    logprobs=tuple(logprobs[i][: len(sampled)]) if row.sampling.logprobs else None,
                    prompt_token_ids=tuple(row.prompt),
                    prompt_tokens=len(row.prompt),
                    completion_tokens=len(sampled),
                    seconds=seconds,
                )
            )
        return made

    def _read(self, ids: list[int], stop: Sequence[str]) -> tuple[str, Any]:
        ended = bool(ids) and ids[-1] in self._ends
        text = _decode(self.tokenizer, ids[:-1] if ended else ids)
        cuts = [at + len(s) for s in stop if (at := text.find(s)) >= 0]
        if cuts:
            return text[: min(cuts)], "stop"
        return text, "stop" if ended else "length"


def _decode(tokenizer: Any, ids: Sequence[int]) -> str:
    return str(tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))


class _Draw:
    """A logits processor that draws every row's next token itself and leaves it the only one possible."""

    def __init__(self, rows: Sequence[_Row]) -> None:
        self._random = [random.Random(row.sampling.seed) for row in rows]  # noqa: S311 - reproducible draws
        self._keep = any(row.sampling.logprobs for row in rows)
        self._kept: list[Any] = []
        alike: dict[tuple[float, float, int | None], list[int]] = {}
        for i, row in enumerate(rows):
            s = row.sampling
            alike.setdefault((s.temperature, s.top_p, s.top_k), []).append(i)
        self._alike = alike

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        import torch  # noqa: PLC0415

        logits = scores.float()
        chosen = torch.empty_like(input_ids[:, :1])
        for (temperature, top_p, top_k), rows in self._alike.items():
            draws = [self._random[i].random() for i in rows]
            chosen[rows] = _choose(logits[rows], draws, temperature, top_p, top_k)
        if self._keep:
            self._kept.append(torch.log_softmax(logits, dim=-1).gather(1, chosen))
        return torch.full_like(scores, -torch.inf).scatter(1, chosen, 0.0)

    def logprobs(self) -> list[list[float]]:
        """Returns a list a row, one value a token; those behind the end of a row mean nothing."""
        import torch  # noqa: PLC0415

        values: list[list[float]] = torch.cat(self._kept, dim=1).tolist() if self._kept else []
        return values


def _choose(logits: Any, draws: Sequence[float], temperature: float, top_p: float, top_k: int | None) -> Any:
    """Returns a token a row, of shape (rows, 1).

    They are drawn by the inverse of the cumulated probabilities: one random number a token, the same on every device.
    """
    import torch  # noqa: PLC0415

    if temperature == 0:
        return logits.argmax(-1, keepdim=True)
    probabilities = torch.softmax(logits.double() / temperature, dim=-1)
    if top_k is not None and top_k < probabilities.shape[-1]:
        least = probabilities.topk(top_k).values[:, -1:]
        probabilities = probabilities.masked_fill(probabilities < least, 0.0)
    if top_p < 1:
        ordered, places = probabilities.sort(descending=True)
        before = ordered.cumsum(-1) - ordered
        kept = ordered.masked_fill(before >= top_p * ordered.sum(-1, keepdim=True), 0.0)
        probabilities = torch.zeros_like(probabilities).scatter(-1, places, kept)
    reached = probabilities.cumsum(-1)
    targets = reached[:, -1:] * torch.tensor(draws, dtype=torch.double, device=logits.device)[:, None]
    return torch.searchsorted(reached, targets, right=True).clamp(max=probabilities.shape[-1] - 1)


class _Stops:
    """A stopping criterion of a row each: its own token limit, the end of the turn, its stop strings."""

    def __init__(self, rows: Sequence[_Row], width: int, tokenizer: Any, ends: frozenset[int]) -> None:
        self._rows = rows
        self._width = width
        self._tokenizer = tokenizer
        self._ends = ends
        self.lengths = [0] * len(rows)
        self._open = [True] * len(rows)
        # A token is a byte or more, so a stop string lies in as many tokens as it has bytes.
        self._tail = max((len(s.encode()) for row in rows for s in row.sampling.stop), default=0) + 1

    def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:
        import torch  # noqa: PLC0415

        del scores, kwargs
        length = input_ids.shape[1] - self._width
        tails = input_ids[:, -min(length, self._tail) :].tolist()  # from the device once a step, not once a row
        for i, row in enumerate(self._rows):
            if self._open[i]:
                self.lengths[i] = length
                ended = length >= row.max_tokens or tails[i][-1] in self._ends
                self._open[i] = not (ended or self._met(tails[i], row.sampling.stop))
        return torch.tensor([not o for o in self._open], device=input_ids.device)

    def _met(self, tail: list[int], stop: Sequence[str]) -> bool:
        if not stop:
            return False
        text = _decode(self._tokenizer, tail)
        return any(s in text for s in stop)


def _base_of(path: str, adapter: str | None) -> tuple[str, str | None]:
    """Returns the base model's path and the adapter's, where the path is an adapter's folder."""
    file = Path(path) / "adapter_config.json"
    if adapter is not None or not file.is_file():
        return path, adapter
    base = json.loads(file.read_text(encoding="utf-8")).get("base_model_name_or_path")
    if not base:
        raise ConfigError(f"{file} names no base_model_name_or_path; give the base model, and the folder as adapter=")
    return str(base), path


def _load(path: str, adapter: str | None, device: str, dtype: str, attention: str | None, *, trust: bool) -> Any:
    try:
        import torch  # noqa: PLC0415
        from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415
    except ImportError as e:
        raise ConfigError(f"hf:{path} needs torch and transformers: pip install 'grepseek-env[torch]'") from e
    if dtype != "auto" and not isinstance(getattr(torch, dtype, None), torch.dtype):
        raise ConfigError(f"dtype is {dtype!r}; it must be auto, float32, bfloat16 or float16")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    options = {} if attention is None else {"attn_implementation": attention}
    try:
        place = torch.device(device)
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=trust)
        model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=dtype, trust_remote_code=trust, **options)
    except (OSError, ValueError, RuntimeError, ImportError) as e:
        first_line = str(e).strip().partition("\n")[0]
        raise ConfigError(
            f"no model can be loaded from {path!r}: {first_line}; give the folder of a saved checkpoint"
        ) from e
    if adapter is not None:
        model = _with_adapter(model, adapter)
    return model.to(place).eval(), tokenizer


def _with_adapter(model: Any, adapter: str) -> Any:
    try:
        from peft import PeftModel  # noqa: PLC0415
    except ImportError as e:
        raise ConfigError(f"adapter is {adapter!r}, which needs peft: pip install peft") from e
    try:
        return PeftModel.from_pretrained(model, adapter).merge_and_unload()  # as fast as the base model
    except (OSError, ValueError) as e:
        raise ConfigError(f"no LoRA adapter can be loaded from {adapter!r}: {e}") from e


def _bare_generation(ends: tuple[int, ...], pad: int) -> Any:
    """Returns generation settings that change nothing: a checkpoint's own may bring penalties and temperatures."""
    import transformers  # noqa: PLC0415

    make: Any = transformers.GenerationConfig  # untyped there
    return make(eos_token_id=list(ends), pad_token_id=pad)


def _end_tokens(model: Any, tokenizer: Any) -> tuple[int, ...]:
    """Returns the tokens that end a turn: those of the checkpoint's generation settings and the tokenizer's own."""
    told = getattr(model.generation_config, "eos_token_id", None)
    ends = [told] if isinstance(told, int) else list(told or ())
    if tokenizer.eos_token_id is not None:
        ends.append(tokenizer.eos_token_id)
    if not ends:
        raise ConfigError("neither the checkpoint nor its tokenizer says which token ends a turn (eos_token_id)")
    return tuple(dict.fromkeys(ends))
