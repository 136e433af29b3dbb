"""The corpus of a world: which passage stands where, and what it says."""

from __future__ import annotations

import json
import re
from itertools import repeat
from typing import TYPE_CHECKING

from grepseek_env.tasks.world.facts import ENTITY_KINDS, Facts, date_forms, number_forms
from grepseek_env.tasks.world.grammar import FACT_SENTENCES, FILLER_SENTENCES, INTRODUCED, ONE_FACT, Wording
from grepseek_env.tasks.world.names import plain_letters
from grepseek_env.tasks.world.rng import Shuffle, key64, mix64
from grepseek_env.tasks.world.text import CalibratedText

if TYPE_CHECKING:
    from collections.abc import Iterator

    from grepseek_env.tasks.world.config import WorldConfig
    from grepseek_env.tasks.world.schema import Relation

__all__ = ["CHUNK_LINES", "Passages"]

CHUNK_LINES = 4096
# The article goes by sound: "a union", "a European", "a one-act", but "an hour".
_VOWEL_SOUND = re.compile(r"(?!uni(?!n|m)|us[aeu]|uto|eu|one\b|once\b)[aeiou]|hour|heir|honest|honou?r", re.IGNORECASE)
_LANDSCAPES = ("mountainous", "coastal", "landlocked", "low-lying", "wooded", "hilly", "sparsely settled", "island")
_GOODS = (
    "timber and paper",
    "wool and leather",
    "copper",
    "fish and salt",
    "wine and olives",
    "grain",
    "machine tools",
)


class Passages:
    """Addresses and texts of all passages; ids are positions in the file, counted from 0.

    Args:
        config: the world's options.
        facts: what is true in it.
    """

    def __init__(self, config: WorldConfig, facts: Facts) -> None:
        self._config = config
        self._facts = facts
        schema = facts.schema
        self._entity_passages = facts.countries * schema.passages
        self.count = max(config.passages, self._entity_passages) if config.background else self._entity_passages
        # Blocks of the unshuffled order: (what, subject kind, every n-th subject, first number).
        blocks: list[tuple[str, str, int, int]] = []
        number = 0
        if config.style == "facts":
            for name, relation in schema.relations.items():
                blocks.append((name, relation.subject, 1, number))
                number += facts.counts[relation.subject]
        else:
            for part, kinds in (("first", ENTITY_KINDS), ("second", tuple(schema.second))):
                for kind in kinds:
                    nth = schema.second[kind] if part == "second" else 1
                    blocks.append((part, kind, nth, number))
                    number += facts.counts[kind] // nth
        self._blocks = tuple(reversed(blocks))
        self._starts = {(what, kind): (nth, start) for what, kind, nth, start in blocks}
        self._key = key64(facts.key, "passages")
        self._order = Shuffle(self._entity_passages, self._key)
        self._fact_wording = Wording(self._key ^ 1, config.paraphrase)
        self._filler_wording = Wording(self._key ^ 2, 1.0)
        self._alias_use = int(config.aliases * (1 << 32))
        self._encode = json.JSONEncoder(ensure_ascii=config.escape_non_ascii).encode
        self._background = CalibratedText(key64(facts.key, "background")) if config.background else None
        self._sentences = {
            kind: (
                [name for name, r in schema.relations.items() if r.subject == kind and name not in INTRODUCED[kind]],
                FILLER_SENTENCES[kind],
            )
            for kind in ENTITY_KINDS
        }

    # ------------------------------------------------------------------ addresses

    def _slot(self, entity_passage: int) -> int:
        """Returns the first position of the stretch in which this entity passage, and no other, stands."""
        return entity_passage * self.count // self._entity_passages

    def _position(self, entity_passage: int) -> int:
        start = self._slot(entity_passage)
        return start + mix64(self._key + entity_passage) % (self._slot(entity_passage + 1) - start)

    def position_of(self, relation: Relation, subject: int) -> int:
        """Returns the position of the passage that states a fact."""
        if self._config.style == "facts":
            nth, start = self._starts[relation.name, relation.subject]
        else:
            nth, start = self._starts["first", relation.subject]
            second, second_start = self._starts.get(("second", relation.subject), (0, 0))
            if relation.part and second and subject % second == 0:
                nth, start = second, second_start
        return self._position(self._order.place_of(start + subject // nth))

    def about(self, kind: str, subject: int) -> int:
        """Returns the position of the first passage about an entity."""
        if self._config.style == "facts":
            relation = next(r for r in self._facts.schema.relations.values() if r.subject == kind)
            return self.position_of(relation, subject)
        return self._position(self._order.place_of(self._starts["first", kind][1] + subject))

    # ------------------------------------------------------------------ texts

    def contents(self, entity_passage: int) -> str:
        """Returns title, newline and text of an entity passage in file order."""
        number = self._order(entity_passage)
        what, kind, nth, start = next(block for block in self._blocks if block[3] <= number)
        subject = (number - start) * nth
        name = self._facts.names.name(kind, subject)
        if self._config.style == "facts":
            template = self._fact_wording(ONE_FACT[what], mix64(self._key ^ number))
            text = template % {"s": name, "o": self.written(self._facts.schema.relations[what], subject)}
        else:
            text = self._text(kind, subject, second=what == "second", number=number)
        return f'"{name}"\n{text}' if self._config.titles else text

    def written(self, relation: Relation, subject: int) -> str:
        """Returns the object of a fact as its passage writes it."""
        facts, name = self._facts, relation.name
        chance = mix64(self._key ^ (subject << 6) ^ (len(relation.name) << 1))
        match relation.object:
            case "date":
                inverted = chance & 1 and chance >> 11 < self._config.paraphrase * (1 << 53)
                return date_forms(facts.date(name, subject))[1 if inverted else 0]
            case "number":
                return number_forms(int(str(facts.object(name, subject))))[0]
            case "year" | "text":
                return str(facts.object(name, subject))
            case kind:
                entity = facts.entity(name, subject)
                if chance >> 32 >= self._alias_use:
                    return facts.names.name(kind, entity)
                return facts.names.alias(kind, entity) or plain_letters(facts.names.name(kind, entity))

    def _text(self, kind: str, subject: int, *, second: bool, number: int) -> str:
        facts, schema = self._facts, self._facts.schema
        bits = mix64(self._key ^ (number << 4))
        has_second = kind in schema.second and subject % schema.second[kind] == 0
        values = self._values(kind, subject, bits)
        stated, fillers = self._sentences[kind]
        told = [name for name in stated if not has_second or schema.relations[name].part == second]
        templates = [FACT_SENTENCES[kind][name] for name in told]
        for name in (*(() if second else INTRODUCED[kind]), *told):
            values[name] = self.written(schema.relations[name], subject)
        if kind == "person" and not second:
            values["an_occupation"] = _with_article(values["occupation"])
        elif kind == "work":
            form = facts.form(subject)
            values |= {"form": form.form, "made": form.made2, "issued": form.issued, "unit": form.unit}
            if not second:
                values["a_genre"] = _with_article(values["genre"])
        opening = self._fact_wording(FACT_SENTENCES[kind]["again" if second else "intro"], bits >> 7)
        sentences = [self._fact_wording(template, bits >> (9 + 5 * place)) for place, template in enumerate(templates)]
        words = (len(opening) + sum(map(len, sentences))) // 6
        place = bits >> 13
        step = 1 + (bits >> 29) % (len(fillers) - 1) if len(fillers) in {5, 7} else 1
        for turn in range(len(fillers)):
            if words >= self._config.words:
                break
            filler = self._filler_wording(fillers[(place + turn * step) % len(fillers)], bits >> (17 + 3 * turn))
            sentences.insert((bits >> (21 + turn)) % (len(sentences) + 1), filler)
            words += len(filler) // 6
        return " ".join([opening, *sentences]) % values

    def _values(self, kind: str, subject: int, bits: int) -> dict[str, str]:
        names = self._facts.names
        alias = names.alias(kind, subject)
        since = self._active_since(kind, subject)
        he = bits >> 33 & 1
        if kind == "person":  # couples differ, and so do both passages about one person agree
            he = (mix64(self._key ^ (subject >> 1)) ^ subject) & 1
        return {
            "name": names.name(kind, subject),
            "aka": f" (also known as {alias})" if alias else "",
            "He": ("She", "He")[he],
            "he": ("she", "he")[he],
            "His": ("Her", "His")[he],
            "his": ("her", "his")[he],
            "him": ("her", "him")[he],
            "few": ("two", "three", "four", "five", "six", "seven")[(bits >> 34) % 6],
            "late": str(min(2015, since + (bits >> 40) % 40)),
            "decade": str(min(2010, since + 5 + (bits >> 48) % 35) // 10 * 10),
            "a_landscape": _with_article(_LANDSCAPES[(bits >> 52) % len(_LANDSCAPES)]),
            "goods": _GOODS[(bits >> 56) % len(_GOODS)],
        }

    def _active_since(self, kind: str, subject: int) -> int:
        """Returns a year after which things can have happened to an entity."""
        match kind:
            case "person":
                return self._facts.person_birth_year(subject) + 24
            case "company" | "work":
                return self._facts.date("founded" if kind == "company" else "release", subject).year + 2
            case _:
                return 1880

    # ------------------------------------------------------------------ lines

    @property
    def chunks(self) -> int:
        """How many chunks of `CHUNK_LINES` lines the corpus has; the last one may be shorter."""
        return -(-self.count // CHUNK_LINES)

    def lines(self, start: int, stop: int) -> Iterator[str]:
        """Yields JSON lines without their newlines.

        Args:
            start: first position.
            stop: position after the last one.
        """
        encode = self._encode
        entity = start * self._entity_passages // self.count
        while self._position(entity) < start:
            entity += 1
        following = self._position(entity) if entity < self._entity_passages else self.count
        background = self._background_bodies(start, stop)
        for position, filler in zip(range(start, stop), background, strict=False):
            body = filler
            if position == following:
                body = encode(self.contents(entity))
                entity += 1
                following = self._position(entity) if entity < self._entity_passages else self.count
            yield f'{{"id": "{position}", "contents": {body}}}'

    def _background_bodies(self, start: int, stop: int) -> Iterator[str]:
        """Yields a body for every position, those of entity passages included: a position's text is its own."""
        if self._background is None:
            yield from repeat("", stop - start)
            return
        for chunk in range(start // CHUNK_LINES, -(-stop // CHUNK_LINES)):
            first = chunk * CHUNK_LINES
            bodies = self._background.bodies(chunk, CHUNK_LINES)
            for body in bodies[max(start - first, 0) :]:
                yield f'"{body.decode("ascii")}"'

    def chunk(self, number: int) -> bytes:
        """Returns the bytes of one chunk of lines."""
        start = number * CHUNK_LINES
        lines = self.lines(start, min(start + CHUNK_LINES, self.count))
        return "".join(f"{line}\n" for line in lines).encode()


def _with_article(noun: str) -> str:
    return f"an {noun}" if _VOWEL_SOUND.match(noun) else f"a {noun}"
