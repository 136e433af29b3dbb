"""What the real `SFTDataset` trains on: exactly the assistant's turns, each with the token that ends it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from algos.openrlhf.data import sft_rows
from algos.openrlhf.template import load_tokens
from grepseek_env.actions import get_action_format
from grepseek_env.tokens import ChatTokens
from grepseek_env.trajectory import Trajectory, Turn

if TYPE_CHECKING:
    from pathlib import Path

    from algos.openrlhf.data import Prepared


def episode(turns: int, *, words: int = 3, answer: str = "Ulm, Württemberg 🧠") -> Trajectory:
    """Returns an episode of so many turns, the answer included."""
    form = get_action_format("hermes")
    calls = [
        Turn(
            form.render_action(f"Thought {i}.\nMore.", command=f"rg -F 'word{i}' corpus.jsonl | head -n {i + 1}"),
            "tool_call",
            form.render_observation("\n".join(f"line {j} <|im_end|> of {i}" for j in range(words))),
            "rg",
        )
        for i in range(turns - 1)
    ]
    last = Turn(form.render_action("It is said.", answer=answer), "final_answer")
    return Trajectory(
        question_id=f"q{turns}",
        question="Where?",
        golden_answers=("Ulm",),
        action_format="hermes",
        system_prompt="Search, then answer.\n\nBriefly.",
        prompt="Query: Where?",
        turns=(*calls, last),
        finish_reason="answer",
        answer=answer,
        reward=1.1,
        reward_valid=True,
        breakdown={"f1": 1.0},
    )


def dataset(prepared: Prepared, tokens: ChatTokens, max_len: int) -> Any:
    from datasets import Dataset
    from openrlhf.datasets import SFTDataset

    data = SimpleNamespace(
        input_key="messages",
        output_key=None,
        apply_chat_template=True,
        tokenizer_chat_template=tokens.tokenizer.chat_template,
    )
    strategy = SimpleNamespace(args=SimpleNamespace(data=data))
    return SFTDataset(
        Dataset.from_list(prepared.rows),
        tokens.tokenizer,
        max_len,
        strategy,
        input_template="User: {}\nAssistant: ",
        multiturn=True,
        num_processors=1,
    )


def trained(sample: Any) -> list[list[int]]:
    """Returns the runs of token ids that count in the loss: position i is trained on token i + 1."""
    ids, _, mask = (t[0].tolist() for t in sample)
    runs: list[list[int]] = []
    for i, (token, flag) in enumerate(zip(ids[1:], mask[:-1], strict=True)):
        if flag:
            if i and mask[i - 1]:
                runs[-1].append(token)
            else:
                runs.append([token])
    return runs


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> ChatTokens:
    from policies.tiny_model import make_tokenizer

    folder: Path = tmp_path_factory.mktemp("tokenizer") / "t"
    make_tokenizer(["Where was it? Ulm. line of word corpus.jsonl"] * 9, 600).save_pretrained(folder)
    return load_tokens(str(folder))


@pytest.mark.parametrize("turns", range(1, 7))
def test_exactly_the_turns_of_the_assistant_are_trained(turns: int, tokens: ChatTokens) -> None:
    trajectory = episode(turns)
    prepared = sft_rows([trajectory], tokens, max_len=4096)
    data = dataset(prepared, tokens, 4096)
    assert len(data) == len(prepared.rows) == 1
    runs = trained(data[0])
    assert not data[0][2][0, -1]  # nothing follows the last token
    decoded = [tokens.tokenizer.decode(run) for run in runs]
    assert decoded == [turn.text + "<|im_end|>" for turn in trajectory.turns]
    # And token for token what rollouts would be given, and what this package trains on itself.
    view = tokens.trajectory(trajectory)
    assert data[0][0][0].tolist() == list(view.ids)
    assert [i for run in runs for i in run] == [i for i, ours in zip(view.ids, view.mask, strict=True) if ours]


def test_what_is_too_long_is_counted_and_never_gets_there(tokens: ChatTokens) -> None:
    fits, cut, dropped = episode(2), episode(2, answer="long " * 200), episode(4, words=200)
    limit = 600
    lengths = [len(tokens.trajectory(t).ids) for t in (fits, cut, dropped)]
    assert lengths[0] <= limit < min(lengths[1:])
    prepared = sft_rows([fits, cut, dropped], tokens, max_len=limit)
    assert [row["id"] for row in prepared.rows] == ["q2"]
    assert sum(prepared.left_out.values()) == 2
    assert {reason.partition("(")[2] for reason in prepared.left_out} == {
        "OpenRLHF would drop it silently)",
        "OpenRLHF would cut its answer)",
    }
    assert prepared.longest == lengths[0]
    # OpenRLHF does with them what the reasons say.
    raw = sft_rows([fits, cut, dropped], tokens, max_len=10**6)
    assert len(raw.rows) == 3
    kept = dataset(raw, tokens, limit)
    assert len(kept) == 2
    assert len(kept[1][0][0]) == limit < lengths[1]


def test_at_the_limit_nothing_is_lost(tokens: ChatTokens) -> None:
    trajectory = episode(3)
    length = len(tokens.trajectory(trajectory).ids)
    assert len(sft_rows([trajectory], tokens, max_len=length).rows) == 1
    assert not sft_rows([trajectory], tokens, max_len=length - 1).rows
    sample = dataset(sft_rows([trajectory], tokens, max_len=length), tokens, length)[0]
    assert tokens.tokenizer.decode(trained(sample)[-1]) == trajectory.turns[-1].text + "<|im_end|>"


def test_a_template_that_strips_thoughts_trains_other_things_and_is_refused(tokens: ChatTokens) -> None:
    from grepseek_env.errors import ConfigError

    strips = (
        "{%- for m in messages -%}{{- '<|im_start|>' + m['role'] + '\n' -}}"
        "{{- (m['content'].split('</think>')[-1] if m['role'] == 'assistant' and not loop.last else m['content']) -}}"
        "{{- '<|im_end|>\n' -}}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}"
    )
    with pytest.raises(ConfigError, match="not prefix-stable"):
        ChatTokens(tokens.tokenizer, chat_template=strips)
    trajectory = episode(3)
    prepared = sft_rows([trajectory], tokens, max_len=4096)
    import copy

    other = SimpleNamespace(tokenizer=copy.copy(tokens.tokenizer))
    other.tokenizer.chat_template = strips
    data = dataset(prepared, other, 4096)  # type: ignore[arg-type]
    decoded = [tokens.tokenizer.decode(run) for run in trained(data[0])]
    assert decoded != [turn.text + "<|im_end|>" for turn in trajectory.turns]
