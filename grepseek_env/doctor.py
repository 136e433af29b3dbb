"""`grepseek doctor`: what is installed, which programs are used, what confines a command here."""

from __future__ import annotations

import sys
import tempfile
import warnings
from importlib import metadata
from pathlib import Path

import grepseek_env
from grepseek_env.backend import open_corpus
from grepseek_env.corpus.view import ignore_files_above
from grepseek_env.engine.confine.probe import try_acts
from grepseek_env.engine.kernels import load as kernels
from grepseek_env.engine.programs import open_programs
from grepseek_env.engine.sandbox import LIMITS_ENFORCED, Sandbox
from grepseek_env.errors import GrepSeekError, SandboxWarning
from grepseek_env.paths import cache_dir

__all__ = ["doctor"]

_OPTIONAL = {
    "huggingface_hub": "corpus fetch (extra: hub)",
    "datasets": "the seven benchmark sets (extra: hub)",
    "tokenizers": "token caps (extra: tokenizers)",
    "transformers": "token caps by name (extra: tokenizers)",
    "torch": "models in this process, training (extra: torch)",
    "peft": "LoRA adapters (extra: torch)",
    "openai": "models behind a server (extra: openai)",
    "vllm": "generation at scale (extra: vllm)",
    "openrlhf": "training at scale (extra: openrlhf)",
    "ray": "many hosts (extra: ray)",
}


_LAYERS = {
    "no_new_privs": "setuid programs",
    "landlock": "reads of the corpus and the programs only, writes into sort's own folder only",
    "network": "no TCP",
    "signals": "none to processes outside",
    "seccomp": "no sockets, forks, other programs, changes of files, anything unusual",
    "processes": "a bounded number",
}


def _confinement() -> list[tuple[str, str]]:
    limits = "processor time, memory, temporary files, descriptors, no core files"
    return [
        ("command table", "yes: only declared programs and flags; no paths outside the corpus folder"),
        ("no shell", "yes: programs are started with their arguments, nothing is expanded"),
        ("own session", "yes: a time-out or an early end kills every process of the command"),
        ("stdin, environment", "yes: /dev/null; PATH, LC_ALL, HOME and a private TMPDIR, nothing inherited"),
        ("output and time", "yes: bounded where it is read"),
        ("resource limits", f"yes: {limits}" if LIMITS_ENFORCED else f"NO: this system has no prlimit ({limits})"),
        *_system_layers(),
    ]


def _system_layers() -> list[tuple[str, str]]:
    """Says what the operating system does here, as a program is started to find out."""
    if not sys.platform.startswith("linux"):
        return [("system sandbox", "NO: Linux only; run policies you do not trust in a container")]
    programs = open_programs()
    with tempfile.TemporaryDirectory(prefix="grepseek-doctor-") as temp:
        (Path(temp) / "corpus.jsonl").write_text("{}\n", encoding="utf-8")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SandboxWarning)  # the rows say it
            report = Sandbox(programs, Path(temp)).report()
    rows = [
        (layer, f"{'yes' if report[layer][0] else 'NO'}: {covers}; {report[layer][1]}")
        for layer, covers in _LAYERS.items()
    ]
    rows.append(("user", f"{'NO' if report['uid'] == 0 else 'yes'}: {report['user']}"))
    own = [name for name, words in programs.options.items() if words]
    rows.append(("own sandboxes", f"yes: {', '.join(own)}" if own else "NO: neither sed nor awk has one here"))
    rows.append(("file metadata", "NO: programs can ask whether a file exists, its size and times"))
    return rows


def _trials() -> list[tuple[str, str]]:
    """Tries from inside, with code of an attacker's own, what must not work."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SandboxWarning)
        tried = try_acts()
    return [(act.what, "NOT PREVENTED" if told == "done" else f"prevented ({told})") for act, told in tried.items()]


def _acceleration() -> list[tuple[str, str]]:
    """Says whether commands can be answered without programs, by kernels that are compiled once a machine."""
    if not kernels.are_possible():
        return [("kernels", "NO: numba cannot be used here; programs do the searching")]
    state = "compiled" if kernels.are_compiled() else "not compiled yet: the first corpus build or daemon does that"
    return [("kernels", f"yes: {state}  ({kernels.code_folder()})")]


def _section(title: str, rows: list[tuple[str, str]]) -> None:
    print(f"\n{title}")
    width = max((len(name) for name, _ in rows), default=0)
    for name, text in rows:
        print(f"  {name:<{width}}  {text}")


def doctor(corpus: str) -> int:
    """Prints the report; returns 0 when commands can be run over `corpus`, else 1."""
    problems: list[str] = []
    print(f"grepseek-env {grepseek_env.__version__}, Python {sys.version.split()[0]}, {sys.platform}")
    try:
        programs = open_programs()
        rows = [(name, f"{text}  ({programs.targets[name]})") for name, text in sorted(programs.versions.items())]
        _section("programs", rows)
    except GrepSeekError as e:
        problems.append(str(e))
    else:
        try:
            _section("what confines a command", _confinement())
            if sys.platform.startswith("linux"):
                _section("tried just now, with code of an attacker's own in the place of a program", _trials())
        except GrepSeekError as e:
            problems.append(str(e))
    _section("search in process", _acceleration())
    rows = []
    for package, use in _OPTIONAL.items():
        try:
            rows.append((package, f"{metadata.version(package)}, for {use}"))
        except metadata.PackageNotFoundError:
            rows.append((package, f"not installed; for {use}"))
    _section("optional packages", rows)
    try:
        store = open_corpus(corpus)
        rows = [("corpus", f"{store.path}"), ("digest", store.digest), ("view", f"{store.view}")]
        rows += [
            ("warning", f"{path} can hide the corpus from rg without a file name")
            for path in ignore_files_above(store.view)
        ]
        rows.append(("cache", f"{cache_dir()}"))
        _section("corpus", rows)
    except GrepSeekError as e:
        problems.append(str(e))
    for problem in problems:
        print(f"\nproblem: {problem}")
    print("\nready" if not problems else f"\n{len(problems)} problem(s)")
    return 1 if problems else 0
