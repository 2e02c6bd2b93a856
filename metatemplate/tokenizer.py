"""A model's tokenizer, read from a local file."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any

from metatemplate.errors import InvalidFile, LoneSurrogate, Problem

MIN_THREADED = 4_000
"""A text of at least this many bytes is tokenized in a thread, because tokenizing takes some milliseconds."""


def is_short(text: str) -> bool:
    """Return whether a text is tokenized at once. One of characters outside ASCII counts four bytes for each."""
    return len(text) * (1 if text.isascii() else 4) < MIN_THREADED


class Tokenizer:
    """A tokenizer that is loaded from a file ``tokenizer.json`` or from the folder of the file."""

    def __init__(self, path: Path) -> None:
        """Load the tokenizer. Raises ``InvalidFile`` if the file cannot be read as a tokenizer."""
        file = path / "tokenizer.json" if path.is_dir() else path
        self.folder = file.parent
        """The folder of the file. The folder may also contain a ``tokenizer_config.json``."""
        try:
            import tokenizers  # slow to import

            self._tokenizer = tokenizers.Tokenizer.from_file(str(file))
            self._added = self._tokenizer.get_added_tokens_decoder()
        except Exception as error:  # tokenizers raises plain exceptions, for a missing and for an invalid file
            message = f"cannot be read as a tokenizer.json: {error}"
            if not file.exists():
                message = "no such file; give the path of a tokenizer.json, or of the folder that contains it"
            raise InvalidFile((Problem(str(file), 0, "tokenizer", message),)) from None

    def encode(self, text: str, add_special_tokens: bool) -> Any:
        """Return the library's ``Encoding`` of a text. Raises ``LoneSurrogate`` for a lone surrogate."""
        try:
            # The batch call releases the interpreter lock; the plain one does not.
            return self._tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0]
        except TypeError:
            raise LoneSurrogate("the prompt contains a lone surrogate, which no tokenizer can read") from None

    def tokenize(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Return the token ids of a text."""
        return list(self.encode(text, add_special_tokens).ids)

    def borders(self, text: str, ids: Sequence[int]) -> list[tuple[int, int]]:
        """Return the first and the last character (exclusive) of each token of a text. The tokens must be ``ids``.

        A token that the tokenizer adds has no characters. Returns an empty list if the text has other tokens.
        """
        for special in (True, False):
            found = self._tokenizer.encode_batch([text], add_special_tokens=special)[0]
            if list(found.ids) == list(ids):
                return list(found.offsets)
        return []

    def detokenize(self, ids: list[int], skip_special_tokens: bool = False) -> str:
        """Return the text of token ids."""
        return str(self._tokenizer.decode(ids, skip_special_tokens=skip_special_tokens))

    def added_tokens(self) -> dict[str, bool]:
        """Return the added tokens, which are matched before all other tokens. Token → True for a special token."""
        return {token.content: token.special for token in self._added.values()}

    def added_ids(self) -> dict[str, int]:
        """Return the id of each added token."""
        return {token.content: number for number, token in self._added.items()}

    def unknown_id(self) -> int | None:
        """Return the id that stands for characters without a token. None if every text has tokens."""
        model = json.loads(self._tokenizer.to_str())["model"]
        unknown: int | None = model.get("unk_id")
        return self._tokenizer.token_to_id(model.get("unk_token") or "") if unknown is None else unknown

    def renamed(self, names: Mapping[str, str], further: str) -> Tokenizer:
        """Return a copy that reads ``names[token]`` in place of an added token, and has the added token ``further``.

        Added tokens may have other ids in the copy.
        """
        import tokenizers

        data, other = json.loads(self._tokenizer.to_str()), copy(self)
        for token in data["added_tokens"]:
            token["content"] = names.get(token["content"], token["content"])
        other._tokenizer = tokenizers.Tokenizer.from_str(json.dumps(data))
        other._tokenizer.add_tokens([tokenizers.AddedToken(further, normalized=False)])
        other._added = other._tokenizer.get_added_tokens_decoder()
        return other

    def names(self, ids: Sequence[int]) -> list[str | None]:
        """Return the name of each token in the vocabulary; None for an id without a token.

        The library would return the normalized name of an added token, such as ``<user>`` for ``<USER>``.
        """
        return [self._added[one].content if one in self._added else self._tokenizer.id_to_token(one) for one in ids]


async def token_ids(tokenizer: Tokenizer, text: str, *, special: bool = True) -> list[int]:
    """Return the token ids of a text without blocking the event loop. ``special``: add the special tokens."""
    if is_short(text):
        return tokenizer.tokenize(text, special)
    return await asyncio.to_thread(tokenizer.tokenize, text, special)


async def count(tokenizer: Tokenizer, text: str, *, special: bool = True) -> int:
    """Return the number of tokens of a text. ``special``: add the special tokens."""
    return len(await token_ids(tokenizer, text, special=special))
