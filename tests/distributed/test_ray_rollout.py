"""Rollout workers over a local Ray cluster write the same run as one process does."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from algos.rollout import collect
from grepseek_env.env import GrepSeekEnv
from grepseek_env.errors import CorpusNotFound
from policies.scripted import KeywordPolicy

if TYPE_CHECKING:
    from policies.base import EpisodeStart, Policy

pytestmark = pytest.mark.ray


def make() -> GrepSeekEnv:
    return GrepSeekEnv(corpus="world:tiny", shuffle=False)


class DiesOnce(KeywordPolicy):
    """Ends its whole process in the middle of one episode, once; `flag` is the file that remembers."""

    name = "dies-once"

    def __init__(self, flag: str) -> None:
        super().__init__()
        self._flag = Path(flag)

    def act(self, observation: str) -> str:
        if not self._flag.exists():
            self._flag.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        return super().act(observation)


def test_the_run_equals_that_of_one_process(cluster: Any, tmp_path: Path) -> None:
    assert cluster.is_initialized()
    wanted = collect(make, KeywordPolicy(), tmp_path / "one", limit=12, samples=2)
    ours = collect(make, KeywordPolicy(), tmp_path / "many", limit=12, samples=2, parallel=3, ray=2)
    assert [t.to_json() for t in ours] == [t.to_json() for t in wanted]
    files = [(tmp_path / name / "trajectories.jsonl").read_bytes() for name in ("one", "many")]
    assert files[0] == files[1]


def test_a_stopped_run_goes_on_on_the_cluster(cluster: Any, tmp_path: Path) -> None:
    assert cluster.is_initialized()
    wanted = collect(make, KeywordPolicy(), tmp_path / "one", limit=8)
    collect(make, KeywordPolicy(), tmp_path / "many", limit=8)
    path = tmp_path / "many" / "trajectories.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:3]))
    ours = collect(make, KeywordPolicy(), tmp_path / "many", limit=8, parallel=2, ray=True)
    assert [t.to_json() for t in ours] == [t.to_json() for t in wanted]


def test_a_lost_worker_is_replaced_and_costs_only_its_own_episodes_a_try(cluster: Any, tmp_path: Path) -> None:
    assert cluster.is_initialized()
    policy: Policy = DiesOnce(str(tmp_path / "flag"))
    ours = collect(make, policy, tmp_path / "run", limit=24, parallel=2, ray=2, retries=2)
    assert (tmp_path / "flag").exists()
    assert len(ours) == 24
    assert all(t.reward_valid for t in ours)


class DiesOfOneQuestion(KeywordPolicy):
    """Ends its whole process whenever it is asked one question."""

    def start(self, episode: EpisodeStart) -> None:
        if episode.question.id == "train-2":
            os.kill(os.getpid(), signal.SIGKILL)
        super().start(episode)


def test_an_episode_that_always_takes_its_worker_along_is_written_as_failed(cluster: Any, tmp_path: Path) -> None:
    assert cluster.is_initialized()
    ours = collect(make, DiesOfOneQuestion(), tmp_path / "run", limit=8, ray=1)
    assert [t.question_id for t in ours if not t.reward_valid] == ["train-2"]
    assert all("was lost" in (t.error or "") for t in ours if not t.reward_valid)
    again = collect(make, KeywordPolicy(), tmp_path / "other", limit=8)
    assert [t.to_json() for t in ours if t.reward_valid] == [t.to_json() for t in again if t.question_id != "train-2"]


def test_workers_that_find_no_room_hold_nothing_up(cluster: Any, tmp_path: Path) -> None:
    assert cluster.is_initialized()  # it has four cores
    ours = collect(make, KeywordPolicy(), tmp_path / "run", limit=12, ray=6)
    assert len(ours) == 12
    assert all(t.reward_valid for t in ours)


def test_a_worker_that_cannot_open_its_environment_ends_the_run(cluster: Any, tmp_path: Path) -> None:
    assert cluster.is_initialized()
    driver = os.getpid()

    def only_here() -> GrepSeekEnv:
        corpus = "world:tiny" if os.getpid() == driver else "/nowhere.jsonl"
        return GrepSeekEnv(corpus=corpus, questions="world:tiny", shuffle=False)

    with pytest.raises(CorpusNotFound, match="nowhere"):
        collect(only_here, KeywordPolicy(), tmp_path / "run", limit=2, ray=1)


def test_over_a_corpus_in_parts(cluster: Any, tmp_path: Path) -> None:
    assert cluster.is_initialized()
    from grepseek_env.backend import open_corpus
    from grepseek_env.distributed.parts import split_corpus

    manifest = split_corpus(open_corpus("world:tiny"), 3, tmp_path / "parts")

    def over_parts() -> GrepSeekEnv:
        return GrepSeekEnv(corpus=f"ray://{manifest}", questions="world:tiny", shuffle=False)

    wanted = collect(make, KeywordPolicy(), tmp_path / "one", limit=6)
    ours = collect(over_parts, KeywordPolicy(), tmp_path / "many", limit=6, parallel=2, ray=1)
    assert [t.to_json() for t in ours] == [t.to_json() for t in wanted]
