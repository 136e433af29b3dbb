"""Odd corpora for differential tests: odd() -> {name: bytes}; ordinary(n) -> bytes."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def ordinary(n: int = 2000, seed: int = 1) -> bytes:
    rng, lines = random.Random(seed), []
    for i in range(n):
        r = rng.random()
        text = (
            "Einstein was born in Ulm in 1879"
            if r < 0.1
            else "Marie Curie, née Skłodowska, 1867"
            if r < 0.2
            else "boiler plate line"
            if r < 0.4
            else f"padding text number {i} Zürich naïve"
        )
        if r > 0.98:
            text = "the file corpus.jsonl is mentioned here"
        if 0.95 < r < 0.96:
            text = "\u212aelvin scale and \u017fecret, \u0131stanbul \u0130zmir"
        lines.append(json.dumps({"id": str(i % 37), "contents": f'"T{i % 50}"\n{text} |a,b|'}, ensure_ascii=False))
    return ("\n".join(lines) + "\n").encode()


def odd() -> dict[str, bytes]:
    base = ordinary(400)
    lines = base.split(b"\n")[:-1]

    def join(ls: Iterable[bytes]) -> bytes:
        return b"".join(ln + b"\n" for ln in ls)

    huge = b'{"id":"big","contents":"' + b"x" * 3_000_000 + b" Einstein Ulm " + b"y" * 3_000_000 + b'"}'
    return {
        "no_final_newline": base[:-1],
        "blank_lines": b"".join(ln + b"\n" + (b"\n\n" if i % 3 == 0 else b"") for i, ln in enumerate(lines)),
        "crlf": b"".join(ln + b"\r\n" for ln in lines),
        "lone_cr": b"".join(ln[:30] + b"\r" + ln[30:] + b"\n" for ln in lines),
        "bad_utf8": join(
            b'{"id":"b","contents":"Einstein \xff\xfe caf\xe9 Ulm"}' if i == 200 else ln for i, ln in enumerate(lines)
        ),
        "huge_line": join(huge if i == 100 else ln for i, ln in enumerate(lines)),
        "empty": b"",
        "one_line": lines[8] + b"\n",
        "one_line_no_newline": lines[8],
        "dash_lines": b"".join(b"-n -e --Einstein " + ln + b"\n" for ln in lines),
        "only_blank": b"\n" * 50,
        "ascii_escaped": join(json.dumps(json.loads(ln)).encode() for ln in lines),
        "duplicates": join(sorted(lines) * 2),
        "leading_bom": b"\xef\xbb\xbf" + base,  # rg strips it, grep keeps it
        "nul": join(
            ln[:40] + b"\x00" + ln[40:] if i == 250 else ln for i, ln in enumerate(lines)
        ),  # refused when prepared
        "inner_bom": join(
            b"\xef\xbb\xbf" + ln if i % 50 == 49 else ln for i, ln in enumerate(lines)
        ),  # refused when prepared
        "utf16_bom_lines": join(
            b"\xff\xfe" + ln if i > 2 else ln for i, ln in enumerate(lines)
        ),  # refused when prepared
    }


REFUSED = frozenset({"nul", "inner_bom", "utf16_bom_lines"})
