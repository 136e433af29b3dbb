"""Searches a small corpus in memory, with nothing but what Python brings.

A corpus of a few hundred kilobytes is searched in a tenth of a millisecond, where starting a single program takes one
or two and importing numba three hundred.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from grepseek_env.errors import CorpusChanged, SpawnFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from grepseek_env.engine.kernels.encode import Needle, Rule
    from grepseek_env.engine.question import Question

__all__ = ["MOST_BYTES", "MemoryCorpus"]

MOST_BYTES = 4 << 20
"""Larger corpora are not held in memory."""


class MemoryCorpus:
    """A corpus that is held in memory; any number of threads may search it.

    Args:
        path: the file.
        size: its bytes.

    Raises:
        CorpusChanged: it has another size.
        SpawnFailed: it cannot be read.
    """

    def __init__(self, path: Path, size: int) -> None:
        try:
            data = path.read_bytes()
        except OSError as error:
            raise SpawnFailed(f"the corpus cannot be opened: {error}") from error
        if len(data) != size:
            raise CorpusChanged(f"{path} has {len(data)} bytes instead of {size}: prepare it again")
        # Programs print an open last line with a newline.
        self._data = data if data.endswith(b"\n") or not data else data + b"\n"

    @functools.cached_property
    def _lower(self) -> bytes:
        return self._data.lower()

    def search(
        self, question: Question, write: Callable[[bytes], object] | None, *, most_lines: int
    ) -> tuple[int, int]:
        """Finds wanted lines, in order.

        Args:
            question: which are wanted.
            write: is given each; None: they are counted.
            most_lines: stops after so many.

        Returns:
            how many were found, and their bytes, newlines included.
        """
        count = size = 0
        if most_lines <= 0:
            return 0, 0
        data = self._data
        for start, after in self._found(question):
            if write is not None:
                write(data[start:after])
            count += 1
            size += after - start
            if count == most_lines:
                break
        return count, size

    def _found(self, question: Question) -> Iterator[tuple[int, int]]:
        rules = question.rules
        driver = max(
            (rule for rule in rules if not rule.invert), key=lambda rule: min(map(_length, rule.needles)), default=None
        )
        if driver is None:
            yield from self._every_line(question)
            return
        others = [(rule, self._texts(rule)) for rule in rules if rule is not driver]
        texts = self._texts(driver)
        special = {each for needle in driver.needles for each in needle.specials}
        texts += [(self._data, each, True) for each in special if each in self._data]
        simple = driver.word == "none" and not driver.whole
        data = self._data
        nexts = [0] * len(texts)
        at = 0
        while True:
            for number, (where, text, _) in enumerate(texts):
                if 0 <= nexts[number] < at or at == 0:
                    nexts[number] = where.find(text, at)
            found = min((place for place in nexts if place >= 0), default=-1)
            if found < 0:
                return
            start, after = data.rfind(b"\n", 0, found) + 1, data.find(b"\n", found) + 1
            sure = simple and not texts[nexts.index(found)][2]
            if self._passes(start, after - 1, question, others) if sure else question.wants(data[start : after - 1]):
                yield start, after
            at = after

    def _every_line(self, question: Question) -> Iterator[tuple[int, int]]:
        rules = [(rule, self._texts(rule)) for rule in question.rules]
        data, at = self._data, 0
        while at < len(data):
            after = data.find(b"\n", at) + 1
            if self._passes(at, after - 1, question, rules):
                yield at, after
            at = after

    def _passes(
        self, start: int, end: int, question: Question, rules: Sequence[tuple[Rule, list[tuple[bytes, bytes, bool]]]]
    ) -> bool:
        """Returns whether a line passes rules, asking the question itself where a plain search does not say."""
        for rule, texts in rules:
            found = any(where.find(text, start, end) >= 0 for where, text, _ in texts)
            # What is found may be no word and no whole line; where it is not, letters outside ASCII may stand for some.
            edges = rule.word != "none" or rule.whole
            if edges if found else self._has_special(rule, start, end):
                return question.wants(self._data[start:end])
            if found is rule.invert:
                return False
        return True

    def _has_special(self, rule: Rule, start: int, end: int) -> bool:
        special = {each for needle in rule.needles for each in needle.specials}
        return any(self._data.find(each, start, end) >= 0 for each in special)

    def _texts(self, rule: Rule) -> list[tuple[bytes, bytes, bool]]:
        """Returns for each needle where to look for what, and that finding it leaves nothing open."""
        return [(self._lower if needle.fold else self._data, needle.text, False) for needle in rule.needles]


def _length(needle: Needle) -> int:
    return len(needle.text)
