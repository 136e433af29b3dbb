"""`grepseek doctor`: what is installed, which programs are used, what confines a command here."""

from __future__ import annotations

import sys
from importlib import metadata

import grepseek_env
from grepseek_env.backend import open_corpus
from grepseek_env.corpus.view import ignore_files_above
from grepseek_env.engine.programs import open_programs
from grepseek_env.engine.sandbox import LIMITS_ENFORCED
from grepseek_env.errors import GrepSeekError
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


def _confinement() -> list[tuple[str, str]]:
    limits = "processor time, memory, temporary files, descriptors, no core files"
    return [
        ("command table", "yes: only declared programs and flags; no paths outside the corpus folder"),
        ("no shell", "yes: programs are started with their arguments, nothing is expanded"),
        ("own session", "yes: a time-out or an early end kills every process of the command"),
        ("stdin, environment", "yes: /dev/null; PATH, LC_ALL, HOME and a private TMPDIR, nothing inherited"),
        ("output and time", "yes: bounded where it is read"),
        ("resource limits", f"yes: {limits}" if LIMITS_ENFORCED else f"NO: this system has no prlimit ({limits})"),
        ("system sandbox", "NO: Landlock and seccomp are not used yet; run untrusted policies in a container"),
    ]


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
    _section("what confines a command", _confinement())
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
