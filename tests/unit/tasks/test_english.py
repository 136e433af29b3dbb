"""The sentences of generated passages keep to English articles and agreement, whatever alternatives are drawn."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import islice

import pytest

from grepseek_env.tasks import World
from grepseek_env.tasks.world import PRESETS
from grepseek_env.tasks.world.grammar import FACT_SENTENCES, FILLER_SENTENCES, Wording
from grepseek_env.tasks.world.passages import _with_article

ARTICLE = re.compile(r"\b([Aa]n?) ([a-z][a-z-]*)")
CONSONANT_SOUND = frozenset(("union", "university", "unit", "useful", "one", "one-act", "once"))  # spelt with a vowel
VOWEL_SOUND = frozenset(("hour", "heir", "honest"))
CLAUSE = re.compile(r"(?:^|[,;] (?:(?:and|but|while|though|so that|in which) )?|[.] )(?=\S)")
SUBJECT = re.compile(r"([\w%() -]+?) (is|are|was|were|has|have)\b")
SINGULAR = frozenset(("is", "was", "has"))
IRREGULAR_PLURALS = frozenset(("women", "people", "children", "they"))
# What these open, or a second verb of the same subject, has no subject of its own to compare.
NO_SUBJECT = re.compile(r"^(?:which|where|when|after which|that|most of|whom|with|and|is|was|are|were|has)\b")


def slips(text: str) -> list[str]:
    """Returns what is wrong; the passage's own name must not stand in the text, for names may end in s."""
    found = []
    for article, word in ARTICLE.findall(text):
        vowel = (word[0] in "aeiou" and word not in CONSONANT_SOUND) or word in VOWEL_SOUND
        if (article.lower() == "an") != vowel:
            found.append(f"{article} {word}")
    for clause in CLAUSE.split(text):
        if NO_SUBJECT.match(clause) or (match := SUBJECT.match(clause)) is None:
            continue
        subject, verb = match.groups()
        if " and" in subject:
            continue  # a second verb
        head = re.split(r" (?:of|at|from) ", subject)[0].split()[-1].lower()
        plural = head in IRREGULAR_PLURALS or (head.endswith("s") and not head.endswith(("ss", "this", "chess")))
        if plural == (verb in SINGULAR):
            found.append(f"{subject} {verb}")
    return found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("The life of Norland are well documented.", ["The life of Norland are"]),
        ("The later years of Norland is well documented.", ["The later years of Norland is"]),
        ("A observatory was opened in 1930.", ["A observatory"]),
        ("Paper were made here until 1930, when the mills closed.", ["Paper were"]),
        ("Trade at Norland have followed the course of business.", ["Trade at Norland have"]),
        ("Critics praised the pace, while the humour were admired.", ["the humour were"]),
        ("Norland is a island country.", ["a island"]),
        ("She was an dancer, and fees is low.", ["an dancer", "fees is"]),
        ("Glass was made here. Women were admitted, and an hour is a useful unit.", []),
    ],
)
def test_slips_are_seen(text: str, said: list[str]) -> None:
    assert slips(text) == said


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["tiny", "small", "medium"])
def test_passages_have_no_slips(preset: str) -> None:
    world = World(replace(PRESETS[preset].config, background=0.0, titles=True))
    found: dict[str, str] = {}
    for line in islice(world.lines(), 2000):
        title, _, text = json.loads(line)["contents"].partition("\n")
        for slip in slips(text.replace(title.strip('"'), "Norland")):
            found.setdefault(slip, text)
    assert not found


def test_every_sentence_agrees_in_every_wording() -> None:
    wording = Wording(1, 1.0)
    templates = [s for by in FACT_SENTENCES.values() for s in by.values()]
    templates += [s for fillers in FILLER_SENTENCES.values() for s in fillers]
    known = {"name": "Norland", "He": "He", "he": "he", "His": "His", "his": "his", "few": "three", "goods": "copper"}
    sentences = {wording(template, number) for template in templates for number in range(1024)}
    found = set()
    for sentence in sentences:
        text = re.sub(r"%\((\w+)\)s", lambda match: known.get(match[1], "Xylo"), sentence)
        found.update(slips(text))
    assert len(sentences) > 5000
    assert not found


def test_no_article_stands_before_a_choice_or_a_value_of_either_sound() -> None:
    """Articles belong to the noun they stand before, or the next noun added to a list breaks them."""
    for by_name in FACT_SENTENCES.values():
        for template in by_name.values():
            assert not re.search(r"\b[Aa]n? %", template), template


@pytest.mark.parametrize(
    "phrase",
    [
        "an actor",
        "an island",
        "an hour",
        "an uninteresting",
        "a union",
        "a university",
        "a European",
        "a one-act",
        "a poet",
    ],
)
def test_the_article_goes_by_sound(phrase: str) -> None:
    assert _with_article(phrase.split(" ", 1)[1]) == phrase
