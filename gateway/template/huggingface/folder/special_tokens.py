"""Which special tokens does a tokenizer's folder hand to its chat template? As ``transformers`` 5 gathers them.

Besides the seven that every tokenizer may have, a folder names tokens of its own: any ``…_token``, and the mappings
``extra_special_tokens`` and ``model_specific_special_tokens``. Tokens that a tokenizer's class has by itself stand in
no file, and are not known here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gateway.template.validation.problems import Problems, shown

TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
"""The tokens that every tokenizer may have."""
OURS = ("messages", "tools", "add_generation_prompt", "continue_final_message", "chat_template")
"""Variables that the gateway fills."""
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")

ADDED = "added_tokens_decoder"
EXTRA = "extra_special_tokens"
SPECIFIC = "model_specific_special_tokens"
ADDITIONAL = "additional_special_tokens"
"""The older name of ``extra_special_tokens``, whose mapping does not count beside a list of that name."""
GROUPS = (EXTRA, SPECIFIC, ADDITIONAL)


@dataclass(frozen=True, slots=True)
class TokenFiles:
    """The two files, as they were read; empty: there is none."""

    config: Mapping[str, Any]
    """``tokenizer_config.json``."""
    map: Mapping[str, Any]
    """``special_tokens_map.json``."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a folder."""

    texts: Mapping[str, str]
    older: bool
    """True: the map counts, and goes before."""
    notes: tuple[str, ...]
    """Where the two files disagree."""


def read_tokens(files: TokenFiles, *, names: tuple[str, str], problems: Problems) -> Tokens:
    """The tokens of both files, by the rule which of them counts. ``names``: those of the files, for the notes."""
    older = ADDED not in files.config
    map_ = files.map if older else {}
    own = _own(files.config, map_)
    texts = _gathered(files.config, map_, own)
    for name in texts:
        if not NAME.fullmatch(name) or name in OURS:
            there = name in map_ or name in _mapping(map_.get(EXTRA))
            problems.add(("file",), f"{names[there]} calls a token {shown(name)}, which is no name for one: rename it")
    if older and "chat_template" in files.map:
        problems.add(("file",), f"{names[1]} holds a chat_template, which belongs into {names[0]}: move it there")
    return Tokens(texts, older, _told(files, texts, own, names, older=older))


def text_of(token: Any) -> str | None:
    """A token as tokenizers write it: its text, or an object with ``content``; None: there is none."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def _own(config: Mapping[str, Any], older: Mapping[str, Any]) -> dict[str, Any]:
    """Tokens of the folder's own, which are set apart and go before."""
    # A plain text under a name of its own is set apart before the map is read, an object is not.
    own = {name: value for name, value in config.items()
           if name.endswith("_token") and name not in TOKENS and isinstance(value, str)}  # fmt: skip
    extra, additional = config.get(EXTRA), _mapping(config.get(ADDITIONAL))
    own |= _mapping(extra or additional)
    own = own or _mapping(config.get(SPECIFIC))
    own |= _mapping(older.get(EXTRA))
    return {**additional, **own} if isinstance(extra, dict) else own


def _gathered(config: Mapping[str, Any], older: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, str]:
    """What the map says goes before, but for names of the folder's own, which the configuration holds fast."""
    given = {**config, **older}
    found = {name: value for name, value in given.items() if name.endswith("_token")} | dict(own)
    ordered = (*TOKENS, *[name for name in found if name not in TOKENS])
    return {name: text for name in ordered if (text := text_of(found.get(name))) is not None}


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}


def _told(
    files: TokenFiles, texts: Mapping[str, str], own: Mapping[str, Any], names: tuple[str, str], *, older: bool
) -> tuple[str, ...]:
    """What the two files say of one token, and not with one voice; or the map alone, where it is not asked."""
    of_files = f"{names[0]} has no {ADDED}" if older else f"{names[0]} has {ADDED}"
    notes = []
    for name in (*TOKENS, *[name for name in texts if name not in TOKENS]):
        here, there = text_of(files.config.get(name)), text_of(files.map.get(name))
        why = "it is set apart as a token of the folder's own" if name in own else of_files
        if name in files.map and here != there and (here is not None or not older):
            notes.append(
                f"{name} is {_said(here)} in {names[0]} and {_said(there)} in {names[1]}: "
                f"{_said(texts.get(name))} counts, as in transformers, because {why}"
            )
    return tuple(notes)


def _said(text: str | None) -> str:
    return "none" if text is None else shown(text)
