"""``tokenizer.json`` of a model folder: text ↔ tokens, and the bytes of each token.

A token represents bytes: a character may need three tokens, and a token may end inside a character. Two notations of
bytes are supported: byte-level BPE (a printable character for each byte) and byte fallback (``▁`` for blanks,
``<0xE4>`` for single bytes).
"""

from __future__ import annotations

import codecs
import json
from pathlib import Path

from metatemplate.tokenizer import Tokenizer

# Byte-level BPE writes a visible byte as its own character, and the other bytes, in order, from U+0100 on.
_VISIBLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_HIDDEN = (byte for byte in range(256) if byte not in _VISIBLE)
_ALPHABET = {chr(byte): byte for byte in _VISIBLE} | {chr(0x100 + at): byte for at, byte in enumerate(_HIDDEN)}


def _byte_level(token: str) -> bytes:
    return bytes([_ALPHABET[c] for c in token]) if all(c in _ALPHABET for c in token) else token.encode()


def _byte_fallback(token: str) -> bytes:
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        return bytes.fromhex(token[3:5])
    return token.replace("▁", " ").encode()


NOTATIONS = {"ByteLevel": _byte_level, "ByteFallback": _byte_fallback}


class Vocabulary(Tokenizer):
    """The tokenizer of one model folder; may be used in several threads."""

    def __init__(self, folder: Path) -> None:
        """Raises ``ConfigError`` for an unreadable file, and ``ValueError`` for an unsupported notation of bytes."""
        super().__init__(folder / "tokenizer.json")
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        decoder = json.loads(self._tokenizer.to_str())["decoder"] or {}
        kinds = [part["type"] for part in (decoder, *decoder.get("decoders", ())) if part.get("type") in NOTATIONS]
        if not kinds:
            kind = decoder.get("type")
            raise ValueError(f"tokenizer.json: decoder {kind!r} is not supported (only {' and '.join(NOTATIONS)})")
        self._bytes_of = NOTATIONS[kinds[0]]
        self._added = self._tokenizer.get_added_tokens_decoder()

    def token_bytes(self, token: int, skip_special_tokens: bool = False) -> bytes:
        """Return the bytes of a token; empty for a special token if special tokens are skipped."""
        if (added := self._added.get(token)) is not None:
            return b"" if skip_special_tokens and added.special else added.content.encode()
        # A model may have more rows than the tokenizer has tokens; such ids have no text.
        return self._bytes_of(self._tokenizer.id_to_token(token) or "")


class TokenDecoder:
    """Decodes tokens one by one into whole characters."""

    def __init__(self, vocabulary: Vocabulary, skip_special_tokens: bool) -> None:
        self._vocabulary = vocabulary
        self._skip = skip_special_tokens
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token: int) -> str:
        """Return the characters that this token completes."""
        return self._decoder.decode(self._vocabulary.token_bytes(token, self._skip))

    def flush(self) -> str:
        """Return U+FFFD if the last character is incomplete; otherwise an empty text."""
        return self._decoder.decode(b"", True)


def token_name(raw: bytes) -> str:
    """Return the text of a token for log probabilities. An incomplete character is written as ``bytes:\\xe4``."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
