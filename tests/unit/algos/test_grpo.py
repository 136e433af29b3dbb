"""GRPO: the update against autograd, what is left out, learning, and resuming bit for bit."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import TYPE_CHECKING, Any

import pytest
import torch

from algos import grpo, grpo_update, grpo_world
from algos.batches import Sample, collate, forward_tokens
from algos.grpo_metrics import METRICS
from algos.grpo_rollout import play_groups
from algos.grpo_update import Updater
from algos.losses import group_advantages
from algos.rollout import Group
from algos.training import load_policy, make_optimizer
from grepseek_env.env import GrepSeekEnv
from grepseek_env.errors import ConfigError
from grepseek_env.tokens import ChatTokens
from policies.chat import Sampling
from policies.tiny_sampler import LiveModel
from tests.support import tiny_training

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_training.model(tmp_path_factory.mktemp("grpo") / "model")


@pytest.fixture(scope="module")
def env() -> Iterator[GrepSeekEnv]:
    env = GrepSeekEnv(shuffle=False, action_format="plain", max_turns=2, system_prompt=tiny_training.PROMPT)
    yield env
    env.close()


def settings(start: Path, out: Path, **changes: Any) -> grpo.Args:
    base = grpo.Args(
        str(start),
        out,
        steps=6,
        questions_per_step=6,
        group_size=4,
        mini_batch=3,
        learning_rate=2e-2,
        micro_tokens=400,
        turn_tokens=6,
        context_tokens=400,
        max_turns=2,
        action_format="plain",
        system_prompt=tiny_training.PROMPT,
        save_every=2,
        tensorboard=False,
        quiet=True,
    )
    return dataclasses.replace(base, **changes)


def even(group: Group) -> Group:
    """Pays the share of even token ids: something that random weights can learn."""

    def paid(t: Any) -> Any:
        ids = [i for turn in t.turns for i in turn.token_ids]
        return dataclasses.replace(t, reward=sum(i % 2 == 0 for i in ids) / len(ids))

    return Group(group.question, tuple(map(paid, group.trajectories)))


@pytest.fixture
def paid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpo_world, "play_groups", lambda *a, **k: [even(g) for g in play_groups(*a, **k)])


@pytest.fixture(scope="module")
def groups(start: Path, env: GrepSeekEnv) -> list[Group]:
    model, tokenizer, _ = load_policy(start, device="cpu")
    sampling = Sampling(max_tokens=6, logprobs=True)
    live = LiveModel(model, tokenizer)
    played = play_groups(env.rules, env.backend, live, env.question_set[:3], 4, sampling, seed=5)
    return [even(g) for g in played]


def updated(start: Path, args: grpo.Args, groups: list[Group], rate: float = 0.0) -> tuple[dict[str, float], Any]:
    model, tokenizer, device = load_policy(start, device="cpu")
    optimizer = make_optimizer(model, beta1=0.9, beta2=0.999, weight_decay=0.0)
    reference = load_policy(start, device="cpu")[0] if args.kl else None
    return Updater(args, model, tokenizer, optimizer, device, reference).update(groups, rate), model


def gradient_norm(start: Path, groups: list[Group], weigh: Any) -> float:
    """Returns the norm of the gradient of -sum(weight x advantage x logprob), straight from autograd."""
    model, tokenizer, _ = load_policy(start, device="cpu")
    tokens = ChatTokens(tokenizer)
    advantages = group_advantages([g.rewards for g in groups]).values
    loss = torch.zeros(())
    for group, values in zip(groups, advantages, strict=True):
        for trajectory, advantage in zip(group.valid, values, strict=True):
            sample = Sample.of(tokens.trajectory(trajectory))
            logprobs, _ = forward_tokens(model, collate([sample], pad=0))
            loss = loss - weigh(sample) * advantage * logprobs.sum()
    loss.backward()
    return math.sqrt(sum(float((p.grad**2).sum()) for p in model.parameters() if p.grad is not None))


def learnt(start: Path, groups: list[Group]) -> int:
    tokens = ChatTokens(load_policy(start, device="cpu")[1])
    return sum(Sample.of(tokens.trajectory(t)).learnt for g in groups for t in g.valid)


@pytest.mark.slow
@pytest.mark.parametrize("old", ["sampler", "trainer"])
def test_the_first_update_is_the_policy_gradient(start: Path, tmp_path: Path, groups: list[Group], old: str) -> None:
    args = settings(start, tmp_path, old_logprobs=old)
    metrics, _ = updated(start, args, groups)
    count = learnt(start, groups)
    assert metrics["gradient_norm"] == pytest.approx(gradient_norm(start, groups, lambda _: 1 / count), rel=1e-3)
    assert metrics["ratio"] == pytest.approx(1, abs=1e-4)
    assert metrics["clip_fraction"] == 0
    assert metrics["sampler_mismatch"] < 1e-4
    assert metrics["updates"] == 1


def test_rollouts_are_gone_through_in_parts_as_large_as_asked_for(
    start: Path, tmp_path: Path, groups: list[Group], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def counted(samples: Any, **options: Any) -> Any:
        seen.append(sum(len(s.ids) for s in samples))
        return collate(samples, **options)

    monkeypatch.setattr(grpo_update, "collate", counted)
    few, _ = updated(start, settings(start, tmp_path, old_logprobs="trainer", micro_tokens=1), groups)
    alone, largest = len(seen), max(seen)
    many, _ = updated(start, settings(start, tmp_path, old_logprobs="trainer", micro_tokens=1 << 20), groups)
    assert alone == 2 * sum(len(g.valid) for g in groups)  # once for the trainer's own, once for the update
    assert max(seen[alone:]) > largest
    assert few.pop("gradient_norm") == pytest.approx(many.pop("gradient_norm"), rel=1e-3)
    assert few == pytest.approx(many, abs=1e-5)


@pytest.mark.slow
def test_aggregations_differ_as_they_should(start: Path, tmp_path: Path, groups: list[Group]) -> None:
    rows = sum(len(g.valid) for g in groups)
    by_hand = {
        "sequence": lambda s: 1 / (rows * s.learnt),
        "constant": lambda s: 1 / (rows * 400),  # noqa: ARG005 - Dr.GRPO does not look at lengths
    }
    for name, weigh in by_hand.items():
        metrics, _ = updated(start, settings(start, tmp_path, aggregation=name), groups)
        assert metrics["gradient_norm"] == pytest.approx(gradient_norm(start, groups, weigh), rel=1e-3)


def test_rollouts_that_failed_are_left_out(start: Path, tmp_path: Path, groups: list[Group]) -> None:
    bad = dataclasses.replace(groups[0].trajectories[1], reward=99.0, reward_valid=False)
    faulty = [Group(groups[0].question, (*groups[0].trajectories, bad)), *groups[1:]]
    with_fault, _ = updated(start, settings(start, tmp_path), faulty)
    without, _ = updated(start, settings(start, tmp_path), groups)
    assert (with_fault.pop("faults"), without.pop("faults")) == (1, 0)
    assert with_fault == without


def test_flat_groups_are_counted_and_move_nothing(start: Path, tmp_path: Path, groups: list[Group]) -> None:
    flat = [Group(g.question, tuple(dataclasses.replace(t, reward=0.1) for t in g.trajectories)) for g in groups]
    metrics, model = updated(start, settings(start, tmp_path), flat, rate=0.1)
    assert metrics["flat_groups"] == 1
    assert metrics["updates"] == 0
    untouched = load_policy(start, device="cpu")[0].state_dict()
    assert all(torch.equal(v, untouched[k]) for k, v in model.state_dict().items())
    mixed = [groups[0], *flat[1:]]
    kept, _ = updated(start, settings(start, tmp_path), mixed)
    left, _ = updated(start, settings(start, tmp_path, filter_flat=True), mixed)
    share = learnt(start, mixed[:1]) / learnt(start, mixed)
    assert kept["gradient_norm"] == pytest.approx(left["gradient_norm"] * share, rel=1e-3)


def test_kl_and_entropy_are_terms_of_their_own(start: Path, tmp_path: Path, groups: list[Group]) -> None:
    metrics, _ = updated(start, settings(start, tmp_path, kl=0.1, entropy=0.01), groups)
    assert metrics["kl"] == pytest.approx(0, abs=1e-6)  # the policy is still the reference
    plain, _ = updated(start, settings(start, tmp_path), groups)
    assert metrics["loss"] == pytest.approx(plain["loss"] - 0.01 * plain["entropy"], abs=1e-4)
    assert "kl" not in plain


def test_several_updates_a_batch_move_the_ratio(start: Path, tmp_path: Path, groups: list[Group]) -> None:
    metrics, _ = updated(start, settings(start, tmp_path, mini_batch=1, epochs=3), groups, rate=2e-2)
    assert metrics["updates"] == 9
    assert metrics["clip_fraction"] > 0


@pytest.fixture(scope="module")
def whole(start: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grpo_world, "play_groups", lambda *a, **k: [even(g) for g in play_groups(*a, **k)])
        grpo.main(settings(start, out))
    return out


@pytest.mark.slow
def test_the_reward_rises_and_every_metric_is_explained(whole: Path) -> None:
    rows = tiny_training.metrics(whole)
    assert rows[-1]["reward_mean"] > rows[0]["reward_mean"] + 0.1
    assert {key for row in rows for key in row} - {"step"} <= METRICS.keys()
    assert [row["question_batches"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert (whole / "samples.jsonl").read_text(encoding="utf-8").count("\n") == 12


@pytest.mark.slow
@pytest.mark.usefixtures("paid")
@pytest.mark.parametrize("stop", [1, 3])
def test_a_stopped_run_ends_with_the_same_weights(
    start: Path, tmp_path: Path, whole: Path, stop: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights, optimiser, questions, sampling: the run is stopped before any checkpoint, and one step after one."""
    sample = grpo_world.World.sample
    calls = iter(range(stop))

    def stopped(self: Any) -> Any:
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return sample(self)

    with monkeypatch.context() as patch:
        patch.setattr(grpo_world.World, "sample", stopped)
        with pytest.raises(KeyboardInterrupt):
            grpo.main(settings(start, tmp_path / "run"))
    torch.manual_seed(12345)  # whatever the process did meanwhile
    grpo.main(settings(start, tmp_path / "run"))
    assert tiny_training.same_weights(tmp_path / "run", whole)
    assert tiny_training.metrics(tmp_path / "run") == tiny_training.metrics(whole)


@pytest.mark.usefixtures("paid")
def test_questions_come_once_a_pass_and_refills_replace_flat_groups(start: Path, tmp_path: Path) -> None:
    questions = [{"id": f"q{i}", "question": f"Who is {i}?", "golden_answers": ["x"]} for i in range(7)]
    file = tmp_path / "questions.jsonl"
    file.write_text("".join(json.dumps(q) + "\n" for q in questions), encoding="utf-8")
    args = settings(start, tmp_path / "a", questions=str(file), questions_per_step=3, filter_flat=True, refills=2)
    model, tokenizer, _ = load_policy(start, device="cpu")
    with grpo_world.World(args, model, tokenizer) as world:
        first = [q.id for q in world._questions()]
        world.cursor = 1
        second = [q.id for q in world._questions()]
        world.cursor = 2
        assert len(set(first + second)) == 6
        assert [q.id for q in world._questions()] != first
        world.cursor = 0
        groups, told = world.sample()
        assert len(groups) >= 3
        assert 1 <= told["question_batches"] <= 3


def test_settings_that_cannot_work(start: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="group_size is 1"):
        settings(start, tmp_path, group_size=1)
    with pytest.raises(ConfigError, match="filter_flat is off"):
        settings(start, tmp_path, refills=1)
    with pytest.raises(ConfigError, match="questions_per_step is 1000"):
        grpo.main(settings(start, tmp_path / "a", questions_per_step=1000))
