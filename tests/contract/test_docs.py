"""What the documents say is run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])


def blocks(path: Path, language: str) -> list[str]:
    found: list[str] = []
    fence: tuple[str, list[str]] | None = None
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("```"):
            if fence:
                fence[1].append(line)
        elif fence is None:
            fence = (line[3:].strip(), [])
        else:
            if fence[0] == language:
                found.append("\n".join(fence[1]) + "\n")
            fence = None
    return found


COMMANDS = [
    shlex.split(line, comments=True)
    for path in DOCS
    for block in blocks(path, "bash")
    for line in block.splitlines()
    if line.strip()
]


@pytest.mark.slow
@pytest.mark.parametrize("command", [c for c in COMMANDS if c[0] == "grepseek"], ids=" ".join)
def test_console_commands_run(command: list[str], tmp_path: Path) -> None:
    out = subprocess.run(
        [sys.executable, "-m", "grepseek_env.cli", *command[1:]],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
        check=False,
    )
    assert out.returncode == 0, out.stderr
    assert out.stdout


# Commands outside ```bash blocks take long, serve until they are stopped, or need a file: their options are checked.
SHOWN = [
    shlex.split(line.strip(), comments=True)
    for path in DOCS
    for line in path.read_text(encoding="utf-8").splitlines()
    if line.strip().startswith("grepseek ")
]


@pytest.mark.parametrize("command", SHOWN, ids=" ".join)
def test_console_commands_that_are_shown_exist(command: list[str]) -> None:
    from grepseek_env.cli import _parser

    _parser(command[1:]).parse_args(command[1:])


@pytest.mark.parametrize("command", [c for c in COMMANDS if c[0] == "make"], ids=" ".join)
def test_make_targets_exist(command: list[str]) -> None:
    out = subprocess.run(["make", "-n", *command[1:]], capture_output=True, text=True, cwd=ROOT, check=False)
    assert out.returncode == 0, out.stderr


def test_no_other_commands_are_promised() -> None:
    assert {c[0] for c in COMMANDS} <= {"grepseek", "make", "bash", "python"}
    for command in COMMANDS:
        if command[0] == "bash":
            assert (ROOT / command[1]).exists()


def test_readme_python_runs() -> None:
    first = blocks(ROOT / "README.md", "python")[0]
    out = subprocess.run([sys.executable, "-c", first], capture_output=True, text=True, timeout=120, check=False)
    assert out.returncode == 0, out.stderr


def test_readme_keywords_are_the_environments() -> None:
    import inspect

    from grepseek_env.env import GrepSeekEnv

    names = set(inspect.signature(GrepSeekEnv).parameters)
    second = blocks(ROOT / "README.md", "python")[1]
    used = set(re.findall(r"^    (\w+)=", second, re.MULTILINE))
    table = re.search(r"\| keyword \|.*?\n\n", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert table
    used |= set(re.findall(r"`(\w+)`", " ".join(row.split("|")[1] for row in table.group().splitlines()[2:] if row)))
    assert used <= names | {"_chars"}


@pytest.mark.parametrize("path", DOCS, ids=lambda p: p.name)
def test_named_files_exist(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for name in re.findall(r"`((?:grepseek_env|tests|policies|algos|examples|docs)/[\w./-]*)`", text):
        assert (ROOT / name).exists(), name


def test_named_tests_exist() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in ROOT.glob("tests/**/*.py"))
    defined = set(re.findall(r"^ *def (test_\w+)\(", text, re.MULTILINE))
    defined |= {path.name for path in ROOT.glob("tests/**/test_*.py")}
    for path in DOCS:
        for name in re.findall(r"`(?:[\w./-]*[/:])?(test_[\w.]+)`", path.read_text(encoding="utf-8")):
            assert name in defined, f"{path.name} names {name}"


def test_file_tree_of_the_readme_is_true() -> None:
    (tree,) = (b for b in blocks(ROOT / "README.md", "") if b.startswith("grepseek_env/"))
    top = ""
    for line in tree.splitlines():
        name = line.split()[0]
        if not line.startswith(" "):
            top = name
        path = ROOT / (top + name if line.startswith(" ") else name)
        assert path.exists(), path
