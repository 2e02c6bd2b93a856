"""The chat templates of a model's folder by their names, and which file is used where several hold a template.

``chat_template.py`` lists the rules.
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
"""In the order in which the processors of ``transformers`` look for a template."""
KEY = "chat_template"

DEFAULT = "default"
TOOL_USE = "tool_use"
"""The template that ``transformers`` uses for requests with tools."""
MISTAKEN = "file"
"""A name that ``transformers`` mistakes for ``chat_template.jinja`` itself."""

Templates = Mapping[str, str]
"""Name → source."""


def templates_of(name: str, reader: FolderReader) -> Templates:
    """The templates of the file ``name``; a single template is called ``default``."""
    if _is_default(name):
        return _in_files(folder_of(name), reader)
    if not name.endswith(".json"):
        return {DEFAULT: reader.text(name)}
    value = reader.object(name).get(KEY)
    if value is None:
        reader.add_problem(f"{name} has no {KEY}: name the file that has it")
        return {}
    return _in_json(name, value, reader)


def _is_default(name: str) -> bool:
    return basename(name) == TEMPLATE or (basename(dirname(name)) == NAMED and basename(name) == DEFAULT + JINJA)


def _in_files(folder: str, reader: FolderReader) -> Templates:
    """``chat_template.jinja`` and the templates in ``additional_chat_templates/``."""
    sources: dict[str, str] = {}
    if reader.data(join(folder, TEMPLATE)) is not None:
        sources[DEFAULT] = reader.text(join(folder, TEMPLATE))
    for name in reader.named(folder):
        path = join(folder, NAMED, name + JINJA)
        if name == MISTAKEN:
            reader.add_problem(f"{path}: transformers mistakes a template of this name for {TEMPLATE}: rename it")
            continue
        if reader.data(path) is None:
            continue  # such as a broken link, which is a problem already
        source = reader.text(path)
        if name == DEFAULT and _normalized(sources.get(DEFAULT, source)) != _normalized(source):
            reader.notes.append(f"{TEMPLATE} is not used: {NAMED}/{DEFAULT}{JINJA} replaces it, as in transformers")
        sources[name] = source
    return sources


def _in_json(name: str, value: Any, reader: FolderReader) -> Templates:
    """The templates of a JSON file: one text, or several with names."""
    if isinstance(value, str):
        return {DEFAULT: value}
    if isinstance(value, dict):
        value = [{"name": key, "template": source} for key, source in value.items()]
    sources: dict[str, str] = {}
    for entry in value if isinstance(value, list) else (None,):
        if not isinstance(entry, dict) or not all(isinstance(entry.get(key), str) for key in ("name", "template")):
            reader.add_problem(f"{name}: {KEY} must be a text, or a list of {{name, template}}")
            return {}
        if sources.get(entry["name"], entry["template"]) != entry["template"]:
            reader.notes.append(
                f"{basename(name)} has {shown(entry['name'])} twice: the last one is used, as in transformers"
            )
        sources[entry["name"]] = entry["template"]
    return sources


def template_files(name: str, reader: FolderReader) -> list[str]:
    """The files of ``templates_of(name)``, that file first."""
    if not _is_default(name):
        return [name]
    folder = folder_of(name)
    return [name, join(folder, TEMPLATE), *[join(folder, NAMED, one + JINJA) for one in reader.named(folder)]]


def disagreements(name: str, templates: Templates, reader: FolderReader) -> list[str]:
    """A note for each other file of the folder that has other templates than the file ``name``."""
    folder, own = folder_of(name), TEMPLATE if _is_default(name) else basename(name)
    if own not in (TEMPLATE, TOKENIZER, *PROCESSORS):
        return reader.notes  # the operator's own file
    others = {} if own == TEMPLATE else {TEMPLATE: _in_files(folder, reader)}
    for other in (TOKENIZER, *PROCESSORS):
        value = reader.object(join(folder, other)).get(KEY)
        if other != own and value is not None:
            others[other] = _in_json(other, value, reader)
    present = [file for file in (TEMPLATE, TOKENIZER, *PROCESSORS) if file == own or others.get(file)]
    notes = [
        _note(other, sources, own, present)
        for other, sources in others.items()
        if sources and {key: _normalized(source) for key, source in sources.items()}
        != {key: _normalized(source) for key, source in templates.items()}
    ]  # fmt: skip
    return [*reader.notes, *notes]


def _note(other: str, sources: Templates, own: str, present: list[str]) -> str:
    """The note on another file. ``present``: the files with a template; tokenizers use the first of them."""
    where = f"{NAMED}/ ({as_names(sources)})" if other == TEMPLATE and DEFAULT not in sources else other
    differs = f"{where} has another chat template than {own}"
    for_tokenizers = present[0] if present[0] not in PROCESSORS else None
    for_processors = next((file for file in PROCESSORS if file in present), None)
    if other == for_tokenizers:
        return f"{differs}: the tokenizers of transformers use that one"
    if other != for_processors:
        return f"{differs}: it is not used, as in transformers"
    reason = "this one is for tokenizers, " if own == for_tokenizers else ""
    return f"{differs}: {reason}the processors of transformers use that one"


def _normalized(source: str) -> str:
    """A source as Jinja reads it: one kind of line end, and none at the very end."""
    return source.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n")
