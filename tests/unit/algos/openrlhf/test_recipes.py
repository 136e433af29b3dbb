"""Recipes as far as they go without OpenRLHF; the rest is in tests/openrlhf."""

from __future__ import annotations

import argparse
import json
import runpy
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from algos.openrlhf import cli, grpo, sft
from algos.openrlhf.__main__ import main
from algos.openrlhf.data import grpo_rows
from algos.openrlhf.recipe import preset
from algos.openrlhf.template import load_tokens, template_of
from grepseek_env.adapters.openrlhf import question_of
from grepseek_env.cli import _parser
from grepseek_env.env import make_rules
from grepseek_env.errors import ConfigError
from grepseek_env.tasks import load_question_set, write_questions
from grepseek_env.tokens import CHATML, ChatTokens
from grepseek_env.types import Question
from policies.tiny_model import make_tokenizer

pytest.importorskip("transformers")

PAGE = Path(__file__).parents[4] / "docs" / "openrlhf.md"
START = "python -m algos.openrlhf "
SHOWN = [
    shlex.split(line.strip().removeprefix(START))
    for text in (PAGE.read_text(encoding="utf-8"), cli.__doc__ or "")
    for line in text.splitlines()
    if line.strip().startswith(START)
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model") / "m"
    make_tokenizer(["Where was it? Ulm."] * 9, 500).save_pretrained(folder)
    return str(folder)


def test_the_template_is_chatml_but_for_where_the_line_breaks_stand(model: str) -> None:
    ours, chatml = load_tokens(model), ChatTokens.load(model, chat_template=CHATML)
    chat = [{"role": r, "content": f"{r}\n<x> "} for r in ("system", "user", "assistant", "user")]
    for prompt in (True, False):
        texts = [
            t.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=prompt) for t in (ours, chatml)
        ]
        assert texts[0] == texts[1] if prompt else texts[0] + "\n" == texts[1]
    assert ours.opening(chat) == chatml.opening(chat)
    assert ours.observation("seen") == chatml.observation("seen")


def test_a_template_of_another_family_is_refused(model: str, tmp_path: Path) -> None:
    file = tmp_path / "t.jinja"
    file.write_text((template_of("") or "").replace("<|im_end|>", "<|eot_id|>"), encoding="utf-8")
    with pytest.raises(ConfigError, match="no control token of this tokenizer"):
        load_tokens(model, str(file))
    file.write_text((template_of("") or "").replace("message['content']", "message['content'].split('</think>')[-1]"))
    with pytest.raises(ConfigError, match="prefix-stable"):
        load_tokens(model, str(file))


@pytest.mark.parametrize("action", ["sft", "grpo"])
def test_the_command_is_printed_as_a_shell_reads_it(action: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([action, "--preset", "paper-9b", "--print", "--learning-rate", "2e-6"]) == 0
    shown, _, after = capsys.readouterr().out.partition("\n# then")
    recipes: dict[str, tuple[Any, Any]] = {"sft": (sft.SFTRecipe, sft.PRESETS), "grpo": (grpo.GRPORecipe, grpo.PRESETS)}
    recipe = preset(*recipes[action], "paper-9b", learning_rate=2e-6)
    launch = recipe.launch()
    words = shlex.split(shown.replace(" \\\n", " "))  # a shell joins such lines, shlex does not
    assert words == [*(f"{k}={v}" for k, v in launch.environ.items()), *launch.argv]
    assert "2e-06" in words
    serve, ask = [shlex.split(line) for line in after.splitlines()[1:]]
    assert serve[:3] == ["python", "-m", "vllm.entrypoints.openai.api_server"]
    assert ask[:2] == ["grepseek", "eval"]
    args = _parser(ask[1:]).parse_args(ask[1:])
    assert (args.model, args.tokenizer, args.corpus) == (action, recipe.out, "wiki18")
    assert args.questions.split(",")[0] == "nq"


@pytest.mark.parametrize("command", SHOWN, ids=" ".join)
def test_commands_that_are_shown_exist(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    if command[0] == "prepare":
        parser = argparse.ArgumentParser()
        cli.add_arguments(parser)
        assert parser.parse_args(command).out.suffix == ".jsonl"
        return
    assert main([*command, *([] if "--print" in command else ["--print"])]) == 0
    assert f"openrlhf.cli.train_{'ppo_ray' if command[0] == 'grpo' else 'sft'}" in capsys.readouterr().out


@pytest.mark.parametrize("action", ["sft", "grpo"])
def test_a_recipe_is_a_command_of_its_own(
    action: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = f"algos.openrlhf.{action}"
    monkeypatch.setattr(sys, "argv", [module, "--preset", "tiny-cpu", "--print"])
    monkeypatch.delitem(sys.modules, module)
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(module, run_name="__main__")
    assert ended.value.code == 0
    assert main([action, "--preset", "tiny-cpu", "--print"]) == 0
    first, _, second = capsys.readouterr().out.partition("\n\n# then")
    assert first in second


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"batch": 150}, "does not divide"),
        ({"gpus": 3, "engines": 3, "ring": 1}, "cannot be shared"),
        ({"engines": 2}, "with colocate"),
    ],
)
def test_batches_that_openrlhf_would_cut_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        preset(grpo.GRPORecipe, grpo.PRESETS, "paper-9b", **values)
    with pytest.raises(ConfigError, match="did you mean 'paper-9b'"):
        preset(grpo.GRPORecipe, grpo.PRESETS, "paper-9")


def test_questions_are_mixed_evenly_and_counted(model: str) -> None:
    tokens, rules = load_tokens(model), make_rules(system_prompt="Search.")
    sets = {
        name: [Question(f"{name}{i}", f"{name} {i}?", ("x",)) for i in range(n)] for name, n in (("nq", 9), ("hp", 4))
    }
    sets["hp"] += [Question("long", "long " * 200, ("x",)), Question("again", "nq 1?", ("x",))]
    made = grpo_rows(sets, tokens, rules, max_prompt=60)
    assert len(made.rows) == 13
    assert dict(made.left_out) == {"over 60 tokens of prompt": 1, "the same text as an earlier question": 1}
    first = grpo_rows({k: v[:4] for k, v in sets.items()}, tokens, rules, limit=4)
    assert sorted(row["datasource"] for row in first.rows) == ["hp", "hp", "nq", "nq"]
    assert first.rows == grpo_rows({k: v[:4] for k, v in sets.items()}, tokens, rules, limit=4).rows
    assert question_of(made.rows[0]["label"]).question == made.rows[0]["prompt"]


def test_prepare_writes_what_it_counts(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    questions = tmp_path / "q.jsonl"
    write_questions(questions, list(load_question_set("world:tiny"))[:5])
    out = tmp_path / "data" / "grpo.jsonl"
    command = ["prepare", "grpo", str(questions), "--model", model, "--out", str(out)]
    assert main([*command, "--max-prompt", "100000"]) == 0
    assert "5 rows" in capsys.readouterr().out
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert {question_of(row["label"]).golden_answers for row in rows}
    assert len(rows) == 5
    assert main([*command, "--max-prompt", "10"]) == 1
    assert "nothing is left" in capsys.readouterr().err


def test_what_is_missing_is_said_in_a_line(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "grpo.jsonl")
    missing = str(tmp_path / "no.txt")
    assert main(["prepare", "grpo", "world:tiny", "--model", model, "--out", out, "--system-prompt", missing]) == 1
    assert capsys.readouterr().err == f"openrlhf: {missing}: No such file or directory\n"
    data = tmp_path / "rows.jsonl"
    data.write_text("{}\n" * 8, encoding="utf-8")
    monkeypatch.setattr("algos.openrlhf.recipe.find_spec", lambda _name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    for action, gpus, program in (("sft", "0", "openrlhf"), ("sft", "1", "deepspeed"), ("grpo", "1", "openrlhf")):
        command = [action, "--preset", "tiny-cpu", "--model", model, "--dataset", str(data), "--gpus", gpus]
        assert main(command) == 1
        assert f"openrlhf: {program} is not installed here" in capsys.readouterr().err


def test_no_question_of_the_evaluation_is_trained_on(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GREPSEEK_CACHE", str(tmp_path))
    monkeypatch.setitem(sys.modules, "datasets", None)  # what would be loaded is told instead
    command = ["prepare", "grpo", "--model", model, "--out", str(tmp_path / "grpo.jsonl")]
    for name, message in (
        ("nq", "nq (79,168, split train)"),
        ("hotpotqa", "hotpotqa (90,447, split train)"),
        ("nq/test", "nq (3,610, split test)"),  # who says so
        ("bamboogle", "bamboogle has no split 'train'"),
    ):
        assert main([*command, name]) == 1
        assert message in capsys.readouterr().err


def test_a_data_set_too_small_for_a_step_is_refused(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "grpo.jsonl"
    data.write_text("{}\n{}\n", encoding="utf-8")
    assert main(["grpo", "--preset", "tiny-cpu", "--model", model, "--dataset", str(data)]) == 1
    assert "fewer than the 4 of one step" in capsys.readouterr().err
    assert main(["grpo", "--preset", "tiny-cpu", "--model", model, "--dataset", str(tmp_path / "no.jsonl")]) == 1
    assert "prepare grpo" in capsys.readouterr().err


def test_a_job_of_a_cluster_gets_full_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grpo.jsonl").touch()
    recipe = preset(grpo.GRPORecipe, grpo.PRESETS, "tiny-cpu", ray="http://head:8265", dataset="grpo.jsonl", out="out")
    argv = list(recipe.launch().argv)
    for flag in ("--data.prompt_dataset", "--ckpt.output_dir", "--ckpt.path", "--logger.tensorboard_dir"):
        assert Path(argv[argv.index(flag) + 1]).parent.is_relative_to(tmp_path), flag
    assert argv[argv.index("--actor.model_name_or_path") + 1] == recipe.model  # a name of the Hub, no folder
