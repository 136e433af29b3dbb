"""Loads the kernels where that is possible, and knows beforehand whether it will take seconds.

The first time on a machine they are compiled, which takes five to fifteen seconds; from then on they come from a cache
in a third of a second, most of it for numba itself. The cache folder's name holds a digest of every source file that
kernels are made of (numba itself looks only at the outermost function's), of numba's version and of the processor.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import os
import platform
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grepseek_env.errors import ConfigError
from grepseek_env.paths import atomic_write, cache_dir

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["WORTH_COMPILING", "are_compiled", "are_loaded", "are_possible", "code_folder", "load"]

WORTH_COMPILING = 64 << 20
"""Bytes of a corpus from which on commands may wait for a compilation."""

_SCANNING = "grepseek_env.engine.kernels.lines"
_SOURCES = ("kernels", "index")  # packages whose files make up kernels
_STAMP = "compiled"
_LOCK = threading.Lock()
_LOADED: list[Any] = []  # the scanning module, once it is whole
_REFUSED: list[str] = []  # what numba said when it would not be imported


def are_possible() -> bool:
    """Returns whether numba can be imported, as far as is known; where it cannot (musl, say), programs do all."""
    return not _REFUSED and _is_installed()


@functools.cache
def _is_installed() -> bool:
    return importlib.util.find_spec("numba") is not None


def are_loaded() -> bool:
    """Returns whether kernels can be used at once."""
    return bool(_LOADED)


def are_compiled() -> bool:
    """Returns whether `load` takes a moment only, since this machine has compiled them before."""
    if _LOADED:
        return True
    return are_possible() and bool(folder := code_folder()) and os.path.exists(f"{folder}/{_STAMP}")  # noqa: PTH110


def load(announce: Callable[[], object] = lambda: None) -> Any:
    """Returns the module of the scanning kernels, compiled first where that has not been done; None without numba.

    Args:
        announce: called before a compilation, which takes seconds.
    """
    if not _LOADED and are_possible():
        with _LOCK:
            if not _LOADED and not _REFUSED:
                compiled = are_compiled()
                if not compiled:
                    announce()
                try:
                    _LOADED.append(importlib.import_module(_SCANNING))
                except ImportError as error:  # numba says so of a numpy that is too new for it
                    _REFUSED.append(str(error))
                    return None
                if not compiled and (folder := code_folder()):
                    atomic_write(Path(folder) / _STAMP, "")
    return _LOADED[0] if _LOADED else None


@functools.cache
def code_folder() -> str:
    """Returns the folder for compiled code, in `$NUMBA_CACHE_DIR` if that is set; empty if none can be written."""
    own = os.environ.get("NUMBA_CACHE_DIR")
    try:
        folder = (Path(own) if own else cache_dir() / "kernels") / _digest()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ConfigError):
        return ""
    return str(folder) if os.access(folder, os.W_OK) else ""


def _digest() -> str:
    engine = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256(f"{sys.version} {importlib.metadata.version('numba')} {_processor()}".encode())
    for package in _SOURCES:
        for file in sorted((engine / package).glob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - a device, no path
            first = file.read(8192).partition("\n\n")[0].splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(line for line in first if line.startswith(("model name", "flags", "Features", "CPU part")))
