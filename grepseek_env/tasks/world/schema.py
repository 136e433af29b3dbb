"""What a world knows: kinds of entities, how many a country has, and the relations between them, as data."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FACTS", "SCHEMAS", "WIKI", "Relation", "Schema"]


@dataclass(frozen=True, slots=True)
class Relation:
    """A functional relation: every subject has exactly one object.

    Attributes:
        name: unique in its schema.
        subject: an entity kind.
        object: an entity kind, or "date", "year", "number" or "text".
        ask: questions about `{s}`, the plainest first.
        noun: noun phrases for the object, to nest in longer questions; only entities need them.
        part: which passage of the subject states it, where the subject has two.
    """

    name: str
    subject: str
    object: str
    ask: tuple[str, ...]
    noun: tuple[str, ...] = ()
    part: int = 0


@dataclass(frozen=True, slots=True)
class Schema:
    """One kind of world.

    Attributes:
        per_country: how many entities of each kind a country has.
        second: every n-th entity of the kind has a second passage.
        relations: by name.
        passages: how many passages a country makes.
    """

    per_country: Mapping[str, int]
    second: Mapping[str, int]
    relations: Mapping[str, Relation]
    passages: int


def _table(*relations: Relation) -> Mapping[str, Relation]:
    return MappingProxyType({relation.name: relation for relation in relations})


_PER_COUNTRY = MappingProxyType({"country": 1, "city": 4, "person": 12, "company": 5, "work": 6, "school": 2})
_SECOND = MappingProxyType({"country": 1, "person": 4, "company": 5, "work": 6})

# {form}, {made}, {maker}, {issued}, {unit} are words of the work that the question starts from.
WIKI = Schema(
    per_country=_PER_COUNTRY,
    second=_SECOND,
    passages=sum(_PER_COUNTRY.values()) + sum(_PER_COUNTRY[kind] // nth for kind, nth in _SECOND.items()),
    relations=_table(
        Relation(
            "capital",
            "country",
            "city",
            ("What is the capital of {s}?", "Which city is the capital of {s}?", "From which city is {s} governed?"),
            ("the capital of {s}", "the city from which {s} is governed"),
        ),
        Relation(
            "currency",
            "country",
            "text",
            ("What is the currency of {s}?", "Which currency is used in {s}?", "What do people in {s} pay with?"),
            part=1,
        ),
        Relation(
            "independence",
            "country",
            "date",
            ("When did {s} become independent?", "On what date did {s} gain independence?"),
        ),
        Relation(
            "inhabitants",
            "country",
            "number",
            ("What is the population of {s}?", "How many people live in {s}?", "How many inhabitants does {s} have?"),
            part=1,
        ),
        Relation(
            "country",
            "city",
            "country",
            ("In which country is {s}?", "In which country does {s} lie?", "To which country does {s} belong?"),
            ("the country of {s}", "the country where {s} lies", "the country in which {s} is found"),
        ),
        Relation(
            "river",
            "city",
            "text",
            ("On which river does {s} lie?", "Which river flows through {s}?"),
        ),
        Relation(
            "settled",
            "city",
            "year",
            ("In which year was {s} founded?", "When was {s} founded?", "What year saw the founding of {s}?"),
        ),
        Relation(
            "residents",
            "city",
            "number",
            ("What is the population of {s}?", "How many people live in {s}?", "How many residents does {s} have?"),
        ),
        Relation(
            "birthplace",
            "person",
            "city",
            ("Where was {s} born?", "In which city was {s} born?", "What is the birthplace of {s}?"),
            ("the birthplace of {s}", "the city where {s} was born", "the home town of {s}"),
        ),
        Relation(
            "employer",
            "person",
            "company",
            ("Which company did {s} work for?", "What company employed {s}?", "Who was the employer of {s}?"),
            ("the company that {s} worked for", "the employer of {s}"),
            part=1,
        ),
        Relation(
            "school",
            "person",
            "school",
            ("Where did {s} study?", "At which school was {s} educated?", "Which school did {s} attend?"),
            ("the school where {s} studied", "the alma mater of {s}"),
            part=1,
        ),
        Relation(
            "spouse",
            "person",
            "person",
            ("Who was the spouse of {s}?", "Whom did {s} marry?", "To whom was {s} married?"),
            ("the spouse of {s}", "the person married to {s}"),
            part=1,
        ),
        Relation(
            "birth",
            "person",
            "date",
            ("When was {s} born?", "On what date was {s} born?", "What is the date of birth of {s}?"),
        ),
        Relation(
            "occupation",
            "person",
            "text",
            ("What was the occupation of {s}?", "What was the profession of {s}?"),
        ),
        Relation(
            "founder",
            "company",
            "person",
            ("Who founded {s}?", "Who was the founder of {s}?", "By whom was {s} set up?"),
            ("the founder of {s}", "the person who founded {s}"),
        ),
        Relation(
            "headquarters",
            "company",
            "city",
            ("Where is {s} headquartered?", "In which city is {s} based?", "Where is the head office of {s}?"),
            ("the city where {s} is headquartered", "the seat of {s}"),
        ),
        Relation(
            "founded",
            "company",
            "date",
            ("When was {s} founded?", "On what date was {s} founded?", "What is the founding date of {s}?"),
        ),
        Relation(
            "employees",
            "company",
            "number",
            ("How many employees does {s} have?", "How many people work for {s}?", "What is the staff size of {s}?"),
            part=1,
        ),
        Relation(
            "industry",
            "company",
            "text",
            ("In which industry is {s} active?", "What is the line of business of {s}?"),
        ),
        Relation(
            "creator",
            "work",
            "person",
            ("Who {made} {s}?", "Who was the {maker} of {s}?", "By whom was {s} {made2}?"),
            ("the {maker} of {s}", "the person who {made} {s}"),
        ),
        Relation(
            "publisher",
            "work",
            "company",
            ("Which company {issued} {s}?", "What company was {s} {issued} by?"),
            ("the company that {issued} {s}",),
            part=1,
        ),
        Relation(
            "release",
            "work",
            "date",
            ("When was {s} released?", "On what date did {s} come out?", "What is the release date of {s}?"),
        ),
        Relation(
            "length",
            "work",
            "number",
            ("How many {unit} long is {s}?", "How long is {s} in {unit}?", "How many {unit} does {s} have?"),
            part=1,
        ),
        Relation(
            "genre",
            "work",
            "text",
            ("What is the genre of {s}?", "To which genre does {s} belong?"),
        ),
        Relation(
            "campus",
            "school",
            "city",
            ("In which city is {s}?", "Where is {s} located?", "In which city is the campus of {s}?"),
            ("the city where {s} is located", "the home city of {s}"),
        ),
        Relation(
            "opened",
            "school",
            "year",
            ("In which year was {s} founded?", "When did {s} open its doors?", "What is the founding year of {s}?"),
        ),
        Relation(
            "students",
            "school",
            "number",
            ("How many students does {s} have?", "What is the enrolment of {s}?"),
        ),
    ),
)

_FACTS_PER_COUNTRY = MappingProxyType({"country": 1, "city": 10, "person": 100, "company": 40})
_FACTS_RELATIONS = _table(
    Relation(
        "birthplace",
        "person",
        "city",
        ("Where was {s} born?", "In which city was {s} born?"),
        ("the birthplace of {s}", "the city where {s} was born"),
    ),
    Relation(
        "employer",
        "person",
        "company",
        ("Which company does {s} work for?", "What company employs {s}?"),
        ("the employer of {s}", "the company that {s} works for"),
    ),
    Relation(
        "country",
        "city",
        "country",
        ("In which country is {s}?", "To which country does {s} belong?"),
        ("the country of {s}",),
    ),
    Relation(
        "headquarters",
        "company",
        "city",
        ("Where is {s} headquartered?", "In which city is {s} based?"),
        ("the seat of {s}", "the city where {s} is headquartered"),
    ),
    Relation(
        "founder",
        "company",
        "person",
        ("Who founded {s}?", "Who was the founder of {s}?"),
        ("the founder of {s}", "the person who founded {s}"),
    ),
)
FACTS = Schema(
    per_country=_FACTS_PER_COUNTRY,
    second=MappingProxyType({}),
    relations=_FACTS_RELATIONS,
    passages=sum(_FACTS_PER_COUNTRY[relation.subject] for relation in _FACTS_RELATIONS.values()),
)
SCHEMAS: Mapping[str, Schema] = MappingProxyType({"wiki": WIKI, "facts": FACTS})
