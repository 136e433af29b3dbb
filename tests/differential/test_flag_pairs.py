"""Every pair of flags in both orders, on slices: which of two wins is the program's own business."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from grepseek_env.commands import parse
from grepseek_env.engine.plan import Sliced
from grepseek_env.engine.planner import plan
from grepseek_env.errors import CommandRefused
from tests.support.odd_corpora import ordinary
from tests.support.slicing import Sliceable, even_cuts

if TYPE_CHECKING:
    from pathlib import Path

FLAGS = {
    "rg -e Einstein": "-n -N -c --count-matches -q -b -o -v -i -s -S -w -x -m2 -m5 -A1 -H -I --column --no-column "
    "--vimgrep -p --trim -rX --passthru -F",
    "grep -e Einstein": "-n -c -q -b -o -v -i --no-ignore-case -w -x -m2 -m5 -A1 -H -h -T -l -L -F -E -s",
    "head": "-n3 -n5 -c9 -n-2 -c-3 -q -v",
    "tail": "-n3 -n5 -c9 -n+3 -q -v",
    "wc": "-l -w -c -m -L",
    "sort": "-r -n -u -k2 -c -s -f -b -m -V -h",
    "cut": "-c1-5 -b2 -f2 -d, -s --complement",
}


@pytest.mark.slow
@pytest.mark.parametrize("program", FLAGS)
def test_pairs_of_flags(program: str, tmp_path: Path) -> None:
    corpus = Sliceable(tmp_path, ordinary(60))
    commands = []
    for one, other in itertools.permutations(FLAGS[program].split(), 2):
        call = f"{program} {one} {other}"
        for command in (f"{call} corpus.jsonl", f"cat corpus.jsonl | {call}", f"{call} corpus.jsonl | head -n 4"):
            try:
                sliced = isinstance(plan(parse(command), corpus.facts), Sliced)
            except CommandRefused:
                continue
            if sliced:
                commands.append(command)
    assert len(commands) > len(FLAGS[program].split())
    assert not corpus.differences(commands, corpus.runner(even_cuts(corpus.data, 3)))
