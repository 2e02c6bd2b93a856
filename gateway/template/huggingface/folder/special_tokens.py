"""The special tokens of a model's folder that its chat template gets as variables, as ``transformers`` 5 reads them.

Beside the seven usual tokens, a folder may name tokens of its own: any ``…_token``, and the mappings
``extra_special_tokens`` and ``model_specific_special_tokens``. Tokens that are built into a tokenizer's class are in no
file, so they are missing here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gateway.template.huggingface.folder.named_templates import TOKENIZER
from gateway.template.validation.problems import Problems, shown

TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
"""The tokens that every tokenizer may have."""
OURS = ("messages", "tools", "add_generation_prompt", "continue_final_message", "chat_template")
"""Variables that the gateway sets."""
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")

ADDED = "added_tokens_decoder"
EXTRA = "extra_special_tokens"
SPECIFIC = "model_specific_special_tokens"
ADDITIONAL = "additional_special_tokens"
"""The older name of ``extra_special_tokens``; its mapping is ignored beside a list of the newer name."""
GROUPS = (EXTRA, SPECIFIC, ADDITIONAL)

TOKENS_MAP = "special_tokens_map.json"


@dataclass(frozen=True, slots=True)
class TokenizerSpecialTokens:
    """The tokens of a folder."""

    texts: Mapping[str, str]
    """By name."""
    is_older: bool
    """Whether the folder is of the older form, in which ``special_tokens_map.json`` is used and wins."""
    notes: tuple[str, ...]
    """Tokens for which the two files disagree."""


def read_tokens(config: Mapping[str, Any], token_map: Mapping[str, Any], problems: Problems) -> TokenizerSpecialTokens:
    """The tokens of ``tokenizer_config.json`` and ``special_tokens_map.json``, empty if there is no such file."""
    is_older = ADDED not in config
    used_map = token_map if is_older else {}
    own = _own_tokens(config, used_map)
    texts = _texts(config, used_map, own)
    for name in texts:
        if not NAME.fullmatch(name) or name in OURS:
            file = TOKENS_MAP if name in used_map or name in _mapping(used_map.get(EXTRA)) else TOKENIZER
            problems.add(("file",), f"{file} has a token {shown(name)}, which cannot be a variable: rename it")
    if is_older and "chat_template" in token_map:
        problems.add(("file",), f"{TOKENS_MAP} has a chat_template, which belongs in {TOKENIZER}: move it there")
    notes = []
    for name in dict.fromkeys([*TOKENS, *texts]):
        here, there = text_of(config.get(name)), text_of(token_map.get(name))
        if name in token_map and here != there and (here is not None or not is_older):
            reason = f"{TOKENIZER} has {'no ' if is_older else ''}{ADDED}"
            notes.append(
                f"{name} is {_shown(here)} in {TOKENIZER} and {_shown(there)} in {TOKENS_MAP}: "
                f"{_shown(texts.get(name))} is used, as in transformers, because "
                f"{'it is a token of its own in the folder' if name in own else reason}"
            )
    return TokenizerSpecialTokens(texts=texts, is_older=is_older, notes=tuple(notes))


def text_of(token: Any) -> str | None:
    """A token as tokenizers write it, a text or an object with ``content``; None for anything else."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def _own_tokens(config: Mapping[str, Any], token_map: Mapping[str, Any]) -> dict[str, Any]:
    """The folder's own tokens, which ``transformers`` keeps apart, and which win."""
    # A text under a name of its own is kept apart before the map is read; an object is not.
    own = {
        name: value
        for name, value in config.items()
        if name.endswith("_token") and name not in TOKENS and isinstance(value, str)
    }
    extra, additional = config.get(EXTRA), _mapping(config.get(ADDITIONAL))
    own |= _mapping(extra or additional)
    own = own or _mapping(config.get(SPECIFIC))
    own |= _mapping(token_map.get(EXTRA))
    return {**additional, **own} if isinstance(extra, dict) else own


def _texts(config: Mapping[str, Any], token_map: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, str]:
    """All tokens with a text, the usual ones first. The map wins over the configuration, ``own`` over both."""
    tokens = {name: value for name, value in {**config, **token_map}.items() if name.endswith("_token")}
    found = {**tokens, **own}
    return {name: text for name in dict.fromkeys([*TOKENS, *found]) if (text := text_of(found.get(name))) is not None}


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}


def _shown(text: str | None) -> str:
    return "none" if text is None else shown(text)
