"""How a template Planner reads generated worlds: the grammar of questions and passages, turned round.

Questions are parsed into hops by the wordings of the relations; passages are read by the sentences that state facts.
Nothing here knows a world's facts: what is not in an output cannot be read.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

from algos.tutor_planner.forms import fold, words
from grepseek_env.tasks.world.facts import FORMS
from grepseek_env.tasks.world.grammar import FACT_SENTENCES, INTRODUCED, ONE_FACT
from grepseek_env.tasks.world.questions import COMPARISONS, ORDERINGS, SAMENESS
from grepseek_env.tasks.world.schema import SCHEMAS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from grepseek_env.tasks.world.schema import Relation

__all__ = ["Hop", "Meaning", "Passage", "meanings", "passages", "read", "relation_named", "winner"]


@dataclass(frozen=True, slots=True)
class Hop:
    """One relation to be looked up.

    Attributes:
        relation: its name.
        kind: kind of the entity that it starts from.
    """

    relation: str
    kind: str


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a question asks.

    Attributes:
        subjects: the entities it names: one that a chain starts from, or two that are compared.
        hops: in time order; the same for both of two subjects.
        rule: how values become the answer: the last value, the subject with the smaller or larger one, or whether two
            values are the same, or the first is smaller or larger.
    """

    subjects: tuple[str, ...]
    hops: tuple[Hop, ...]
    rule: Literal["value", "smaller", "larger", "same", "before", "after"] = "value"


@dataclass(frozen=True, slots=True)
class Passage:
    """A line of an output, or a part of one.

    Attributes:
        title: without quotes; empty where the line has none.
        text: the rest.
    """

    title: str
    text: str


# ------------------------------------------------------------------ questions

_FORM_WORDS = {
    name: "|".join(sorted({re.escape(getattr(form, name)) for form in FORMS}))
    for name in ("form", "made", "made2", "maker", "issued", "unit")
}
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


@cache
def _asked(template: str) -> re.Pattern[str]:
    parts = _PLACEHOLDER.split(template)
    out = [re.escape(parts[0])]
    for name, literal in zip(parts[1::2], parts[2::2], strict=True):
        out += [f"(?:{_FORM_WORDS[name]})" if name in _FORM_WORDS else f"(?P<{name}>.+)", re.escape(literal)]
    return re.compile("".join(out))


def _relations() -> Iterator[Relation]:
    for schema in SCHEMAS.values():
        yield from schema.relations.values()


def relation_named(name: str) -> Relation:
    """Returns the relation that generated worlds call so."""
    return next(relation for relation in _relations() if relation.name == name)


@cache
def meanings(question: str) -> tuple[Meaning, ...]:
    """Returns what a question may mean, the reading with the most hops first; none where no wording fits."""
    found = [*_comparisons(question), *_chains(question)]
    found.sort(key=lambda meaning: -len(meaning.hops))
    return tuple(dict.fromkeys(found))


def _comparisons(question: str) -> Iterator[Meaning]:
    for name, smaller, larger in COMPARISONS:
        yield from _two(question, smaller, name, "smaller")
        yield from _two(question, larger, name, "larger")
    for name, same in SAMENESS:
        yield from _two(question, same, name, "same")
    for name, before, after in ORDERINGS:
        yield from _two(question, before, name, "before")
        yield from _two(question, after, name, "after")


def _two(question: str, template: str, relation: str, rule: str) -> Iterator[Meaning]:
    if match := _asked(template).fullmatch(question):
        hop = Hop(relation, relation_named(relation).subject)
        yield Meaning((match["a"], match["b"]), (hop,), rule)  # type: ignore[arg-type]


def _chains(question: str) -> Iterator[Meaning]:
    for relation in _relations():
        for template in relation.ask:
            if match := _asked(template).fullmatch(question):
                for start, hops in _phrases(match["s"], relation.subject):
                    yield Meaning((start,), (*hops, Hop(relation.name, relation.subject)))


def _phrases(phrase: str, kind: str) -> Iterator[tuple[str, tuple[Hop, ...]]]:
    """Yields how a phrase can denote an entity of a kind: where it starts, and the hops to it."""
    for relation in _relations():
        if relation.object != kind:
            continue
        for template in relation.noun:
            if match := _asked(template).fullmatch(phrase):
                for start, hops in _phrases(match["s"], relation.subject):
                    yield start, (*hops, Hop(relation.name, relation.subject))
    name = _mention(phrase, kind)
    if name:
        yield name, ()


_MENTIONS = {"city": re.compile(r"(?:the city of )?(.+)"), "work": re.compile(rf"the (?:{_FORM_WORDS['form']}) (.+)")}
_NAME = re.compile(r"[^\W\d_a-zß-öø-ÿ].*")
_INSIDE_NAMES = frozenset({"of", "and", "the"})


def _mention(phrase: str, kind: str) -> str | None:
    match = _MENTIONS.get(kind, re.compile("(.+)")).fullmatch(phrase)
    if match is None or not _NAME.fullmatch(match[1]):
        return None
    small = {word for word in match[1].split() if word[0].islower()}
    return match[1] if small <= _INSIDE_NAMES else None


# ------------------------------------------------------------------ passages

_TAGS = re.compile(r"</?tool_response>")


def passages(output: str) -> tuple[Passage, ...]:
    """Returns the passages of an output; a line that is no JSON object is taken as bare text."""
    return tuple(_passage(line) for line in _TAGS.sub("", output).splitlines() if line.strip())


def _passage(line: str) -> Passage:
    contents = line
    if line.startswith("{"):
        try:
            record, _ = json.JSONDecoder().raw_decode(line)
            contents = str(record["contents"])
        except (ValueError, KeyError, TypeError):
            contents = line
    if contents is line:  # a part of a line, or a line that was cut: its JSON escapes are still there
        contents = contents.partition('"contents": "')[2] or contents
        contents = contents.replace('\\"', '"').replace("\\n", "\n")
    title, newline, text = contents.partition("\n")
    if newline and title[-1:] == '"':
        return Passage(title.strip('"'), text)
    return Passage("", contents)


_MARK = re.compile(r"%\((\w+)\)s|\[|\||\]|[^%\[\|\]]+|%")
_VALUE = r"[^.;()]{1,80}?"
_VALUES = {"year": r"\d{3,4}", "number": r"\d[\d,]*", "date": r"[^.;()]{0,20}\d[^.;()]{0,20}?"}
_KNOWN_VALUES = {
    **{name: f"(?:{_FORM_WORDS[name]})" for name in ("form", "issued", "unit")},
    "made": f"(?:{_FORM_WORDS['made2']})",
    "aka": r"(?: \(also known as [^)]*\))?",
}
_WITH_ARTICLE = {"an_occupation": "occupation", "a_genre": "genre"}


@cache
def _sentence(template: str, relation: str) -> re.Pattern[str]:
    """Turns a template of the grammar round: what it says of `relation` becomes groups ``v0``, ``v1``, ..."""
    depth = values = names = 0
    wanted = _VALUES.get(relation_named(relation).object, _VALUE)
    out = []
    for match in _MARK.finditer(template):
        mark, name = match.group(), match[1]
        if name is not None:
            article, name = ("an? ", _WITH_ARTICLE[name]) if name in _WITH_ARTICLE else ("", name)
            if name in {relation, "o"}:
                out.append(f"{article}(?P<v{values}>{wanted})")
                values += 1
            elif name in {"name", "s"}:
                out.append(f"(?P<n{names}>[^;()]{{1,80}}?)")
                names += 1
            else:
                out.append(_KNOWN_VALUES.get(name, f"{article}{_VALUE}"))
        elif mark == "[":
            depth += 1
            out.append("(?:")
        elif mark == "]":
            depth -= 1
            out.append(")")
        else:
            out.append("|" if mark == "|" and depth else re.escape(mark))
    return re.compile(r"(?:^|(?<=[.\n] )|(?<=\n))" + "".join(out))


@cache
def _sentences(relation: str, kind: str) -> tuple[re.Pattern[str], ...]:
    found = []
    if relation in INTRODUCED.get(kind, ()):
        found.append(_sentence(FACT_SENTENCES[kind]["intro"], relation))
    elif relation in FACT_SENTENCES.get(kind, {}):
        found.append(_sentence(FACT_SENTENCES[kind][relation], relation))
    # Last, since the sentence of a one-fact passage can be found inside a longer one.
    if relation in ONE_FACT:
        found.append(_sentence(ONE_FACT[relation], relation))
    return tuple(found)


def read(hop: Hop, entity: str, outputs: Iterable[Passage]) -> str | None:
    """Returns the value of a relation as a passage about the entity writes it; None where none does."""
    for passage in outputs:
        for pattern in _sentences(hop.relation, hop.kind):
            for match in pattern.finditer(passage.text):
                groups = match.groupdict()
                names = [name for key, name in groups.items() if key[0] == "n" and name is not None]
                if _about(entity, passage, names):
                    return next(v for key, v in groups.items() if key[0] == "v" and v is not None).strip()
    return None


def _about(entity: str, passage: Passage, names: list[str]) -> bool:
    wanted = fold(entity)
    if any(fold(name) == wanted for name in (passage.title, *names)):
        return True
    if passage.title or not names:
        return f"(also known as {wanted})" in fold(passage.text)
    return False


# ------------------------------------------------------------------ values

_MONTHS = {
    month: number
    for number, month in enumerate(
        "january february march april may june july august september october november december".split(),  # noqa: SIM905
        1,
    )
}


def _ordered(value: str) -> tuple[int, ...]:
    """Returns a date as year, month, day, or a number, for comparison."""
    parts = words(value)
    numbers = [int(part) for part in parts if part.isdigit()]
    month = next((_MONTHS[part] for part in parts if part in _MONTHS), None)
    if month is None:
        return tuple(numbers)
    year = max(numbers)
    return (year, month, min(numbers))


def winner(meaning: Meaning, values: tuple[str, ...]) -> str:
    """Returns the answer that the values give."""
    match meaning.rule:
        case "value":
            return values[-1]
        case "same":
            return "yes" if fold(values[0]) == fold(values[1]) else "no"
    left, right = _ordered(values[0]), _ordered(values[1])
    match meaning.rule:
        case "smaller" | "larger":
            return meaning.subjects[(left > right) == (meaning.rule == "smaller")]
        case _:
            return "yes" if (left < right) == (meaning.rule == "before") else "no"
