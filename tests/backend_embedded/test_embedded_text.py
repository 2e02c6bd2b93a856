"""Tokens are bytes; text comes out whole."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

from gateway.backend.embedded.vocabulary import TokenDecoder, Vocabulary, token_name
from metatemplate.errors import LoneSurrogate
from tests.backend_embedded.conftest import DEMO, Heard

TEXTS = ["1+1=?", "né 日本語 🙂👩‍👩‍👧", "  two  blanks\n\t", "<HUMAN>: x<eoh>", "\u0000\u007f\u00a0\u00ad", "𝔘𝔫𝔦"]


@pytest.fixture(scope="module")
def demo_words() -> Vocabulary:
    return Vocabulary(DEMO)


@pytest.fixture(scope="module")
def byte_fallback(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    """A tokenizer as Llama 2 and Mistral folders have it: ▁ for blanks, <0x..> for bytes it has no word for."""
    words = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "b", "▁a", "é"]
    model = models.BPE({word: i for i, word in enumerate(words)}, [("▁", "a")], unk_token="<unk>", byte_fallback=True)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken(mark, special=True) for mark in ("<s>", "</s>")])
    folder = tmp_path_factory.mktemp("byte-fallback")
    tokenizer.save(str(folder / "tokenizer.json"))
    return Vocabulary(folder)


def unfold(vocabulary: Vocabulary, ids: Sequence[int]) -> list[str]:
    unfolding = TokenDecoder(vocabulary, True)
    return [*(unfolding.feed(token) for token in ids), unfolding.flush()]


@pytest.mark.parametrize("text", TEXTS)
def test_text_survives_token_by_token(demo_words: Vocabulary, text: str) -> None:
    ids = demo_words.tokenize(text, False)
    pieces = unfold(demo_words, ids)
    assert "".join(pieces) == text
    assert all("\ufffd" not in piece for piece in pieces)


@pytest.mark.parametrize("text", ["a b", "né 🙂", "aaa  b"])
def test_byte_fallback_survives_token_by_token(byte_fallback: Vocabulary, text: str) -> None:
    ids = byte_fallback.tokenize(text, False)
    assert "".join(unfold(byte_fallback, ids)) == " " + text


def test_any_tokens_decode_as_the_library_decodes_them(demo_words: Vocabulary) -> None:
    library, pick = Tokenizer.from_file(str(DEMO / "tokenizer.json")), random.Random(1)
    for _ in range(300):
        ids = tuple(pick.randrange(386) for _ in range(pick.randrange(1, 12)))
        assert "".join(unfold(demo_words, ids)) == library.decode(ids, skip_special_tokens=True)


def test_a_broken_character_comes_out_at_the_end(demo_words: Vocabulary) -> None:
    ids = demo_words.tokenize("日", False)
    assert unfold(demo_words, ids[:-1]) == ["", "", "\ufffd"]


def test_an_echo_shows_a_written_bos_and_not_the_tokenizer_s_own(ask: Callable[..., Heard]) -> None:
    heard = ask("<s>1", max_tokens=0, echo=True, logprobs=0)
    assert ([entry.token for entry in heard.logprobs()], heard.usage.prompt) == (["<s>", "1"], 3)


def test_ids_without_a_token_print_nothing(demo_words: Vocabulary) -> None:
    assert "".join(unfold(demo_words, [20, 9999, 20])) == "11"


def test_lone_bytes_are_named_as_openai_names_them() -> None:
    assert token_name(b"\xe6\x97") == "bytes:\\xe6\\x97"
    assert token_name("日".encode()) == "日"


def test_a_lone_surrogate_is_refused(demo_words: Vocabulary) -> None:
    with pytest.raises(LoneSurrogate):
        demo_words.tokenize("\ud800")


def test_a_tokenizer_of_another_kind_is_refused(tmp_path: Path) -> None:
    described = json.loads((DEMO / "tokenizer.json").read_text())
    described["decoder"] = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    (tmp_path / "tokenizer.json").write_text(json.dumps(described))
    with pytest.raises(ValueError, match="WordPiece"):
        Vocabulary(tmp_path)


def test_characters_stay_whole_in_a_stream_and_in_logprobs(ask: Callable[..., Heard], demo_words: Vocabulary) -> None:
    ids = tuple(demo_words.tokenize("日本🙂", False))
    # A bias so strong that the model can only say these bytes, each once.
    for token in dict.fromkeys(ids):
        heard = ask("x", temperature=0, max_tokens=2, logprobs=0, logit_bias={str(token): 100})
        assert [entry.bytes for entry in heard.logprobs()] == [tuple(demo_words.token_bytes(token))] * 2
    heard = ask(ids, temperature=0, max_tokens=0, echo=True, logprobs=0)
    assert heard.text() == "日本🙂"
    assert b"".join(bytes(entry.bytes or ()) for entry in heard.logprobs()) == "日本🙂".encode()
    assert [entry.offset for entry in heard.logprobs()][-1] == 2
