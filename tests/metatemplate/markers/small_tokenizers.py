"""Small tokenizers of every kind that models have, made with the library that reads ``tokenizer.json``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from metatemplate.tokenizer import Tokenizer as LocalTokenizer

SPECIAL = ("<s>", "</s>", "<|im_start|>", "<|im_end|>")
FURTHER = ("<think>", "</think>", "<a>", "<a>b", "  ", "\n\n", "ö")
"""Added tokens that are not special. The last three are vocabulary: no control tokens."""
CORPUS = [
    "the user asks and the assistant answers",
    "system user assistant tool",
    "1+1=2 é ö 日本語 ünder the table",
    "im_start im_end think user\nassistant\n\n",
    "<|im_start|> <think> </s> <s> [INST] text text text",
] * 4


def _added(normalized: bool = False, **flags: bool) -> list[AddedToken]:
    return [
        *[AddedToken(one, special=True, normalized=normalized, **flags) for one in SPECIAL],
        *[AddedToken(one, special=False, normalized=normalized, **flags) for one in FURTHER],
    ]


def _with_added(tokenizer: Tokenizer, added: Sequence[AddedToken], *, bos: bool = True) -> Tokenizer:
    for token in added:
        (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])
    if bos:
        number = tokenizer.token_to_id("<s>")
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", number)])
    return tokenizer


def byte_level(added: Sequence[AddedToken] = (), **options: Any) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(**options))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=330, initial_alphabet=alphabet))
    return _with_added(tokenizer, added or _added())


def unigram(scheme: str, pieces: Sequence[str] = ()) -> Tokenizer:
    """``pieces``: further pieces of the model's vocabulary, which plain text can make."""
    letters = sorted({letter for text in CORPUS for letter in text.replace(" ", "▁")} | {"▁"} | set("<>|/_[]"))
    words = ["▁the", "user", "▁user", "assist", "ant", "▁an", "swer", "think", "im_", "start", *pieces]
    vocab = [("<unk>", 0.0), *[(one, -8.0) for one in letters], *[(one, -3.0) for one in words]]
    tokenizer = Tokenizer(models.Unigram(vocab, unk_id=0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme=scheme)
    return _with_added(tokenizer, [AddedToken("<unk>", special=True, normalized=False), *_added()])


def legacy_llama(added: Sequence[AddedToken] = ()) -> Tokenizer:
    """As a converted SentencePiece model: the normalizer writes the blanks, and bytes stand for rare characters."""
    words = ["<unk>", "<s>", "</s>", *[f"<0x{byte:02X}>" for byte in range(256)], "▁", *"aehnrstu<>|_", "th", "the"]
    merges = [("t", "h"), ("th", "e"), ("▁", "the"), ("s", "e")]
    words += ["▁the", "se"]
    model = models.BPE(
        {word: number for number, word in enumerate(words)}, merges, unk_token="<unk>", byte_fallback=True
    )
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return _with_added(tokenizer, added or [AddedToken("<unk>", special=True, normalized=False), *_added()])


def word_piece() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=200, special_tokens=["[UNK]"]))
    added = [one for one in _added(normalized=True) if not one.content.isspace()]  # they would be one after folding
    return _with_added(tokenizer, [AddedToken("[UNK]", special=True, normalized=False), *added])


KINDS: dict[str, Callable[[], Tokenizer]] = {
    "bytes": byte_level,
    "bytes, vocabulary before merges": lambda: byte_level(ignore_merges=True),
    "bytes, blanks beside a token are removed": lambda: byte_level(_added(lstrip=True, rstrip=True)),
    "bytes, tokens are normalized": lambda: byte_level(_added(normalized=True)),
    "blanks first": lambda: unigram("first"),
    "blanks always": lambda: unigram("always"),
    "blanks never": lambda: unigram("never"),
    "legacy": legacy_llama,
    "legacy, blanks after a token are removed": lambda: legacy_llama(_added(rstrip=True)),
    "words in lower case": word_piece,
}
"""Kind of tokenizer → the function that makes one."""


def whole_words() -> Tokenizer:
    """A tokenizer that reads an added token only if no letter or digit stands beside it."""
    return byte_level(_added(single_word=True))


LOSSLESS = ("bytes", "bytes, vocabulary before merges")
"""The kinds whose tokens decode to the text that they were made of."""


def load(tokenizer: Tokenizer, folder: Path) -> LocalTokenizer:
    """Return the tokenizer as the gateway reads it from a file."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return LocalTokenizer(folder)
