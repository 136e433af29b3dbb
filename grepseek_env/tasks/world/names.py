"""Names: a different one for every entity, made from its index without any table."""

from __future__ import annotations

from functools import lru_cache
from math import isqrt
from types import MappingProxyType
from typing import TYPE_CHECKING

from grepseek_env.tasks.world.rng import Shuffle, mix64

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "FINALS",
    "FIRST_ONSETS",
    "LONG_WORDS",
    "MEDIALS",
    "PLAIN_WORDS",
    "SHORT_WORDS",
    "NameBook",
    "plain_letters",
    "word_from_index",
]

# A word is onset + nucleus + (medial + nucleus)* + final. Nuclei are the only vowels and no consonant group is empty
# but the final one, so two different choices never spell the same word.
FIRST_ONSETS = (
    "b", "br", "d", "dr", "f", "fl", "g", "gr", "h", "j", "k", "kl", "l", "m", "n", "p", "pr", "r", "s", "sh", "sk",
    "st", "t", "th", "tr", "v", "w", "z",
)  # fmt: skip
NUCLEI = ("a", "e", "i", "o", "u", "ai", "ei", "au", "ie", "oa")
MEDIALS = (
    "b", "d", "g", "k", "l", "m", "n", "r", "s", "t", "v", "z", "nd", "rt", "lm", "mb", "rn", "st", "ll", "nn", "ss",
    "rd", "lt", "ng", "sk", "rv", "ld", "lk", "rm", "nt", "lb", "ph", "rg", "mp", "ck", "sh", "th", "tt",
)  # fmt: skip
FINALS = ("", "n", "r", "l", "s", "m", "t", "d", "k", "nd", "rt", "rn", "st", "x")
_REGULAR_ONSETS = (
    "b", "d", "f", "g", "h", "j", "k", "m", "p", "t", "v", "w", "z", "br", "dr", "gr", "kr", "tr", "vl",
)  # fmt: skip
_REGULAR_CODAS = ("", "n", "r", "l", "s")  # no onset starts with one of these letters, so spelling stays unique

_ACCENTS: Mapping[str, str] = MappingProxyType(
    {"a": "áàäå", "e": "éèëê", "i": "íï", "o": "óöøô", "u": "úüû", "n": "ñ", "s": "š", "c": "ç"}
)
_PLAIN = str.maketrans({accented: plain for plain, marks in _ACCENTS.items() for accented in marks})

_CITY_FORMS = (
    "{}",
    "Port {}",
    "New {}",
    "{} Falls",
    "{} Bay",
    "Upper {}",
    "{} Bridge",
    "Saint {}",
    "{} Heath",
    "{} Mills",
)
_COMPANY_FORMS = (
    "{} Works", "{} Holdings", "{} Industries", "{} & Sons", "{} Instruments", "{} Brothers", "{} Press", "{} Lines",
    "{} Laboratories", "{} Trading Company", "{} Foundry", "{} Group", "{} Mutual", "{} Textiles", "{} Motors",
    "{} Pictures",
)  # fmt: skip
_REGULAR_COMPANY_FORMS = ("{} Labs", "{} Group", "{} Works", "{} Partners")
_SCHOOL_FORMS = (
    "University of {}", "{} College", "{} Institute of Technology", "{} Academy", "{} Polytechnic", "Royal {} School",
)  # fmt: skip
_WORK_ADJECTIVES = (
    "Silent", "Crooked", "Last", "Golden", "Distant", "Borrowed", "Winter", "Hollow", "Second", "Burning", "Gentle",
    "Forgotten", "Northern", "Paper", "Bitter", "Patient", "Scarlet", "Unfinished", "Narrow", "Drowned", "Quiet",
    "Painted", "Sleepless", "Wandering", "Broken", "Early", "Iron", "Velvet", "Midnight", "Salted", "Restless",
    "Stolen",
)  # fmt: skip
_WORK_NOUNS = (
    "Harbour", "Orchard", "Letters", "Lantern", "Bridge", "Garden", "Clockmaker", "Voyage", "Window", "Meadow", "Choir",
    "Archive", "Ferry", "Mirror", "Kingdom", "Summer", "Daughters", "Cartographer", "Lighthouse", "Carnival", "Promise",
    "Tenant", "Quarry", "Physician", "Tide", "Chapel", "Passenger", "Ledger", "Procession", "Comet", "Stairs", "Shore",
)  # fmt: skip
_WORK_FORMS = len(_WORK_ADJECTIVES) * len(_WORK_NOUNS)
_WORK_FORMS_EACH = 8


def word_from_index(index: int) -> str:
    """Returns a lower-case word of two or three syllables; different indexes below `LONG_WORDS` give different words.

    Words below `PLAIN_WORDS` have two syllables with single vowels.
    """
    third = ""
    if index >= SHORT_WORDS:
        index, low = divmod(index - SHORT_WORDS, len(MEDIALS) * len(NUCLEI))
        third = MEDIALS[low // len(NUCLEI)] + NUCLEI[low % len(NUCLEI)]
    index, final = divmod(index, len(FINALS))
    index, medial = divmod(index, len(MEDIALS))
    index, onset = divmod(index, len(FIRST_ONSETS))
    first, second = _NUCLEUS_PAIRS[index]
    return f"{FIRST_ONSETS[onset]}{first}{MEDIALS[medial]}{second}{third}{FINALS[final]}"


# Pairs of single vowels first.
_NUCLEUS_PAIRS = tuple(sorted(((a, b) for a in NUCLEI for b in NUCLEI), key=lambda pair: len(pair[0] + pair[1]) > 2))
_FRAMES = len(FIRST_ONSETS) * len(MEDIALS) * len(FINALS)
PLAIN_WORDS = _FRAMES * 25
SHORT_WORDS = _FRAMES * len(_NUCLEUS_PAIRS)
LONG_WORDS = SHORT_WORDS * (1 + len(MEDIALS) * len(NUCLEI))


def plain_letters(text: str) -> str:
    """Returns the text without the accents that names may have."""
    return text.translate(_PLAIN)


class _Pairs:
    """Names of two components: entity i has the i-th pair of a shuffled rectangle, so entities share components."""

    __slots__ = ("columns", "count", "rows", "shuffle")

    def __init__(self, count: int, columns: int, spread: float, key: int) -> None:
        self.count = count
        self.columns = columns
        self.rows = max(1, -(-int(count * spread) // columns))
        self.shuffle = Shuffle(self.rows * columns, key)

    def __call__(self, index: int) -> tuple[int, int]:
        return divmod(self.shuffle(index), self.columns)

    def sharing_row(self, index: int) -> list[int]:
        row, column = self(index)
        others = (self.shuffle.place_of(row * self.columns + other) for other in range(self.columns) if other != column)
        return [place for place in others if place < self.count]


class NameBook:
    """The names of a world.

    Args:
        key: 64-bit key of the world.
        counts: entities of each kind.
        regular: two regular syllables a word instead of names of many shapes.
        accents: share of words with an accent.
        aliases: share of people, cities and companies with a second name.
    """

    def __init__(self, key: int, counts: Mapping[str, int], *, regular: bool, accents: float, aliases: float) -> None:
        self._key = key
        self._regular = regular
        self._accents = int(accents * (1 << 32))
        self._aliases = int(aliases * (1 << 32))
        people = counts["person"]
        firsts = 60 if regular else max(8, min(600, isqrt(people)))
        company_forms = _REGULAR_COMPANY_FORMS if regular else _COMPANY_FORMS
        self._forms = {
            "city": ("{}",) if regular else _CITY_FORMS,
            "company": company_forms,
            "school": _SCHOOL_FORMS,
        }
        columns = {
            "city": len(self._forms["city"]),
            "person": firsts,
            "company": len(company_forms),
            "work": _WORK_FORMS_EACH,
            "school": len(_SCHOOL_FORMS),
        }
        self._pairs = {
            kind: _Pairs(counts.get(kind, 0), size, 1.0 if size == 1 else 2.2, mix64(key ^ place))
            for place, (kind, size) in enumerate(columns.items(), 11)
        }
        # Every role draws words from a range of its own: no word is both a surname and a city.
        sizes = {
            "country": counts["country"],
            "first": firsts,
            **{kind: self._pairs[kind].rows for kind in columns},
            "river": counts["city"],
            "currency": counts["country"],
            "alias-person": people,
            "alias-city": counts["city"],
            "alias-company": counts["company"],
        }
        self._base: dict[str, int] = {}
        total = 0
        for role, size in sizes.items():
            self._base[role] = total
            total += size
        if regular:
            onsets = [o + n + c for o in _REGULAR_ONSETS for n in "aeiou" for c in _REGULAR_CODAS]
            chosen = Shuffle(len(onsets), mix64(key ^ 5))
            self._syllables = tuple(onsets[chosen(place)] for place in range(120))
            domain = 120**2 if total <= 120**2 else 120**3
        else:
            # Small worlds have short words only; larger ones mix in longer ones.
            domain = next((size for size in (PLAIN_WORDS, SHORT_WORDS) if total * 4 <= size), LONG_WORDS)
        self._words = Shuffle(domain, mix64(key ^ 7))
        self._long = domain != 120**2
        self.word: Callable[[str, int], str] = lru_cache(1 << 15)(self._word)
        self.name: Callable[[str, int], str] = lru_cache(1 << 16)(self._name)

    def _spelled(self, number: int) -> str:
        index = self._words(number)
        if not self._regular:
            return word_from_index(index)
        index, last = divmod(index, 120)
        index, middle = divmod(index, 120)
        head = self._syllables[index] if self._long else ""
        return head + self._syllables[middle] + self._syllables[last]

    def _word(self, role: str, number: int) -> str:
        number += self._base[role]
        word = self._spelled(number).capitalize()
        chance = mix64(self._key ^ (number << 8) ^ 0xACCE)
        if chance >> 32 >= self._accents:
            return word
        if role == "person" and chance & 3 == 0:
            return f"O'{word}"
        places = [place for place, letter in enumerate(word[1:], 1) if letter in _ACCENTS]
        place = places[(chance & 0xFF) % len(places)]
        marks = _ACCENTS[word[place]]
        return f"{word[:place]}{marks[(chance >> 8 & 0xFF) % len(marks)]}{word[place + 1 :]}"

    def _name(self, kind: str, index: int) -> str:
        match kind:
            case "country":
                word = self.word("country", index)
                if self._regular:
                    return word
                # "land" after a vowel and "ia" after a consonant: taking it off again is unambiguous.
                return f"{word}land" if word[-1] in "aeiou" else f"{word}ia"
            case "person":
                row, column = self._pairs["person"](index)
                return f"{self.word('first', column)} {self.word('person', row)}"
            case "work":
                row, column = self._pairs["work"](index)
                form = (mix64(self._key ^ row ^ 0x3077) + column * 131) % _WORK_FORMS
                adjective, noun = divmod(form, len(_WORK_NOUNS))
                return f"The {_WORK_ADJECTIVES[adjective]} {_WORK_NOUNS[noun]} of {self.word('work', row)}"
            case _:
                row, column = self._pairs[kind](index)
                return self._forms[kind][column].format(self.word(kind, row))

    def alias(self, kind: str, index: int) -> str | None:
        """Returns the second name of an entity, if it has one; it too is unique."""
        role = f"alias-{kind}"
        if role not in self._base or mix64(self._key ^ (index << 8) ^ len(role)) >> 32 >= self._aliases:
            return None
        word = self.word(role, index)
        return f"{word} Company" if kind == "company" else word

    def forms(self, kind: str, index: int) -> tuple[str, ...]:
        """Returns the name, then other accepted forms of it."""
        name = self.name(kind, index)
        alias = self.alias(kind, index)
        forms = (name, plain_letters(name), *((alias, plain_letters(alias)) if alias else ()))
        return tuple(dict.fromkeys(forms))

    def namesakes(self, kind: str, index: int) -> list[int]:
        """Returns entities of the kind that share a word of the name, such as the surname."""
        return self._pairs[kind].sharing_row(index) if kind in self._pairs else []
