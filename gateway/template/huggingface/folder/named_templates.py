"""Which chat templates does a model's folder hold, by which names, and who takes which where there are several?

The rules are told in ``chat_files.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from posixpath import basename, dirname, join
from typing import Any

from gateway.template.huggingface.folder.reader import JINJA, NAMED, FolderReader, folder_of
from gateway.template.validation.problems import as_names, shown

TEMPLATE = "chat_template.jinja"
TOKENIZER = "tokenizer_config.json"
PROCESSORS = ("processor_config.json", "chat_template.json")
"""In the order in which the processors of ``transformers`` take them."""

DEFAULT = "default"
KEY = "chat_template"
MISTAKEN = "file"
"""A name that ``transformers`` mistakes for ``chat_template.jinja`` itself."""

Templates = Mapping[str, str]


def templates_of(name: str, reader: FolderReader) -> Templates:
    """The templates by name; a single one is called ``default``."""
    if _is_default(name):
        return _texts_in(folder_of(name), reader)
    if not name.endswith(".json"):
        return {DEFAULT: reader.text(name)}
    value = reader.object(name)
    if value.get(KEY) is None:
        reader.complain(f"{name} has no {KEY}: name the file that holds it")
        return {}
    return _listed(name, value[KEY], reader)


def _is_default(name: str) -> bool:
    return basename(name) == TEMPLATE or (basename(dirname(name)) == NAMED and basename(name) == DEFAULT + JINJA)


def _texts_in(folder: str, reader: FolderReader) -> Templates:
    """``chat_template.jinja`` and what stands beside it in ``additional_chat_templates/``."""
    texts: dict[str, str] = {}
    if reader.data(join(folder, TEMPLATE)) is not None:
        texts[DEFAULT] = reader.text(join(folder, TEMPLATE))
    for one in reader.named(folder):
        path = join(folder, NAMED, one + JINJA)
        if one == MISTAKEN:
            reader.complain(f"{path}: transformers mistakes a template of this name for {TEMPLATE}: rename it")
            continue
        if reader.data(path) is None:
            continue  # a link that leads nowhere, say, which has been complained of
        text = reader.text(path)
        if one == DEFAULT and _plain(texts.get(DEFAULT, text)) != _plain(text):
            reader.notes.append(f"{TEMPLATE} is not used: {NAMED}/{DEFAULT}{JINJA} takes its place, as in transformers")
        texts[one] = text
    return texts


def _listed(name: str, value: Any, reader: FolderReader) -> Templates:
    """The templates of a JSON file: a text, or several with names."""
    if isinstance(value, str):
        return {DEFAULT: value}
    if isinstance(value, dict):
        value = [{"name": one, "template": text} for one, text in value.items()]
    texts: dict[str, str] = {}
    for entry in value if isinstance(value, list) else (None,):
        if not isinstance(entry, dict) or not all(isinstance(entry.get(key), str) for key in ("name", "template")):
            reader.complain(f"{name}: {KEY} must be a text, or a list of {{name, template}}")
            return {}
        if texts.get(entry["name"], entry["template"]) != entry["template"]:
            reader.notes.append(
                f"{basename(name)} holds {shown(entry['name'])} twice: the last one counts, as in transformers"
            )
        texts[entry["name"]] = entry["template"]
    return texts


def deciding(name: str, reader: FolderReader) -> list[str]:
    """The files that hold the templates, the one that was named first."""
    if not _is_default(name):
        return [name]
    folder = folder_of(name)
    return [name, join(folder, TEMPLATE), *[join(folder, NAMED, one + JINJA) for one in reader.named(folder)]]


def disagreements(name: str, templates: Templates, reader: FolderReader) -> list[str]:
    """Other templates of the folder, and who takes them."""
    folder, own = folder_of(name), basename(name)
    if not _is_default(name) and own not in (TOKENIZER, *PROCESSORS):
        return reader.notes  # a template that a person has put there
    mine = TEMPLATE if _is_default(name) else own
    beside = {} if mine == TEMPLATE else {TEMPLATE: _texts_in(folder, reader)}
    for other in (TOKENIZER, *PROCESSORS):
        value = reader.object(join(folder, other)).get(KEY)
        if other != own and value is not None:
            beside[other] = _listed(other, value, reader)
    there = [one for one in (TEMPLATE, TOKENIZER, *PROCESSORS) if one == mine or beside.get(one)]
    return [
        *reader.notes,
        *[_told(other, texts, mine, there) for other, texts in beside.items() if texts and not _same(texts, templates)],
    ]


def _told(other: str, texts: Templates, mine: str, there: list[str]) -> str:
    """Who takes the other template; ``there``: the files that hold one, as tokenizers take the first of them."""
    takes = f"{other} says something else than {KEY} in {mine}"
    if mine == TEMPLATE:
        takes = f"{other} holds another chat template than {mine}"
    if other == TEMPLATE and DEFAULT not in texts:
        takes = f"{NAMED}/ ({as_names(texts)}) says something else than {KEY} in {mine}"
    of_tokenizers = there[0] if there[0] not in PROCESSORS else None
    of_processors = next((one for one in PROCESSORS if one in there), None)
    if other == of_tokenizers:
        return f"{takes}: the tokenizers of transformers take that one"
    if other != of_processors:
        return f"{takes}: it is not used, as in transformers"
    own = "this one is for tokenizers, " if mine == of_tokenizers else ""
    return f"{takes}: {own}the processors of transformers take that one"


def _same(one: Templates, other: Templates) -> bool:
    return {name: _plain(text) for name, text in one.items()} == {name: _plain(text) for name, text in other.items()}


def _plain(text: str) -> str:
    """A text as Jinja takes it: one kind of line end, and none at the very end."""
    return text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n")
