"""How many tokens is a text, and what text is a token? Asked of a model's own tokenizer, where a local file has it."""

from __future__ import annotations

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
        return list(self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids)

    def detokenize(self, ids: list[int], skip_special_tokens: bool = False) -> str:
        """See ``Tokens``."""
        return str(self._tokenizer.decode(ids, skip_special_tokens=skip_special_tokens))


def _refusal(path: Path, message: str) -> ConfigError:
    return ConfigError((Problem(str(path), 0, "tokenizer", message),))
