"""`open_backend()`: one call from a corpus, whatever names it, to a SearchBackend."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from grepseek_env.config import Limits
from grepseek_env.corpus.store import CorpusStore
from grepseek_env.daemon.address import default_socket
from grepseek_env.daemon.find import find_daemon
from grepseek_env.distributed.open import is_parts, open_parts
from grepseek_env.engine.local import LocalBackend
from grepseek_env.engine.sandbox import check_confine
from grepseek_env.errors import ConfigError
from grepseek_env.tasks.registry import resolve_corpus

if TYPE_CHECKING:
    from grepseek_env.engine.sandbox import Confine
    from grepseek_env.types import SearchBackend

__all__ = ["open_backend", "open_corpus"]


def open_corpus(corpus: str | PathLike[str] | CorpusStore, *, progress: bool = False) -> CorpusStore:
    """Opens a corpus, preparing it first where that has not been done.

    Args:
        corpus: a JSONL or text file, a folder, a `CorpusStore`, or a name (``"world:tiny"``, ``"wiki18"``).
        progress: show a progress bar while a corpus is generated or prepared.

    Raises:
        CorpusNotFound: nothing of this path or name exists.
        CorpusInvalid: the file cannot be used; names the line.
        ConfigError: `corpus` is none of these.
    """
    if isinstance(corpus, CorpusStore):
        return corpus
    if not isinstance(corpus, (str, PathLike)):
        raise ConfigError(f"corpus is {corpus!r}; it must be a path, a CorpusStore or a name such as 'world:tiny'")
    if is_parts(corpus):
        raise ConfigError(f"{corpus} is a corpus in parts, which has no store of its own: pass it to open_backend()")
    path = Path(corpus)
    if not path.exists() and isinstance(corpus, str):
        path = resolve_corpus(corpus, progress=progress)
    return CorpusStore.open(path, progress=progress)


def open_backend(
    corpus: str | PathLike[str] | CorpusStore = "world:tiny",
    mode: str = "auto",
    *,
    limits: Limits | None = None,
    slices: int | None = None,
    daemon: bool | str | PathLike[str] | None = None,
    sandbox: Confine = "auto",
    index: bool = True,
    progress: bool = False,
) -> SearchBackend:
    """Opens a corpus and the engine that runs commands over it: a running daemon's if one serves it, else its own.

    Args:
        corpus: see `open_corpus`; or a corpus in parts: a manifest ``NAME.parts.json`` opens them in this process,
            ``ray:///PATH`` and ``ray://HOST:PORT/PATH`` in Ray actors. Slices and daemons are not for these.
        mode: "auto" chooses; "sequential" runs the pipeline as it stands; "sliced" runs it on slices of the corpus
            side by side wherever that is not slower; "narrowed" looks for literals in this process, wherever a
            command needs any, and starts programs for the rest only. Output and exit code never differ.
        limits: what one command may use.
        slices: how many slices a command may work on side by side; None: as many as there are cores. Slice files of
            this number are used if `grepseek corpus build --slices` made them. A daemon has its own.
        daemon: None uses the daemon at `$GREPSEEK_DAEMON`, or else at the corpus's usual socket, if it serves this
            corpus with these limits and this mode; False never does; True wants one at the usual socket; an address
            (a socket's path or ``tcp://HOST:PORT``) wants the one there.
        sandbox: what the operating system keeps programs from: "auto" all that it can, with a warning where a layer is
            missing; "require" refuses to work without, and takes no daemon that was not started so; "off" nothing but
            limits.
        index: use the corpus's token index where there is one (`grepseek corpus build --index`), in "auto" and
            "narrowed". A daemon always does.
        progress: show a progress bar while a corpus is generated or prepared.

    Raises:
        ConfigError: no such mode, fewer than one slice, or the daemon that was asked for serves another corpus, mode
            or other limits.
        CorpusError: the corpus cannot be opened.
        EngineFault: no daemon can be reached where one was asked for.
        ProgramMissing: a program of the command language is not installed.
        SandboxMissing: sandbox is "require" and a layer of it is missing.
    """
    check_confine(sandbox)
    if not isinstance(mode, str):
        raise ConfigError(f"mode is {mode!r}; it must be a name such as 'auto'")
    if slices is not None and (isinstance(slices, bool) or not isinstance(slices, int)):
        raise ConfigError(f"slices is {slices!r}; it must be a whole number, or None for one a core")
    limits = Limits() if limits is None else limits
    if is_parts(corpus):
        return open_parts(corpus, mode, limits=limits, sandbox=sandbox, index=index)
    store = open_corpus(corpus, progress=progress)
    if daemon is not False:
        address = default_socket(store.digest).path if daemon is True else daemon
        client = find_daemon(store.digest, address=address, mode=mode, limits=limits, sandbox=sandbox)
        if client is not None:
            if store is not corpus:
                store.close()
            return client
    return LocalBackend(store, limits=limits, mode=mode, slices=slices, sandbox=sandbox, index=index)
