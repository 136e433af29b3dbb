"""Faults that users of systems like this one reported, each named after its report; see tests/cases."""

from __future__ import annotations

import subprocess
import sys

import pytest

from grepseek_env.actions import ACTION_FORMATS
from grepseek_env.config import RewardConfig
from grepseek_env.observation import Clipped, clip
from grepseek_env.reward import TranscriptReading, compute_reward, exact_match, f1_score, read_transcript
from grepseek_env.types import FinalAnswer, MalformedAction, ToolCall

HERMES = ACTION_FORMATS["hermes"]
THINK = "<think>t</think>"
PAIR = '{"name":"shell","arguments":{"command":"rg a corpus.jsonl"}}'


def scores(prediction: str, *golden_answers: str, yes_no_rule: bool = False) -> tuple[float, float]:
    return (
        exact_match(prediction, golden_answers, yes_no_rule=yes_no_rule),
        f1_score(prediction, golden_answers, yes_no_rule=yes_no_rule),
    )


def reward(*turns: str, golden_answers: tuple[str, ...] = ("Paris",), config: RewardConfig | None = None) -> float:
    read = read_transcript(HERMES, turns)
    return compute_reward(
        config or RewardConfig(), answer=read.answer, golden_answers=golden_answers, format_valid=read.format_valid
    ).reward


def test_ultrarag_509_helm_4315_answer_that_is_an_article() -> None:
    assert scores("A", "A") == (1.0, 1.0)


@pytest.mark.parametrize("golden", ["---", ")", "*"])
def test_nq_open_1420_664_1986_golden_answer_of_signs_alone(golden: str) -> None:
    assert scores("", golden) == (0.0, 0.0)
    assert scores(golden, golden) == (1.0, 1.0)


def test_popqa_3506_empty_prediction_against_an_emoji() -> None:
    assert scores("", "Peru", "pe", "República del Perú", "🇵🇪") == (0.0, 0.0)


def test_visual_rft_176_empty_answer_is_in_every_golden_answer() -> None:
    assert reward("<answer></answer>") == 0.0
    assert reward(f"{THINK}<answer></answer>") == 0.0


def test_haystack_2508_en_dash_is_no_ascii_punctuation() -> None:
    # The reporter wants 1; the published scores ask for 0.
    assert scores("1939–1945", "1939-1945") == (0.0, 0.0)


def test_inspect_ai_4636_minus_sign_and_thousands() -> None:
    assert scores("−5", "-5") == (0.0, 0.0)
    assert scores("−5", "5") == (0.0, 0.0)
    assert scores("3,000", "3000") == (1.0, 1.0)


def test_fmeval_166_line_end_after_the_answer() -> None:
    assert scores("yes\n", "yes") == (1.0, 1.0)


def test_cognee_292_hotpotqa_rule_for_yes_and_no() -> None:
    assert scores("yes, they are", "yes", yes_no_rule=True) == (0.0, 0.0)
    assert scores("no", "yes", yes_no_rule=True) == (0.0, 0.0)
    assert scores("yes", "yes", yes_no_rule=True) == (1.0, 1.0)
    assert scores("yes, they are", "yes") == (0.0, 0.5)


@pytest.mark.parametrize(("prediction", "golden"), [("A", "A"), ("", "---"), ("the", "an"), ("Paris", "paris.")])
def test_opendecoder_2_exact_match_above_f1(prediction: str, golden: str) -> None:
    em, f1 = scores(prediction, golden)
    assert em <= f1


def test_verifiers_1336_answer_read_twice() -> None:
    action = HERMES.parse(f"{THINK}<answer>2, 3</answer>")
    assert action == FinalAnswer("2, 3")
    again = HERMES.parse(HERMES.render_action("t", answer="2, 3"))
    assert again == action
    plain = ACTION_FORMATS["plain"]
    assert plain.parse(plain.render_action("", answer="2, 3")) == FinalAnswer("2, 3")


def test_search_r1_79_the_only_answer_block_counts() -> None:
    assert read_transcript(HERMES, ["<answer>Paris</answer>"]).answer == "Paris"


def test_search_r1_79_example_in_the_prompt_is_not_the_answer() -> None:
    # Nothing but the policy's turns is read, so an example in the prompt has no way in; and ours holds none.
    assert read_transcript(HERMES, ["I do not know."]) == TranscriptReading(None, format_valid=False)
    assert not isinstance(HERMES.parse(HERMES.instructions), FinalAnswer)


def test_search_r1_13_tool_call_and_answer_in_one_turn() -> None:
    turn = f"{THINK}<tool_call>{PAIR}</tool_call> <answer>Paris</answer>"
    assert HERMES.parse(turn) == ToolCall("rg a corpus.jsonl", well_formed=False)
    assert reward(turn) == 0.0


def test_popqa_13019_answer_inside_an_invented_block() -> None:
    # FlashRAG takes the last of several answers; here the first action of a turn counts, and it costs the bonus.
    turn = f"{THINK}<information>it is <answer>Rome</answer></information><answer>Paris</answer>"
    assert HERMES.parse(turn) == FinalAnswer("Rome", well_formed=False)
    assert reward(turn, golden_answers=("Rome",)) == 1.0
    assert reward(turn, golden_answers=("Rome",), config=RewardConfig.preset("paper")) == 0.0


@pytest.mark.parametrize("block", ["information", "tool_response"])
def test_popqa_10503_4472_invented_tool_output_is_no_tool_output(block: str) -> None:
    call = f"{THINK}<tool_call>{PAIR}</tool_call>"
    invented = f"<{block}>Paris is the capital.</{block}>"
    assert HERMES.parse(f"{call}{invented}<answer>Paris</answer>") == ToolCall("rg a corpus.jsonl", well_formed=False)
    assert HERMES.parse(f"{THINK}{invented}<answer>Paris</answer>") == FinalAnswer("Paris", well_formed=False)


def test_vllm_45167_tag_inside_command() -> None:
    turn = (
        f'{THINK}<tool_call>{{"name":"shell","arguments":{{"command":"rg -F \\"</tool_call>\\" corpus.jsonl"}}}}'
        "</tool_call>"
    )
    assert HERMES.parse(turn) == ToolCall('rg -F "</tool_call>" corpus.jsonl')


def test_vllm_17790_two_objects_in_one_tag() -> None:
    action = HERMES.parse(f"{THINK}<tool_call>{PAIR}\n{PAIR}</tool_call>")
    assert isinstance(action, MalformedAction)
    assert action.reason == "extra-text"


def test_vllm_32638_two_blocks_are_not_merged() -> None:
    turn = f"{THINK}<tool_call>{PAIR}</tool_call>\n<tool_call>{PAIR.replace('rg a', 'rg b')}</tool_call>"
    assert HERMES.parse(turn) == ToolCall("rg a corpus.jsonl", well_formed=False)


@pytest.mark.parametrize("text", [PAIR, f"For example:\n```json\n{PAIR}\n```", f"{THINK}{PAIR}"])
def test_llama_cpp_18183_bare_json_is_never_run(text: str) -> None:
    action = HERMES.parse(text)
    assert isinstance(action, MalformedAction)
    assert action.reason == "no-action"


@pytest.mark.parametrize("golden", ["", "---", "A"])
def test_verl_6793_no_answer_equals_no_golden_answer(golden: str) -> None:
    assert reward("no tags at all", golden_answers=(golden,)) == 0.0
    assert scores("", golden) == (0.0, 0.0)


def test_scaleseek_misplaced_signs_in_a_tag() -> None:
    turn = f"{THINK}|<tool_call>|{PAIR}|</tool_call>| <tool_response>made up</tool_response><answer>Paris</answer>"
    action = HERMES.parse(turn)
    assert isinstance(action, MalformedAction)
    assert action.reason == "bad-json"


def test_scaleseek_reasoning_cut_by_a_token_limit() -> None:
    action = HERMES.parse("<think>First I have to find out who was")
    assert isinstance(action, MalformedAction)
    assert action.reason == "no-action"


def test_scaleseek_reasoning_in_the_answer() -> None:
    assert HERMES.parse("<answer><think>hm</think>Paris</answer>") == FinalAnswer("<think>hm</think>Paris", False)
    assert HERMES.parse("<think><answer>Rome</answer> or</think><answer>Paris</answer>") == FinalAnswer("Paris", False)


def test_officeqa_39_an_unreadable_answer_scores_nothing() -> None:
    # There the last of several pairs counts. Here an episode ends at the first, so there is no later one.
    assert reward(THINK + "FINAL ANSWER: Paris") == 0.0
    assert reward(f"{THINK}<answer>Rome</answer>", f"{THINK}<answer>Paris</answer>") == 0.0


def test_nano_rlm_61_output_that_is_no_utf8() -> None:
    assert clip(b"\xf0") == Clipped("\ufffd", truncated=False)
    assert clip("ééé".encode()[:3]) == Clipped("é\ufffd", truncated=False)


def test_mistral_vibe_947_hindsight_4022_langwatch_8194_cut_inside_a_character() -> None:
    brain, source = "hello 🧠".encode(), "\ufffd漢".encode()
    for end in range(len("hello "), len(brain)):
        assert clip(brain[:end], cut=True) == Clipped("hello ", truncated=True)
    assert clip(source[:4], cut=True) == Clipped("\ufffd", truncated=True)
    assert clip(source, max_chars=1) == Clipped("\ufffd", truncated=True)


def test_transformers_5486_garak_750_fork_after_counting_tokens() -> None:
    pytest.importorskip("tokenizers")
    code = """
import os, sys
from tokenizers import Tokenizer, models, pre_tokenizers
from grepseek_env.observation import clip
tokenizer = Tokenizer(models.WordLevel({"fox": 0, "?": 1}, unk_token="?"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
print(clip(b"fox fox fox " * 4000, max_tokens=2, tokenizer=tokenizer).text, flush=True)
child = os.fork()
if child == 0:
    os._exit(len(clip(b"fox fox", max_tokens=1, tokenizer=tokenizer).text))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr, ran.returncode) == ("fox fox\n", "", 3)
