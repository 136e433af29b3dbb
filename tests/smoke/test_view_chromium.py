"""The page of `grepseek view` in a real browser."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pytest

from grepseek_env.view import find_runs, write_page
from tests.support.chromium import CHROMIUM, Browser
from tests.support.odd_trajectories import ATTACKS, odd_trajectories
from tests.support.trajectories import malformed, tool, trajectory, write_run

if TYPE_CHECKING:
    from pathlib import Path

    from grepseek_env.trajectory import Trajectory

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium here; on Debian: apt-get install chromium"),
]

PASSAGE = '{"id": "7", "contents": "\\"Ada Lovelace\\"\\nAda Lovelace wrote about the engine in 1843."}'


def ordinary(count: int) -> list[Trajectory]:
    """Questions with four samples each: right, partly right, wrong, and one at the turn limit with errors."""
    out = []
    for i in range(count):
        n, sample = divmod(i, 4)
        search = tool(f"rg -F 'person {n}' corpus.jsonl | head -n 3", PASSAGE)
        errors = (
            tool("rg '(' corpus.jsonl", "regex parse error", exit_code=2),
            malformed(),
            tool("rg late corpus.jsonl"),
        )
        answer, turns, f1 = (
            ("Ada Lovelace", (search,), 1.0),
            ("Ada", (search, search), 2 / 3),
            ("Bob", (search,), 0.0),
            (None, errors, 0.0),
        )[sample]
        breakdown = {
            "reward": f1 + 0.1,
            "f1": f1,
            "em": float(f1 == 1),
            "format_valid": sample < 3,
            "format_bonus": 0.1,
        }
        made = trajectory(
            f"q{n}",
            answer,
            ("Ada Lovelace",),
            turns,
            sample=sample,
            question=f"Who is person {n}?",
            reward=f1 + 0.1,
            breakdown=breakdown,
            metadata={"timing": {"model": [0.4] * 4, "tool": [0.02, 0.0, 0.0, 0.0]}},
        )
        out.append(made)
    return out


@pytest.fixture
def browser(tmp_path: Path) -> Browser:
    with Browser(tmp_path / "profile") as made:
        yield made  # type: ignore[misc]
        assert made.problems == []
        # The page itself, and nothing else.
        assert {url.partition("#")[0] for url in made.requests} <= {(tmp_path / "view.html").as_uri(), "about:blank"}


def page(tmp_path: Path, trajectories: list[Trajectory]) -> Path:
    return write_page(find_runs([write_run(tmp_path / "run", trajectories)]), tmp_path / "view.html").path


FOREIGN = "#detail :is(img, script, style, svg, iframe, object, a), #list :is(img, script, style, svg, a)"
SELECTED = "document.querySelector('.item[aria-selected=true] .q').textContent"
COUNT = "document.getElementById('count').textContent"


def set_filter(browser: Browser, name: str, value: str) -> None:
    browser.run(
        f"(() => {{ const field = document.getElementById('{name}'); field.value = {value!r}; "
        "for (const name of ['input', 'change']) field.dispatchEvent(new Event(name)); })()"
    )


def test_turns_filters_groups_and_keys(browser: Browser, tmp_path: Path) -> None:
    browser.open(page(tmp_path, ordinary(40)))
    assert browser.run(COUNT) == "40 of 40 trajectories"
    assert browser.run(SELECTED) == "Who is person 0?"
    # The first one: passages laid out, the answer marked in think, passage and answer, plan, times, reward.
    assert browser.run("document.querySelectorAll('.turn').length") == 2
    assert browser.run("document.querySelector('.passage .name').textContent") == "Ada Lovelace"
    assert browser.run("document.querySelectorAll('.passage mark.gold').length") == 2
    plan = browser.run("document.querySelector('.plan summary').textContent")
    assert plan.startswith("plan of mode sliced on a corpus of 1 GiB: on slices: rg -F")
    assert browser.run("document.querySelector('.turn .time').textContent") == "model 400 ms · command 20 ms"
    bars = browser.run("[...document.querySelectorAll('.bars .num')].map((n) => n.textContent)")
    assert bars == ["1.100", "1.000", "1.000", "0.100"]
    browser.press("j")
    assert browser.run("location.hash") == "#e=1"
    assert browser.run("document.querySelector('#detail .chip').textContent") == "◐ partly"
    browser.press("n", "n")
    assert browser.run("location.hash") == "#e=3"
    browser.press("n")
    assert browser.run("location.hash") == "#e=0"
    browser.press("r")
    assert "<tool_response>" in browser.run("document.getElementById('detail').textContent")
    browser.press("r", "End")
    assert browser.run("location.hash") == "#e=39"
    assert browser.run("[...document.querySelectorAll('.turn .chip.bad')].map((n) => n.textContent)") == [
        "error",
        "malformed",
    ]
    assert "…" not in browser.run("document.querySelector('.facts dd').textContent")

    # Groups: four trajectories of ten questions, with advantages that add up to nothing.
    browser.press("q")
    assert browser.run(COUNT) == "10 of 10 questions"
    assert browser.run("document.querySelectorAll('.grid tbody tr').length") == 4
    places = "[...document.querySelectorAll('.grid tbody tr')].map((r) => Number(r.children[5].textContent))"
    assert abs(sum(browser.run(places))) < 0.03
    browser.press("Enter")
    assert browser.run("location.hash") == "#e=36"

    # Filters.
    for name, value, left in (
        ("f-result", "part", 10),
        ("f-result", "", 40),
        ("f-finish", "1", 10),
        ("f-finish", "", 40),
        ("f-flag", "3", 10),
        ("f-flag", "", 40),
        ("f-low", "0.5", 20),
        ("f-high", "0.9", 10),
    ):
        set_filter(browser, name, value)
        browser.wait(f"{COUNT} === '{left} of 40 trajectories'")
    browser.press("x")
    assert browser.run(COUNT) == "40 of 40 trajectories"
    browser.press("/")
    assert browser.run("document.activeElement.id") == "search"
    browser.call("Input.insertText", text="PERSON 7 bob")
    browser.wait(f"{COUNT} === '1 of 40 trajectories'")
    browser.press("Escape", "x", "o")
    tiles = dict(
        browser.run(
            "[...document.querySelectorAll('.tile')].map((t) => [t.children[1].textContent, t.children[0].textContent])"
        )
    )
    assert (tiles["trajectories"], tiles["questions"], tiles["exact match"], tiles["format kept"]) == (
        "40",
        "10",
        "0.250",
        "75.0 %",
    )
    assert browser.run("document.querySelectorAll('svg').length") >= 6
    # A bar is a filter: those at the turn limit.
    browser.run(
        "[...document.querySelectorAll('svg[aria-label=\"endings by result\"] rect')]"
        ".at(-1).dispatchEvent(new MouseEvent('click'))"
    )
    browser.wait(f"{COUNT} === '10 of 40 trajectories'")


def test_the_words_of_filters_fit_their_fields(tmp_path: Path) -> None:
    path = page(tmp_path, ordinary(4))
    with Browser(tmp_path / "profile", size=(1200, 900)) as browser:
        browser.open(path)
        # A select shows its chosen words in what its padding and its arrow leave.
        cut = browser.run("""[...document.querySelectorAll('#filters select')].flatMap((select) => {
            const style = getComputedStyle(select), pen = document.createElement('canvas').getContext('2d');
            pen.font = style.font;
            const room = select.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight) - 20;
            return [...select.options].map((o) => o.text).filter((text) => pen.measureText(text).width > room);
        })""")
    assert cut == []


def test_equal_rewards_give_no_advantage(browser: Browser, tmp_path: Path) -> None:
    equal = [trajectory("q", "Bob", sample=i, reward=0.1) for i in range(20)]  # their mean is not quite 0.1
    browser.open(page(tmp_path, equal), "#q=0")
    assert "no learning signal" in browser.run("document.querySelector('.chips').textContent")
    advantages = "[...new Set([...document.querySelectorAll('.grid tbody tr')].map((r) => r.children[5].textContent))]"
    assert browser.run(advantages) == ["0.00"]


def test_what_trajectories_hold_never_becomes_markup(browser: Browser, tmp_path: Path) -> None:
    made = odd_trajectories()
    browser.open(page(tmp_path, made))
    for place, one in enumerate(made):
        browser.open(tmp_path / "view.html", f"#e={place}")
        browser.wait(f"location.hash === '#e={place}' && document.body.dataset.ready === 'yes'")
        for _ in range(2):  # laid out, and as it was
            assert browser.run("window.pwned === undefined")
            assert browser.run(f"document.querySelectorAll('{FOREIGN}').length") == 0
            words = browser.run("document.getElementById('detail').textContent")
            assert not re.search(r"undefined|NaN|\[object|failed0", words.replace(one.question, ""))
            browser.press("r")
        if place < len(ATTACKS):
            shown = browser.run("document.querySelector('#detail h2').textContent")
            plain = all(c.isprintable() for c in one.question)
            assert (shown == one.question) == plain
            assert plain or "\\u" in shown
    browser.press("q", "o", "e")
    assert browser.run("window.pwned === undefined")


def test_ten_thousand_trajectories_stay_responsive(browser: Browser, tmp_path: Path) -> None:
    browser.open(page(tmp_path, ordinary(10_000)))
    assert browser.run(COUNT) == "10,000 of 10,000 trajectories"
    # The list draws what is in sight; chunks are unpacked when they are looked at, and let go.
    assert browser.run("document.querySelectorAll('.item').length") < 40
    browser.press("End")
    assert browser.run("location.hash") == "#e=9999"
    assert browser.run(SELECTED) == "Who is person 2499?"
    assert browser.run("document.querySelectorAll('.item').length") < 40
    browser.press("Home", "j", "j", "q", "End")
    assert browser.run(COUNT) == "2,500 of 2,500 questions"
    browser.press("o")
    assert browser.run("document.querySelectorAll('svg').length") >= 6
    set_filter(browser, "search", "person 2499?")
    browser.wait(f"{COUNT} === '4 of 10,000 trajectories'")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_screenshot(tmp_path: Path, dark: bool) -> None:
    from matplotlib import image

    path = page(tmp_path, ordinary(40))
    seen = {}
    with Browser(tmp_path / "profile", size=(1000, 640), dark=dark) as browser:
        for place in ("#e=0", "#q=0", "#overview"):
            browser.open(path, place)
            browser.screenshot(tmp_path / "shot.png")
            seen[place] = (255 * image.imread(tmp_path / "shot.png")[:, :, :3]).astype(int)
        # Nothing is wider than the window.
        assert browser.run("document.documentElement.scrollWidth <= innerWidth")
        inside = "(n) => n.getBoundingClientRect().right <= n.closest('header, aside').getBoundingClientRect().right"
        assert browser.run(f"[...document.querySelectorAll('header *, #filters *')].every({inside})")
    for picture in seen.values():
        height, width, _ = picture.shape
        assert (width, height > 300) == (1000, True)
        background = np.median(picture)
        assert background < 60 if dark else background > 200
        # There is text: a few per cent of the pixels stand out from the background, and not most of them.
        share = (np.abs(picture[:, :, 1] - background) > 90).mean()
        assert 0.005 < share < 0.35
    assert len({picture.tobytes() for picture in seen.values()}) == 3
