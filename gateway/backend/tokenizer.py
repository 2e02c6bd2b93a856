"""How many tokens is a text, and what text is a token? Asked of a model's own tokenizer, where a local file has it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Protocol

from gateway.core.errors import ConfigError, Problem


class Tokens(Protocol):
    """A model's tokenizer; the embedded engine is one too."""

    def tokenize(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Text → token ids."""
        ...

    def detokenize(self, ids: list[int], skip_special_tokens: bool = False) -> str:
        """Token ids → text."""
        ...


LONG = 8_000
"""Characters from which a text is counted in a thread: a few milliseconds' work."""


async def count(tokens: Tokens, text: str, *, special: bool = True) -> int:
    """How many tokens the text is; long texts do not hold up the event loop."""
    return len(await token_ids(tokens, text, special=special))


async def token_ids(tokens: Tokens, text: str, *, special: bool = True) -> list[int]:
    """The text's token ids, found like ``count``."""
    if len(text) < LONG:
        return tokens.tokenize(text, special)
    return await asyncio.to_thread(tokens.tokenize, text, special)


class LocalTokens:
    """A ``tokenizer.json``, or the folder that holds one. ``tokenizers`` is an extra and imported here only."""

    def __init__(self, path: Path) -> None:
        """Raises ``ConfigError`` if the file cannot be read as a tokenizer."""
        file = path / "tokenizer.json" if path.is_dir() else path
        try:
            from tokenizers import Tokenizer
        except ModuleNotFoundError:
            raise _refusal(path, "a tokenizer needs a package: pip install 'meta-gateway[embedded]'") from None
        try:
            self._tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:  # tokenizers raises bare exceptions, for a missing file as for a broken one
            raise _refusal(file, f"cannot be read as a tokenizer.json: {error}") from None

    def tokenize(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """See ``Tokens``."""
        # The batch call lets other threads run meanwhile; the plain one does not.
        (encoding,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        return list(encoding.ids)

    def detokenize(self, ids: list[int], skip_special_tokens: bool = False) -> str:
        """See ``Tokens``."""
        return str(self._tokenizer.decode(ids, skip_special_tokens=skip_special_tokens))


def _refusal(path: Path, message: str) -> ConfigError:
    return ConfigError((Problem(str(path), 0, "tokenizer", message),))
