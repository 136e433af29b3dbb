"""From what a user calls a corpus in parts to its backend."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from grepseek_env.config import Limits, closest
from grepseek_env.distributed.parts import SUFFIX, is_manifest
from grepseek_env.engine.local import DEFAULT_CACHE_BYTES, MODES
from grepseek_env.errors import ConfigError

if TYPE_CHECKING:
    from typing import TypeGuard

    from grepseek_env.distributed.backend import PartsBackend
    from grepseek_env.distributed.hosts import HostOptions
    from grepseek_env.distributed.links import LocalLinks
    from grepseek_env.distributed.parts import PartsManifest
    from grepseek_env.engine.sandbox import Confine

__all__ = ["is_parts", "open_parts"]

_RAY = "ray://"
_ADDRESS = re.compile(r"ray://(?P<address>[^/]*)(?P<path>/.+)", re.DOTALL)


def is_parts(corpus: object) -> TypeGuard[str | os.PathLike[str]]:
    """Returns whether `corpus` names a corpus in parts: a manifest, or `ray://` and the path of one."""
    return is_manifest(corpus) or (isinstance(corpus, str) and corpus.startswith(_RAY))


def in_process(manifest: PartsManifest, options: HostOptions, at_once: int) -> LocalLinks:
    """Opens all parts in this process."""
    from grepseek_env.distributed.links import LocalLinks  # noqa: PLC0415 - as in `open_parts`

    return LocalLinks(manifest.parts, options, at_once)


def open_parts(
    corpus: str | os.PathLike[str],
    mode: str = "auto",
    *,
    limits: Limits | None = None,
    sandbox: Confine = "auto",
    index: bool = True,
    locale: str = "C",
    whole_bytes: int | None = None,
    memory: int | None = None,
    cache_bytes: int = DEFAULT_CACHE_BYTES,
) -> PartsBackend:
    """Opens a corpus in parts.

    Args:
        corpus: the path of a manifest, whose parts are then opened in this process; ``ray:///PATH`` for actors of the
            Ray cluster that this process belongs to, or else of `$RAY_ADDRESS`, or else of this machine;
            ``ray://HOST:PORT/PATH`` for those of a cluster that is reached through Ray's client server. The manifest
            is read here, its parts where the actors are.
        mode: how commands run over each part; see `open_backend`.
        limits: what one command may use, here and on each host.
        sandbox: see `open_backend`; holds on each host.
        index: use the indexes of parts, where there are any.
        locale: LC_ALL of the programs.
        whole_bytes: see `PartsBackend`; None takes its own.
        memory: see `RayConnect`.
        cache_bytes: of earlier results, on each host; see `LocalBackend`.

    Raises:
        ConfigError: an option cannot work, Ray is not installed, or hosts have different programs.
        CorpusError: a part cannot be opened.
        EngineFault: a cluster or host cannot be reached.
    """
    from grepseek_env.distributed.backend import WHOLE_BYTES, PartsBackend  # noqa: PLC0415 - few need it, and it costs
    from grepseek_env.distributed.hosts import HostOptions  # noqa: PLC0415 - the same
    from grepseek_env.distributed.parts import PartsManifest  # noqa: PLC0415 - the same
    from grepseek_env.distributed.ray_links import RayConnect  # noqa: PLC0415 - the same

    if mode not in MODES:
        accepted = ", ".join(map(repr, MODES))
        raise ConfigError(f"no mode is named {mode!r}{closest(mode, list(MODES))}; modes are {accepted}")
    options = HostOptions(limits or Limits(), mode, locale, sandbox, index, cache_bytes)
    name = os.fspath(corpus)
    whole = WHOLE_BYTES if whole_bytes is None else whole_bytes
    if not name.startswith(_RAY):
        return PartsBackend(PartsManifest.read(name), in_process, options, whole_bytes=whole)
    found = _ADDRESS.fullmatch(name)
    if found is None or not is_manifest(found["path"]):
        raise ConfigError(f"corpus is {name!r}; it must be ray:///PATH{SUFFIX} or ray://HOST:PORT/PATH{SUFFIX}")
    connect = RayConnect(found["address"], memory)
    return PartsBackend(PartsManifest.read(Path(found["path"])), connect, options, whole_bytes=whole)
