"""``tokenizer.json`` of a model folder: text ↔ tokens, and the bytes of each token.

A token stands for bytes: a character may take three tokens, and a token may end inside a character. Two notations of
bytes are read: byte-level BPE (a printable character for each byte) and byte fallback (``▁`` for blanks, ``<0xE4>``
for single bytes).
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from gateway.core.errors import ConfigError, InvalidUnicode, Problem


def _byte_alphabet() -> dict[str, int]:
    """The character that byte-level BPE prints for each byte: itself if visible, else from U+0100 on."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in set(visible)]
    return {chr(b): b for b in visible} | {chr(0x100 + i): b for i, b in enumerate(hidden)}


_ALPHABET = _byte_alphabet()


def _byte_level(token: str) -> bytes:
    return bytes([_ALPHABET[c] for c in token]) if all(c in _ALPHABET for c in token) else token.encode()


def _byte_fallback(token: str) -> bytes:
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        return bytes.fromhex(token[3:5])
    return token.replace("▁", " ").encode()


NOTATIONS: dict[str, Callable[[str], bytes]] = {"ByteLevel": _byte_level, "ByteFallback": _byte_fallback}


class Vocabulary:
    """The tokenizer of one model folder; may be used in several threads."""

    def __init__(self, folder: Path) -> None:
        """Raises ``ConfigError`` if tokenizer.json is missing or of another kind."""
        file = folder / "tokenizer.json"
        if not file.is_file():
            raise _config_error(file, "missing; save the tokenizer in its fast form (AutoTokenizer…save_pretrained)")
        try:
            self._tokenizer = Tokenizer.from_file(str(file))
            described = json.loads(file.read_bytes())
        except Exception as error:  # the library has no narrower class
            raise _config_error(file, f"cannot be used ({type(error).__name__}); copy it again") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._bytes_of = _notation(file, described)
        added = described.get("added_tokens") or []
        self._literal = {item["id"]: item["content"].encode() for item in added}
        self._special = frozenset(item["id"] for item in added if item.get("special"))
        self._known: dict[int, bytes] = {}

    def encode(self, text: str, *, add_special_tokens: bool = True) -> tuple[tuple[int, ...], int]:
        """The tokens, and how many leading ones the tokenizer added (BOS)."""
        try:
            # The batch call releases the interpreter lock; the plain one does not.
            (encoding,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        except TypeError:
            raise InvalidUnicode("the prompt holds a lone surrogate, which no tokenizer can read") from None
        added = 0
        for mark in encoding.special_tokens_mask if add_special_tokens else ():
            if not mark:
                break
            added += 1
        return tuple(encoding.ids), added

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of whole sequences; broken characters become U+FFFD."""
        return b"".join([self.token_bytes(token, skip_special_tokens) for token in ids]).decode("utf-8", "replace")

    def token_bytes(self, token: int, skip_special_tokens: bool = False) -> bytes:
        """The bytes of a token; none for a special token if those are skipped."""
        if skip_special_tokens and token in self._special:
            return b""
        known = self._known.get(token)
        if known is None:
            written = self._tokenizer.id_to_token(token)
            # A model may have more rows than the tokenizer has tokens; such ids have no text.
            known = self._literal.get(token) or (self._bytes_of(written) if written is not None else b"")
            self._known[token] = known
        return known


class TokenDecoder:
    """Decodes tokens one by one into whole characters."""

    def __init__(self, vocabulary: Vocabulary, skip_special_tokens: bool) -> None:
        self._vocabulary = vocabulary
        self._skip = skip_special_tokens
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token: int) -> str:
        """The characters that this token completes."""
        return self._decoder.decode(self._vocabulary.token_bytes(token, self._skip))

    def flush(self) -> str:
        """U+FFFD for an incomplete character at the end; empty otherwise."""
        return self._decoder.decode(b"", True)


def token_name(raw: bytes) -> str:
    """A token as log probabilities show it; incomplete characters as in OpenAI's API: ``bytes:\\xe4\\xb8``."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def _notation(file: Path, described: dict[str, Any]) -> Callable[[str], bytes]:
    decoder = described.get("decoder") or {}
    for part in (decoder, *(decoder.get("decoders") or ())):
        if part.get("type") in NOTATIONS:
            return NOTATIONS[part["type"]]
    raise _config_error(file, f"decoder {decoder.get('type')!r} is not supported (only {' and '.join(NOTATIONS)})")


def _config_error(file: Path, message: str) -> ConfigError:
    return ConfigError((Problem(file=str(file), line=0, key="", message=message),))
