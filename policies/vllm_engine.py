"""`VLLMModel`: vLLM in this process, with prefix caching, in either of its two ways.

- "async" (the default): the asynchronous engine with continuous batching. Each completion starts when it is asked for,
  whatever others are under way, as rollouts need it.
- "batch": `vllm.LLM`, a whole batch at a time.

vLLM starts processes of its own: a script needs the usual ``if __name__ == "__main__":``.
"""

from __future__ import annotations

import threading
import time
import uuid
from typing import TYPE_CHECKING, Any, Literal

from grepseek_env.errors import ConfigError
from grepseek_env.tokens import CHATML, ChatTokens
from policies.chat import (
    ChatModel,
    Completion,
    ModelError,
    in_models_loop,
    per_conversation,
    raise_if_all_failed,
)
from policies.turn_options import turn_options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policies.chat import Message, Sampling

__all__ = ["VLLMModel"]


class VLLMModel(ChatModel):
    """A model in a vLLM engine of this process.

    Args:
        path: a folder in the layout of the Hub, or a name on it.
        engine: "async" or "batch".
        dtype: "auto", for which vLLM takes half precision where float32 was saved, or "float32", "bfloat16", "float16".
        adapter: folder of a LoRA adapter.
        chat_template: text of a Jinja template to use in place of the tokenizer's; "chatml" is a prefix-stable one.
        token_prompts: policies send token ids, so that what was sampled is never tokenised again; needs a
            prefix-stable chat template. False sends messages, which any template renders.
        context_tokens: prompt and completion together; None takes the model's own limit.
        gpu_memory: share of the GPU's memory that the engine may take.
        tensor_parallel: GPUs that the model is spread over.
        eager: no compiled graphs: starts sooner, runs slower. None decides for graphs on a GPU alone.
        engine_options: more fields of vLLM's engine arguments.

    Raises:
        ConfigError: vLLM is not installed, or an option cannot work.
        ModelError: the engine does not start.
    """

    def __init__(
        self,
        path: str,
        *,
        engine: Literal["async", "batch"] = "async",
        dtype: str = "auto",
        adapter: str | None = None,
        chat_template: str | None = None,
        token_prompts: bool = True,
        context_tokens: int | None = None,
        gpu_memory: float = 0.9,
        tensor_parallel: int = 1,
        eager: bool | None = None,
        engine_options: Mapping[str, Any] | None = None,
    ) -> None:
        if engine not in {"async", "batch"}:
            raise ConfigError(f"engine is {engine!r}; it must be 'async' or 'batch'")
        self.options = turn_options(VLLMModel, locals(), leave_out=("adapter", "gpu_memory", "tensor_parallel"))
        self.name = f"vllm:{path}" if adapter is None else f"vllm:{path}+{adapter}"
        arguments = {
            "model": path,
            "dtype": dtype,
            "max_model_len": context_tokens,
            "gpu_memory_utilization": gpu_memory,
            "tensor_parallel_size": tensor_parallel,
            "enforce_eager": not _on_gpu(path) if eager is None else eager,
            "enable_prefix_caching": True,
            # On a CPU vLLM (0.29) ends with an error when a prompt with a seed is read in several steps.
            "enable_chunked_prefill": None if _on_gpu(path) else False,
            "enable_lora": adapter is not None,
            **(engine_options or {}),
        }
        self.tokenizer = _tokenizer(path, chat_template)
        self.renderer = ChatTokens(self.tokenizer) if token_prompts else None
        self._lora = _lora(adapter)
        self._async = engine == "async"
        self._engine: Any = _start(self.name, arguments, asynchronous=self._async)
        config = self._engine.model_config if self._async else self._engine.llm_engine.model_config
        self.context_tokens = int(config.max_model_len)
        self._lock = threading.Lock()

    def complete(
        self,
        conversations: Sequence[Sequence[Message]],
        sampling: Sampling | Sequence[Sampling],
        *,
        prompt_ids: Sequence[Sequence[int]] | None = None,
    ) -> list[Completion]:
        """Completes conversations: one batch of `vllm.LLM`, or all at once in the asynchronous engine."""
        if self._async:
            return super().complete(conversations, sampling, prompt_ids=prompt_ids)
        samplings = per_conversation(sampling, len(conversations))
        prompts = [self._render(c) for c in conversations] if prompt_ids is None else list(prompt_ids)
        done = {
            place: refused
            for place, (prompt, own) in enumerate(zip(prompts, samplings, strict=True))
            if (refused := self._too_long(prompt)) is not None
        }
        rows = [i for i in range(len(prompts)) if i not in done]
        start = time.perf_counter()
        with self._lock, _faults(self.name):
            outputs = self._alive().generate(
                [{"prompt_token_ids": list(prompts[i])} for i in rows],
                [self._params(samplings[i], prompts[i]) for i in rows],
                use_tqdm=False,
                lora_request=self._lora,
            )
        seconds = time.perf_counter() - start
        for i, output in zip(rows, outputs, strict=True):
            done[i] = _completion(output, samplings[i], seconds)
        return raise_if_all_failed([done[i] for i in range(len(prompts))])

    async def acomplete(
        self, messages: Sequence[Message], sampling: Sampling, *, prompt_ids: Sequence[int] | None = None
    ) -> Completion:
        """Completes one conversation; see `ChatModel`."""
        if not self._async:
            return await super().acomplete(messages, sampling, prompt_ids=prompt_ids)
        prompt = self._render(messages) if prompt_ids is None else list(prompt_ids)
        if (refused := self._too_long(prompt)) is not None:
            return refused
        return await in_models_loop(self._generate(prompt, sampling))

    def close(self) -> None:
        """Ends the engine and its processes."""
        with self._lock:
            engine, self._engine = self._engine, None
        if engine is not None:
            (engine if self._async else engine.llm_engine.engine_core).shutdown()

    async def _generate(self, prompt: Sequence[int], sampling: Sampling) -> Completion:
        start = time.perf_counter()
        last = None
        with _faults(self.name):
            stream = self._alive().generate(
                {"prompt_token_ids": list(prompt)},
                self._params(sampling, prompt),
                uuid.uuid4().hex,
                lora_request=self._lora,
            )
            async for output in stream:
                last = output
        if last is None:
            raise ModelError(f"{self.name}: the engine returned nothing; look at its messages")
        return _completion(last, sampling, time.perf_counter() - start)

    def _alive(self) -> Any:
        if self._engine is None:
            raise ModelError(f"{self.name} was closed; make another model")
        return self._engine

    def _render(self, messages: Sequence[Message]) -> list[int]:
        text = self.tokenizer.apply_chat_template(
            [dict(m) for m in messages], tokenize=False, add_generation_prompt=True
        )
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _too_long(self, prompt: Sequence[int]) -> Completion | None:
        if self.context_tokens is None or len(prompt) < self.context_tokens:
            return None
        error = f"the prompt has {len(prompt)} tokens, the model's context {self.context_tokens}"
        return Completion("", "context", prompt_tokens=len(prompt), error=error)

    def _params(self, sampling: Sampling, prompt: Sequence[int]) -> Any:
        from vllm import SamplingParams  # noqa: PLC0415
        from vllm.sampling_params import RequestOutputKind  # noqa: PLC0415

        room = sampling.max_tokens if self.context_tokens is None else self.context_tokens - len(prompt)
        return SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k or -1,
            max_tokens=min(sampling.max_tokens, room),
            stop=list(sampling.stop) or None,
            include_stop_str_in_output=True,
            seed=sampling.seed,
            logprobs=0 if sampling.logprobs else None,  # 0: the sampled token's alone
            output_kind=RequestOutputKind.FINAL_ONLY,
        )


def _completion(output: Any, sampling: Sampling, seconds: float) -> Completion:
    [sampled] = output.outputs
    ids = tuple(sampled.token_ids)
    if sampled.finish_reason not in {"stop", "length"}:
        error = f"the engine ended the completion with {sampled.finish_reason!r}"
        return Completion("", "error", error=error, seconds=seconds)
    logprobs = None
    if sampling.logprobs:
        logprobs = tuple(float(place[i].logprob) for i, place in zip(ids, sampled.logprobs, strict=True))
    prompt = tuple(output.prompt_token_ids)
    return Completion(
        sampled.text,
        sampled.finish_reason,
        token_ids=ids,
        logprobs=logprobs,
        prompt_token_ids=prompt,
        prompt_tokens=len(prompt),
        completion_tokens=len(ids),
        seconds=seconds,
    )


class _faults:  # noqa: N801 - a context manager, read like a function
    """Makes a `ModelError` of what an engine raises."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        # Engine errors are of several types that move between releases; all of them are of these two families.
        if isinstance(error, (RuntimeError, ValueError)) and not isinstance(error, ModelError):
            raise ModelError(f"{self._name}: the engine failed: {type(error).__name__}: {error}") from error
        if type(error).__name__ in {"EngineDeadError", "EngineGenerateError"}:
            raise ModelError(f"{self._name}: the engine is dead: {error}; make another model") from error


def _start(name: str, arguments: dict[str, Any], *, asynchronous: bool) -> Any:
    try:
        import vllm  # noqa: PLC0415
        from vllm.engine.arg_utils import AsyncEngineArgs  # noqa: PLC0415
    except ImportError as e:
        raise ConfigError(f"{name} needs vLLM: pip install 'grepseek-env[vllm]'") from e
    given = {k: v for k, v in arguments.items() if v is not None}
    try:
        if not asynchronous:
            return vllm.LLM(**given)
        from vllm.v1.engine.async_llm import AsyncLLM  # noqa: PLC0415

        return AsyncLLM.from_engine_args(AsyncEngineArgs(enable_log_requests=False, **given))
    except (OSError, ValueError, TypeError, RuntimeError) as e:
        raise ModelError(f"{name}: vLLM does not start: {type(e).__name__}: {e}") from e


def _tokenizer(path: str, chat_template: str | None) -> Any:
    from transformers import AutoTokenizer  # noqa: PLC0415

    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError) as e:
        raise ConfigError(f"no model can be loaded from {path!r}: {e}; give the folder of a saved checkpoint") from e
    if chat_template is not None:
        tokenizer.chat_template = CHATML if chat_template == "chatml" else chat_template
    return tokenizer


def _lora(adapter: str | None) -> Any:
    if adapter is None:
        return None
    from vllm.lora.request import LoRARequest  # noqa: PLC0415

    return LoRARequest("adapter", 1, adapter)


def _on_gpu(path: str) -> bool:
    try:
        import torch  # noqa: PLC0415
    except ImportError as e:
        raise ConfigError(f"vllm:{path} needs vLLM: pip install 'grepseek-env[vllm]'") from e
    return bool(torch.cuda.is_available())
