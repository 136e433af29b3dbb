"""Corpora for benchmarks: calibrated text alone, of any size."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from grepseek_env.errors import ConfigError
from grepseek_env.paths import cache_dir
from grepseek_env.tasks.world.config import GENERATOR_VERSION, parse_size
from grepseek_env.tasks.world.rng import key64
from grepseek_env.tasks.world.text import CalibratedText
from grepseek_env.tasks.world.writing import write_corpus

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

__all__ = ["BENCH_OPTIONS", "BenchText", "bench_corpus", "bench_path", "generate_corpus"]

BENCH_OPTIONS = ("bytes", "seed")
_LINES = 4096
_DEFAULT_BYTES = 64_000_000


@dataclass(frozen=True, slots=True)
class BenchText:
    """An endless calibrated corpus, in chunks.

    Attributes:
        seed: other seeds give other text from the same vocabulary.
    """

    seed: int = 0
    _text: CalibratedText = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_text", CalibratedText(key64("bench", self.seed)))

    @property
    def key(self) -> str:
        """Names the content."""
        return f"bench-{GENERATOR_VERSION}-{self.seed}"

    @property
    def chunks(self) -> int | None:
        """Endless: the size in bytes says where to stop."""
        return None

    def chunk(self, number: int) -> bytes:
        """Returns the JSON lines of one chunk."""
        bodies = self._text.bodies(number, _LINES)
        first = number * _LINES
        return b"".join(b'{"id": "%d", "contents": "%b"}\n' % item for item in enumerate(bodies, first))


def generate_corpus(
    path: str | os.PathLike[str],
    *,
    bytes: int | str,  # noqa: A002 - it reads well at the call, as in the name world:bench?bytes=1GB
    seed: int = 0,
    workers: int = 1,
    progress: bool = False,
) -> Path:
    """Writes a corpus of calibrated text, in the format of the reference corpus.

    The file ends with the last line that fits into `bytes`; a longer corpus of the same seed begins with the same
    lines. An interrupted run is continued, and the file appears only when it is whole.

    Args:
        path: the file to be.
        bytes: its size, as a number or as text such as "1.5GB".
        seed: other seeds give other text from the same vocabulary.
        workers: processes that generate.
        progress: show a progress bar on stderr.

    Raises:
        ConfigError: `bytes` is no size, or too small for a passage.
        CorpusError: the file cannot be written.
    """
    size = parse_size(bytes) if isinstance(bytes, str) else bytes
    if size < 16_384:
        raise ConfigError(f"bytes is {bytes!r}; a calibrated corpus has at least 16384")
    return write_corpus(BenchText(seed), Path(path), limit=size, workers=workers, progress=progress)


def bench_path(size: int, seed: int = 0) -> Path:
    """Returns where the cache folder has a calibrated corpus of `size` bytes, or will have it."""
    return cache_dir() / "worlds" / f"bench-{GENERATOR_VERSION}-{seed}-{size}" / "corpus.jsonl"


def bench_corpus(options: Mapping[str, str], *, progress: bool = False) -> Path:
    """Returns the path of a calibrated corpus in the cache folder; options are `bytes` and `seed`."""
    size = parse_size(options.get("bytes", str(_DEFAULT_BYTES)))
    seed = options.get("seed", "0")
    if not seed.isascii() or not seed.isdigit():
        raise ConfigError(f"world:bench: option seed is {seed!r}; it must be an integer of at least 0")
    return generate_corpus(bench_path(size, int(seed)), bytes=size, seed=int(seed), progress=progress)
