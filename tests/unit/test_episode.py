"""The rules of an episode, without a backend."""

from __future__ import annotations

import pytest

from grepseek_env.config import EnvConfig, RewardConfig
from grepseek_env.episode import Episode, Outcome, Pending, Rules
from grepseek_env.errors import (
    CommandRefused,
    ConfigError,
    CorpusChanged,
    CorpusInvalid,
    EpisodeError,
    ProgramMissing,
)
from grepseek_env.types import CommandResult, Question

QUESTION = Question("q1", "Who wrote it?", ("Ada Lovelace", "Ada"))
CALL = '<think>t</think><tool_call>{"name": "shell", "arguments": {"command": "rg x corpus.jsonl"}}</tool_call>'


def episode(**config: object) -> Episode:
    return Episode(Rules(EnvConfig(**config)), QUESTION)  # type: ignore[arg-type]


def answer(text: str) -> str:
    return f"<think>t</think><answer>{text}</answer>"


def call(e: Episode, result: object, text: str = CALL) -> Outcome:
    pending = e.submit(text)
    assert isinstance(pending, Pending)
    return e.resume(result)  # type: ignore[arg-type]


def finish(e: Episode, text: str) -> Outcome:
    outcome = e.submit(text)
    assert isinstance(outcome, Outcome)
    return outcome


def ok(stdout: bytes = b"line\n") -> CommandResult:
    return CommandResult(stdout, b"", 0)


def test_right_answer_pays_f1_and_the_format_bonus() -> None:
    e = episode()
    call(e, ok())
    outcome = finish(e, answer("Ada Lovelace"))
    assert outcome.reward == pytest.approx(1.1)
    assert (outcome.terminated, outcome.truncated) == (True, False)
    assert outcome.info["finish_reason"] == "answer"
    assert outcome.info["reward_breakdown"]["em"] == 1.0


@pytest.mark.parametrize(
    ("reward", "text", "expected"),
    [
        (RewardConfig(), "Ada Byron", 2 / 3 + 0.1),
        (RewardConfig(format="gate"), "Ada Byron", 2 / 3),
        (RewardConfig(format="off"), "Ada Byron", 2 / 3),
        (RewardConfig(metric="em"), "Ada Byron", 0.1),
        (RewardConfig(metric="em", format_weight=0.5), "ada", 1.5),
    ],
)
def test_reward_configs(reward: RewardConfig, text: str, expected: float) -> None:
    assert finish(episode(reward=reward), answer(text)).reward == pytest.approx(expected)


def test_one_malformed_turn_costs_the_bonus_and_under_the_gate_everything() -> None:
    for reward, expected in ((RewardConfig(), 1.0), (RewardConfig.preset("paper"), 0.0)):
        e = episode(reward=reward)
        finish(e, "just prose")
        assert finish(e, answer("Ada")).reward == expected


def test_a_refused_command_is_an_observation_and_keeps_the_format_valid() -> None:
    e = episode()
    outcome = call(e, CommandRefused("no such program\n  rm\n  ^^", reason="unknown-program"))
    assert "no such program" in outcome.observation
    assert outcome.info["refused"] == "unknown-program"
    assert outcome.info["reward_valid"] is True
    assert finish(e, answer("Ada")).reward == pytest.approx(1.1)


def test_a_call_in_the_last_turn_is_not_run_and_truncates() -> None:
    e = episode(max_turns=2)
    call(e, ok())
    outcome = finish(e, CALL)
    assert (outcome.terminated, outcome.truncated, outcome.reward) == (False, True, 0.0)
    assert outcome.info["finish_reason"] == "turn_limit"
    assert "not run" in outcome.observation
    assert outcome.info["reward_valid"] is True


def test_a_malformed_last_turn_truncates_with_its_message() -> None:
    outcome = finish(episode(max_turns=1), "prose")
    assert outcome.truncated
    assert outcome.info["action"] == "malformed"


def test_an_answer_in_the_last_turn_counts() -> None:
    assert finish(episode(max_turns=1), answer("Ada")).reward == pytest.approx(1.1)


@pytest.mark.parametrize("fault", [ProgramMissing("rg is gone"), CorpusChanged("size differs")])
def test_a_fault_truncates_and_is_never_a_reward(fault: Exception) -> None:
    outcome = call(episode(), fault)
    assert (outcome.terminated, outcome.truncated) == (False, True)
    assert outcome.info["reward_valid"] is False
    assert outcome.info["error"] == f"{type(fault).__name__}: {fault}"
    assert outcome.info["finish_reason"] == "fault"


def test_other_errors_are_raised() -> None:
    with pytest.raises(CorpusInvalid):
        call(episode(), CorpusInvalid("a bug of the caller"))


def test_time_out_is_an_observation() -> None:
    outcome = call(episode(), CommandResult(b"", b"", None, timed_out=True))
    assert outcome.info["timed_out"] is True
    assert "60" in outcome.observation


def test_order_is_enforced() -> None:
    e = episode()
    with pytest.raises(EpisodeError, match="submit"):
        e.resume(ok())
    e.submit(CALL)
    with pytest.raises(EpisodeError, match="resume"):
        e.submit(CALL)
    e.resume(ok())
    finish(e, answer("x"))
    with pytest.raises(EpisodeError, match="reset"):
        e.submit(CALL)


def test_an_action_must_be_text() -> None:
    with pytest.raises(ConfigError, match="int"):
        episode().submit(3)  # type: ignore[arg-type]


def test_info_is_a_fresh_dict_each_time() -> None:
    e = episode()
    a, b = call(e, ok()).info, call(e, ok()).info
    a["x"] = 1
    assert "x" not in b


def test_own_reward_function_gets_the_answer_or_none() -> None:
    seen: list[object] = []

    def own(text: str | None, golden: object, valid: bool) -> float:
        seen.append((text, golden, valid))
        return 7.0 if text else -1.0

    rules = Rules(EnvConfig(max_turns=1), None, own)
    assert finish(Episode(rules, QUESTION), answer("Ada")).reward == 7.0
    assert finish(Episode(rules, QUESTION), CALL).reward == -1.0
    assert seen == [("Ada", ("Ada Lovelace", "Ada"), True), (None, ("Ada Lovelace", "Ada"), False)]


def test_plain_format() -> None:
    e = episode(action_format="plain")
    assert e.prompt.endswith("Who wrote it?")
    outcome = call(e, ok(b"a passage\n"), text="rg x corpus.jsonl")
    assert outcome.observation == "a passage"  # line ends at the very end are not shown
    assert finish(e, "answer: Ada").reward == pytest.approx(1.1)


def test_output_is_capped_in_characters_and_flagged() -> None:
    e = episode(max_observation_chars=10)
    outcome = call(e, ok("é".encode() * 50))
    assert outcome.info["output_truncated"] is True
    assert outcome.observation.count("é") == 10


def test_unknown_action_format_is_named() -> None:
    with pytest.raises(ConfigError, match="hermes"):
        episode(action_format="hermse")


def test_trajectory_of_an_unfinished_episode() -> None:
    e = episode()
    call(e, ok())
    t = e.trajectory({"seed": 1})
    assert t.finish_reason == "abandoned"
    assert t.metadata == {"seed": 1}
    assert [m["role"] for m in t.messages()] == ["system", "user", "assistant", "user"]


def test_a_policy_without_tokens_left_is_truncated_with_a_valid_reward_of_zero() -> None:
    e = episode()
    call(e, ok())
    outcome = e.stop()
    assert (outcome.observation, outcome.reward, outcome.terminated, outcome.truncated) == ("", 0.0, False, True)
    assert (outcome.info["finish_reason"], outcome.info["reward_valid"]) == ("budget", True)
    t = e.trajectory()
    assert (t.finish_reason, t.reward_valid, len(t.turns), t.breakdown["f1"]) == ("budget", True, 1, 0.0)
    with pytest.raises(EpisodeError, match="nothing to stop"):
        e.stop()


def test_a_policy_whose_model_failed_does_not_count() -> None:
    e = episode()
    outcome = e.stop(ProgramMissing("no server"))
    assert (outcome.reward, outcome.truncated, outcome.info["reward_valid"]) == (0.0, True, False)
    assert outcome.info["error"] == "ProgramMissing: no server"
    assert (e.trajectory().finish_reason, e.trajectory().reward_valid) == ("fault", False)


def test_an_episode_is_not_stopped_while_a_command_is_due() -> None:
    e = episode()
    e.submit(CALL)
    with pytest.raises(EpisodeError, match="still running"):
        e.stop()
