"""Short ways to write table entries, and the reasons for which things are not offered."""

from __future__ import annotations

from grepseek_env.commands.spec import Arity, Ban, Effect, FlagSpec, ValueKind

__all__ = [
    "DETAILS",
    "FOLLOWS",
    "MEMORY",
    "NOT_OFFERED",
    "RANDOM",
    "READS",
    "RUNS",
    "STATISTICS",
    "TIME",
    "VERSION",
    "WRITES",
    "banned",
    "flag",
    "keep",
]

READS = Ban("reads a file other than the corpus", "only corpus.jsonl can be read; write it without this flag")
WRITES = Ban("writes a file", "leave it out: what the last program prints is returned")
RUNS = Ban("runs another program", "join the offered programs with | instead")
TIME = Ban("depends on the time or the machine", "leave it out")
DETAILS = Ban("shows what differs from machine to machine (owner, time, blocks)", "leave it out; wc -c counts bytes")
VERSION = Ban("prints what differs from version to version", "leave it out")
STATISTICS = Ban("prints times, which never come out twice the same", "leave it out; -c counts matching lines")
RANDOM = Ban("gives another result every time", "leave it out; sort without it orders by value")
MEMORY = Ban("sets resources that are set for you", "leave it out")
FOLLOWS = Ban("waits for a file to grow", "leave it out")
NOT_OFFERED = Ban("is not part of this command language", "leave it out")


def flag(
    names: str,
    text: str,
    effect: Effect = Effect.OPAQUE,
    metavar: str = "",
    *,
    kind: ValueKind = ValueKind.TEXT,
    accepts: str = "",
    expected: str = "",
    inert: tuple[str | None, ...] = (),
    opaque: tuple[str, ...] = (),
    against: str = "",
    odd_bytes: bool = False,
) -> FlagSpec:
    """Returns an accepted flag.

    Args:
        names: its spellings, separated by spaces.
        text: its line of help.
        metavar: name of its value; empty for a flag without one, in brackets for one that must be attached.
        against: flags, separated by spaces, with which it must not be combined on slices.
    """
    return FlagSpec(
        names=tuple(names.split()),
        help=text,
        effect=effect,
        arity=_arity(metavar),
        metavar=metavar.strip("[]"),
        kind=kind,
        accepts=accepts,
        expected=expected,
        inert=inert,
        opaque=opaque,
        against=tuple(against.split()),
        odd_bytes=odd_bytes,
    )


def keep(names: str, text: str, metavar: str = "", *, accepts: str = "", expected: str = "") -> FlagSpec:
    """Returns an accepted flag that leaves the program's effect as it is."""
    return flag(names, text, Effect.KEEP, metavar, accepts=accepts, expected=expected)


def banned(ban: Ban, *groups: str) -> tuple[FlagSpec, ...]:
    """Returns refused flags, one for each group of spellings; `=` after the last spelling says that it takes a value.

    `[=]` says that its value must be attached.
    """
    return tuple(_banned(ban, group) for group in groups)


def _banned(ban: Ban, group: str) -> FlagSpec:
    arity = Arity.OPTIONAL if group.endswith("[=]") else Arity.REQUIRED if group.endswith("=") else Arity.NONE
    names = group.removesuffix("[=]").removesuffix("=").split()
    return FlagSpec(
        names=tuple(names), help="", arity=arity, metavar="VALUE" if arity is not Arity.NONE else "", ban=ban
    )


def _arity(metavar: str) -> Arity:
    if not metavar:
        return Arity.NONE
    return Arity.OPTIONAL if metavar.startswith("[") else Arity.REQUIRED
