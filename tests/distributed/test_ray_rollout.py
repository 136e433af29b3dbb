"""Rollout workers over a local Ray cluster write the same run as one process does."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from algos.rollout import collect
from grepseek_env.env import GrepSeekEnv
from policies.scripted import KeywordPolicy

if TYPE_CHECKING:
    from policies.base import Policy

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


def test_a_lost_worker_is_started_again_and_its_episodes_played_again(cluster: Any, tmp_path: Path) -> None:
    assert cluster.is_initialized()
    policy: Policy = DiesOnce(str(tmp_path / "flag"))
    ours = collect(make, policy, tmp_path / "run", limit=6, parallel=2, ray=2, retries=5)
    assert (tmp_path / "flag").exists()
    assert len(ours) == 6
    assert all(t.reward_valid for t in ours)


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
