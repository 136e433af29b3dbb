from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grepseek_env.tasks.world.names import (
    LONG_WORDS,
    PLAIN_WORDS,
    SHORT_WORDS,
    NameBook,
    plain_letters,
    word_from_index,
)
from grepseek_env.tasks.world.rng import Draw, Shuffle, key64, mix64

KEYS = st.integers(0, 2**64 - 1)


def test_published_values_of_splitmix64() -> None:
    # The reference implementation seeded with 1234567.
    draw = Draw(1234567)
    assert [draw.bits() for _ in range(3)] == [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert mix64(1234567) == 6457827717110365317


def test_keys_depend_on_every_part_and_on_where_parts_end() -> None:
    assert len({key64("a", 1), key64("a", 2), key64("a1"), key64("a", "1", ""), key64(1, "a")}) == 5


@given(st.integers(1, 3000), KEYS)
def test_a_shuffle_is_a_permutation_with_its_inverse(size: int, key: int) -> None:
    shuffle = Shuffle(size, key)
    values = [shuffle(place) for place in range(size)]
    assert sorted(values) == list(range(size))
    assert [shuffle.place_of(value) for value in values] == list(range(size))


def test_a_shuffle_mixes() -> None:
    values = [Shuffle(10_000, 5)(place) for place in range(10_000)]
    rising = sum(a < b for a, b in itertools.pairwise(values))
    assert 4_500 < rising < 5_500
    assert abs(sum(values[:1000]) / 1000 - 5_000) < 400
    assert values[:50] != [Shuffle(10_000, 6)(place) for place in range(50)]


@given(KEYS, st.integers(1, 40))
def test_draws_stay_below_their_bound(key: int, bound: int) -> None:
    draw = Draw(key)
    assert all(0 <= draw.below(bound) < bound for _ in range(20))
    assert sorted(draw.order(bound)) == list(range(bound))
    assert not draw.chance(0)
    assert draw.chance(1)


def test_chances_and_draws_are_fair() -> None:
    draw = Draw(3)
    assert 2_800 < sum(draw.chance(0.3) for _ in range(10_000)) < 3_200
    counts = [0] * 5
    for _ in range(10_000):
        counts[draw.below(5)] += 1
    assert min(counts) > 1_850


@given(st.sets(st.integers(0, LONG_WORDS - 1) | st.integers(0, SHORT_WORDS), min_size=2, max_size=50))
def test_different_indexes_spell_different_words(indexes: set[int]) -> None:
    assert len({word_from_index(index) for index in indexes}) == len(indexes)


def test_every_plain_word_is_different() -> None:
    assert len({word_from_index(index) for index in range(0, PLAIN_WORDS, 3)}) == len(range(0, PLAIN_WORDS, 3))


@pytest.mark.parametrize("regular", [False, True])
@pytest.mark.parametrize("accents", [0.0, 0.6])
def test_all_names_of_a_world_are_different(regular: bool, accents: float) -> None:
    counts = {"country": 40, "city": 400, "person": 4000, "company": 1600, "work": 700, "school": 90}
    book = NameBook(9, counts, regular=regular, accents=accents, aliases=0.5)
    forms = [form for kind, count in counts.items() for i in range(count) for form in book.forms(kind, i)]
    assert len(forms) == len(set(forms))
    plain = [plain_letters(book.name(kind, i)) for kind, count in counts.items() for i in range(count)]
    assert len(plain) == len(set(plain))
    assert any(not form.isascii() for form in forms) == (accents > 0)


def test_regular_names_come_from_few_syllables() -> None:
    counts = {"country": 40, "city": 400, "person": 4000, "company": 1600, "work": 0, "school": 0}
    book = NameBook(9, counts, regular=True, accents=0, aliases=0)
    first_names = {book.name("person", i).split()[0] for i in range(4000)}
    assert len(first_names) == 60
    assert max(map(len, first_names)) <= 10


def test_namesakes_share_a_word_and_are_others() -> None:
    counts = {"country": 8, "city": 32, "person": 96, "company": 40, "work": 48, "school": 16}
    book = NameBook(4, counts, regular=False, accents=0, aliases=0)
    surname = book.name("person", 7).split()[-1]
    others = book.namesakes("person", 7)
    assert 7 not in others
    assert {i for i in range(96) if i != 7 and book.name("person", i).endswith(f" {surname}")} == set(others)
    assert sum(bool(book.namesakes("person", i)) for i in range(96)) > 80
    assert book.namesakes("country", 1) == []
