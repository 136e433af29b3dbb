"""What kernels bear as decorators; see `load` for where compiled code is kept."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import numba
from numba.core import types
from numba.extending import intrinsic

from grepseek_env.engine.kernels.load import code_folder

__all__ = ["U64", "emitted", "inline", "kernel"]

F = TypeVar("F", bound=Callable[..., Any])

_TYPES: Any = types
U64: Callable[[int], int] = _TYPES.uint64
_NJIT: Any = numba.njit
_LOCK = threading.Lock()
_OPTIONS = {"nogil": True, "boundscheck": False, "error_model": "numpy"}


def kernel(*signatures: object) -> Callable[[F], F]:
    """Compiles a function for these argument types when it is defined; it runs without the GIL.

    Args:
        signatures: numba signatures, such as ``"int64(uint64, uint64)"``.
    """

    def compile_it(function: F) -> F:
        with _LOCK:  # numba reads the folder where a function is declared, from a setting of the whole process
            settings: Any = numba.config
            before = settings.CACHE_DIR
            settings.CACHE_DIR = code_folder() or before
            try:
                return _compiled(function, signatures)
            finally:
                settings.CACHE_DIR = before

    return compile_it


def _compiled(function: F, signatures: tuple[object, ...]) -> F:
    try:
        made: F = _NJIT(list(signatures), cache=True, **_OPTIONS)(function)
    except (RuntimeError, OSError):  # nowhere to keep it: compiled anew in each process
        made = _NJIT(list(signatures), **_OPTIONS)(function)
    return made


def inline(function: F) -> F:
    """Declares a function that kernels call; it is compiled into each of them."""
    made: F = _NJIT(**_OPTIONS)(function)
    return made


def emitted(result: object, *arguments: object) -> Callable[[F], Callable[..., int]]:
    """Makes a primitive of a function that emits LLVM instructions: (builder, values...) -> value.

    Args:
        result: its numba type.
        arguments: theirs.
    """

    def declare(emit: F) -> Callable[..., int]:
        def typed(_context: object, *_given: object) -> tuple[object, Callable[..., Any]]:
            def generate(_codegen: object, builder: Any, _signature: object, values: tuple[Any, ...]) -> Any:
                return emit(builder, *values)

            return result(*arguments), generate  # type: ignore[operator] # a numba type called is a signature

        names = ", ".join(f"a{number}" for number in range(len(arguments)))
        # numba counts the parameters that it finds in the text of a signature.
        scope = {"typed": typed}
        exec(f"def define(context, {names}):\n    return typed(context, {names})", scope)  # noqa: S102 - fixed text
        define = scope["define"]
        define.__name__ = define.__qualname__ = emit.__name__
        define.__doc__ = emit.__doc__
        made: Callable[..., int] = intrinsic(define)
        return made

    return declare
