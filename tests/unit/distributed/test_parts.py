"""Manifests of parts, cutting, and the facts of a whole."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grepseek_env.backend import open_backend, open_corpus
from grepseek_env.cli import main
from grepseek_env.commands import parse
from grepseek_env.corpus.store import CorpusStore
from grepseek_env.distributed.open import open_parts
from grepseek_env.distributed.parts import PartFile, PartsManifest, is_manifest, joined_facts, split_corpus
from grepseek_env.distributed.through import through_stdin
from grepseek_env.errors import ConfigError, CorpusChanged, CorpusInvalid, CorpusNotFound
from tests.support.odd_corpora import ordinary
from tests.support.plans import facts_of
from tests.support.slicing import line_ends

if TYPE_CHECKING:
    import random
    from pathlib import Path


def test_a_corpus_cut_and_opened_in_parts_has_the_same_digest_and_answers(tmp_path: Path) -> None:
    data = ordinary(120)
    (tmp_path / "wiki.jsonl").write_bytes(data)
    store = CorpusStore.open(tmp_path / "wiki.jsonl")
    path = split_corpus(store, 3, tmp_path / "cut")
    manifest = PartsManifest.read(path)
    assert b"".join(part.path.read_bytes() for part in manifest.parts) == data
    assert len(manifest.parts) == 3
    stamps = [part.path.stat().st_mtime_ns for part in manifest.parts]
    assert split_corpus(store, 3, tmp_path / "cut") == path
    assert [part.path.stat().st_mtime_ns for part in manifest.parts] == stamps, "what is there is kept"
    manifest.parts[1].path.write_bytes(data[: manifest.parts[1].path.stat().st_size])
    split_corpus(store, 3, tmp_path / "cut")
    assert b"".join(part.path.read_bytes() for part in manifest.parts) == data, "what is wrong is written anew"
    with open_backend(path) as parts, open_backend(tmp_path / "wiki.jsonl", daemon=False) as whole:
        assert parts.corpus_digest == whole.corpus_digest == store.digest
        command = "rg -n Ulm corpus.jsonl | tail -n 2"
        assert parts.run(command) == whole.run(command)
        assert "3, in this process" in parts.explain(command)


def test_the_command_line_cuts_and_prepares_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "wiki.jsonl").write_bytes(ordinary(40))
    assert main(["corpus", "split", str(tmp_path / "wiki.jsonl"), "--parts", "2"]) == 0
    manifest = capsys.readouterr().out.strip()
    assert manifest == str(tmp_path / "wiki.jsonl.parts" / "wiki.parts.json")
    assert main(["corpus", "build", manifest]) == 0
    assert main(["corpus", "verify", manifest]) == 0
    assert capsys.readouterr().out.count("content as recorded") == 2
    assert main(["run", "wc -l corpus.jsonl", "--corpus", manifest]) == 0


def test_the_command_line_prepares_those_parts_that_are_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.jsonl").write_bytes(ordinary(20))
    parts = (PartFile(tmp_path / "a.jsonl", host="10.0.0.1"), PartFile(tmp_path / "b.jsonl", host="10.0.0.2"))
    manifest = tmp_path / "x.parts.json"
    PartsManifest(parts).write(manifest)
    assert main(["corpus", "build", str(manifest), "--index"]) == 0
    printed = capsys.readouterr()
    assert (tmp_path / "a.jsonl.grepseek" / "index" / "tokens").exists()
    assert "b.jsonl        is on 10.0.0.2, not here" in printed.err
    PartsManifest(parts[1:]).write(manifest)
    assert main(["corpus", "build", str(manifest)]) != 0
    assert "no part of" in capsys.readouterr().err


def test_parts_without_a_recorded_digest_have_one_of_their_own(tmp_path: Path) -> None:
    for name, text in (("a.txt", "one\n"), ("b.txt", "two\n")):
        (tmp_path / name).write_text(text)
    (tmp_path / "x.parts.json").write_text(json.dumps({"format": 1, "parts": ["a.txt", {"path": "b.txt"}]}))
    (tmp_path / "y.parts.json").write_text(json.dumps({"format": 1, "parts": ["b.txt", "a.txt"]}))
    with open_parts(tmp_path / "x.parts.json") as x, open_parts(tmp_path / "y.parts.json") as y:
        assert len(x.corpus_digest) == 64
        assert x.corpus_digest != y.corpus_digest, "the order counts"
        assert x.run("cat -n corpus.jsonl").stdout == b"     1\tone\n     2\ttwo\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[", "is not JSON"),
        ("[]", 'an object with "format"'),
        ('{"format": 2, "parts": ["a"]}', 'an object with "format"'),
        ('{"format": 1, "parts": []}', "1 to 1024 parts"),
        ('{"format": 1, "parts": [3]}', "part 0 is 3"),
        ('{"format": 1, "parts": [{"path": ""}]}', "part 0"),
        ('{"format": 1, "parts": [{"path": "a", "hots": "h"}]}', "did you mean 'host'"),
        ('{"format": 1, "digest": 7, "parts": ["a"]}', '"digest" is 7'),
    ],
)
def test_what_is_no_manifest_says_why(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "x.parts.json"
    path.write_text(text)
    with pytest.raises(CorpusInvalid, match=re.escape(said)):
        PartsManifest.read(path)


def test_what_cannot_be_opened_says_why(tmp_path: Path) -> None:
    assert is_manifest("x.parts.json")
    assert not is_manifest("x.json")
    with pytest.raises(ConfigError, match="pass it to open_backend"):
        open_corpus(tmp_path / "x.parts.json")
    with pytest.raises(CorpusNotFound, match="no manifest"):
        open_backend(tmp_path / "x.parts.json")
    parts = {"a": b"one\n", "open": b"two", "mark": b"\xef\xbb\xbfthree\n"}
    for name, data in parts.items():
        (tmp_path / name).write_bytes(data)

    def opened(*files: PartFile) -> None:
        path = tmp_path / "x.parts.json"
        PartsManifest(files).write(path)
        open_parts(path).close()

    a, unfinished, mark = (PartFile(tmp_path / name) for name in parts)
    opened(mark, a, unfinished)
    with pytest.raises(CorpusInvalid, match="does not end with a line break"):
        opened(unfinished, a)
    with pytest.raises(CorpusInvalid, match="byte-order mark"):
        opened(a, mark)
    with pytest.raises(ConfigError, match="open the manifest as ray:///PATH"):
        opened(a, PartFile(tmp_path / "a", host="10.0.0.7"))
    with pytest.raises(CorpusChanged, match="not the part"):
        opened(PartFile(tmp_path / "a", digest="00"))
    with pytest.raises(ConfigError, match="no mode is named"):
        open_parts(tmp_path / "x.parts.json", "fats")


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.lists(
        st.sampled_from([b"", b"T4", b'{"a": "\\u00e9"}', b"caf\xc3\xa9", b"\xff", b"x\r", b"a\rb"]), min_size=1
    ),
    closed=st.booleans(),
    choice=st.randoms(use_true_random=False),
)
def test_property_facts_of_parts_join_to_those_of_the_whole(
    lines: list[bytes], choice: random.Random, *, closed: bool
) -> None:
    data = b"\n".join(lines) + b"\n" * closed
    ends = line_ends(data)
    cuts = sorted(choice.sample(ends, min(choice.randint(0, 3), len(ends))))
    pieces = [facts_of(data[a:b]) for a, b in pairwise((0, *cuts, len(data)))]
    assert joined_facts(pieces, [f"part {n}" for n in range(len(pieces))]) == facts_of(data)


@pytest.mark.parametrize(
    ("command", "can"),
    [
        ("grep -A1 Ulm corpus.jsonl", True),
        ("sed -n '/Foo/,/Fee/p' corpus.jsonl", True),
        ("sed 's/Foo/x/;2q' corpus.jsonl", True),
        ("sed F corpus.jsonl", False),
        ("sed '/s/p;F;/x/p' corpus.jsonl", False),
        ("sed 's|/|x|;F;s|/|y|' corpus.jsonl", False),
        ("sed 'y/ab/cd/;F;y/cd/ab/' corpus.jsonl", False),
        ("awk '{print FILENAME}' corpus.jsonl", False),
        ("rg -l Ulm corpus.jsonl", False),
        ("rg --vimgrep Ulm corpus.jsonl", False),
        ("grep -Tn Ulm corpus.jsonl", False),
        ("wc -L corpus.jsonl", False),
        ("cat corpus.jsonl corpus.jsonl", False),
    ],
)
def test_what_may_read_its_stdin_in_place_of_the_file(command: str, can: bool) -> None:
    assert (through_stdin(parse(command), facts_of(ordinary(20))) is not None) is can


def test_neither_the_package_nor_its_parts_import_ray() -> None:
    code = (
        "import sys, grepseek_env, grepseek_env.env, grepseek_env.backend, algos.rollout\n"
        "import grepseek_env.distributed.backend, grepseek_env.distributed.ray_links\n"
        "sys.exit('ray' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
