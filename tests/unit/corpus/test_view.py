from pathlib import Path

from grepseek_env.corpus.store import CorpusStore
from grepseek_env.corpus.view import ignore_files_above


def test_ignore_files_are_found_in_the_view_and_above_it_nearest_first(tmp_path: Path) -> None:
    source = tmp_path / "a" / "b" / "passages.jsonl"
    source.parent.mkdir(parents=True)
    source.write_text("x\n")
    view = CorpusStore.open(source).view
    before = ignore_files_above(view)
    (tmp_path / ".gitignore").touch()
    (tmp_path / "a" / ".rgignore").touch()
    (view / ".ignore").touch()
    (tmp_path / "a" / "b" / ".ignore").mkdir()  # a folder of that name ignores nothing
    expected = [view / ".ignore", tmp_path / "a" / ".rgignore", tmp_path / ".gitignore"]
    assert ignore_files_above(view) == [*expected, *before]
