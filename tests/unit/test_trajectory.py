from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grepseek_env.errors import TrajectoryError
from grepseek_env.trajectory import Trajectory, TrajectoryWriter, Turn, read_trajectories

TEXT = st.text(st.characters(), max_size=40)  # lone surrogates and line separators included


def make(text: str = "a turn", observation: str = "seen") -> Trajectory:
    return Trajectory(
        question_id="q",
        question="Q?",
        golden_answers=("x", "y"),
        action_format="hermes",
        system_prompt="system",
        prompt="Query: Q?",
        turns=(Turn(text, "tool_call", observation, "rg x corpus.jsonl", exit_code=0), Turn("end", "final_answer")),
        finish_reason="answer",
        answer="x",
        reward=1.1,
        reward_valid=True,
        breakdown={"f1": 1.0},
        metadata={"sample": 0},
    )


@given(TEXT, TEXT)
def test_round_trip_of_any_text(text: str, observation: str) -> None:
    line = make(text, observation).to_json()
    assert "\n" not in line
    assert Trajectory.from_json(line.encode().decode()) == make(text, observation)


@given(TEXT, TEXT)
def test_spans_cover_the_text_and_policy_spans_are_what_it_wrote(text: str, observation: str) -> None:
    t = make(text, observation)
    spans, whole = t.spans(), t.text()
    assert [s.start for s in spans] == [0, *(s.end for s in spans[:-1])]
    assert spans[-1].end == len(whole)
    assert "".join(whole[s.start : s.end] for s in spans if s.writer == "policy") == text + "end"


def test_messages() -> None:
    roles = [(m["role"], m["content"]) for m in make().messages("tool")]
    assert roles == [
        ("system", "system"),
        ("user", "Query: Q?"),
        ("assistant", "a turn"),
        ("tool", "seen"),
        ("assistant", "end"),
    ]


@pytest.mark.parametrize("cut", [0, 1, 5, 50])
def test_a_half_line_is_dropped_on_reopening(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "t.jsonl"
    with TrajectoryWriter(path) as w:
        w.write(make())
        w.write(make("second"))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:cut])
    with TrajectoryWriter(path) as w:
        w.write(make("third"))
    assert [t.turns[0].text for t in read_trajectories(path)] == ["a turn", "second", "third"]


def test_a_full_disk_leaves_whole_lines(tmp_path: Path) -> None:
    import resource
    import signal
    import subprocess
    import sys

    code = (
        "import resource, signal, sys; sys.path.insert(0, sys.argv[2]); signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "from tests.unit.test_trajectory import make\n"
        "from grepseek_env.trajectory import TrajectoryWriter\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n"
        "w = TrajectoryWriter(sys.argv[1])\n"
        "for i in range(100):\n    w.write(make())\n"
    )
    path = tmp_path / "t.jsonl"
    root = str(Path(__file__).parents[2])
    out = subprocess.run([sys.executable, "-c", code, str(path), root], capture_output=True, text=True, check=False)
    assert "OSError" in out.stderr
    assert [t.question_id for t in read_trajectories(path)] == ["q"] * len(path.read_bytes().splitlines())
    assert 1 <= len(path.read_bytes().splitlines()) < 100
    del resource, signal


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{\n", "line 1: not JSON"),
        (b"{}\n", "line 1: no record of schema"),
        (b"\xff\n", "not UTF-8"),
        (make().to_json().encode() + b"\n" + b'{"schema": "grepseek-trajectory/1"}\n', "line 2: fields do not fit"),
    ],
)
def test_bad_files_are_named_with_their_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)
    with pytest.raises(TrajectoryError, match=message):
        list(read_trajectories(path))


def test_a_missing_file_says_how_to_write_one(tmp_path: Path) -> None:
    with pytest.raises(TrajectoryError, match="rollout"):
        list(read_trajectories(tmp_path / "no.jsonl"))
