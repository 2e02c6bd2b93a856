"""A model's tokenizer, read from a local file."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gateway.core.errors import ConfigError, InvalidUnicode, Problem

MIN_THREADED = 8_000
"""A text of at least this many characters is tokenized in a thread, because this takes a few milliseconds."""


class Tokenizer:
    """The tokenizer in a file ``tokenizer.json``, or in its folder."""

    def __init__(self, path: Path) -> None:
        """Raises ``ConfigError`` if the file cannot be read as a tokenizer."""
        file = path / "tokenizer.json" if path.is_dir() else path
        self.folder = file.parent
        """The folder of the file, which may also hold a ``tokenizer_config.json``."""
        try:
            import tokenizers  # slow to import

            self._tokenizer = tokenizers.Tokenizer.from_file(str(file))
        except Exception as error:  # tokenizers raises plain exceptions, for a missing and for an invalid file
            message = f"cannot be read as a tokenizer.json: {error}"
            raise ConfigError((Problem(str(file), 0, "tokenizer", message),)) from None

    def encode(self, text: str, add_special_tokens: bool) -> Any:
        """The library's ``Encoding`` of a text. Raises ``InvalidUnicode``."""
        try:
            # The batch call releases the interpreter lock; the plain one does not.
            return self._tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0]
        except TypeError:
            raise InvalidUnicode("the prompt holds a lone surrogate, which no tokenizer can read") from None

    def tokenize(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Text → token ids."""
        return list(self.encode(text, add_special_tokens).ids)

    def detokenize(self, ids: list[int], skip_special_tokens: bool = False) -> str:
        """Token ids → text."""
        return str(self._tokenizer.decode(ids, skip_special_tokens=skip_special_tokens))

    def added_tokens(self) -> dict[str, bool]:
        """The tokens that the tokenizer finds in a text before all others; True marks a special token."""
        return {token.content: token.special for token in self._tokenizer.get_added_tokens_decoder().values()}

    def names(self, ids: Sequence[int]) -> list[str | None]:
        """The name of each token in the vocabulary; None for an id without a token."""
        return [self._tokenizer.id_to_token(one) for one in ids]


async def token_ids(tokenizer: Tokenizer, text: str, *, special: bool = True) -> list[int]:
    """The token ids of a text; ``special``: with the tokens that the tokenizer adds. Does not block the event loop."""
    if len(text) < MIN_THREADED:
        return tokenizer.tokenize(text, special)
    return await asyncio.to_thread(tokenizer.tokenize, text, special)


async def count(tokenizer: Tokenizer, text: str, *, special: bool = True) -> int:
    """The number of tokens of a text."""
    return len(await token_ids(tokenizer, text, special=special))
