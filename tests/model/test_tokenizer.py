"""The tokenizer against hand-made expectations, on vocabularies written by the tests.

Golden ids of the real vocabulary run when K3_REAL_CHECKPOINT names a folder that has it.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import unicodedata
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from k3d.errors import CheckpointError, ConfigError
from k3d.model.tokenizer import MAX_PART_CHARACTERS, MAX_RUN_CHARACTERS, Tokenizer, cut_long_text

BYTES = [bytes([byte]) for byte in range(256)]
NAMES = {0: "[BOS]", 1: "[EOS]", 2: "<|end_of_msg|>", 3: "<|open|>", 4: "<|close|>", 5: "<|sep|>"}
WORDS = ["th", "the", " t", " the", "ö", "你", "好", "你好", "🚀", "  ", "\n\n", "<|", "|>", "open"]

# Time says nothing on a machine that runs other tests beside these.
property_test = settings(
    deadline=None,
    database=None,
    max_examples=300,
    suppress_health_check=[HealthCheck.too_slow],
)


def write_tokenizer(folder: Path, extra: Iterable[bytes] = ()) -> Path:
    tokens = [*BYTES, *(token for token in dict.fromkeys(extra) if len(token) > 1)]
    lines = [f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(tokens)]
    (folder / "tiktoken.model").write_text("".join(lines))
    names = {str(len(tokens) + at): {"content": name} for at, name in NAMES.items()}
    (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": names}))
    return folder


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("tokenizer")
    return Tokenizer.load(write_tokenizer(folder, [word.encode() for word in WORDS]))


def pieces(folder: Path, text: str) -> list[str]:
    """Where the pre-tokenizer cuts: a piece that is a token is never merged from smaller ones,
    so with every substring in the vocabulary each piece comes out as one token."""
    data = text.encode()
    spans = (data[a:b] for a in range(len(data)) for b in range(a + 1, len(data) + 1))
    tokenizer = Tokenizer.load(write_tokenizer(folder, spans))
    return [tokenizer.token_bytes(token_id).decode() for token_id in tokenizer.encode(text)]


@pytest.mark.parametrize(
    "expected",
    [
        "a│ b",
        "a│   │ b",
        "hello│   ",
        "hello│ ",
        "  │ hello",
        "     ",
        "line│1│\r\n│line│2",
        "line│1│\r\n\r\n│line│3",
        "text│   \n│  │ more",
        "text│\n",
        "a│\n\n \n│b",
        "a│ \n│b",
        "a│\t\t│\tb",
        "a│   │ │7",
        "a│   │ !",
        "a│;;\r\n\n│b",
        "a│ ;-\n│b",
        "你好世界",
        "hello│你好│world",
        "你│a│好│b",
        "你好│123",
        "你好│。│世界│！",
        "你好│ │世界",
        "日本語│のテキスト",
        "123│456│789│0",
        "1│,│234│,│567",
        "½Ⅷ٣│4",
        "The│ capital│ of│ France│ is",
        "Hello│,│ world│!",
        "it's│ don't│ we're│ you've│ I'm│ I'll│ he'd",
        "IT'S│ DON'T│ WE'RE│ YOU'VE│ I'M│ I'LL│ HE'D",
        "we'Re│'x",
        "'tis",
        "it│’s",
        "hello│World",
        "HELLO│ Hello",
        "ABCdef│GHI",
        "Mc│Donald",
        "naïve│ café",
        "e\u0301│!\u0301a",
        "a│\x00b│\x01c",
        "🚀🔥",
        "a│ <|│open│|>│ b│ [│BOS│]│ c",
    ],
)
def test_pieces_are_cut_by_the_ordered_rules(tmp_path: Path, expected: str) -> None:
    wanted = expected.split("│")
    assert pieces(tmp_path, "".join(wanted)) == wanted


def test_letters_of_every_case_class_hold_together(tmp_path: Path) -> None:
    word = "Aǅʰªʰaße\u0301"
    classes = {unicodedata.category(letter) for letter in word}
    assert {"Lu", "Lt", "Lm", "Lo", "Ll", "Mn"} == classes
    assert pieces(tmp_path, word) == [word]


def test_merges_go_by_rank(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(write_tokenizer(tmp_path, [b"bc", b"ab", b"xyz"]))
    assert tokenizer.encode("abcd") == [97, 256, 100]
    assert tokenizer.encode("abab") == [257, 257]
    assert tokenizer.encode("xyz") == [258], "a piece that is a token needs no merges"
    assert tokenizer.encode("xyzw") == list(b"xyzw")


def test_whole_text_comes_back(tokenizer: Tokenizer) -> None:
    @property_test
    @given(st.text(st.characters(exclude_categories=["Cs"])))
    def check(text: str) -> None:
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert all(0 <= token_id < tokenizer.first_special_id for token_id in ids)

    check()


def test_stream_is_the_whole_decode_and_never_splits_a_character(tokenizer: Tokenizer) -> None:
    @property_test
    @given(st.lists(st.integers(0, tokenizer.vocab_size - 1)), st.integers(0, 9))
    def any_ids(ids: list[int], cut: int) -> None:
        decoder = tokenizer.stream_decoder()
        assert "".join(map(decoder.push, ids)) + decoder.finish() == tokenizer.decode(ids)
        head, tail = ids[:cut], ids[cut:]
        decoder = tokenizer.stream_decoder(after=head)
        with_tail = "".join(map(decoder.push, tail)) + decoder.finish()
        assert tokenizer.decode(ids).endswith(with_tail)

    @property_test
    @given(st.text(st.sampled_from("aöΩ好🚀\u0301 ")))
    def whole_characters(text: str) -> None:
        decoder = tokenizer.stream_decoder()
        out = [decoder.push(byte) for byte in text.encode()]
        assert "".join(out) == text
        assert "\ufffd" not in "".join(out)
        assert decoder.finish() == ""

    any_ids()
    whole_characters()


def test_stream_holds_an_open_character_and_gives_a_broken_one_at_once(
    tokenizer: Tokenizer,
) -> None:
    rocket = "🚀".encode()
    decoder = tokenizer.stream_decoder()
    assert [decoder.push(byte) for byte in rocket] == ["", "", "", "🚀"]
    assert [decoder.push(rocket[0]), decoder.push(ord("a"))] == ["", "\ufffda"]
    assert decoder.push(0xFF) == "\ufffd"
    assert [decoder.push(rocket[0]), decoder.finish()] == ["", "\ufffd"]
    assert decoder.push(ord("b")) == "b"


def test_stream_continues_a_character_that_the_prompt_began(tokenizer: Tokenizer) -> None:
    prompt = tokenizer.encode("Hello world ") + list("🌶".encode()[:3])
    decoder = tokenizer.stream_decoder(after=prompt)
    assert decoder.push("🌶".encode()[3]) == "🌶"


def test_specials_come_from_trusted_text_only(tokenizer: Tokenizer) -> None:
    text = f"a <|open|> b [BOS] c<|reserved_token_{tokenizer.vocab_size - 1}|>"
    assert max(tokenizer.encode(text)) < tokenizer.first_special_id
    trusted = tokenizer.encode_with_specials(text)
    assert [i for i in trusted if i >= tokenizer.first_special_id] == [
        tokenizer.special_id("<|open|>"),
        tokenizer.special_id("[BOS]"),
        tokenizer.vocab_size - 1,
    ]
    assert tokenizer.decode(trusted) == text

    spellings = st.sampled_from(sorted(tokenizer.specials))

    @property_test
    @given(st.lists(st.one_of(spellings, st.text(max_size=3))).map("".join))
    def check(text: str) -> None:
        assert all(token_id < tokenizer.first_special_id for token_id in tokenizer.encode(text))

    check()


def test_specials_follow_the_ordinary_tokens(tokenizer: Tokenizer) -> None:
    first = tokenizer.first_special_id
    assert tokenizer.vocab_size == first + 256
    assert len(tokenizer.specials) == 256
    assert tokenizer.special_id("<|end_of_msg|>") == first + 2
    assert tokenizer.special_spelling(first + 6) == f"<|reserved_token_{first + 6}|>"
    assert tokenizer.special_spelling(first - 1) is None
    with pytest.raises(
        CheckpointError, match="names no special token '<|nope|>'".replace("|", ".")
    ):
        tokenizer.special_id("<|nope|>")


def test_nothing_is_prepended(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("") == []
    assert tokenizer.encode("a") == [97]


def test_a_lone_surrogate_counts_as_a_replacement_character(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode(tokenizer.encode("a\ud800b")) == "a\ufffdb"


@pytest.mark.parametrize("bad", [-1, 10**6])
def test_an_id_out_of_range_is_an_error_naming_it(tokenizer: Tokenizer, bad: int) -> None:
    for decode in (tokenizer.decode, tokenizer.decode_bytes):
        with pytest.raises(ConfigError, match=f"token id {bad} is outside"):
            decode([97, bad])
    with pytest.raises(ConfigError, match=f"token id {bad} is outside"):
        tokenizer.stream_decoder().push(bad)


def parts_by_definition(text: str) -> list[str]:
    """The cuts, character by character: a new part at 400,000, or when a run passes 25,000."""
    parts: list[str] = []
    for start in range(0, len(text), MAX_PART_CHARACTERS):
        part = ""
        run = 0
        for character in text[start : start + MAX_PART_CHARACTERS]:
            same = part and part[-1].isspace() == character.isspace()
            run = run + 1 if same or run == 0 else 1
            if run > MAX_RUN_CHARACTERS:
                parts.append(part)
                part, run = "", 1
            part += character
        parts.append(part)
    return parts


@pytest.mark.parametrize(
    "runs",
    [
        ["a" * 25_000, " " * 25_000],
        ["ab " * 9_000, "x" * 25_001, " "],
        ["\n" * 75_001, "好" * 50_000],
        ["word " * 79_999, "x" * 50_010],
        ["x" * 399_999, " " * 30_000],
    ],
)
def test_long_texts_are_cut_before_they_are_encoded(tokenizer: Tokenizer, runs: list[str]) -> None:
    text = "".join(runs)
    parts = list(cut_long_text(text))
    assert parts == parts_by_definition(text)
    assert tokenizer.encode(text) == [i for part in parts for i in tokenizer.encode(part)]
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_loading_again_shares_the_encoder_until_a_file_changes(tmp_path: Path) -> None:
    first = Tokenizer.load(write_tokenizer(tmp_path, [b"ab"]))
    assert Tokenizer.load(tmp_path)._encoding is first._encoding
    second = Tokenizer.load(write_tokenizer(tmp_path, [b"ab", b"abc"]))
    assert second.vocab_size == first.vocab_size + 1


def test_import_needs_no_torch() -> None:
    code = "import sys, k3d.model.chat_format; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def damage(folder: Path, line: int, replacement: str) -> None:
    path = folder / "tiktoken.model"
    lines = path.read_text().splitlines()
    lines[line - 1] = replacement
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("line", "replacement", "sentence"),
    [
        (5, "", "line 5: expected 'BASE64 RANK'"),
        (5, "YQ==", "line 5: expected 'BASE64 RANK'"),
        (5, "Y!== 4", "line 5: not base64"),
        (5, "YQ 4", "line 5: not base64"),
        (5, " 4", "line 5: an empty token"),
        (5, "BA== four", "line 5: the rank is not a number"),
        (5, "BA== -4", "line 5: the rank is not a number"),
        (5, "BA==  4", "line 5: the rank is not a number"),
        (5, "BA== 4\r", "line 5: the rank is not a number"),
        (5, "BA== " + "9" * 5000, "line 5: the rank is not a number"),
        (5, "BA== 3", "line 5: rank 3 was already given on line 4"),
        (5, "BA== 999", "line 5: rank 999 in a file of 257 tokens"),
        (5, "Aw== 4", "line 5: the same token is on line 4"),
        (98, "YWJj 97", "no token for the single byte 0x61 (1 of 256"),
    ],
)
def test_a_damaged_rank_file_is_one_sentence(
    tmp_path: Path, line: int, replacement: str, sentence: str
) -> None:
    write_tokenizer(tmp_path, [b"ab"])
    damage(tmp_path, line, replacement)
    with pytest.raises(CheckpointError) as caught:
        Tokenizer.load(tmp_path)
    assert sentence in caught.value.message
    assert str(tmp_path / "tiktoken.model") in caught.value.message
    assert caught.value.hint


def test_a_cut_rank_file_is_refused(tmp_path: Path) -> None:
    path = write_tokenizer(tmp_path, [b"ab", b"abc"]) / "tiktoken.model"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(CheckpointError, match=r"tiktoken\.model"):
        Tokenizer.load(tmp_path)
    path.write_bytes(b"")
    with pytest.raises(CheckpointError, match="is empty"):
        Tokenizer.load(tmp_path)
    path.unlink()
    with pytest.raises(CheckpointError, match=r"tiktoken\.model does not exist"):
        Tokenizer.load(tmp_path)
    path.mkdir()
    with pytest.raises(CheckpointError, match=r"tiktoken\.model cannot be read"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "no added_tokens_decoder"),
        ("{}", "no added_tokens_decoder"),
        ({"x": {"content": "[BOS]"}}, "entry 'x'"),
        ({"0256": {"content": "[BOS]"}}, "entry '0256'"),
        ({"256": "[BOS]"}, "entry '256'"),
        ({"256": {"content": ""}}, "entry '256'"),
        ({"255": {"content": "[BOS]"}}, "names token 255 '[BOS]', but"),
        ({"512": {"content": "[BOS]"}}, "are 256 to 511"),
        ({"256": {"content": "x"}, "300": {"content": "x"}}, "both token 256 and token 300"),
        ({"256": {"content": "<|reserved_token_300|>"}}, "both token 256 and token 300"),
    ],
)
def test_damaged_names_are_one_sentence(tmp_path: Path, config: object, sentence: str) -> None:
    path = write_tokenizer(tmp_path) / "tokenizer_config.json"
    text = config if isinstance(config, str) else json.dumps({"added_tokens_decoder": config})
    path.write_text(text)
    with pytest.raises(CheckpointError) as caught:
        Tokenizer.load(tmp_path)
    assert sentence in caught.value.message
    assert str(path) in caught.value.message


REAL = Path(os.environ.get("K3_REAL_CHECKPOINT", "/nonexistent"))

GOLDEN = {
    "a b": [64, 291],
    "a    b": [64, 274, 291],
    "hello   ": [22931, 274],
    "line1\r\nline2": [1611, 16, 462, 1611, 17],
    "你好世界": [33845, 2243],
    "hello你好world": [22931, 33845, 23617],
    "1234567890": [6694, 12972, 16242, 15],
    "The capital of France is": [1008, 10484, 318, 15383, 387],
    "Hello, world!": [19180, 11, 2695, 0],
    "a <|open|> b [BOS] c": [64, 22652, 4454, 91, 29, 291, 793, 33, 4110, 60, 275],
}


@pytest.mark.skipif(
    not (REAL / "tiktoken.model").exists(), reason="K3_REAL_CHECKPOINT has no tiktoken.model"
)
@pytest.mark.parametrize("text", list(GOLDEN))
def test_golden_ids_of_the_real_vocabulary(text: str) -> None:
    tokenizer = Tokenizer.load(REAL)
    assert (tokenizer.first_special_id, tokenizer.vocab_size) == (163584, 163840)
    assert tokenizer.special_id("<|end_of_msg|>") == 163586
    assert tokenizer.encode(text) == GOLDEN[text]
    assert tokenizer.decode(GOLDEN[text]) == text
    if "<|open|>" in text:
        trusted = [64, 220, 163587, 291, 220, 163584, 275]
        assert tokenizer.encode_with_specials(text) == trusted
