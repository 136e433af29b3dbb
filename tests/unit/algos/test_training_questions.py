"""Nothing is trained on the questions of the evaluation, which a benchmark's mere name stands for elsewhere."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from algos.tutor_planner.__main__ import main as tutor
from grepseek_env.errors import SourceUnavailable

if TYPE_CHECKING:
    from pathlib import Path

TRAIN = "nq (79,168, split train)"  # what would be loaded is told where it cannot be


@pytest.fixture(autouse=True)
def _nothing_can_be_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GREPSEEK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "datasets", None)


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"id": "0", "contents": "Ulm"}\n', encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(("source", "loaded"), [("nq", TRAIN), ("nq/test", "nq (3,610, split test)")])
def test_demonstrations(
    source: str, loaded: str, corpus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["generate", "--questions", source, "--corpus", corpus, "--out", str(tmp_path / "out"), "--quiet"]
    assert tutor(command) == 1
    assert loaded in capsys.readouterr().err


def test_grpo(corpus: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from algos.grpo import Args
    from algos.grpo_world import World
    from algos.training import load_policy
    from policies.tiny_model import make_tiny_model

    model, tokenizer, _ = load_policy(make_tiny_model(tmp_path / "m", ["Where? Ulm."] * 9, vocab=500))
    args = Args(model="m", out=tmp_path / "out", corpus=corpus, questions="nq")
    with pytest.raises(SourceUnavailable, match=r"nq \(79,168, split train\)"):
        World(args, model, tokenizer)
