"""Questions of a world: drawn by index, with their golden answers, evidence and distractors."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from grepseek_env.errors import ConfigError
from grepseek_env.tasks.world.facts import ENTITY_KINDS, Date, Facts, date_forms, number_forms
from grepseek_env.tasks.world.names import plain_letters
from grepseek_env.tasks.world.rng import Draw, Shuffle, key64
from grepseek_env.types import EvidenceStep, Question

if TYPE_CHECKING:
    from grepseek_env.tasks.world.config import WorldConfig
    from grepseek_env.tasks.world.passages import Passages
    from grepseek_env.tasks.world.schema import Relation

__all__ = ["COMPARISONS", "ORDERINGS", "SAMENESS", "QuestionMaker"]

_Found: TypeAlias = "tuple[str, tuple[str, ...], tuple[EvidenceStep, ...], dict[str, object]]"
_LITERALS = ("date", "year", "number", "text")
_ATTEMPTS = 64
# How many of each 16 questions in a row are of which kind, where all kinds are drawn.
_SHARES = {
    "1-hop": 3,
    "2-hop": 3,
    "3-hop": 2,
    "4-hop": 1,
    "comparison": 2,
    "yes-no": 2,
    "date": 2,
    "number": 1,
}


class _Chain(NamedTuple):
    """What a kind of question that follows one chain asks: how many hops, and what its last object is."""

    hops: tuple[int, ...]
    ends: tuple[str, ...]


_CHAINS = {
    **{f"{hops}-hop": _Chain((hops,), (*ENTITY_KINDS, "text")) for hops in (1, 2, 3, 4)},
    "date": _Chain((1, 2), ("date", "year")),
    "number": _Chain((1, 2), ("number",)),
}
# What is compared: (relation, question if the smaller value wins, question if the larger one does).
COMPARISONS = (
    ("birth", "Who was born first, {a} or {b}?", "Who was born later, {a} or {b}?"),
    ("birth", "Who is older, {a} or {b}?", "Who is younger, {a} or {b}?"),
    ("founded", "Which company was founded first, {a} or {b}?", "Which company is younger, {a} or {b}?"),
    ("employees", "Which firm has fewer employees, {a} or {b}?", "Which firm has more employees, {a} or {b}?"),
    ("settled", "Which city is older, {a} or {b}?", "Which city was founded later, {a} or {b}?"),
    ("residents", "Which city has fewer residents, {a} or {b}?", "Which city is more populous, {a} or {b}?"),
    ("opened", "Which school opened first, {a} or {b}?", "Which school opened later, {a} or {b}?"),
    ("students", "Which school has fewer students, {a} or {b}?", "Which school has more students, {a} or {b}?"),
    ("release", "Which came out first, {a} or {b}?", "Which came out later, {a} or {b}?"),
    ("independence", "Which became independent first, {a} or {b}?", "Which became independent later, {a} or {b}?"),
    ("inhabitants", "Which country has fewer people, {a} or {b}?", "Which country has more people, {a} or {b}?"),
)
# Yes if both have the same object.
SAMENESS = (
    ("birthplace", "Were {a} and {b} born in the same city?"),
    ("school", "Did {a} and {b} study at the same school?"),
    ("headquarters", "Are {a} and {b} headquartered in the same city?"),
    ("country", "Are {a} and {b} in the same country?"),
    ("campus", "Are {a} and {b} located in the same city?"),
    ("creator", "Are {a} and {b} by the same person?"),
)
# Yes if the first value is smaller, or larger.
ORDERINGS = (
    ("birth", "Was {a} born before {b}?", "Was {a} born after {b}?"),
    ("founded", "Is {a} older than {b}?", "Is {a} younger than {b}?"),
    ("residents", "Does {a} have fewer residents than {b}?", "Does {a} have more residents than {b}?"),
    ("students", "Does {a} have fewer students than {b}?", "Does {a} have more students than {b}?"),
)


class QuestionMaker:
    """Makes the question at any index of a split.

    Args:
        config: the world's options.
        facts: what is true in it.
        passages: where it is written.
    """

    def __init__(self, config: WorldConfig, facts: Facts, passages: Passages) -> None:
        self._config = config
        self._facts = facts
        self._passages = passages
        self._relations = facts.schema.relations
        self._paths = {hops: _paths(facts, hops) for hops in (1, 2, 3, 4)}
        self._cycle = [kind for kind in config.question_kinds for _ in range(_SHARES[kind])]
        self._by_kind: dict[str, list[tuple[str, ...]]] = {}

    def __call__(self, split: str, index: int) -> Question:
        """Returns the question at an index; the same facts are asked for again only when all have been.

        Raises:
            ConfigError: no such split, or a negative index.
        """
        if split not in {"train", "test"} or index < 0:
            raise ConfigError(
                f"question ({split!r}, {index}): the split must be 'train' or 'test', the index at least 0"
            )
        lap, place = divmod(index, len(self._cycle))
        order = Draw(key64(self._facts.key, "cycle", split, lap)).order(len(self._cycle))
        kind = self._cycle[order[place]]
        number = lap * self._cycle.count(kind) + sum(self._cycle[other] == kind for other in order[:place])
        draw = Draw(key64(self._config.seed, split, index, self._facts.key))
        for attempt in range(_ATTEMPTS):
            found = self._build(kind, split, number, attempt, draw)
            if found is not None:
                text, golden, steps, more = found
                metadata = {"kind": kind, "split": split, **more}
                return Question(f"{split}-{index}", text, golden, steps, metadata)
        raise ConfigError(
            f"this world is too small for a {kind} question in split {split!r}; raise passages or leave out the kind"
        )

    def _build(self, kind: str, split: str, number: int, attempt: int, draw: Draw) -> _Found | None:
        match kind:
            case "comparison":
                return self._comparison(split, number, attempt, draw)
            case "yes-no":
                return self._yes_no(split, number, attempt, draw)
            case _:
                return self._chain(kind, split, number, attempt, draw)

    # ------------------------------------------------------------------ chains of relations

    def _kind_paths(self, kind: str) -> list[tuple[str, ...]]:
        """Returns the chains of relations that a kind asks, in an order of this world."""
        if kind not in self._by_kind:
            wanted = _CHAINS[kind]
            found = [
                path
                for hops in wanted.hops
                for path in self._paths[hops]
                if self._relations[path[-1]].object in wanted.ends
            ]
            order = Draw(key64(self._facts.key, "paths", kind)).order(len(found))
            self._by_kind[kind] = [found[place] for place in order]
        return self._by_kind[kind]

    def _chain(self, kind: str, split: str, number: int, attempt: int, draw: Draw) -> _Found | None:
        # Paths take turns, each with its own order of subjects; so all kinds of entities are asked about alike, and
        # nothing is asked twice before everything has been, unless an attempt fails.
        paths = self._kind_paths(kind)
        lap, place = divmod(number, len(paths))
        path = paths[(place + attempt) % len(paths)]
        start, size = self._facts.entities(self._relations[path[0]].subject, split)
        order = Shuffle(size, key64(self._facts.key, "subjects", split, *path))
        return self._ask(path, start + order((lap + (size // 2 + attempt if attempt else 0)) % size), draw)

    def _ask(self, path: tuple[str, ...], subject: int, draw: Draw) -> _Found | None:
        first = self._relations[path[0]]
        phrase = self._mention(first.subject, subject)
        words = self._words(first.subject, subject)
        steps: list[EvidenceStep] = []
        seen = {(first.subject, subject)}
        entity = subject
        for name in path[:-1]:
            relation = self._relations[name]
            steps.append(self._step(relation, entity))
            entity = self._facts.entity(name, entity)
            phrase = self._choose(relation.noun, draw).format(s=phrase, **words)
            words = {}
            if (relation.object, entity) in seen:
                return None
            seen.add((relation.object, entity))
        last = self._relations[path[-1]]
        steps.append(self._step(last, entity))
        text = self._choose(last.ask, draw).format(s=phrase, **words)
        value = self._facts.object(last.name, entity)
        if last.object not in _LITERALS and (last.object, value) in seen:
            return None
        golden = self._golden(last, value)
        if any(form.lower() in text.lower() for form in golden):
            return None
        more: dict[str, object] = {
            "hops": len(path),
            "answer_type": last.object,
            "relations": list(path),
            "distractors": self._distractors([(first.subject, subject)], steps),
        }
        return text, golden, tuple(steps), more

    # ------------------------------------------------------------------ two entities

    def _pair(
        self, relation: Relation, form: str, split: str, number: int, attempt: int, draw: Draw
    ) -> tuple[int, int]:
        start, size = self._facts.entities(relation.subject, split)
        order = Shuffle(size, key64(self._facts.key, form, split))
        first = order((number + attempt * 7919) % size)
        second = (first + 1 + draw.below(size - 1)) % size
        return start + first, start + second

    def _comparison(self, split: str, number: int, attempt: int, draw: Draw) -> _Found | None:
        name, smaller, larger = COMPARISONS[number % len(COMPARISONS)]
        relation = self._relations[name]
        a, b = self._pair(relation, smaller, split, number // len(COMPARISONS), attempt, draw)
        left, right = self._order_value(name, a), self._order_value(name, b)
        if left == right:
            return None
        wants_larger = draw.chance(0.5)
        winner = a if (left > right) == wants_larger else b
        text = (larger if wants_larger else smaller).format(a=self._short(relation, a), b=self._short(relation, b))
        golden = self._facts.names.forms(relation.subject, winner)
        return self._two(text, golden, relation, a, b, relation.subject)

    def _yes_no(self, split: str, number: int, attempt: int, draw: Draw) -> _Found | None:
        number, variant = divmod(number, len(SAMENESS) + len(ORDERINGS))
        if variant < len(SAMENESS):
            name, form = SAMENESS[variant]
            relation = self._relations[name]
            a, b = self._pair(relation, form, split, number, attempt, draw)
            if draw.chance(0.5):
                mate = self._facts.sharing(relation, a, draw.below(1 << 20))
                if mate is None:
                    return None
                b = mate
            yes = self._facts.object(name, a) == self._facts.object(name, b)
        else:
            name, smaller, larger = ORDERINGS[variant - len(SAMENESS)]
            relation = self._relations[name]
            a, b = self._pair(relation, smaller, split, number, attempt, draw)
            left, right = self._order_value(name, a), self._order_value(name, b)
            if left == right:
                return None
            wants_larger = draw.chance(0.5)
            form = larger if wants_larger else smaller
            yes = (left > right) == wants_larger
        text = form.format(a=self._short(relation, a), b=self._short(relation, b))
        return self._two(text, ("yes" if yes else "no",), relation, a, b, "yes-no")

    def _two(self, text: str, golden: tuple[str, ...], relation: Relation, a: int, b: int, answer_type: str) -> _Found:
        steps = (self._step(relation, a), self._step(relation, b))
        kind = relation.subject
        more: dict[str, object] = {
            "hops": 2,
            "answer_type": answer_type,
            "relations": [relation.name],
            "distractors": self._distractors([(kind, a), (kind, b)], steps),
        }
        return text, golden, steps, more

    def _order_value(self, name: str, subject: int) -> tuple[int, ...]:
        match self._facts.object(name, subject):
            case Date(year=year, month=month, day=day):
                return year, month, day
            case value:
                return (int(str(value)),)

    # ------------------------------------------------------------------ words

    def _choose(self, wordings: tuple[str, ...], draw: Draw) -> str:
        return wordings[draw.below(len(wordings)) if draw.chance(self._config.paraphrase) else 0]

    def _words(self, kind: str, subject: int) -> dict[str, str]:
        if kind != "work":
            return {}
        form = self._facts.form(subject)
        return {name: getattr(form, name) for name in ("form", "made", "made2", "maker", "issued", "unit")}

    def _mention(self, kind: str, subject: int) -> str:
        name = self._facts.names.name(kind, subject)
        if self._config.style == "facts":
            return name
        match kind:
            case "city":
                return f"the city of {name}"
            case "work":
                return f"the {self._facts.form(subject).form} {name}"
            case _:
                return name

    def _short(self, relation: Relation, subject: int) -> str:
        return self._facts.names.name(relation.subject, subject)

    def _golden(self, relation: Relation, value: object) -> tuple[str, ...]:
        match relation.object, value:
            case _, Date():
                return date_forms(value)
            case "number", int():
                return number_forms(value)
            case (("year" | "text"), _):
                text = str(value)
                return tuple(dict.fromkeys((text, plain_letters(text))))
            case kind, int():
                return self._facts.names.forms(kind, value)
            case _:
                raise TypeError(f"{relation.name} has object {value!r}")

    def _step(self, relation: Relation, subject: int) -> EvidenceStep:
        forms = self._golden(relation, self._facts.object(relation.name, subject))
        name = self._facts.names.name(relation.subject, subject)
        text = relation.ask[0].format(
            s=self._mention(relation.subject, subject), **self._words(relation.subject, subject)
        )
        aliases = forms[1:]
        if self._config.escape_non_ascii:  # what a search finds is the escaped form
            name = _escaped(name)
            aliases = tuple(dict.fromkeys((*forms, *map(_escaped, forms))))[1:]
        position = self._passages.position_of(relation, subject)
        return EvidenceStep(text, forms[0], str(position), name, aliases)

    def _distractors(
        self, entities: list[tuple[str, int]], steps: tuple[EvidenceStep, ...] | list[EvidenceStep]
    ) -> list[str]:
        """Returns ids of passages about namesakes: they match a careless search and answer nothing."""
        used = {step.passage_id for step in steps}
        found = [
            str(self._passages.about(kind, other))
            for kind, subject in entities
            for other in self._facts.names.namesakes(kind, subject)[:3]
        ]
        return [position for position in dict.fromkeys(found) if position not in used]


def _escaped(text: str) -> str:
    """Returns the text as JSON writes it with all non-ASCII letters escaped."""
    return "".join(letter if letter.isascii() else f"\\u{ord(letter):04x}" for letter in text)


def _paths(facts: Facts, hops: int) -> list[tuple[str, ...]]:
    """Returns all chains of relations of a length, none of which asks the same twice."""
    relations = facts.schema.relations
    paths: list[tuple[str, ...]] = [(name,) for name in relations]
    for _ in range(hops - 1):
        paths = [
            (*path, name)
            for path in paths
            for name, relation in relations.items()
            if relations[path[-1]].object == relation.subject and name not in path
        ]
    return paths
