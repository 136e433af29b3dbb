"""Options, questions, rendering and faults of the environment."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

from grepseek_env.config import EnvConfig, Limits, RewardConfig, from_dict
from grepseek_env.env import GrepSeekEnv
from grepseek_env.errors import ConfigError, CorpusNotFound, EpisodeError, QuestionsError
from grepseek_env.render import render_trajectory
from grepseek_env.spaces import ChatMessages, FreeText
from grepseek_env.wrappers import MessagesWrapper

if TYPE_CHECKING:
    from pathlib import Path

QUESTIONS = [{"id": f"q{i}", "question": f"What is {i}?", "golden_answers": [str(i)]} for i in range(5)]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(f'{{"id": "{i}", "contents": "number {i}"}}\n' for i in range(50)), encoding="utf-8")
    return path


def make(corpus: Path, **kwargs: Any) -> GrepSeekEnv:
    return GrepSeekEnv(corpus=corpus, questions=QUESTIONS, action_format="plain", **kwargs)


def test_questions_in_file_order_and_by_id(corpus: Path) -> None:
    env = make(corpus, shuffle=False)
    assert [env.reset()[1]["question_id"] for _ in range(7)] == ["q0", "q1", "q2", "q3", "q4", "q0", "q1"]
    assert env.reset(options={"question_id": "q3"})[0].endswith("What is 3?")
    env.close()


def test_each_pass_asks_every_question_once(corpus: Path) -> None:
    env = make(corpus)
    env.reset(seed=4)
    seen = [env.reset()[1]["question_id"] for _ in range(9)]
    assert sorted(seen[4:]) == [f"q{i}" for i in range(5)]
    env.close()


def test_unknown_question_and_option_are_named(corpus: Path) -> None:
    env = make(corpus)
    with pytest.raises((ConfigError, QuestionsError), match="nope"):
        env.reset(options={"question_id": "nope"})
    with pytest.raises(ConfigError, match="question-id"):
        env.reset(options={"question-id": "q1"})
    env.close()


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"max_turns": 0}, "max_turns"),
        ({"max_turns": True}, "max_turns"),
        ({"max_observation_chars": -1}, "max_observation_chars"),
        ({"command_timeout": 0}, "command_timeout"),
        ({"command_timeout": float("nan")}, "command_timeout"),
        ({"reward": "papr"}, "papr"),
        ({"reward": {"metrik": "em"}}, "did you mean 'metric'"),
        ({"reward": {"metric": "bleu"}}, "'f1', 'em'"),
        ({"reward": 3}, "reward is 3"),
        ({"mode": "warp"}, "warp"),
        ({"render_mode": "rgb_array"}, "rgb_array"),
        ({"action_format": "xml"}, "xml"),
        ({"tokenizer": 5}, "tokenizer"),
    ],
)
def test_options_that_cannot_work_are_named(corpus: Path, kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        GrepSeekEnv(**{"corpus": corpus, "questions": QUESTIONS, **kwargs})


def test_an_own_corpus_needs_questions(corpus: Path) -> None:
    with pytest.raises(ConfigError, match="questions"):
        GrepSeekEnv(corpus=corpus)


def test_a_missing_corpus_is_named() -> None:
    with pytest.raises(CorpusNotFound, match=r"nowhere\.jsonl"):
        GrepSeekEnv(corpus="nowhere.jsonl", questions=QUESTIONS)


def test_step_before_reset(corpus: Path) -> None:
    env = make(corpus)
    with pytest.raises(EpisodeError, match="reset"):
        env.step("x")
    env.close()


def test_ansi_is_the_transcript_and_human_prints_it(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = {}
    for mode in ("ansi", "human"):
        env = make(corpus, render_mode=mode)
        env.reset(options={"question_id": "q3"})
        env.step("rg -F 'number 3' corpus.jsonl | head -n 2")
        env.step("answer: 3")
        texts[mode] = env.render()
        env.close()
    assert texts["human"] is None
    assert capsys.readouterr().out == texts["ansi"]
    assert "golden: 3" in texts["ansi"]
    assert "number 30" in texts["ansi"]


def test_human_is_coloured_on_a_terminal(
    corpus: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    env = make(corpus, render_mode="human")
    env.reset(options={"question_id": "q3"})
    env.step("wc -l corpus.jsonl")
    env.step("answer: 3")
    assert capsys.readouterr().out == render_trajectory(env.trajectory(), color=True)
    monkeypatch.setenv("NO_COLOR", "1")
    env.reset(options={"question_id": "q3"})
    assert "\x1b" not in capsys.readouterr().out
    env.close()


def test_rendering_shows_terminal_escapes_instead_of_obeying_them(corpus: Path) -> None:
    env = make(corpus, render_mode="ansi")
    env.reset()
    env.step("answer: \x1b[2Jgone")
    assert "\x1b" not in env.render()
    assert "\x1b[1m" in render_trajectory(env.trajectory(), color=True)
    env.close()


def test_a_corpus_that_vanishes_in_mid_episode_is_a_fault_not_a_zero(corpus: Path) -> None:
    env = make(corpus)
    env.reset()
    shutil.rmtree(f"{corpus}.grepseek/view")
    _, reward, terminated, truncated, info = env.step("wc -l corpus.jsonl")
    assert (reward, terminated, truncated, info["reward_valid"]) == (0.0, False, True, False)
    assert info["error"]
    with pytest.raises(EpisodeError):
        env.step("wc -l corpus.jsonl")
    env.close()


def test_a_corpus_that_changes_in_mid_episode_is_a_fault(corpus: Path) -> None:
    env = make(corpus)
    env.reset()
    with corpus.open("a", encoding="utf-8") as f:
        f.write("more\n")
    info = env.step("wc -l corpus.jsonl")[4]
    assert info["reward_valid"] is False
    assert "CorpusChanged" in info["error"]
    env.close()


def test_timing_is_in_info_only_when_asked_for(corpus: Path) -> None:
    for timing in (False, True):
        env = make(corpus, timing=timing)
        env.reset()
        assert ("command_seconds" in env.step("wc -l corpus.jsonl")[4]) is timing
        env.close()


def test_command_timeout_is_an_observation(corpus: Path) -> None:
    env = make(corpus, command_timeout=0.2)
    env.reset()
    observation, _, terminated, truncated, info = env.step("awk 'BEGIN { while (1) x++ }'")
    assert info["timed_out"]
    assert not terminated
    assert not truncated
    assert "0.2 seconds" in observation
    env.close()


def test_output_is_read_only_as_far_as_the_observation_can_show(corpus: Path) -> None:
    env = make(corpus, max_observation_chars=20)
    env.reset()
    observation, *_, info = env.step("cat corpus.jsonl")
    assert info["output_truncated"]
    assert "exit_code" not in info
    assert observation.startswith('{"id": "0", "content')
    env.close()


def test_secrets_of_the_parent_are_not_inherited(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", "/nonexistent")
    env = make(corpus)
    env.reset()
    assert env.step("rg -c . corpus.jsonl")[0] == "50"
    env.close()


def test_a_given_backend_is_used_and_not_closed(corpus: Path) -> None:
    from grepseek_env import open_backend

    with open_backend(corpus) as backend:
        env = GrepSeekEnv(backend=backend, questions=QUESTIONS)
        env.close()
        assert backend.run("wc -l corpus.jsonl").stdout == b"50 corpus.jsonl\n"


def test_messages_wrapper() -> None:
    env = MessagesWrapper(gymnasium.make("GrepSeek-v0"))
    messages, _ = env.reset(seed=0)
    assert [m["role"] for m in messages] == ["system", "user"]
    turn = '<think>t</think><tool_call>{"name": "shell", "arguments": {"command": "wc -l corpus.jsonl"}}</tool_call>'
    after, _, _, _, _ = env.step(turn)
    assert after[:2] == messages
    assert after[2] == {"role": "assistant", "content": turn}
    assert after[3]["role"] == "user"
    assert after in env.observation_space
    check_env(env.env.unwrapped)
    env.close()


def test_spaces() -> None:
    text = FreeText(10)
    assert "" in text
    assert "é漢🧠\n" in text
    assert "x" * 11 not in text
    assert 3 not in text
    assert text == FreeText(10) != FreeText(11)
    assert len({text, FreeText(10)}) == 1
    text.seed(1)
    first = [text.sample() for _ in range(50)]
    text.seed(1)
    assert first == [text.sample() for _ in range(50)]
    assert all(t in text for t in first)
    assert text.from_jsonable(json.loads(json.dumps(text.to_jsonable(first)))) == first
    chat = ChatMessages()
    assert chat.sample() in chat
    assert [] not in chat
    assert [{"role": "user"}] not in chat
    for space in (text, chat):
        with pytest.raises(ConfigError):
            space.sample(mask=1)
    with pytest.raises(ConfigError):
        FreeText(0)


def test_configs_name_unknown_keys_and_bad_values() -> None:
    assert from_dict(RewardConfig, {"format": "gate"}) == RewardConfig.preset("paper")
    with pytest.raises(ConfigError, match="max_turn"):
        from_dict(EnvConfig, {"max_turn": 3})
    with pytest.raises(ConfigError, match="memory_bytes"):
        Limits(memory_bytes=1)
    with pytest.raises(ConfigError, match="presets"):
        RewardConfig.preset("x")


def test_named_tokenizer_that_cannot_be_loaded_is_explained(corpus: Path, tmp_path: Path) -> None:
    os.environ["HF_HUB_OFFLINE"] = "1"
    with pytest.raises(Exception, match="no tokenizer"):
        make(corpus, tokenizer=str(tmp_path / "none"))


def test_an_own_system_prompt_is_filled_in_and_told_to_policies() -> None:
    own = 'Say {"x": 1} in {turns} turns; {programs}. {instructions} At most {cap}; {other}.'
    env = GrepSeekEnv(system_prompt=own, max_turns=3, action_format="plain")
    try:
        assert env.system_prompt.startswith('Say {"x": 1} in 3 turns; - ')
        assert "8192 characters; {other}." in env.system_prompt
        assert env.rules.action_format.instructions in env.system_prompt
        env.reset(seed=0)
        assert env.trajectory().system_prompt == env.system_prompt
    finally:
        env.close()
    with pytest.raises(ConfigError, match="system_prompt is 3"):
        GrepSeekEnv(system_prompt=3)  # type: ignore[arg-type]
