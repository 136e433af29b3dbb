"""JSON escapes as some corpora have them."""

from __future__ import annotations


def json_escaped(text: str) -> str:
    r"""Returns the text with its non-ASCII letters as ``\u00e9``."""
    return "".join(letter if letter.isascii() else f"\\u{ord(letter):04x}" for letter in text)
