"""Reads the chat templates, the special tokens and the ids of end tokens in the files of a model's folder.

Templates of ``kind: jinja``, ``gateway import`` and ``gateway parity`` use this module. The tokenizers of
``transformers`` 5 set the rules; ``tests/metatemplate/chat_templates/record_folders.py`` recorded them. If two files
disagree, ``transformers`` uses one file without a message, and this module adds a note that names both files.

- ``chat_template.jinja`` is the template ``default``. Each file in ``additional_chat_templates/`` is a template with
  the name of the file; a ``default`` in this folder replaces ``chat_template.jinja``. These files replace the key
  ``chat_template`` of ``tokenizer_config.json``, which is a text or a list of names and texts.
- A processor prefers the template in ``processor_config.json``, then the template in ``chat_template.json``, to all
  other templates.
- Special tokens are in ``tokenizer_config.json``. If this file has no ``added_tokens_decoder``, the folder is an older
  one: then ``special_tokens_map.json`` replaces these tokens, and a null in the map removes a token.
- The ids of end tokens are in ``generation_config.json``. The texts of these tokens are in ``added_tokens_decoder``, or
  in ``added_tokens.json`` in an older folder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from posixpath import basename, dirname, join
from typing import Any

from metatemplate.errors import TemplateFailure
from metatemplate.values.dialogue import EMPTY_MAPPING
from metatemplate.values.words import listed, printable, shown

TEMPLATE_FILE = "chat_template.jinja"
TOKENIZER = "tokenizer_config.json"
PROCESSORS = ("processor_config.json", "chat_template.json")
"""The files in which the processors of ``transformers`` look for a template, in this order."""
KEY = "chat_template"

DEFAULT = "default"
TOOL_USE = "tool_use"
"""The name of the template that ``transformers`` uses for requests with tools."""
MISTAKEN = "file"
"""A template name that ``transformers`` confuses with ``chat_template.jinja``."""

Templates = Mapping[str, str]
"""Name of a chat template → source text."""

TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
"""The names of the special tokens that every tokenizer may have."""
OURS = ("messages", "tools", "add_generation_prompt", "continue_final_message", "chat_template")
"""The variables of a chat template that the gateway sets. No special token may have such a name."""
VARIABLE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")

ADDED = "added_tokens_decoder"
EXTRA = "extra_special_tokens"
SPECIFIC = "model_specific_special_tokens"
ADDITIONAL = "additional_special_tokens"
"""The older name of ``extra_special_tokens``. A mapping under the older name is ignored if ``extra_special_tokens`` is
a list."""
GROUPS = (EXTRA, SPECIFIC, ADDITIONAL)

TOKENS_MAP = "special_tokens_map.json"

GENERATION = "generation_config.json"
ADDED_TOKENS = "added_tokens.json"
LOOKED_AT = (TEMPLATE_FILE, TOKENIZER, *PROCESSORS, GENERATION, TOKENS_MAP, ADDED_TOKENS)
"""The files that may decide a prompt, in addition to the templates in ``additional_chat_templates/``."""

Fetch = Callable[[str], bytes | None]
"""Path relative to the template → the bytes of the file; None if the file is missing. Raises ``TemplateFailure``."""
Names = Callable[[str], Sequence[str]]
"""Folder next to the template → names of its files; empty if the folder is missing. Raises ``TemplateFailure``."""

NAMED = "additional_chat_templates"
JINJA = ".jinja"

MOST_BYTES = 1024 * 1024
"""The size limit of one file. A ``tokenizer_config.json`` with thousands of added tokens has a third of this size."""


@dataclass(frozen=True, slots=True)
class ChatFiles:
    """The content of a model's folder."""

    templates: Templates = field(default=EMPTY_MAPPING)
    """The chat templates by name. A single template has the name ``default``."""
    tokens: Mapping[str, str] = field(default=EMPTY_MAPPING)
    """Special tokens by the names of their variables (``bos_token``)."""
    end_ids: tuple[int, ...] = ()
    """The ids of the tokens that end an answer."""
    ends: tuple[str, ...] = ()
    """The texts of the tokens that end an answer, if the files contain the texts."""
    special: tuple[str, ...] = ()
    """The texts of the special tokens that the files list, in addition to ``tokens``."""
    used: tuple[str, ...] = ()
    """Paths of the files that were used."""
    notes: tuple[str, ...] = ()
    """Notes on files that disagree. Each note names the file that is used."""


def template_in(fetch: Fetch, names: Names) -> str | None:
    """Return the path of the file with the default template of a folder; None if the folder has no chat template.

    Raises ``TemplateFailure`` if the folder has named templates, but no default template.
    """
    if fetch(TEMPLATE_FILE) is not None:
        return TEMPLATE_FILE
    named = names_in(names(NAMED))
    if DEFAULT in named:
        return join(NAMED, DEFAULT + JINJA)
    if named:
        raise TemplateFailure(
            f"the folder has no default chat template: {TEMPLATE_FILE} is missing, and {NAMED}/ contains only "
            f"{listed(named)}. Give the path of a template file instead of the folder."
        )
    reader = _FolderReader(fetch, names)
    return next((name for name in (TOKENIZER, *PROCESSORS) if reader.object(name).get(KEY) is not None), None)


def read_chat_files(name: str, fetch: Fetch, names: Names) -> ChatFiles:
    """Read the model's folder that contains the file ``name``. Raises ``TemplateFailure`` for the first mistake."""
    reader = _FolderReader(fetch, names)
    if reader.data(name) is None:
        raise TemplateFailure(f"no file {name}; write the path relative to the template file")
    folder = folder_of(name)
    config = reader.object(join(folder, TOKENIZER))
    templates = _templates_of(name, reader)
    tokens, token_notes = _special_tokens(config, reader.object(join(folder, TOKENS_MAP)))
    end_ids = _end_ids(reader.object(join(folder, GENERATION)))
    added: Any = config.get(ADDED)
    used = [*_template_files(name, reader), join(folder, TOKENIZER), join(folder, GENERATION)]
    if ADDED not in config:
        added = {str(number): text for text, number in reader.object(join(folder, ADDED_TOKENS)).items()}
        used += [join(folder, TOKENS_MAP), join(folder, ADDED_TOKENS)]
    texts = [_text_of(added.get(str(number))) for number in end_ids] if isinstance(added, dict) else []
    return ChatFiles(
        templates=templates,
        tokens=tokens,
        end_ids=end_ids,
        ends=tuple([text for text in texts if text]),
        special=_special_texts(added, config, reader.object(join(folder, TOKENS_MAP))),
        used=tuple([path for path in dict.fromkeys(used) if reader.data(path) is not None]),
        notes=(*_disagreements(name, templates, reader), *token_notes),
    )


def _end_ids(generation: Mapping[str, Any]) -> tuple[int, ...]:
    value = generation.get("eos_token_id")
    return tuple([one for one in (value if isinstance(value, list) else [value]) if type(one) is int and one >= 0])


def _special_texts(added: Any, *files: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the texts of the special tokens in ``added_tokens_decoder``, and in the lists of further special tokens.

    ``files``: the content of ``tokenizer_config.json`` and of ``special_tokens_map.json``.
    """
    found = [token for token in _mapping(added).values() if _is_special(token)]
    for value in [file.get(group) for file in files for group in GROUPS]:
        found += value if isinstance(value, list) else _mapping(value).values()
    return tuple(dict.fromkeys([text for text in map(_text_of, found) if text]))


def _is_special(token: Any) -> bool:
    return isinstance(token, dict) and token.get("special") is True


def shortened(config: bytes, generation: bytes | None) -> bytes:
    """Return a large ``tokenizer_config.json`` with only the keys for prompts, their markers and the end of an answer.

    The content is unchanged if its size is at most ``MOST_BYTES``, or if one of the files is not a JSON object.
    """
    if len(config) <= MOST_BYTES:
        return config
    try:
        given, ends = json.loads(config), json.loads(generation or b"{}")
    except (ValueError, RecursionError):
        return config
    if not isinstance(given, dict) or not isinstance(ends, dict):
        return config
    kept = {key: value for key, value in given.items() if key == KEY or key.endswith("_token") or key in GROUPS}
    if isinstance(given.get(ADDED), dict):
        added, wanted = given[ADDED], [str(number) for number in _end_ids(ends)]
        special = {
            number: {"content": token.get("content"), "special": True}
            for number, token in added.items()
            if _is_special(token)
        }
        kept[ADDED] = special | {number: added[number] for number in wanted if number in added}
    elif ADDED in given:
        kept[ADDED] = given[ADDED]  # a newer folder has this key
    return json.dumps(kept, ensure_ascii=False).encode("utf-8", "surrogatepass")  # the reader reports a surrogate


# ---------------------------------------------------------------- files


class _FolderReader:
    """Reads each file of a folder once. Raises ``TemplateFailure`` for a file that cannot be used."""

    def __init__(self, fetch: Fetch, names: Names) -> None:
        self._fetch = fetch
        self._names = names
        self.data = cache(self._data)
        """Returns the bytes of a file; None if the file does not exist."""
        self.object = cache(self._object)
        """Returns the JSON object in a file; empty if the file does not exist."""
        self.notes: list[str] = []
        """Notes for the operator on files that disagree."""

    def _data(self, name: str) -> bytes | None:
        data = self._fetch(name)
        if data is not None and len(data) > MOST_BYTES:
            raise TemplateFailure(
                f"{printable(name)} has more than {MOST_BYTES} bytes: copy the needed keys to another file"
            )
        return data

    def named(self, folder: str) -> tuple[str, ...]:
        """Return the names of the chat templates in ``additional_chat_templates/``."""
        return names_in(self._names(join(folder, NAMED)))

    def text(self, name: str) -> str:
        """Return the text of a file."""
        try:
            return (self.data(name) or b"").decode("utf-8")
        except UnicodeDecodeError as error:
            raise TemplateFailure(f"{printable(name)} is not UTF-8 at byte {error.start}") from None

    def _object(self, name: str) -> Mapping[str, Any]:
        data = self.data(name)
        try:
            value = json.loads(b"{}" if data is None else data)
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = ascii(error.object[error.start])
            raise TemplateFailure(f"{name} contains the lone surrogate {half}; write the whole character") from None
        except (ValueError, RecursionError) as error:
            raise TemplateFailure(f"{name} is not JSON: {error}") from None
        if not isinstance(value, dict):
            raise TemplateFailure(f"{name} must contain a JSON object")
        return value


def folder_of(name: str) -> str:
    """Return the path of the model's folder. The file ``name`` may be in ``additional_chat_templates/``."""
    folder = dirname(name)
    return dirname(folder) if basename(folder) == NAMED else folder


def names_in(files: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the chat templates among the files. Raises ``TemplateFailure`` for a name not in UTF-8."""
    names = sorted([file.removesuffix(JINJA) for file in files if file.endswith(JINJA)])
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise TemplateFailure(
                f"{NAMED}/ contains the file {shown(name + JINJA)}, whose name is not UTF-8: rename the file"
            ) from None
    return tuple(names)


# ---------------------------------------------------------------- templates


def _templates_of(name: str, reader: _FolderReader) -> Templates:
    """Return the chat templates of the file ``name``. A single template has the name ``default``."""
    if _is_default(name):
        return _in_files(folder_of(name), reader)
    if not name.endswith(".json"):
        return {DEFAULT: reader.text(name)}
    value = reader.object(name).get(KEY)
    if value is None:
        raise TemplateFailure(f"{name} has no key {KEY}: give the path of the file that contains the chat template")
    return _in_json(name, value, reader)


def _is_default(name: str) -> bool:
    return basename(name) == TEMPLATE_FILE or (basename(dirname(name)) == NAMED and basename(name) == DEFAULT + JINJA)


def _in_files(folder: str, reader: _FolderReader) -> Templates:
    """Return the chat templates in ``chat_template.jinja`` and ``additional_chat_templates/``."""
    sources: dict[str, str] = {}
    if reader.data(join(folder, TEMPLATE_FILE)) is not None:
        sources[DEFAULT] = reader.text(join(folder, TEMPLATE_FILE))
    for name in reader.named(folder):
        path = join(folder, NAMED, name + JINJA)
        if name == MISTAKEN:
            raise TemplateFailure(f"rename {path}: transformers confuses this file with {TEMPLATE_FILE}")
        source = reader.text(path)
        if name == DEFAULT and _normalized({name: sources.get(name, source)}) != _normalized({name: source}):
            used = f"{NAMED}/{DEFAULT}{JINJA}"
            reader.notes.append(f"{TEMPLATE_FILE} is not used: {used} replaces it, as in transformers")
        sources[name] = source
    return sources


def _in_json(name: str, value: Any, reader: _FolderReader) -> Templates:
    """Return the chat templates in a JSON file, which has one text or several texts with names."""
    if isinstance(value, str):
        return {DEFAULT: value}
    if isinstance(value, dict):
        value = [{"name": key, "template": source} for key, source in value.items()]
    sources: dict[str, str] = {}
    for entry in value if isinstance(value, list) else (None,):
        if not isinstance(entry, dict) or not all(isinstance(entry.get(key), str) for key in ("name", "template")):
            raise TemplateFailure(f"{name}: {KEY} must be a text, or a list of {{name, template}}")
        if sources.get(entry["name"], entry["template"]) != entry["template"]:
            reader.notes.append(
                f"{basename(name)} has two templates {shown(entry['name'])}: the last is used, as in transformers"
            )
        sources[entry["name"]] = entry["template"]
    return sources


def _template_files(name: str, reader: _FolderReader) -> list[str]:
    """Return the files that contain the templates of ``_templates_of(name)``. The file ``name`` is the first."""
    if not _is_default(name):
        return [name]
    folder = folder_of(name)
    return [name, join(folder, TEMPLATE_FILE), *[join(folder, NAMED, one + JINJA) for one in reader.named(folder)]]


def _disagreements(name: str, templates: Templates, reader: _FolderReader) -> list[str]:
    """Return a note for each file of the folder whose chat templates differ from those of the file ``name``."""
    folder, own = folder_of(name), TEMPLATE_FILE if _is_default(name) else basename(name)
    if own not in (TEMPLATE_FILE, TOKENIZER, *PROCESSORS):
        return reader.notes  # a file that the operator wrote
    others = {} if own == TEMPLATE_FILE else {TEMPLATE_FILE: _in_files(folder, reader)}
    for other in (TOKENIZER, *PROCESSORS):
        value = reader.object(join(folder, other)).get(KEY)
        if other != own and value is not None:
            others[other] = _in_json(other, value, reader)
    present = [file for file in (TEMPLATE_FILE, TOKENIZER, *PROCESSORS) if file == own or others.get(file)]
    notes = [
        _note(other, sources, own, present)
        for other, sources in others.items()
        if sources and _normalized(sources) != _normalized(templates)
    ]
    return [*reader.notes, *notes]


def _note(other: str, sources: Templates, own: str, present: list[str]) -> str:
    """Return the note on the file ``other``. ``present``: the files with a template. Tokenizers use the first file."""
    where = f"{NAMED}/ ({listed(sources)})" if other == TEMPLATE_FILE and DEFAULT not in sources else other
    differs = f"{where} and {own} have different chat templates"
    for_tokenizers = present[0] if present[0] not in PROCESSORS else None
    for_processors = next((file for file in PROCESSORS if file in present), None)
    if other == for_tokenizers:
        return f"{differs}: the tokenizers of transformers use {where}"
    if other != for_processors:
        return f"{differs}: {where} is not used, as in transformers"
    reason = f"tokenizers use {own}, and " if own == for_tokenizers else ""
    return f"{differs}: {reason}the processors of transformers use {where}"


def _normalized(templates: Templates) -> Templates:
    """Return templates as Jinja reads them: with line feeds as line ends, and without one line feed at the end."""
    unix = {name: source.replace("\r\n", "\n").replace("\r", "\n") for name, source in templates.items()}
    return {name: source.removesuffix("\n") for name, source in unix.items()}


# ---------------------------------------------------------------- special tokens


def _special_tokens(config: Mapping[str, Any], token_map: Mapping[str, Any]) -> tuple[Mapping[str, str], list[str]]:
    """Return the tokens of ``tokenizer_config.json`` and ``special_tokens_map.json`` that a template gets as variables.

    A folder may define further tokens: with any key ``…_token``, and in the mappings ``extra_special_tokens`` and
    ``model_specific_special_tokens``. Tokens that only the class of the tokenizer defines are missing, because no file
    has them. The second result has a note on each token for which the two files disagree.
    """
    is_older = ADDED not in config
    used_map = token_map if is_older else {}
    own = _own_tokens(config, used_map)
    # All tokens with a text, ``TOKENS`` first. The map replaces the configuration's tokens, and ``own`` replaces both.
    found = {name: value for name, value in {**config, **used_map}.items() if name.endswith("_token")} | own
    texts = {name: text for name in dict.fromkeys([*TOKENS, *found]) if (text := _text_of(found.get(name))) is not None}
    for name in texts:
        if not VARIABLE_NAME.fullmatch(name) or name in OURS:
            file = TOKENS_MAP if name in used_map or name in _mapping(used_map.get(EXTRA)) else TOKENIZER
            raise TemplateFailure(
                f"{file} has a token {shown(name)}; it must be a valid variable name: rename the token"
            )
    if is_older and "chat_template" in token_map:
        raise TemplateFailure(f"{TOKENS_MAP} has the key chat_template: move this key to {TOKENIZER}")
    notes = []
    for name in dict.fromkeys([*TOKENS, *texts]):
        here, there = _text_of(config.get(name)), _text_of(token_map.get(name))
        if name in token_map and here != there and (here is not None or not is_older):
            notes.append(
                f"{name} is {_shown(here)} in {TOKENIZER} and {_shown(there)} in {TOKENS_MAP}: "
                f"{_shown(texts.get(name))} is used, as in transformers"
            )
    return texts, notes


def _text_of(token: Any) -> str | None:
    """Return the text of a token, which is a text or an object with ``content`` in the files; None for other values."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def _own_tokens(config: Mapping[str, Any], token_map: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tokens that only this folder defines. ``transformers`` stores them separately and prefers them."""
    # ``transformers`` stores such a token separately before it reads the map, if the token is a text, not an object.
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


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}


def _shown(text: str | None) -> str:
    return "none" if text is None else shown(text)
