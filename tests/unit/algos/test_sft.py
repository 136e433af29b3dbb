"""Supervised training: what is learnt, evaluation apart, and resuming bit for bit."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from algos import sft
from algos.base import run
from algos.batches import collate, forward_tokens
from algos.training import checkpoints
from grepseek_env.errors import ConfigError
from grepseek_env.tokens import ChatTokens
from grepseek_env.trajectory import read_trajectories
from tests.support import tiny_training

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("sft")
    return tiny_training.model(folder / "model"), tiny_training.demonstrations(folder / "demos")


def settings(ground: tuple[Path, Path], out: Path, **changes: object) -> sft.Args:
    base = sft.Args(
        str(ground[0]),
        ground[1],
        out,
        epochs=2,
        batch_size=3,
        max_length=200,
        learning_rate=1e-2,
        held_out=0.2,
        eval_every=0,
        save_every=2,
        tensorboard=False,
        quiet=True,
    )
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def whole(ground: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "run"
    sft.main(settings(ground, out))
    return out


def test_it_learns_and_measures_what_it_has_not_seen(whole: Path) -> None:
    rows = tiny_training.metrics(whole)
    assert rows[-1]["loss"] < rows[1]["loss"] / 1.3
    assert rows[-1]["eval_loss"] < rows[0]["eval_loss"] / 1.3
    assert 0 <= rows[-1]["eval_accuracy"] <= 1
    assert {key for row in rows for key in row} <= {"step", *sft.METRICS}


@pytest.mark.parametrize("stop", [1, 3])
def test_a_stopped_run_ends_with_the_same_weights(
    ground: tuple[Path, Path], tmp_path: Path, whole: Path, stop: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is stopped after its step `stop`: before a checkpoint at all, and one step after one."""
    step = sft._Run.step

    def stopped(self: sft._Run, number: int) -> dict[str, object]:
        if number == stop:
            raise KeyboardInterrupt
        return step(self, number)

    with monkeypatch.context() as patch:
        patch.setattr(sft._Run, "step", stopped)
        with pytest.raises(KeyboardInterrupt):
            sft.main(settings(ground, tmp_path / "run"))
    torch.manual_seed(12345)  # whatever the process did meanwhile
    sft.main(settings(ground, tmp_path / "run"))
    assert tiny_training.same_weights(tmp_path / "run", whole)
    assert tiny_training.metrics(tmp_path / "run") == tiny_training.metrics(whole)


def test_micro_batches_change_nothing_but_rounding(ground: tuple[Path, Path], tmp_path: Path) -> None:
    for name, most in (("one", 10**6), ("many", 1)):
        sft.main(settings(ground, tmp_path / name, steps=2, micro_tokens=most))
    one, many = tiny_training.metrics(tmp_path / "one"), tiny_training.metrics(tmp_path / "many")
    assert [row["loss"] for row in one[1:]] == pytest.approx([row["loss"] for row in many[1:]], rel=1e-4)
    assert [row["gradient_norm"] for row in one[1:]] == pytest.approx(
        [row["gradient_norm"] for row in many[1:]], rel=1e-3
    )


def test_the_loss_is_that_of_the_policy_tokens_alone(ground: tuple[Path, Path]) -> None:
    """Against the model's own loss with labels of -100 outside the mask; learnt tokens decode to the turns."""
    tokenizer = AutoTokenizer.from_pretrained(ground[0])
    model = AutoModelForCausalLM.from_pretrained(ground[0])
    tokens = ChatTokens(tokenizer)
    examples = sft.load_examples(ground[1], tokens, held_out=0, max_length=10**6)
    trajectories = list(read_trajectories(ground[1] / "trajectories.jsonl"))
    assert len(trajectories) == len(examples.train)
    for sample, trajectory in zip(examples.train, trajectories, strict=True):
        learnt = [i for i, m in zip(sample.ids, sample.mask, strict=True) if m]
        assert tokens.decode(learnt) == "".join(turn.text for turn in trajectory.turns)
    sample = examples.train[0]
    with torch.no_grad():
        logprobs, _ = forward_tokens(model, collate([sample], pad=0))
        labels = torch.tensor([[i if m else -100 for i, m in zip(sample.ids, sample.mask, strict=True)]])
        theirs = model(input_ids=torch.tensor([sample.ids]), labels=labels).loss
    assert torch.allclose(-logprobs.mean(), theirs, atol=1e-5)


def test_no_question_is_on_both_sides_and_long_ones_are_cut(ground: tuple[Path, Path]) -> None:
    tokens = ChatTokens.load(str(ground[0]))
    whole = sft.load_examples(ground[1], tokens, held_out=0.3, max_length=10**6)
    assert whole.held_out
    assert whole.cut == 0
    assert not set(whole.train) & set(whole.held_out)
    cut = sft.load_examples(ground[1], tokens, held_out=0, max_length=100)
    assert cut.cut > 0
    assert max(len(s.ids) for s in cut.train) == 100


def test_checkpoints_are_models_and_old_ones_go(whole: Path) -> None:
    saved = checkpoints(whole)
    assert [step for step, _ in saved][-1] == len(tiny_training.metrics(whole)) - 1
    assert len(saved) == 2
    AutoModelForCausalLM.from_pretrained(saved[-1][1])


def test_what_cannot_work_is_one_line(
    ground: tuple[Path, Path], tmp_path: Path, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(sft, ["--model", str(ground[0]), "--data", str(tmp_path), "--out", str(tmp_path / "o")]) == 1
    assert "trajectories.jsonl does not exist" in capsys.readouterr().err
    assert run(sft, ["--model", str(tmp_path), "--data", str(ground[1]), "--out", str(tmp_path / "p")]) == 1
    assert "no model can be loaded" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="holds a run with seed = 0, this one has 1"):
        sft.main(settings(ground, whole, seed=1))
    with pytest.raises(ConfigError, match=r"held_out is 1\.0"):
        settings(ground, whole, held_out=1.0)
