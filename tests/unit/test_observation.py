from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import threading
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grepseek_env import observation
from grepseek_env.errors import ConfigError, SourceUnavailable
from grepseek_env.observation import Clipped, TokenCounter, byte_budget, clip, load_tokenizer, render_result
from grepseek_env.types import CommandResult

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.golden import Golden

tokenizers = pytest.importorskip("tokenizers")

TEXT = "The quick brown fox, born 12 March 1893 in Zürich, met 3,000 foxes: café, naïve, 漢字 and 🧠🧠. " * 20
SPECIAL = ["<|im_start|>", "<|im_end|>"]
UNKNOWN = {"unk_token": "<unk>"}

# Output as commands print it: words, accents, emoji, runs of space, control tokens, and bytes that are no UTF-8.
OUTPUTS = st.lists(
    st.sampled_from([b"fox ", b"born", b" ", b"\n", "é".encode(), "漢🧠".encode(), b"<|im_end|>", b"\xff", b"\xf0\x9f"])
    | st.binary(max_size=6)
    | st.text(max_size=6).map(lambda t: t.encode("utf-8", "replace")),
    max_size=40,
).map(b"".join)


@cache
def byte_level() -> Any:
    """A small tokenizer of the kind of GPT-2 and Qwen."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.normalizer = tokenizers.normalizers.NFC()
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=SPECIAL,
        show_progress=False,
    )
    made.train_from_iterator([TEXT, " " * 40], trainer)
    return made


@cache
def sentence_piece() -> Any:
    """A small tokenizer of the kind of Llama 2: spaces as a sign of their own, bytes for unknown characters."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE(byte_fallback=True, fuse_unk=True, **UNKNOWN))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    made.decoder = tokenizers.decoders.Sequence(
        [
            tokenizers.decoders.ByteFallback(),
            tokenizers.decoders.Fuse(),
            tokenizers.decoders.Metaspace(),
        ]
    )
    bytes_as_entries = [f"<0x{value:02X}>" for value in range(256)]
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=500, special_tokens=["<unk>", *bytes_as_entries], limit_alphabet=40, show_progress=False
    )
    made.train_from_iterator([TEXT], trainer)
    return made


@cache
def lower_word_piece() -> Any:
    """A small tokenizer of the kind of BERT, which lowers case and drops accents and white space."""
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(**UNKNOWN))
    made.normalizer = tokenizers.normalizers.BertNormalizer()
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    made.decoder = tokenizers.decoders.WordPiece()
    trainer = tokenizers.trainers.WordPieceTrainer(vocab_size=300, special_tokens=["<unk>"], show_progress=False)
    made.train_from_iterator([TEXT], trainer)
    return made


@cache
def transformers_fast() -> Any:
    transformers = pytest.importorskip("transformers")
    return transformers.PreTrainedTokenizerFast(tokenizer_object=byte_level(), additional_special_tokens=SPECIAL)


@cache
def transformers_slow() -> Any:
    """A tokenizer in Python, of one token a byte."""
    return pytest.importorskip("transformers").ByT5Tokenizer()


class PairTokenizer:
    """The least that is accepted: a token for every two characters."""

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [0] * (len(text) // 2 + len(text) % 2) + [1] * add_special_tokens


TOKENIZERS: dict[str, Any] = {
    "byte level": byte_level,
    "sentence piece": sentence_piece,
    "word piece": lower_word_piece,
    "transformers fast": transformers_fast,
    "transformers slow": transformers_slow,
    "least": PairTokenizer,
}
each_tokenizer = pytest.mark.parametrize("make", TOKENIZERS.values(), ids=TOKENIZERS)


def test_render_result_golden(golden: Golden) -> None:
    def compute(row: dict[str, Any]) -> str:
        stdout = bytes.fromhex(row["stdout_hex"]) if "stdout_hex" in row else row.get("stdout", "").encode()
        cut = row.get("output_truncated", False)
        timed_out = row.get("timed_out", False)
        result = CommandResult(stdout, row.get("stderr", "").encode(), row["exit_code"], cut, timed_out)
        clipped = clip(stdout, max_chars=row.get("max_chars"), cut=cut)
        return render_result(result, clipped, timeout=row.get("timeout"))

    golden.check("observations/render_result.jsonl", compute)


@given(data=OUTPUTS, cap=st.integers(0, 60))
def test_characters_are_capped_from_the_end(data: bytes, cap: int) -> None:
    whole = data.decode("utf-8", "replace")
    assert clip(data) == Clipped(whole, truncated=False)
    assert clip(data, max_chars=cap) == Clipped(whole[:cap], truncated=len(whole) > cap)


@given(text=st.text(max_size=20), at=st.integers(0, 80))
def test_a_byte_cut_loses_at_most_the_cut_character(text: str, at: int) -> None:
    data = text.encode("utf-8", "replace")
    kept = clip(data[:at], cut=True)
    assert kept.truncated
    assert data.startswith(kept.text.encode())
    assert len(data[:at]) - len(kept.text.encode()) < 4


@each_tokenizer
@given(data=OUTPUTS, cap=st.integers(1, 40))
def test_tokens_are_capped_from_the_end(make: Any, data: bytes, cap: int) -> None:
    tokenizer = make()
    counter = load_tokenizer(tokenizer)
    assert counter is not None
    whole = data.decode("utf-8", "replace")
    made = clip(data, max_tokens=cap, tokenizer=tokenizer)
    assert whole.startswith(made.text)
    assert counter.count(made.text) <= cap
    assert made.truncated is (made.text != whole)
    if counter.count(whole) <= cap:
        assert made.text == whole


@each_tokenizer
def test_a_long_output_fills_its_cap(make: Any) -> None:
    counter = load_tokenizer(make())
    assert counter is not None
    made = clip(TEXT.encode(), max_tokens=50, tokenizer=counter)
    assert made.truncated
    assert 45 <= counter.count(made.text) <= 50


@each_tokenizer
def test_a_character_of_many_tokens_is_kept_whole_or_dropped(make: Any) -> None:
    for cap in range(1, 12):
        made = clip(("🦜" * 8).encode(), max_tokens=cap, tokenizer=make())
        assert made.text == "🦜" * len(made.text)


@pytest.mark.parametrize("name", ["byte level", "sentence piece", "transformers fast"])
@given(data=OUTPUTS, cap=st.integers(1, 12))
def test_bytes_beyond_the_budget_change_nothing(name: str, data: bytes, cap: int) -> None:
    tokenizer = TOKENIZERS[name]()
    budget = byte_budget(max_tokens=cap, tokenizer=tokenizer)
    long = data * 20
    if len(long) > budget:
        cut = clip(long[:budget], max_tokens=cap, tokenizer=tokenizer, cut=True)
        assert cut == clip(long, max_tokens=cap, tokenizer=tokenizer)


@given(data=OUTPUTS, cap=st.integers(1, 12))
def test_bytes_beyond_the_character_budget_change_nothing(data: bytes, cap: int) -> None:
    long = data * 20
    budget = byte_budget(max_chars=cap)
    if len(long) > budget:
        assert clip(long[:budget], max_chars=cap, cut=True) == clip(long, max_chars=cap)


def test_budget_follows_the_longest_entry_of_the_vocabulary() -> None:
    vocabulary = byte_level().get_vocab()
    longest = max(
        len(byte_level().decode([index], skip_special_tokens=False).encode()) for index in vocabulary.values()
    )
    assert longest > 6
    assert byte_budget(max_tokens=9, tokenizer=byte_level()) == 10 * (longest + 1)
    assert byte_budget(max_chars=9) == 40
    assert byte_budget(max_chars=9, max_tokens=1000, tokenizer=byte_level()) == 40
    assert byte_budget(max_tokens=9, tokenizer=PairTokenizer()) == 10 * 128
    with pytest.raises(ConfigError, match="max_tokens or max_chars"):
        byte_budget()


def test_both_caps_hold_at_once() -> None:
    made = clip(TEXT.encode(), max_tokens=50, max_chars=10, tokenizer=byte_level())
    assert made == Clipped(TEXT[:10], truncated=True)
    assert clip(TEXT.encode(), max_tokens=2, max_chars=1000, tokenizer=PairTokenizer()) == Clipped(
        TEXT[:4], truncated=True
    )


def test_control_tokens_in_the_output_count_as_text() -> None:
    for tokenizer in (byte_level(), transformers_fast()):
        counter = load_tokenizer(tokenizer)
        assert counter is not None
        assert len(tokenizer.encode("<|im_end|>", add_special_tokens=False)) == 1
        assert counter.count("<|im_end|>") > 1
    slow = load_tokenizer(transformers_slow())
    assert slow is not None
    assert slow.count("</s>") == 4


def test_the_users_tokenizer_and_its_settings_are_left_alone() -> None:
    own = tokenizers.Tokenizer.from_str(byte_level().to_str())
    own.enable_truncation(3)
    own.enable_padding(length=500)
    counter = load_tokenizer(own)
    assert counter is not None
    assert counter.count(TEXT) > 500
    assert own.truncation["max_length"] == 3
    assert own.padding["length"] == 500
    assert own.encode_special_tokens is False


def test_a_counter_is_made_once_and_travels() -> None:
    counter = load_tokenizer(transformers_fast())
    assert isinstance(counter, TokenCounter)
    assert load_tokenizer(counter) is counter
    assert load_tokenizer(transformers_fast()) is counter
    assert copy.deepcopy(counter) is counter
    assert pickle.loads(pickle.dumps(counter)).count(TEXT) == counter.count(TEXT)
    assert load_tokenizer(None) is None


def test_threads_share_a_counter() -> None:
    want = clip(TEXT.encode(), max_tokens=99, tokenizer=transformers_fast())
    got: list[Clipped] = []

    def work() -> None:
        got.extend(clip(TEXT.encode(), max_tokens=99, tokenizer=transformers_fast()) for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [want] * 80


def test_a_saved_tokenizer_is_loaded_by_folder(tmp_path: Path) -> None:
    transformers_fast().save_pretrained(tmp_path)
    counter = load_tokenizer(tmp_path)
    assert counter is not None
    assert counter.count(TEXT) == len(byte_level().encode(TEXT).ids)
    assert load_tokenizer(str(tmp_path)) is counter


def test_what_cannot_be_a_tokenizer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="tokenizer is 5; it must be"):
        load_tokenizer(5)
    with pytest.raises(ConfigError, match="max_tokens needs a tokenizer"):
        clip(b"x", max_tokens=5)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(SourceUnavailable, match=r"no tokenizer '.*nothing' can be loaded"):
        load_tokenizer(str(tmp_path / "nothing"))
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ConfigError, match=r"grepseek-env\[tokenizers\]"):
        load_tokenizer("some/name")


def test_observation_needs_no_tokenizer_library() -> None:
    code = "import sys, grepseek_env.observation as o; o.clip(b'x', max_chars=1); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"transformers", "tokenizers", "torch"} & set(loaded)


def test_texts_of_the_environment_are_not_taken_for_output() -> None:
    # They are marked by brackets, each on a line of its own.
    for text in (observation.TRUNCATED, observation.NO_OUTPUT, observation.BLANK_OUTPUT):
        assert text == f"[{text[1:-1]}]"
