from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from algos.evaluate import compare, evaluate, log_evaluation
from algos.evaluate.sets import load_sets
from algos.evaluate.tables import comparison_table, latency_lines, result_table
from grepseek_env.cli import main
from grepseek_env.errors import ConfigError, EngineFault, QuestionsError
from policies.base import make_policy
from policies.scripted import KeywordPolicy, RandomPolicy

if TYPE_CHECKING:
    from algos.evaluate import Evaluation

TIMES = {"timing.json", "timing.jsonl"}


def files(folder: Path) -> dict[str, bytes]:
    """All files of a run but its times."""
    paths = sorted(p for p in folder.rglob("*") if p.is_file() and p.name not in TIMES)
    return {str(p.relative_to(folder)): p.read_bytes() for p in paths}


def play(out: Path, policy: str = "random", **options: Any) -> Evaluation:
    return evaluate(make_policy(policy), out, **{"limit": 6, "samples": 2, "resamples": 100, **options})


def test_two_runs_and_any_number_in_parallel_give_the_same_files(tmp_path: Path) -> None:
    first = files(play(tmp_path / "a", parallel=1).out)
    assert set(first) == {
        "manifest.json",
        "predictions.jsonl",
        "summary.json",
        "table.txt",
        "world_tiny_test/manifest.json",
        "world_tiny_test/trajectories.jsonl",
    }
    assert files(play(tmp_path / "b", parallel=5).out) == first
    assert files(play(tmp_path / "a", parallel=5).out) == first  # nothing left to play
    other = files(play(tmp_path / "c", seed=1).out)
    assert other["predictions.jsonl"] != first["predictions.jsonl"]
    times = (tmp_path / "a" / "world_tiny_test" / "timing.jsonl").read_text().splitlines()
    assert [(t["id"], t["sample"]) for t in map(json.loads, times)] == [
        (f"test-{i}", s) for i in range(6) for s in range(2)
    ]
    latency = json.loads((tmp_path / "a" / "timing.json").read_text())["all"]
    assert latency["episodes"] == 12
    assert latency["model_turn"]["count"] == json.loads(first["summary.json"])["all"]["totals"]["turns"]


class Stops(RandomPolicy):
    """Stops the run, as Ctrl-C does, when it has played so many episodes."""

    left = 7

    def begin(self, start: Any) -> None:
        if not self.left:
            raise KeyboardInterrupt
        type(self).left -= 1
        super().begin(start)


@pytest.mark.slow
def test_an_interrupted_run_goes_on_and_gives_the_same_files(tmp_path: Path) -> None:
    whole = files(play(tmp_path / "whole", questions="world:tiny/test,world:tiny/train").out)
    Stops.left = 15  # within the second set
    options: dict[str, Any] = {
        "questions": "world:tiny/test,world:tiny/train",
        "limit": 6,
        "samples": 2,
        "resamples": 100,
        "parallel": 1,
    }
    with pytest.raises(KeyboardInterrupt):
        evaluate(Stops(), tmp_path / "cut", **options)
    assert len((tmp_path / "cut" / "world_tiny_train" / "trajectories.jsonl").read_text().splitlines()) == 3
    evaluate(make_policy("random"), tmp_path / "cut", **options)
    assert files(tmp_path / "cut") == whole
    for name in ("world_tiny_test", "world_tiny_train"):
        assert len((tmp_path / "cut" / name / "timing.jsonl").read_text().splitlines()) == 12


class Fails(KeywordPolicy):
    """Its infrastructure fails on one question."""

    def act(self, observation: str) -> str:
        if self._start.question.id == "test-1" and not Path(self.mended).exists():
            raise EngineFault("the model's server is gone")
        return super().act(observation)

    mended = ""


def test_faults_are_left_out_told_and_played_again(tmp_path: Path) -> None:
    Fails.mended = str(tmp_path / "mended")
    result = evaluate(Fails(), tmp_path / "out", limit=3, resamples=100, retries=0)
    assert result.faults == 1
    assert result.summary["sets"]["world:tiny/test"]["questions"] == 2
    assert "test-1" not in (tmp_path / "out" / "predictions.jsonl").read_text()
    (tmp_path / "mended").touch()
    assert evaluate(Fails(), tmp_path / "out", limit=3, resamples=100).faults == 0
    assert files(tmp_path / "out") == files(play(tmp_path / "well", "keyword", limit=3, samples=1).out)


def test_another_run_in_the_folder_is_refused(tmp_path: Path) -> None:
    play(tmp_path / "a", samples=1)
    for changed in ({"samples": 2}, {"limit": 5}, {"policy": "keyword"}, {"questions": "world:tiny/train"}):
        with pytest.raises(ConfigError, match="--overwrite"):
            play(tmp_path / "a", **{"samples": 1, **changed})
    with pytest.raises(ConfigError, match="max_turns"):
        play(tmp_path / "a", samples=1, max_turns=3)
    replaced = play(tmp_path / "a", samples=1, max_turns=3, overwrite=True)
    assert files(replaced.out) == files(play(tmp_path / "b", samples=1, max_turns=3).out)


def test_the_analysis_may_change_without_playing_again(tmp_path: Path) -> None:
    play(tmp_path / "a", samples=1, limit=30)
    Stops.left = 0
    result = evaluate(Stops(), tmp_path / "a", limit=30, resamples=100, by="hops")
    assert list(result.summary["sets"]) == [f"hops {n}" for n in (1, 2, 3, 4)]
    assert sum(s["questions"] for s in result.summary["sets"].values()) == 30
    two = play(tmp_path / "c", "oracle", questions="world:tiny/test,world:tiny/train", by="hops", samples=1)
    assert "world:tiny/train/hops 1" in two.summary["sets"]


def test_which_questions_are_asked(tmp_path: Path) -> None:
    lines = [{"id": i, "question": f"q{i}?", "golden_answers": ["x"]} for i in range(20)]
    (tmp_path / "s").mkdir()
    for path in (tmp_path / "mine.jsonl", tmp_path / "s" / "mine.jsonl"):
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")

    def ids(**options: Any) -> list[list[str]]:
        return [[q.id for q in s.questions] for s in load_sets(corpus="world:tiny", **options)]

    mine = str(tmp_path / "mine.jsonl")
    assert ids(questions=mine, limit=3) == [["0", "1", "2"]]
    assert ids(questions=[mine, f"{tmp_path}/s/mine.jsonl"], limit=1) == [["0"], ["0"]]
    drawn = ids(questions=mine, limit=5, draw=1)
    assert drawn == ids(questions=mine, limit=5, draw=1) != ids(questions=mine, limit=5, draw=2)
    assert len(set(drawn[0])) == 5
    names = [s.name for s in load_sets([mine, f"{tmp_path}/s/mine.jsonl"], corpus="world:tiny")]
    assert names == ["mine", "s-mine"]
    assert [s.name for s in load_sets(None, corpus="world:tiny", limit=2)] == ["world:tiny/test"]
    with pytest.raises(ConfigError, match="twice"):
        load_sets("world:tiny/test, world:tiny/test", corpus="world:tiny")
    with pytest.raises(ConfigError, match="limit"):
        load_sets(mine, corpus="world:tiny", draw=1)
    with pytest.raises(QuestionsError, match=r"nope\.jsonl"):
        load_sets(f"{mine},nope.jsonl", corpus="world:tiny")


def test_compare_pairs_questions(tmp_path: Path) -> None:
    a, b = play(tmp_path / "a", "keyword", limit=20).out, play(tmp_path / "b", "oracle", limit=20, samples=1).out
    found = compare(a, b, resamples=500)
    f1 = found["sets"]["world:tiny/test"]["f1"]
    left, right = (json.loads((d / "summary.json").read_text())["micro"]["f1"]["mean"] for d in (a, b))
    assert f1["questions"] == 20
    assert f1["difference"] == pytest.approx(right - left)
    assert f1["ci95"][0] > 0
    assert f1["p"] < 0.01
    assert found["differing_settings"] == {"policy": ["keyword", "oracle"], "samples": [2, 1]}
    assert compare(a, b, resamples=500) == found
    same = compare(a, a, resamples=500)["sets"]["world:tiny/test"]["em"]
    assert (same["difference"], same["p"], same["ci95"]) == (0.0, 1.0, [0.0, 0.0])
    assert "sign-flip" in comparison_table(found)


def test_compare_refuses_what_cannot_be_compared(tmp_path: Path) -> None:
    a = play(tmp_path / "a", "oracle", samples=1).out
    b = play(tmp_path / "b", "oracle", samples=1, questions="world:tiny/train").out
    with pytest.raises(ConfigError, match="share no question"):
        compare(a, b)
    with pytest.raises(ConfigError, match="grepseek eval"):
        compare(a, tmp_path)
    path = b / "predictions.jsonl"
    line = json.loads((a / "predictions.jsonl").read_text().splitlines()[0])
    path.write_text(json.dumps({**line, "golden_answers": ["other"]}) + "\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="different question sets"):
        compare(a, b)
    path.write_text("{}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="line 1"):
        compare(a, b)


def value(mean: float) -> dict[str, Any]:
    return {"mean": mean, "ci95": [mean - 0.01, mean + 0.01]}


def summary_of(names: list[str]) -> dict[str, Any]:
    share = dict.fromkeys(("empty", "failed", "refused", "timed_out", "cut"), 0.0)
    means = dict.fromkeys(("turns", "commands", "malformed", "policy_chars", "observation_chars"), 1.0)
    described = {
        "questions": 5,
        "episodes": 5,
        "faults": 0,
        "answered": 1.0,
        "format_valid": 1.0,
        "finish_reasons": {"answer": 5},
        "per_episode": means,
        "share_of_commands": share,
    }
    scores = {"f1": value(0.5), "em": value(0.4), "reward": value(0.6)}
    return {"sets": dict.fromkeys(names, described | scores), "micro": scores, "macro": scores, "all": described}


SEVEN = ["bamboogle", "nq", "triviaqa", "popqa", "hotpotqa", "2wikimultihopqa", "musique"]


def test_the_papers_rows_stand_beside_ours_where_sets_match() -> None:
    whole = result_table(summary_of(SEVEN), "mine").splitlines()
    assert whole[0].split() == [
        "NQ",
        "TriviaQA",
        "PopQA",
        "HotpotQA",
        "2Wiki",
        "MuSiQue",
        "Bamboogle",
        "micro",
        "macro",
    ]
    paper = next(line.split() for line in whole if line.startswith("F1  GrepSeek (paper)"))
    assert paper[3:] == [".5223", ".7673", ".4861", ".6231", ".5178", ".3006", ".6212", ".5691", ".5483"]
    assert any(line.split() == ["EM", "GrepSeek", "(paper)", ".4948"] for line in whole)
    some = result_table(summary_of(["mine", "nq"]), "mine").splitlines()
    assert [line.split()[3:] for line in some if "(paper)" in line] == [[".5067"], [".5223"]]
    assert "(paper)" not in result_table(summary_of(["mine"]), "mine")
    assert "run the same command again" in result_table({"sets": {"nq": {"episodes": 0}}}, "mine")


def test_tensorboard_gets_scores_and_times(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for step in (0, 10):
        result = play(tmp_path / f"e{step}", "oracle", samples=1, limit=3)
        log_evaluation(result, tmp_path / "board", step=step)
    board = EventAccumulator(str(tmp_path / "board"))
    board.Reload()
    events = board.Scalars("f1/world:tiny/test")
    assert [(e.step, e.value) for e in events] == [(0, 1.0), (10, 1.0)]
    assert {"seconds/tool_call_p95", "episode/turns", "end/answer", "commands/empty"} <= set(board.Tags()["scalars"])
    assert latency_lines(result.latency["all"]).startswith("seconds")


def test_the_console_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "a")
    assert main(["eval", "--policy", "oracle", "--limit", "3", "--out", out, "--quiet"]) == 0
    told = capsys.readouterr().out
    assert "F1  oracle" in told
    assert "a command" in told
    assert main(["score", f"{out}/predictions.jsonl"]) == 0
    assert "EM 1.0000  F1 1.0000" in capsys.readouterr().err
    assert main(["eval", "--compare", out, out, "--out", str(tmp_path / "c"), "--resamples", "100"]) == 0
    assert (tmp_path / "c" / "comparison.json").exists()
    rollout = str(tmp_path / "run")
    assert main(["rollout", "--policy", "oracle", "--limit", "3", "--split", "test", "--out", rollout, "--quiet"]) == 0
    assert main(["eval", "--from", rollout, "--out", str(tmp_path / "d")]) == 0
    capsys.readouterr()
    for args, why in (
        (["eval", "--policy", "oracle"], "--out"),
        (["eval", "--out", out], "--policy"),
        (["eval", "--from", rollout, "--out", rollout], "choose another output folder"),
        (["eval", "--policy", "oracle", "--out", out, "--resamples", "3"], "at least 100"),
    ):
        assert main(args) == 1
        assert why in capsys.readouterr().err
