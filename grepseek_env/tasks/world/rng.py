"""Integer-only randomness that gives the same values on every platform and Python version.

Nothing here depends on `hash()`, on floating point or on the algorithms behind `random` and numpy's distributions.
"""

from __future__ import annotations

import hashlib
from math import isqrt

__all__ = ["Draw", "Shuffle", "key64", "mix64"]

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def key64(*parts: object) -> int:
    """Returns 64 bits of the SHA-256 of the parts' text."""
    return int.from_bytes(hashlib.sha256("\x1f".join(map(str, parts)).encode()).digest()[:8], "big")


def mix64(value: int) -> int:
    """Returns a well mixed 64-bit value: the finaliser of splitmix64."""
    value = (value + _GOLDEN) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


class Draw:
    """A stream of numbers from one key (splitmix64)."""

    __slots__ = ("_state",)

    def __init__(self, key: int) -> None:
        self._state = key & _MASK

    def bits(self) -> int:
        """Returns 64 fresh bits."""
        state = self._state = (self._state + _GOLDEN) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        return state ^ (state >> 31)

    def below(self, bound: int) -> int:
        """Returns an integer in [0, bound)."""
        return (self.bits() * bound) >> 64

    def chance(self, share: float) -> bool:
        """Returns True with probability `share`."""
        return self.bits() >> 11 < share * (1 << 53)  # both sides are exact

    def order(self, size: int) -> list[int]:
        """Returns the numbers below `size` in random order."""
        numbers = list(range(size))
        for place in range(size - 1, 0, -1):
            other = self.below(place + 1)
            numbers[place], numbers[other] = numbers[other], numbers[place]
        return numbers


class Shuffle:
    """A keyed permutation of range(size) that needs no table, with its inverse.

    A three-round Feistel network on a rectangle that just holds the range; values outside are walked past.
    """

    __slots__ = ("_high", "_keys", "_low", "size")

    def __init__(self, size: int, key: int) -> None:
        self.size = size
        self._low = isqrt(max(size, 1) - 1) + 1
        self._high = -(-size // self._low)
        self._keys = (mix64(key), mix64(key ^ 1), mix64(key ^ 2))

    def __call__(self, place: int) -> int:
        """Returns the value at a place."""
        first, second, third = self._keys
        low, high = self._low, self._high
        while True:
            a, b = divmod(place, low)
            a = (a + ((b ^ first) * _GOLDEN >> 17 & _MASK)) % high
            b = (b + ((a ^ second) * _GOLDEN >> 17 & _MASK)) % low
            a = (a + ((b ^ third) * _GOLDEN >> 17 & _MASK)) % high
            place = a * low + b
            if place < self.size:
                return place

    def place_of(self, value: int) -> int:
        """Returns the place of a value."""
        first, second, third = self._keys
        low, high = self._low, self._high
        while True:
            a, b = divmod(value, low)
            a = (a - ((b ^ third) * _GOLDEN >> 17 & _MASK)) % high
            b = (b - ((a ^ second) * _GOLDEN >> 17 & _MASK)) % low
            a = (a - ((b ^ first) * _GOLDEN >> 17 & _MASK)) % high
            value = a * low + b
            if value < self.size:
                return value
