"""Public corpora by name, through the Hugging Face Hub (extra `hub`)."""

from __future__ import annotations

import contextlib
import errno
import gzip
import os
import shutil
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grepseek_env.config import closest
from grepseek_env.corpus.reading import meter
from grepseek_env.errors import ConfigError, CorpusError, CorpusInvalid, CorpusNotFound, SourceUnavailable
from grepseek_env.paths import cache_dir, file_lock, sync_dir

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["SOURCES", "Source", "fetch"]

_SPARE_BYTES = 256 << 20
_BLOCK = 4 << 20


@dataclass(frozen=True, slots=True)
class Source:
    """A corpus on the Hub.

    Attributes:
        repository: name of the data set.
        packed: its gzip file.
        name: the file that it becomes.
        packed_bytes: about how long the gzip file is; what the Hub serves counts.
        unpacked_bytes: about how long the corpus is.
        description: in words.
    """

    repository: str
    packed: str
    name: str
    packed_bytes: int
    unpacked_bytes: int
    description: str


SOURCES = {
    "wiki18": Source(
        repository="PeterJinGo/wiki-18-corpus",
        packed="wiki-18.jsonl.gz",
        name="wiki-18.jsonl",
        packed_bytes=5_000_000_000,
        unpacked_bytes=14_300_000_000,
        description="Wikipedia of December 2018 in 21 million passages of 100 words",
    )
}


def fetch(name: str, into: str | os.PathLike[str] | None = None, *, progress: bool = True) -> Path:
    """Downloads and unpacks a public corpus, unless it is there; every stage that is finished is kept.

    The download goes through the Hub's own cache, which continues a broken one. Unpacking starts over if it is broken
    off. The packed file stays in the Hub's cache (`hf cache` removes it).

    Args:
        name: a key of `SOURCES`.
        into: folder of the corpus file; None takes `corpora` in the cache folder.
        progress: show a bar while unpacking; the Hub's library shows its own (HF_HUB_DISABLE_PROGRESS_BARS=1 hides it).

    Returns:
        the corpus file; `CorpusStore.open` takes it.

    Raises:
        CorpusNotFound: no corpus has this name.
        ConfigError: huggingface_hub is not installed.
        CorpusError: the disk has too little room; says how much is needed and free.
        SourceUnavailable: the Hub cannot be reached or does not serve the file.
        CorpusInvalid: the downloaded file is damaged.
    """
    source = SOURCES.get(name)
    if source is None:
        known = ", ".join(SOURCES)
        raise CorpusNotFound(f"no public corpus is named {name!r}{closest(name, list(SOURCES))}; known: {known}")
    folder = Path(into).absolute() if into is not None else cache_dir() / "corpora"
    target = folder / source.name
    if target.is_file():
        return target
    try:
        with file_lock(folder / f".{source.name}.lock", on_wait=lambda: _say(f"waiting for another fetch of {name}")):
            if not target.is_file():
                _fetch(name, source, target, progress=progress)
    except OSError as error:
        if isinstance(error, (CorpusNotFound, SourceUnavailable)):
            raise
        if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
            raise CorpusError(
                f"no room for {name} in {folder} ({error}): choose another folder with into=..."
            ) from error
        raise CorpusError(f"cannot put {name} into {folder} ({error}): choose another folder with into=...") from error
    return target


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _fetch(name: str, source: Source, target: Path, *, progress: bool) -> None:
    hub, hub_cache = _hub()
    cached = hub.try_to_load_from_cache(source.repository, source.packed, repo_type="dataset")
    packed = Path(cached) if isinstance(cached, str) else None
    _check_room(name, source, target.parent, hub_cache, packed)
    if packed is None:
        packed = _download(name, hub, source)
    _unpack(packed, target, progress=progress)


def _hub() -> tuple[ModuleType, Path]:
    """Returns the Hub's library and the folder of its cache, which may not exist yet."""
    try:
        import huggingface_hub  # noqa: PLC0415 - an extra
        from huggingface_hub import constants  # noqa: PLC0415 - no attribute until it is imported
    except ImportError as error:
        raise ConfigError(
            "fetching a public corpus needs huggingface_hub: pip install 'grepseek-env[hub]'. Without it any JSONL "
            "file of passages can be used as the corpus"
        ) from error
    return huggingface_hub, Path(constants.HF_HUB_CACHE)


def _check_room(name: str, source: Source, folder: Path, hub_cache: Path, packed: Path | None) -> None:
    cache = next(path for path in (hub_cache.absolute(), *hub_cache.absolute().parents) if path.exists())
    needs = {folder: source.unpacked_bytes}
    if packed is None:
        same_disk = cache.stat().st_dev == folder.stat().st_dev
        place = folder if same_disk else cache
        needs[place] = needs.get(place, 0) + source.packed_bytes
    for place, needed in needs.items():
        free = shutil.disk_usage(place).free
        if free < needed + _SPARE_BYTES:
            raise CorpusError(
                f"{name} needs about {needed + _SPARE_BYTES:,} bytes in {place}; {free:,} are free. Free some, choose "
                "another folder with into=... (--into), or move the Hub's cache with HF_HOME"
            )


def _download(name: str, hub: Any, source: Source) -> Path:
    try:
        return Path(hub.hf_hub_download(source.repository, source.packed, repo_type="dataset"))
    except _unreachable() as error:
        if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise
        first = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise SourceUnavailable(
            f"{name} ({source.packed} of the Hub data set {source.repository}) could not be loaded: {first}. Whatever "
            "came so far is kept: run it again when the Hub can be reached. Or use another corpus: any JSONL or text "
            "file, or a generated one such as world:small"
        ) from error


def _unreachable() -> tuple[type[BaseException], ...]:
    """What the Hub's library raises when it cannot load a file; its HTTP libraries keep error trees of their own."""
    trees = ((sys.modules.get("httpx"), "HTTPError"), (sys.modules.get("requests"), "RequestException"))
    return (OSError, ValueError, RuntimeError, *(getattr(module, name) for module, name in trees if module))


def _unpack(packed: Path, target: Path, *, progress: bool) -> None:
    partial = target.with_name(f".{target.name}.partial")
    try:
        with packed.open("rb") as raw, gzip.open(raw) as source, partial.open("wb") as out:
            with meter(packed.stat().st_size, f"unpacking {target.name}", enabled=progress) as advance:
                done = 0
                while block := source.read(_BLOCK):
                    out.write(block)
                    advance(raw.tell() - done)
                    done = raw.tell()
            out.flush()
            os.fsync(out.fileno())
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        partial.unlink(missing_ok=True)
        raise CorpusInvalid(f"the download {packed} is damaged ({error}): delete it and fetch again") from error
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
    partial.replace(target)
    sync_dir(target.parent)
