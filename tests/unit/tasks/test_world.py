from __future__ import annotations

import json
import pickle
import re
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from grepseek_env.errors import ConfigError
from grepseek_env.tasks import World, WorldConfig
from grepseek_env.tasks.world import PRESETS, QUESTION_KINDS
from grepseek_env.tasks.world.config import parse_size
from grepseek_env.tasks.world.facts import Date, date_forms, number_forms
from grepseek_env.tasks.world.grammar import FACT_SENTENCES, FILLER_SENTENCES, Wording
from grepseek_env.tasks.world.schema import SCHEMAS


def lines(**knobs: Any) -> list[str]:
    return list(World(WorldConfig(**knobs)).lines())


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        ({"seed": -1}, "seed is -1"),
        ({"passages": 0}, "passages is 0"),
        ({"passages": 2.5}, "passages is 2.5"),
        ({"paraphrase": 1.5}, "paraphrase is 1.5"),
        ({"accents": True}, "accents is True"),
        ({"background": 1}, "background is 1"),
        ({"test_fraction": 0}, "test_fraction is 0"),
        ({"style": "prose"}, "style is 'prose'"),
        ({"kinds": ("riddle",)}, "kinds is ('riddle',)"),
        ({"style": "facts", "kinds": ("date",)}, "style 'facts' has 1-hop, 2-hop"),
    ],
)
def test_options_that_cannot_work_are_named(knobs: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        WorldConfig(**knobs)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "size"), [("1.5GB", 1_500_000_000), ("64MiB", 64 << 20), ("1000", 1000), ("2 kb", 2000)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1", "1.GB", "1 parsec"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(ConfigError, match="no size"):
        parse_size(text)


def test_dates_and_numbers_have_their_usual_forms() -> None:
    assert date_forms(Date(1893, 3, 12)) == ("12 March 1893", "March 12, 1893", "1893-03-12")
    assert number_forms(12400) == ("12,400", "12400")
    assert number_forms(98) == ("98",)


def test_a_key_names_the_text_alone() -> None:
    base = WorldConfig()
    assert base.key() == replace(base, questions=9, kinds=("date",)).key()
    assert WorldConfig(paraphrase=1).key() == WorldConfig(paraphrase=1.0).key()
    changed = [
        replace(base, **{name: value})
        for name, value in (
            ("seed", 1), ("passages", 301), ("style", "facts"), ("names", "regular"), ("titles", False), ("words", 50),
            ("paraphrase", 0), ("accents", 0.1), ("aliases", 0.1), ("background", 0.1), ("test_fraction", 0.3),
            ("escape_non_ascii", True),
        )
    ]  # fmt: skip
    assert len({config.key() for config in (base, *changed)}) == len(changed) + 1


def test_presets_have_their_sizes() -> None:
    sizes = {name: len(World(preset.config)) for name, preset in PRESETS.items()}
    assert sizes["study"] == 11_600
    assert sizes["large"] == 5_000_000
    for name, about in (("tiny", 300), ("small", 5_000), ("medium", 100_000)):
        assert abs(sizes[name] - about) <= 18


def test_the_study_world_is_the_studys() -> None:
    world = World(PRESETS["study"].config)
    assert world.facts.counts == {"country": 40, "city": 400, "person": 4000, "company": 1600, "work": 0, "school": 0}
    assert world.facts.test_countries == 10
    texts = [json.loads(line)["contents"] for line in world.lines(0, 500)]
    assert all(re.fullmatch(r"[A-Z][A-Za-z ]+ (was|works|is) [a-zA-Z ]+\.", text) for text in texts)
    assert max(len(text.split()) for text in texts) <= 9
    assert len({q.question for q in world.questions("train")}) == 2_000


def test_any_stretch_of_lines_and_any_chunk_is_the_same_text() -> None:
    world = World(WorldConfig(passages=9_000, background=0.9))
    whole = list(world.lines())
    assert len(whole) == len(world) == 9_000
    assert "".join(f"{line}\n" for line in whole).encode() == b"".join(world.chunk(i) for i in range(world.chunks))
    assert list(world.lines(4090, 4110)) == whole[4090:4110]
    assert list(world.lines(8_990)) == whole[8_990:]
    assert list(world.lines(5, 5)) == []


def test_background_passages_hold_no_subject() -> None:
    world = World(WorldConfig(passages=1_000, background=0.8))
    found = Counter(json.loads(line)["contents"].split("\n")[0].strip('"') for line in world.lines())
    names = {world.facts.names.name(kind, i) for kind, count in world.facts.counts.items() for i in range(count)}
    assert len([title for title in found if title in names]) == len(names)
    assert sum(count for title, count in found.items() if title not in names) > 700


def test_passages_have_about_the_words_asked_for() -> None:
    for words in (40, 95):
        counts = sorted(len(json.loads(line)["contents"].split()) for line in lines(words=words))
        assert words * 0.6 < counts[len(counts) // 2] < words * 1.4


def test_paraphrase_words_facts_and_questions_otherwise() -> None:
    plain, varied = World(WorldConfig(paraphrase=0)), World(WorldConfig(paraphrase=1))
    said = [sum(" was married to " in line for line in world.lines()) for world in (plain, varied)]
    assert said[0] == 96  # every person's
    assert 0 < said[1] < 60
    asked = [{q.question.split()[0] for q in world.questions("train")} for world in (plain, varied)]
    assert len(asked[0]) < len(asked[1])


def test_accents_and_their_escapes() -> None:
    plain, accented = lines(), lines(accents=0.5)
    escaped = lines(accents=0.5, escape_non_ascii=True)
    assert all(line.isascii() for line in plain + escaped)
    assert sum(not line.isascii() for line in accented) > 200
    assert [json.loads(line) for line in escaped] == [json.loads(line) for line in accented]
    assert any("O'" in line for line in accented)


def test_aliases_are_told_at_home_and_used_elsewhere() -> None:
    world = World(WorldConfig(aliases=0.5))
    contents = [json.loads(line)["contents"] for line in world.lines()]
    names = world.facts.names
    told = used = 0
    for i in range(world.facts.counts["city"]):
        if alias := names.alias("city", i):
            at_home = [text for text in contents if text.startswith(f'"{names.name("city", i)}"\n')]
            told += sum(f"(also known as {alias})" in text for text in at_home)
            used += sum(alias in text for text in contents if text not in at_home)
    assert told > 8
    assert used > 8
    assert not any("also known as" in line for line in lines())


def test_titles_can_be_left_out() -> None:
    assert all(json.loads(line)["contents"].startswith('"') for line in lines())
    assert not any("\\n" in line for line in lines(titles=False))


def test_seeds_give_other_names() -> None:
    first, second = World(WorldConfig(seed=1)), World(WorldConfig(seed=2))
    named = [{w.facts.names.name("person", i) for i in range(96)} for w in (first, second)]
    assert not named[0] & named[1]


def test_questions_do_not_depend_on_how_they_are_asked_for() -> None:
    world = World()
    some = world.questions("train", 60)
    assert some[37] == World().question("train", 37) == pickle.loads(pickle.dumps(world)).question("train", 37)
    assert some[5:8] == tuple(world.question("train", i) for i in (5, 6, 7))
    assert some[-1] == some[59]
    with pytest.raises(IndexError):
        some[60]
    assert world.question("train", 10**9).id == "train-1000000000"
    for bad in (("dev", 0), ("train", -1)):
        with pytest.raises(ConfigError):
            world.question(*bad)


def test_kinds_can_be_chosen_and_come_in_their_shares() -> None:
    counts = Counter(q.metadata["kind"] for q in World().questions("train", 160))
    assert counts == {
        "1-hop": 30, "2-hop": 30, "3-hop": 20, "4-hop": 10, "comparison": 20, "yes-no": 20, "date": 20, "number": 10,
    }  # fmt: skip
    only = World(WorldConfig(kinds=("yes-no",))).questions("test", 200)
    answers = Counter(q.golden_answers for q in only)
    assert set(answers) == {("yes",), ("no",)}
    assert min(answers.values()) > 60


def test_questions_seldom_repeat() -> None:
    world = World()
    for split in ("train", "test"):
        assert len({q.question for q in world.questions(split)}) >= 0.97 * 400
    small = World(PRESETS["small"].config)
    assert len({q.question for q in small.questions("test")}) >= 0.995 * 2000


def test_every_stated_relation_has_a_sentence_and_every_choice_can_be_worded() -> None:
    wording = Wording(1, 1.0)
    everything = [s for by in FACT_SENTENCES.values() for s in by.values()] + [
        s for f in FILLER_SENTENCES.values() for s in f
    ]
    for template in everything:
        worded = {wording(template, number) for number in range(300)}
        assert len(worded) >= 3
        for text in worded:
            assert not re.search(r"[\[\]|]|  | [.,]|\.\.", text), text
    for relation in SCHEMAS["wiki"].relations.values():
        assert any(
            f"%({relation.name})s" in s or f"a_{relation.name}" in s or f"an_{relation.name}" in s for s in everything
        )


def test_time_runs_forwards() -> None:
    facts = World(PRESETS["small"].config).facts
    for company in range(facts.counts["company"]):
        assert facts.date("founded", company).year - facts.date("birth", facts.entity("founder", company)).year >= 22
    for work in range(facts.counts["work"]):
        release = facts.date("release", work).year
        assert release - facts.date("birth", facts.entity("creator", work)).year >= 22
        assert release > facts.date("founded", facts.entity("publisher", work)).year
    for person in range(facts.counts["person"]):
        assert facts.entity("spouse", facts.entity("spouse", person)) == person


def test_partners_share_what_they_should() -> None:
    facts = World(PRESETS["small"].config).facts
    for name in ("birthplace", "school", "headquarters", "country", "campus", "creator"):
        relation = facts.schema.relations[name]
        found = 0
        for i in range(0, facts.counts[relation.subject], 7):
            mate = facts.sharing(relation, i, i)
            if mate is not None:
                found += 1
                assert mate != i
                assert facts.object(name, mate) == facts.object(name, i)
        assert found > 10, name


def test_a_world_too_small_for_a_kind_says_so() -> None:
    world = World(WorldConfig(passages=1))
    assert len(world) >= 100  # the smallest world has four countries
    assert world.question("test", 0).golden_answers


def test_kinds_table_is_the_schemas() -> None:
    seen = {q.metadata["kind"] for q in World().questions("test", 64)}
    assert seen == set(QUESTION_KINDS)
