"""What is true in a world: the object of every relation, computed from the subject's index.

Nothing is stored. Entities of a kind are numbered; the first ones belong to the test split. Every relation stays inside
its split, and its arithmetic can be inverted where questions need partners (`sharing`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from grepseek_env.tasks.world.names import NameBook
from grepseek_env.tasks.world.rng import Shuffle, key64, mix64
from grepseek_env.tasks.world.schema import SCHEMAS, Relation

if TYPE_CHECKING:
    from collections.abc import Callable

    from grepseek_env.tasks.world.config import WorldConfig

__all__ = ["ENTITY_KINDS", "FORMS", "Date", "Facts", "WorkForm", "date_forms", "number_forms"]

ENTITY_KINDS = ("country", "city", "person", "company", "work", "school")
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_FIRST_BIRTH, _BIRTH_YEARS = 1850, 130
_OCCUPATIONS = (
    "architect", "astronomer", "actor", "botanist", "cellist", "chemist", "composer", "conductor", "dancer",
    "diplomat", "engraver", "explorer", "film editor", "geologist", "historian", "illustrator", "inventor", "judge",
    "journalist", "librarian", "linguist", "mathematician", "midwife", "naturalist", "novelist", "painter",
    "philosopher", "physician", "physicist", "pianist", "pilot", "poet", "politician", "printer", "publisher",
    "sculptor", "singer", "surgeon", "teacher", "translator", "violinist", "zoologist", "economist", "engineer",
    "fencer", "gardener", "photographer", "playwright",
)  # fmt: skip
_INDUSTRIES = (
    "shipbuilding", "textile", "publishing", "chemical", "railway", "insurance", "brewing", "paper", "optical",
    "pharmaceutical", "furniture", "banking", "watchmaking", "film", "toy", "mining", "steel", "glass", "ceramics",
    "fishing", "timber", "aviation", "telephone", "confectionery", "printing", "leather", "bicycle", "fertiliser",
    "cement", "gas",
)  # fmt: skip
_GENRES = (
    "adventure", "comedy", "crime", "fantasy", "historical", "horror", "mystery", "romance", "satire",
    "science fiction", "thriller", "tragedy", "war", "documentary", "coming-of-age", "gothic", "epistolary",
    "detective",
)  # fmt: skip
_CURRENCIES = ("crown", "mark", "dinar", "peso", "florin", "pound", "franc", "lira", "thaler", "ducat")
# Few subjects are dealt out over some of the objects only, so that some share one.
_EVERY_NTH = MappingProxyType({"creator": 4, "headquarters": 2, "campus": 4})


@dataclass(frozen=True, slots=True, order=True)
class Date:
    """A calendar day."""

    year: int
    month: int
    day: int


def date_forms(date: Date) -> tuple[str, ...]:
    """Returns a date as "12 March 1893", "March 12, 1893" and "1893-03-12"."""
    month = _MONTHS[date.month - 1]
    return (
        f"{date.day} {month} {date.year}",
        f"{month} {date.day}, {date.year}",
        f"{date.year}-{date.month:02}-{date.day:02}",
    )


def number_forms(number: int) -> tuple[str, ...]:
    """Returns a number as "12,400" and "12400"."""
    return tuple(dict.fromkeys((f"{number:,}", str(number))))


@dataclass(frozen=True, slots=True)
class WorkForm:
    """Words that go with one form of work."""

    form: str
    made: str
    maker: str
    issued: str
    unit: str
    least: int
    most: int
    made2: str


FORMS = (
    WorkForm("novel", "wrote", "author", "published", "pages", 110, 980, "written"),
    WorkForm("film", "directed", "director", "produced", "minutes", 68, 212, "directed"),
    WorkForm("play", "wrote", "author", "published", "pages", 60, 190, "written"),
    WorkForm("album", "composed", "composer", "issued", "minutes", 31, 118, "composed"),
)


class Facts:
    """The facts of a world.

    Args:
        config: the world's options.
    """

    def __init__(self, config: WorldConfig) -> None:
        self.schema = SCHEMAS[config.style]
        wanted = config.passages * (1 - config.background)
        self.countries = max(4, int(wanted / self.schema.passages + 0.5))
        self.test_countries = min(max(2, int(self.countries * config.test_fraction + 0.5)), self.countries - 2)
        per = self.schema.per_country
        self.counts = {kind: self.countries * per.get(kind, 0) for kind in ENTITY_KINDS}
        key = key64("world", config.seed, config.style, config.names, self.countries)
        self.key = key
        self._salts = {name: key64(key, name) for name in ("landscape", "form", "spouse", *self.schema.relations)}
        self.names = NameBook(
            key, self.counts, regular=config.names == "regular", accents=config.accents, aliases=config.aliases
        )
        self._spread = {
            (name, split): Shuffle(self._range(relation.subject, split)[1], self._salts[name] ^ split)
            for name, relation in self.schema.relations.items()
            for split in (0, 1)
        }
        self._compute: dict[str, Callable[[int], object]] = {
            "capital": self._capital,
            "country": self._country,
            "birthplace": lambda i: self._evenly("birthplace", i),
            "headquarters": lambda i: self._evenly("headquarters", i),
            "campus": lambda i: self._evenly("campus", i),
            "school": lambda i: self._evenly("school", i),
            "creator": lambda i: self._evenly("creator", i),
            "employer": self._employer,
            "spouse": lambda i: i ^ 1,
            "founder": self._founder,
            "publisher": self._publisher,
            "birth": self._birth,
            "founded": lambda i: self._after("founded", i, self.person_birth_year(self._founder(i)) + 22, 23),
            "release": self._release,
            "independence": lambda i: self._after("independence", i, 1795, 170),
            "settled": lambda i: 905 + self._pick("settled", i, 880),
            "opened": lambda i: 1503 + self._pick("opened", i, 340),
            "inhabitants": lambda i: 400_000 + self._pick("inhabitants", i, 61_000) * 1_000,
            "residents": lambda i: 8_000 + self._pick("residents", i, 18_000) * 100 + self._pick("residents", ~i, 97),
            "employees": lambda i: 60 + self._pick("employees", i, 24_000),
            "students": lambda i: 400 + self._pick("students", i, 31_000),
            "length": self._length,
            "currency": lambda i: f"{self.names.word('currency', i)} {_CURRENCIES[self._pick('currency', i, 10)]}",
            "river": lambda i: self.names.word("river", i),
            "occupation": lambda i: _OCCUPATIONS[self._pick("occupation", i, len(_OCCUPATIONS))],
            "industry": lambda i: _INDUSTRIES[self._pick("industry", i, len(_INDUSTRIES))],
            "genre": lambda i: _GENRES[self._pick("genre", i, len(_GENRES))],
        }
        self.object = lru_cache(1 << 16)(self._object)

    def entity(self, relation: str, subject: int) -> int:
        """Returns the index of an object that is an entity."""
        value = self.object(relation, subject)
        if not isinstance(value, int):
            raise TypeError(f"the object of {relation} is no entity but {value!r}")
        return value

    def date(self, relation: str, subject: int) -> Date:
        """Returns an object that is a day."""
        value = self.object(relation, subject)
        if not isinstance(value, Date):
            raise TypeError(f"the object of {relation} is no day but {value!r}")
        return value

    def _object(self, relation: str, subject: int) -> object:
        """Returns an entity's index, a `Date`, a year or number, or a text."""
        return self._compute[relation](subject)

    def _range(self, kind: str, split: int) -> tuple[int, int]:
        """Returns first index and number of a kind's entities in the test (1) or train (0) split."""
        each = self.schema.per_country.get(kind, 0)
        held = self.test_countries * each
        return (0, held) if split else (held, self.counts[kind] - held)

    def entities(self, kind: str, split: str) -> tuple[int, int]:
        """Returns first index and number of the entities of a kind in "train" or "test"."""
        return self._range(kind, int(split == "test"))

    def _split_of(self, kind: str, index: int) -> int:
        return int(index < self.test_countries * self.schema.per_country[kind])

    def _pick(self, name: str, index: int, bound: int) -> int:
        return mix64(self._salts[name] + (index << 3)) * bound >> 64

    def _evenly(self, name: str, index: int) -> int:
        """Deals subjects out over the objects of the same split, or over every n-th of them, all alike."""
        relation = self.schema.relations[name]
        split = self._split_of(relation.subject, index)
        start, _ = self._range(relation.subject, split)
        first, size = self._range(relation.object, split)
        nth = _EVERY_NTH.get(name, 1)
        return first + self._spread[name, split](index - start) % (size // nth) * nth

    def sharing(self, relation: Relation, index: int, step: int) -> int | None:
        """Returns another subject with the same object, a different one for each step; None where there is none."""
        split = self._split_of(relation.subject, index)
        start, subjects = self._range(relation.subject, split)
        size = self._range(relation.object, split)[1] // _EVERY_NTH.get(relation.name, 1)
        shuffle = self._spread[relation.name, split]
        direct = relation.name == "country"
        place = index - start if direct else shuffle(index - start)
        group = place % size
        mates = (subjects - group + size - 1) // size
        if mates < 2:
            return None
        other = group + size * ((place // size + 1 + step % (mates - 1)) % mates)
        return start + (other if direct else shuffle.place_of(other))

    def _capital(self, index: int) -> int:
        split = self._split_of("country", index)
        return self._range("city", split)[0] + index - self._range("country", split)[0]

    def _country(self, index: int) -> int:
        split = self._split_of("city", index)
        first, size = self._range("country", split)
        return first + (index - self._range("city", split)[0]) % size

    # People and companies of a split are numbered by age, so that founders are older than their companies and
    # employers no younger than their staff, whatever the size of the world.

    def _scaled(self, index: int, kind: str, other: str) -> tuple[int, int, int]:
        split = self._split_of(kind, index)
        start, size = self._range(kind, split)
        first, others = self._range(other, split)
        return first, others, (index - start) * others // size

    def person_birth_year(self, index: int) -> int:
        """Returns a person's year of birth."""
        return self.date("birth", index).year

    def _birth(self, index: int) -> Date:
        start, size = self._range("person", self._split_of("person", index))
        year = _FIRST_BIRTH + (index - start) * _BIRTH_YEARS // size
        return self._after("birth", index, year, 6)

    def _after(self, name: str, index: int, year: int, years: int) -> Date:
        bits = self._pick(name, index, years * 12 * 28)
        rest, day = divmod(bits, 28)
        return Date(year + rest // 12, rest % 12 + 1, day + 1)

    def _founder(self, index: int) -> int:
        first, size, place = self._scaled(index, "company", "person")
        # The window is narrower than the distance between two companies: nobody founds two.
        return first + min(size - 1, place + self._pick("founder", index, 2))

    def _employer(self, index: int) -> int:
        first, size, place = self._scaled(index, "person", "company")
        return first + max(0, place - self._pick("employer", index, max(2, size // 12)))

    def _publisher(self, index: int) -> int:
        creator = self._evenly("creator", index)
        first, size, place = self._scaled(creator, "person", "company")
        return first + max(0, place - self._pick("publisher", index, max(2, size // 5)))

    def _release(self, index: int) -> Date:
        born = self.person_birth_year(self._evenly("creator", index))
        issuer = self.date("founded", self._publisher(index)).year
        return self._after("release", index, max(born + 24, issuer + 1), 26)

    def form(self, index: int) -> WorkForm:
        """Returns the form of a work."""
        return FORMS[self._pick("form", index, len(FORMS))]

    def _length(self, index: int) -> int:
        form = self.form(index)
        return form.least + self._pick("length", index, form.most - form.least)
