"""The arithmetic of combining slices: chunks of their outputs in, chunks of the whole stream's output out.

Nothing here starts programs or waits. A merge is not here: sort itself merges. Memory held is a chunk, a line or what
the combiner's own answer needs, never a slice.
"""

from __future__ import annotations

import re
from collections import deque
from typing import TYPE_CHECKING, Protocol

from grepseek_env.engine.plan import (
    Concat,
    Exists,
    Head,
    HeadBytes,
    Numbers,
    Offset,
    Sum,
    Tail,
    TailBytes,
    Uniq,
    UniqShow,
)
from grepseek_env.errors import EngineFault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from grepseek_env.engine.plan import Combiner

__all__ = ["Base", "Folding", "combine", "folding"]

Base = tuple[int, int]
"""Lines and bytes of the corpus before a slice."""


class Folding(Protocol):
    """A combination under way; slices are given in order, each as chunks and then its end."""

    @property
    def done(self) -> bool:
        """Whether nothing that is still to come can change the answer."""

    def feed(self, data: bytes) -> bytes:
        """Takes a chunk of the current slice's output and returns what is certain now.

        Raises:
            EngineFault: the output is not what this combination is about.
        """

    def end_slice(self) -> bytes:
        """Ends the current slice and returns what is certain now; what is fed then is the next slice's."""

    def finish(self) -> bytes:
        """Ends the combination, after the last slice, and returns the rest."""


def folding(combiner: Combiner, bases: Callable[[int], Base]) -> Folding:
    """Starts a combination.

    Args:
        combiner: any but `Merge`.
        bases: slice number -> what of the corpus lies before it; asked only where a number has to be rebased.

    Raises:
        EngineFault: it is a merge.
    """
    match combiner:
        case Concat() | Exists():
            return _Concat()
        case Head(lines):
            return _Head(lines)
        case HeadBytes(count):
            return _HeadBytes(count)
        case Tail(lines):
            return _Tail(lines)
        case TailBytes(count):
            return _TailBytes(count)
        case Sum():
            return _Sum(combiner)
        case Uniq(show):
            return _Uniq(show)
        case Offset():
            return _Offset(combiner, bases)
        case _:
            raise EngineFault(f"{type(combiner).__name__} is not combined from chunks; run its program on the slices")


def combine(
    combiner: Combiner, slices: Iterable[Iterable[bytes]], bases: Callable[[int], Base] | None = None
) -> Iterator[bytes]:
    """Combines outputs that are at hand; takes no more of them than decide the answer.

    Args:
        combiner: any but `Merge`.
        slices: for each slice, in order, the chunks of its output.
        bases: as in `folding`; needed by `Offset` alone.

    Yields:
        Chunks of the whole output, none empty.
    """
    fold = folding(combiner, bases or (lambda _number: (0, 0)))
    if _decided(fold):
        return
    for chunks in slices:
        for chunk in chunks:
            if out := fold.feed(chunk):
                yield out
            if _decided(fold):
                return
        if out := fold.end_slice():
            yield out
    if out := fold.finish():
        yield out


def _decided(fold: Folding) -> bool:
    return fold.done


class _Concat:
    done = False

    def feed(self, data: bytes) -> bytes:
        return data

    def end_slice(self) -> bytes:
        return b""

    def finish(self) -> bytes:
        return b""


class _Head(_Concat):
    def __init__(self, lines: int) -> None:
        self._missing = lines
        self.done = lines == 0

    def feed(self, data: bytes) -> bytes:
        found = data.count(b"\n")
        if found < self._missing:
            self._missing -= found
            return data
        end = 0
        for _ in range(self._missing):
            end = data.index(b"\n", end) + 1
        self._missing = 0
        self.done = True
        return data[:end]


class _HeadBytes(_Concat):
    def __init__(self, count: int) -> None:
        self._missing = count
        self.done = count == 0

    def feed(self, data: bytes) -> bytes:
        out = data[: self._missing]
        self._missing -= len(out)
        self.done = self._missing == 0
        return out


class _Tail(_Concat):
    """Keeps whole chunks as long as the ones after them hold too few lines."""

    def __init__(self, lines: int) -> None:
        self._lines = lines
        self._kept: deque[tuple[bytes, int]] = deque()
        self._newlines = 0

    def feed(self, data: bytes) -> bytes:
        found = data.count(b"\n")
        self._kept.append((data, found))
        self._newlines += found
        # One more newline than lines: the one that ends the line before them.
        while self._newlines - self._kept[0][1] > self._lines:
            self._newlines -= self._kept.popleft()[1]
        return b""

    def finish(self) -> bytes:
        data = b"".join(chunk for chunk, _ in self._kept)
        if self._lines == 0 or not data:
            return b""
        at = len(data) - 1 if data.endswith(b"\n") else len(data)
        for _ in range(self._lines):
            at = data.rfind(b"\n", 0, at)
            if at < 0:
                return data
        return data[at + 1 :]


class _TailBytes(_Concat):
    def __init__(self, count: int) -> None:
        self._count = count
        self._kept: deque[bytes] = deque()
        self._held = 0

    def feed(self, data: bytes) -> bytes:
        self._kept.append(data)
        self._held += len(data)
        while self._kept and self._held - len(self._kept[0]) >= self._count:
            self._held -= len(self._kept.popleft())
        return b""

    def finish(self) -> bytes:
        data = b"".join(self._kept)
        return data[max(0, len(data) - self._count) :]


_COUNTS = re.compile(rb"(.*?)([ 0-9]+)", re.DOTALL)


class _Sum(_Concat):
    def __init__(self, rule: Sum) -> None:
        self._rule = rule
        self._totals = [0] * rule.columns
        self._prefix = b""
        self._heard = False
        self._line = b""

    def feed(self, data: bytes) -> bytes:
        self._line += data
        return b""

    def end_slice(self) -> bytes:
        line, self._line = self._line.removesuffix(b"\n"), b""
        if not line:
            return b""
        label = self._rule.label.encode()
        numbers = line.removesuffix(b" " + label) if label else line
        found = _COUNTS.fullmatch(numbers)
        counts = found.group(2).split() if found else []
        if found is None or len(counts) != self._rule.columns:
            raise EngineFault(f"a count was expected from a slice, not {line[:80]!r}")
        self._prefix = found.group(1)
        self._heard = True
        self._totals = [total + int(count) for total, count in zip(self._totals, counts, strict=True)]
        return b""

    def finish(self) -> bytes:
        if not self._heard:
            return b""
        numbers = " ".join(str(total).rjust(self._rule.width) for total in self._totals)
        label = f" {self._rule.label}" if self._rule.label else ""
        return self._prefix + f"{numbers}{label}\n".encode()


class _Lines:
    """Cuts chunks of one slice into runs of whole lines."""

    def __init__(self) -> None:
        self._open: list[bytes] = []

    def whole(self, data: bytes) -> bytes:
        """Returns the lines that `data` completes, as one piece."""
        end = data.rfind(b"\n") + 1
        if not end:
            self._open.append(data)
            return b""
        lines = b"".join((*self._open, data[:end]))
        self._open = [data[end:]] if end < len(data) else []
        return lines

    def rest(self) -> bytes:
        """Returns the line that the slice left open, and starts anew."""
        rest, self._open = b"".join(self._open), []
        return rest


_COUNT_WIDTH = 7  # uniq -c pads its count to this many columns, one space follows


class _Uniq(_Concat):
    """Holds back a slice's last group until the next one's first is known."""

    def __init__(self, show: UniqShow) -> None:
        self._show = show
        self._lines = _Lines()
        self._held = b""
        self._seam = False  # the next line is the first of a slice, and a group of an earlier slice is held

    def feed(self, data: bytes) -> bytes:
        lines = self._lines.whole(data)
        if not lines:
            return b""
        if self._seam:
            self._seam = False
            end = lines.index(b"\n") + 1
            if (joined := self._join(self._held, lines[:end])) is not None:
                self._held = b""
                lines = joined + lines[end:]
        last = lines.rfind(b"\n", 0, -1) + 1
        out, self._held = self._held + lines[:last], lines[last:]
        return self._shown(out)

    def end_slice(self) -> bytes:
        if open_line := self._lines.rest():
            raise EngineFault(f"uniq ended a slice without a line break, after {open_line[:80]!r}")
        self._seam = bool(self._held)
        return b""

    def finish(self) -> bytes:
        held, self._held = self._held, b""
        return self._shown(held)

    def _join(self, before: bytes, after: bytes) -> bytes | None:
        """Returns the group that two lines at a seam are together, or None where they are two groups."""
        if self._show is UniqShow.ALL:
            return after if before == after else None
        (first, text), (second, other) = _counted(before), _counted(after)
        return b"%7d %b" % (first + second, text) if text == other else None

    def _shown(self, lines: bytes) -> bytes:
        """Returns what is printed of whole lines that count their groups."""
        match self._show:
            case UniqShow.ALL | UniqShow.COUNTED:
                return lines
            case UniqShow.REPEATED:
                pairs = [_counted(line) for line in _split(lines)]
                return b"".join(text for count, text in pairs if count > 1)
            case UniqShow.SINGLE:
                one = b"%7d " % 1
                return b"".join(line[len(one) :] for line in _split(lines) if line.startswith(one))


def _counted(line: bytes) -> tuple[int, bytes]:
    end = line.index(b" ", _COUNT_WIDTH)
    return int(line[:end]), line[end + 1 :]


def _split(lines: bytes) -> list[bytes]:
    """Splits whole lines at newlines alone, unlike `splitlines`, and keeps these."""
    return [line + b"\n" for line in lines.split(b"\n")[:-1]]


class _Offset(_Concat):
    def __init__(self, rule: Offset, bases: Callable[[int], Base]) -> None:
        self._rule = rule
        self._bases = bases
        self._slice = 0
        self._lines = _Lines()
        self._base: Base | None = None

    def feed(self, data: bytes) -> bytes:
        if self._slice == 0:
            return data
        lines = self._lines.whole(data)
        return self._rebased(lines[:-1]) + b"\n" if lines else b""

    def end_slice(self) -> bytes:
        rest = self._lines.rest()  # cat -n of a corpus without a final newline
        out = self._rebased(rest) if rest else b""
        self._slice += 1
        self._base = None
        return out

    def _rebased(self, lines: bytes) -> bytes:
        if self._base is None:
            self._base = self._bases(self._slice)
        by_lines, by_bytes = self._base
        label = self._rule.label.encode()
        numbers = [by_lines] * self._rule.lines + [by_bytes] * self._rule.bytes
        try:
            if self._rule.numbers is Numbers.CAT:
                return _renumbered_cat(lines, by_lines)
            return _renumbered(lines, label, numbers)
        except ValueError:
            raise EngineFault(f"numbered lines were expected from a slice, not {lines[:80]!r}") from None


def _renumbered(lines: bytes, label: bytes, bases: list[int]) -> bytes:
    skipped = len(label)
    if len(bases) == 1:
        (base,) = bases
        pairs = (line[skipped:].partition(b":") for line in lines.split(b"\n"))
        return b"\n".join([b"%b%d:%b" % (label, int(number) + base, rest) for number, _, rest in pairs])
    first, second = bases
    triples = (line[skipped:].split(b":", 2) for line in lines.split(b"\n"))
    return b"\n".join([b"%b%d:%d:%b" % (label, int(a) + first, int(b) + second, rest) for a, b, rest in triples])


def _renumbered_cat(lines: bytes, base: int) -> bytes:
    pairs = (line.partition(b"\t") for line in lines.split(b"\n"))
    return b"\n".join([b"%6d\t%b" % (int(number) + base, rest) for number, _, rest in pairs])
