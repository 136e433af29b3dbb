"""A keyword baseline: search for the question's names, narrow or broaden, and answer from what the lines say.

It needs no model and knows no corpus; it shows what plain string search reaches.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from itertools import combinations
from typing import TYPE_CHECKING

from policies.base import EpisodeStart, Policy

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["KeywordPolicy", "answer_kind", "guess", "search_terms"]

_STOP = frozenset(
    """
    a an the of in on at by for to from with and or is are was were be been did do does has have had who
    whom whose what which when where why how many much that this these those it its as than into about
    after before during name called their his her he she they one first last other same both between
    also there not no yes
    """.split()  # noqa: SIM905  a list of words reads best as words
)
_NAME = re.compile(r"[A-Z][\w'’.-]*(?:\s+(?:of|de|von|van|the|and|&)?\s*[A-Z0-9][\w'’.-]*)*")
_WORD = re.compile(r"[\w'’-]{3,}")
# Answers are guessed once so many searches have found something.
_ENOUGH = 2

_YEAR = re.compile(r"\b1[0-9]{3}\b|\b20[0-9]{2}\b")
_MONTH = "January|February|March|April|May|June|July|August|September|October|November|December"
_DATE = re.compile(rf"\b(?:\d{{1,2}} (?:{_MONTH}) \d{{4}}|(?:{_MONTH}) \d{{1,2}}, \d{{4}})\b")
_NUMBER = re.compile(r"\b\d[\d,]*(?:\.\d+)?\b")


def search_terms(question: str) -> list[str]:
    """Returns strings worth searching, the most specific first: quoted text, names, then long plain words."""
    quoted = re.findall(r"[\"“]([^\"”]{3,})[\"”]", question)
    # The first word of a sentence is capitalised without being a name.
    body = question[:1].lower() + question[1:] if question.split(" ", 1)[0].lower() in _STOP else question
    names = sorted((m.group().strip(" .'’?-") for m in _NAME.finditer(body)), key=len, reverse=True)
    words = sorted((w for w in _WORD.findall(body) if w.lower() not in _STOP), key=len, reverse=True)
    seen: dict[str, None] = {}
    for term in [*quoted, *names, *words]:
        if len(term) >= 3 and not any(term in other for other in seen):
            seen[term] = None
    return list(seen)


def answer_kind(question: str) -> str:
    """Returns "yesno", "date", "year", "number" or "name": what the question asks for."""
    q = question.lower().strip()
    if re.match(r"(is|are|was|were|do|does|did|has|have|had|can|could)\b", q):
        return "yesno"
    if re.search(r"\b(what|which|in what) year\b", q):
        return "year"
    if re.search(r"\bwhen\b|\b(what|which|on what) date\b", q):
        return "date"
    if re.search(r"\bhow (many|much|old|long|far|tall|high|big|large)\b", q):
        return "number"
    return "name"


def _passages(observation: str) -> Iterator[str]:
    for line in observation.splitlines():
        if not line.startswith("{"):
            continue
        try:
            record, _ = json.JSONDecoder().raw_decode(line)
        except ValueError:
            yield line  # a line cut by the output cap
            continue
        yield str(record.get("contents", line)) if isinstance(record, dict) else line


def guess(question: str, observations: list[str], terms: list[str]) -> str:
    """Returns the string of the wanted kind that the passages speak of most, near to what the question says.

    A passage counts by the question's words in it; a candidate by its passages and its distance to the search terms.
    """
    kind = answer_kind(question)
    if kind == "yesno":
        return "yes"
    pattern = {"year": _YEAR, "date": _DATE, "number": _NUMBER, "name": _NAME}[kind]
    asked = question.lower()
    words = {w.lower() for w in _WORD.findall(question)} - _STOP
    score: Counter[str] = Counter()
    for passage in dict.fromkeys(p for observation in observations for p in _passages(observation)):
        lower = passage.lower()
        weight = sum(w in lower for w in words) ** 2
        places = [m.start() for t in terms[:4] for m in re.finditer(re.escape(t), passage, re.IGNORECASE)]
        found = list(pattern.finditer(passage)) or list(_YEAR.finditer(passage) if kind == "date" else ())
        for match in found:
            text = match.group().strip(" .,'’-")
            if len(text) < 2 or text.lower() in asked or text.lower() in _STOP:
                continue
            distance = min((abs(match.start() - p) for p in places), default=400)
            score[text] += weight * 1000 // (20 + distance)
    if not score:
        return terms[-1] if terms else "unknown"
    best = max(score.values())
    return next(text for text, value in score.items() if value == best)


def _plans(terms: list[str]) -> Iterator[tuple[str, ...]]:
    """Yields what to search for, the narrowest first: all of the best terms at once, pairs, then each alone."""
    best = terms[:3]
    for size in range(len(best), 0, -1):
        yield from combinations(best, size)


class KeywordPolicy(Policy):
    """Searches for the question's most specific strings at once, then for fewer of them; guesses from what it saw."""

    name: str = "keyword"

    def begin(self, start: EpisodeStart) -> None:
        """Finds the terms to search for."""
        self._start = start
        self._terms = search_terms(start.question.question)
        self._plans = _plans(self._terms)
        self._seen: list[str] = []
        self._searches = 0

    def act(self, observation: str) -> str:
        """Searches, broadens or answers."""
        write = self._start.action_format.render_action
        if self._searches > 0 and any(True for _ in _passages(observation)):
            self._seen.append(observation)
        chosen = next(self._plans, ()) if len(self._seen) < _ENOUGH else ()
        if not chosen or self._searches >= self._start.max_turns - 1:
            answer = guess(self._start.question.question, self._seen, self._terms)
            return write("From the passages seen, this fits best.", answer=answer)
        self._searches += 1
        filters = [f"rg -i -F -e {shlex.quote(chosen[0])} corpus.jsonl"]
        filters += [f"rg -i -F -e {shlex.quote(term)}" for term in chosen[1:]]
        command = " | ".join([*filters, "head -n 8"])
        return write(f"The question names {', '.join(chosen)}. I look for lines with all of it.", command=command)
