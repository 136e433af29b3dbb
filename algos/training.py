"""What trainers share: models, learning rates, optimiser steps, checkpoints that resume exactly, and logs.

A run folder holds `config.json`, `metrics.jsonl`, `tensorboard/` and `checkpoints/step-N/`. A checkpoint is a model in
the layout of the Hub with `trainer.pt` beside it; it appears when it is whole.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from grepseek_env.errors import ConfigError
from grepseek_env.paths import atomic_write, sync_dir
from policies.tiny_model import quiet

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from typing_extensions import Self

__all__ = [
    "RunLog",
    "autocast",
    "checkpoints",
    "learning_rate",
    "load_policy",
    "make_optimizer",
    "optimizer_step",
    "read_metrics",
    "restore",
    "save_checkpoint",
]

_STATE = "trainer.pt"
_FOLDER = re.compile(r"step-(\d+)")


def load_policy(path: str | Path, *, device: str = "auto") -> tuple[Any, Any, Any]:
    """Loads a causal language model in float32, ready to be trained, and its tokenizer.

    Returns:
        Model, tokenizer, and the torch device they are on.

    Raises:
        ConfigError: torch or transformers is missing, or nothing can be loaded from there.
    """
    try:
        import torch  # noqa: PLC0415
        from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: PLC0415
    except ImportError as e:
        raise ConfigError("training needs torch and transformers: pip install 'grepseek-env[torch]'") from e
    where = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)
    try:
        with quiet():
            model: Any = AutoModelForCausalLM.from_pretrained(str(path), dtype=torch.float32)
        tokenizer: Any = AutoTokenizer.from_pretrained(str(path))
    except (OSError, ValueError) as e:
        first = str(e).strip().partition("\n")[0]
        raise ConfigError(f"no model can be loaded from {str(path)!r} ({first}); give a folder as the Hub has") from e
    return model.to(where), tokenizer, where


def learning_rate(step: int, peak: float, *, warmup: int, total: int, final: float = 1.0) -> float:
    """Returns the learning rate of a step: linear warm-up, then a line from `peak` to `final * peak`; 1.0 is constant.

    Args:
        step: number of the optimiser step, from 0.
        peak: highest rate.
        warmup: steps until it is reached; step `warmup - 1` has it.
        total: optimiser steps of the whole run.
        final: share of `peak` at the end.
    """
    gone = min(1.0, step / max(1, total))
    return peak * min(1.0, (step + 1) / max(1, warmup)) * (1.0 - (1.0 - final) * gone)


def make_optimizer(model: Any, *, beta1: float, beta2: float, weight_decay: float) -> Any:
    """Returns AdamW over all parameters that are trained; matrices decay, norms and biases do not."""
    import torch  # noqa: PLC0415

    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trained if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in trained if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=0.0, betas=(beta1, beta2))


def optimizer_step(model: Any, optimizer: Any, rate: float, clip: float) -> float:
    """Clips the gradient, takes a step with this learning rate and clears the gradient.

    Returns:
        The gradient's norm before clipping. Where it is not finite, no step is taken.
    """
    import torch  # noqa: PLC0415

    norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), clip if clip > 0 else float("inf")))
    if norm == norm and norm != float("inf"):  # noqa: PLR0124 - not a number differs from itself
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return norm


def autocast(device: Any, *, bf16: bool) -> Any:
    """Returns a context in which matrices are multiplied in bfloat16; weights and their updates stay float32.

    Raises:
        ConfigError: the GPU does not know bfloat16.
    """
    if not bf16:
        return nullcontext()
    import torch  # noqa: PLC0415

    if device.type == "cuda" and not torch.cuda.is_bf16_supported():
        raise ConfigError("bf16 is on, and this GPU does not know bfloat16; pass --bf16 false")
    return torch.autocast(device.type, dtype=torch.bfloat16)


def checkpoints(out: Path) -> list[tuple[int, Path]]:
    """Returns a run's checkpoints as (step, folder), oldest first."""
    folder = out / "checkpoints"
    found = ((_FOLDER.fullmatch(p.name), p) for p in (folder.iterdir() if folder.is_dir() else ()))
    return sorted((int(match[1]), path) for match, path in found if match is not None)


def save_checkpoint(
    out: Path, step: int, model: Any, tokenizer: Any, optimizer: Any, state: Mapping[str, Any], *, keep: int = 2
) -> Path:
    """Saves everything that the rest of the run depends on, and removes all but the newest `keep` checkpoints.

    Args:
        out: the run folder.
        step: steps done.
        model: saved in the layout of the Hub.
        tokenizer: saved beside it.
        optimizer: its state is saved.
        state: the trainer's own: numbers, texts, lists and dicts.
        keep: checkpoints that are left.
    """
    import torch  # noqa: PLC0415

    parent = out / "checkpoints"
    parent.mkdir(parents=True, exist_ok=True)
    for leftover in parent.glob(".step-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    path = parent / f"step-{step:06d}"
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=parent))
    try:
        with quiet():
            model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        rng = {"cpu": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state_all()}
        torch.save(
            {"step": step, "optimizer": optimizer.state_dict(), "rng": rng, "state": dict(state)}, temporary / _STATE
        )
        temporary.chmod(0o755)
        if path.exists():
            shutil.rmtree(path)
        temporary.rename(path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    sync_dir(parent)
    for _, old in checkpoints(out)[: -max(1, keep)]:
        shutil.rmtree(old, ignore_errors=True)
    return path


def restore(path: Path, optimizer: Any) -> tuple[int, dict[str, Any]]:
    """Puts back what `save_checkpoint` saved beside the model, which is loaded from the same folder.

    Returns:
        Steps done, and the trainer's own state.

    Raises:
        ConfigError: the checkpoint has no such file.
    """
    import torch  # noqa: PLC0415

    if not (path / _STATE).is_file():
        raise ConfigError(f"{path} has no {_STATE}; it is a model, but no checkpoint of a run that could be resumed")
    saved = torch.load(path / _STATE, map_location="cpu", weights_only=True)
    optimizer.load_state_dict(saved["optimizer"])
    torch.set_rng_state(saved["rng"]["cpu"])
    if torch.cuda.is_available() and len(saved["rng"]["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(saved["rng"]["cuda"])
    return int(saved["step"]), dict(saved["state"])


class RunLog:
    """Writes a line of metrics a step to `metrics.jsonl`, transcripts to `samples.jsonl`, and both to TensorBoard.

    TensorBoard is left out where it is not installed.

    Args:
        out: the run folder.
        step: steps done so far: later lines, of a sitting that ended after its last checkpoint, are removed.
        tensorboard: False writes JSON lines alone.
    """

    def __init__(self, out: Path, *, step: int = 0, tensorboard: bool = True) -> None:
        out.mkdir(parents=True, exist_ok=True)
        self._file = _continued(out / "metrics.jsonl", step)
        self._samples = _continued(out / "samples.jsonl", step)
        self._board = _writer(out / "tensorboard", step) if tensorboard else None

    def write(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Writes a line; values that are no numbers go to the JSON lines alone."""
        self._file.write(json.dumps({"step": step, **metrics}) + "\n")
        self._file.flush()
        if self._board is not None:
            for name, value in metrics.items():
                if isinstance(value, (int, float)):
                    self._board.add_scalar(name, value, step)

    def sample(self, step: int, name: str, text: str) -> None:
        """Writes a transcript to `samples.jsonl`, and to TensorBoard."""
        self._samples.write(json.dumps({"step": step, "id": name, "text": text}) + "\n")
        self._samples.flush()
        if self._board is not None:
            self._board.add_text("samples", f"```\n{text}\n```", step)

    def close(self) -> None:
        """Writes what is left; calling it again does nothing."""
        for file in (self._file, self._samples):
            if not file.closed:
                file.flush()
                os.fsync(file.fileno())
                file.close()
        if self._board is not None:
            self._board.close()
            self._board = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _continued(path: Path, step: int) -> TextIO:
    """Opens a log to go on after a step."""
    kept = [row for row in read_metrics(path) if row["step"] <= step] if step else []
    atomic_write(path, "".join(json.dumps(row) + "\n" for row in kept))
    return path.open("a", encoding="utf-8")


def read_metrics(path: Path) -> Iterator[dict[str, Any]]:
    """Yields a run's lines of metrics; a last line that a crash cut short is left out."""
    if not path.exists():
        return
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            yield json.loads(line)


def _writer(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415
    except ImportError:
        return None
    make: Any = SummaryWriter
    return make(str(folder), purge_step=step + 1)
