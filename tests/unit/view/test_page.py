from __future__ import annotations

import base64
import gzip
import json
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest

from grepseek_env.cli import main
from grepseek_env.errors import ConfigError, TrajectoryError
from grepseek_env.trajectory import read_trajectories
from grepseek_env.view import find_runs, write_page
from grepseek_env.view.records import _ORDINARY, FLAGS, ROW, detail, row
from tests.support.odd_trajectories import ATTACKS, odd_trajectories
from tests.support.trajectories import malformed, tool, trajectory, write_run

if TYPE_CHECKING:
    from pathlib import Path


class Elements(HTMLParser):
    """What a browser would see: elements with their attributes and, of scripts, their text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[int, str] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        place = len(self.tags) - 1
        self.texts[place] = self.texts.get(place, "") + data

    def blocks(self) -> dict[str, Any]:
        """The packed data by id."""
        return {
            str(attributes["id"]): json.loads(gzip.decompress(base64.b64decode(self.texts[place])))
            for place, (tag, attributes) in enumerate(self.tags)
            if tag == "script" and attributes.get("type") == "text/plain"
        }


def test_everything_is_on_the_page_and_nothing_of_it_is_markup(tmp_path: Path) -> None:
    made = odd_trajectories()
    page = write_page(find_runs([write_run(tmp_path / "odd", made)]), tmp_path / "view.html", title=ATTACKS[0])
    seen = Elements(page.path.read_text(encoding="utf-8"))
    blocks = seen.blocks()
    index = blocks.pop("index")
    plain = write_page(find_runs([write_run(tmp_path / "one", [trajectory()])]), tmp_path / "plain.html")
    # Whatever the trajectories and the title hold, the page has the same elements, but for the packed blocks.
    tags = [tag for tag, a in seen.tags if a.get("type") != "text/plain"]
    assert tags == [tag for tag, a in Elements(plain.path.read_text()).tags if a.get("type") != "text/plain"]
    assert page.trajectories == len(made) == len(index["rows"])
    records = [record for place in range(len(blocks)) for record in blocks[f"chunk-{place}"]]
    assert [r["turns"][0]["text"] for r in records if r["turns"]] == [t.turns[0].text for t in made if t.turns]
    assert [r["answer"] for r in records] == [t.answer for t in made]
    assert [index["systems"][r["system"]] for r in records] == [t.system_prompt for t in made]
    assert [q["golden"] for q in index["questions"]] == [list(t.golden_answers) for t in made]


def test_nothing_is_loaded_from_anywhere(tmp_path: Path) -> None:
    page = write_page(find_runs([write_run(tmp_path / "run", [trajectory()])]), tmp_path / "view.html")
    text = page.path.read_text(encoding="utf-8")
    seen = Elements(text)
    assert not [a for _, attributes in seen.tags for a in attributes if a in {"src", "href", "action", "srcset"}]
    assert not re.findall(
        r"(?:https?:)?//(?!www\.w3\.org/2000/svg)[a-z]+\.", re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)
    )
    assert "url(" not in text
    policy = next(
        a["content"] for tag, a in seen.tags if tag == "meta" and "content" in a and "default-src" in a["content"]
    )
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy


def test_the_page_is_written_in_chunks_and_is_the_same_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grepseek_env.view.page._CHUNK_BYTES", 3000)
    many = [trajectory(f"q{i}", turns=(tool(output="x" * (i % 7) * 100),)) for i in range(40)]
    runs = find_runs([write_run(tmp_path / "run", many)])
    first = write_page(runs, tmp_path / "a.html")
    blocks = Elements(first.path.read_text()).blocks()
    starts = blocks["index"]["chunks"]
    assert len(starts) > 5
    for chunk, (start, end) in enumerate(zip(starts, [*starts[1:], 40], strict=True)):
        assert len(blocks[f"chunk-{chunk}"]) == end - start
    assert write_page(runs, tmp_path / "b.html").path.read_bytes() == first.path.read_bytes()


def test_row_and_detail_of_one_trajectory() -> None:
    t = trajectory(
        "q",
        None,
        turns=(
            tool("rg -F a corpus.jsonl", exit_code=1),
            tool("rg '(' corpus.jsonl", "error", exit_code=2),
            tool("sort corpus.jsonl | head -n 3", "a", output_truncated=True),
            malformed(),
            tool("cat corpus.jsonl", "[turn limit]", exit_code=None),
        ),
    )
    seconds = {"model": [1.0] * 5, "tool": [0.5, 0.5, 0.5, 0.0, 0.0]}
    values = dict(zip(ROW, row(t, seconds, run=0, question=0, policy=0, finish=0), strict=True))
    assert (values["turns"], values["commands"], values["model"], values["tool"]) == (5, 4, 5.0, 1.5)
    assert values["outcomes"] == {"empty": 1, "failed": 1, "cut": 1, "not_run": 1}
    assert values["programs"] == ["cat", "head", "rg", "sort"]
    assert {flag for bit, flag in enumerate(FLAGS) if values["flags"] >> bit & 1} == {
        "empty",
        "failed",
        "cut",
        "malformed",
    }
    whole = detail(t, seconds)
    assert [turn.get("outcome") for turn in whole["turns"]] == ["empty", "failed", "cut", None, "not_run"]
    assert "on slices" in whole["turns"][2]["plan"]
    assert whole["turns"][1]["tool"] == 0.5


@pytest.mark.parametrize("more", [0, 1])
def test_commands_and_answers_that_a_row_cuts_say_so(more: int) -> None:
    t = trajectory("q", "a" * (300 + more), turns=(tool("x" * 200), tool("y" * (199 + more))))
    values = dict(zip(ROW, row(t, None, run=0, question=0, policy=0, finish=0), strict=True))
    assert values["text"] == "x" * 200 + "\n" + "y" * 199 + "\u2026" * more
    assert values["answer"] == "a" * 300 + "\u2026" * more


def test_the_page_tells_on_which_corpus_its_plans_are(tmp_path: Path) -> None:
    page = write_page(find_runs([write_run(tmp_path / "run", [trajectory()])]), tmp_path / "view.html")
    text = page.path.read_text(encoding="utf-8")
    assert f"plan of mode sliced on a corpus of {_ORDINARY.bytes >> 30} GiB: " in text
    assert _ORDINARY.bytes % (1 << 30) == 0


def test_runs_are_found_by_folder_set_and_file(tmp_path: Path) -> None:
    one = [trajectory()]
    for place in ("a", "e/nq", "e/popqa"):
        write_run(tmp_path / place, one)

    def names(*paths: str) -> list[str]:
        return [run.name for run in find_runs([tmp_path / p for p in paths])]

    assert names("a") == ["a"]
    assert names("e") == ["nq", "popqa"]
    assert names("a", "e") == ["a", "e/nq", "e/popqa"]
    assert names(".") == ["a", "e/nq", "e/popqa"]
    assert names("a/trajectories.jsonl") == ["a"]
    with pytest.raises(TrajectoryError, match="grepseek rollout"):
        names("nowhere")


def test_the_same_question_of_two_runs_is_one(tmp_path: Path) -> None:
    for name, answer in (("a", "Ada"), ("b", "Bob")):
        write_run(tmp_path / name, [trajectory("q0", answer), trajectory("q1", answer)])
    page = write_page(find_runs([tmp_path / "a", tmp_path / "b"]), tmp_path / "view.html")
    assert (page.trajectories, page.questions) == (4, 2)


def test_a_run_that_is_still_written_can_be_seen(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [trajectory("q0"), trajectory("q1")])
    path = run / "trajectories.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    page = write_page(find_runs([run]), tmp_path / "view.html")
    assert (page.trajectories, page.unfinished) == (1, 1)
    path.write_bytes(b"{}\n")
    with pytest.raises(TrajectoryError, match="line 1"):
        write_page(find_runs([run]), tmp_path / "other.html")
    path.write_bytes(b"")
    with pytest.raises(ConfigError, match="no trajectories yet"):
        write_page(find_runs([run]), tmp_path / "other.html")
    assert not (tmp_path / "other.html").exists()


def test_times_may_lie_beside_the_records(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [trajectory("q0", turns=(tool(),)), trajectory("q1")])
    times = {"id": "q0", "sample": 0, "model": [1.0, 2.0], "tool": [0.5, 0.0]}
    (run / "timing.jsonl").write_text(json.dumps(times) + "\n", encoding="utf-8")
    read = [seconds for _, seconds in find_runs([run])[0].read()]
    assert read == [{"model": [1.0, 2.0], "tool": [0.5, 0.0]}, None]
    (run / "timing.jsonl").write_text("x\n", encoding="utf-8")
    with pytest.raises(TrajectoryError, match=r"timing\.jsonl, line 1"):
        list(find_runs([run])[0].read())


def test_the_console_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert main(["rollout", "--policy", "oracle", "--limit", "4", "--out", str(out), "--quiet"]) == 0
    assert main(["view", str(out), "--limit", "3"]) == 0
    told = capsys.readouterr().out
    assert "3 trajectories of 3 questions" in told
    assert str(out / "view.html") in told
    assert "<title>run</title>" in (out / "view.html").read_text()
    blocks = Elements((out / "view.html").read_text()).blocks()
    first = next(iter(read_trajectories(out / "trajectories.jsonl")))
    assert blocks["chunk-0"][0]["turns"][0]["command"] == first.turns[0].command
    assert main(["view", str(tmp_path / "no")]) == 1
    assert main(["view", str(out), "--limit", "0"]) == 1
