"""Which drafts does a source hold? Its file is found and read by its format; what is made is chosen and named."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from gateway.cli.importing.asked import Asked, as_name
from gateway.cli.importing.folder import from_folder
from gateway.cli.options import NotFound
from gateway.config.chat_folders import TEMPLATES, chat_template_in
from gateway.config.files import yaml
from gateway.config.schema.names import FILE_NAME, quote
from gateway.config.sections.templates import CHAT
from gateway.core.errors import ConfigError
from gateway.importer.draft import Draft
from gateway.importer.fastchat import read_fastchat
from gateway.importer.kinds import kind_of
from gateway.importer.lazyllm import read_lazyllm
from gateway.importer.ollama import read_ollama
from gateway.importer.opencompass import read_opencompass
from gateway.importer.source import MOST_BYTES, Source

MODELFILE = "Modelfile"


def read_drafts(asked: Asked) -> list[Draft]:
    """The drafts of a source, chosen and named. Raises ``NotFound`` or ``ConfigError``."""
    path = _file_of(asked)
    source = _source(path)
    kind = kind_of(source) if asked.kind == "auto" else asked.kind
    _check_words(asked, kind)
    match kind:
        case "hf":
            drafts = [from_folder(source, path, asked)]
        case "opencompass":
            drafts = read_opencompass(source, turns=asked.turns)
        case "lazyllm":
            drafts = read_lazyllm(source, marks_of=asked.marks_of)
        case "ollama":
            drafts = [read_ollama(source, subset=asked.without)]
        case _:
            drafts = read_fastchat(source, subset=asked.without)
    drafts = [replace(draft, name=as_name(draft.name)) for draft in drafts]
    return _named(_chosen(drafts, asked), asked)


def _check_words(asked: Asked, kind: str) -> None:
    """Words that mean nothing for a kind are refused, not passed over."""
    for given, option, kinds in (
        (asked.marks_of, "--marks-of", ("lazyllm",)),
        (asked.form != "jinja", "--as", ("hf",)),
        (asked.variant is not None, "--variant", ("hf",)),
        (asked.turns != "natural", "--turns", ("opencompass",)),
        (asked.without and asked.form == "jinja" and kind == "hf", "--without", ("hf with --as meta",)),
        (asked.without, "--without", ("hf", "ollama", "fastchat")),
    ):
        if given and kind not in kinds:
            raise NotFound(f"{option} is for {', '.join(kinds)}, and {asked.source} is read as {kind}")


def _file_of(asked: Asked) -> Path:
    path = asked.source
    if not path.exists():
        raise NotFound(f"{path}: no such file or folder")
    if not path.is_dir():
        return path
    file = chat_template_in(path) if asked.kind in ("auto", "hf") else None
    if file is None and asked.kind in ("auto", "ollama") and (path / MODELFILE).is_file():
        file = path / MODELFILE
    if file is None:
        raise NotFound(f"{path} holds no chat template ({', '.join(TEMPLATES)}) and no {MODELFILE}: name the file")
    return file


def _source(path: Path) -> Source:
    folder = Path(os.path.realpath(path.parent))

    def beside(name: str) -> bytes | None:
        below = folder / name
        if not Path(os.path.realpath(below)).is_relative_to(folder) or not below.is_file():
            return None
        return _read(below)

    return Source(str(path), _read(path), beside, _parse)


def _read(path: Path) -> bytes:
    """A regular file's bytes, up to a byte more than is ever read."""
    most = 64 * MOST_BYTES if path.suffix == ".json" else MOST_BYTES
    if not path.is_file():
        raise NotFound(f"{path} is no file")
    try:
        with path.open("rb") as file:
            return file.read(most + 1)
    except OSError as error:
        raise NotFound(f"{path} cannot be read ({error.strerror or error})") from None


def _parse(data: bytes, name: str) -> Any:
    document = yaml.parse(data, name)
    if document.problems:
        raise ConfigError(document.problems)
    return document.value


def _chosen(drafts: list[Draft], asked: Asked) -> list[Draft]:
    if asked.model is None:
        return drafts
    wanted = as_name(asked.model.lower())
    found = [draft for draft in drafts if draft.name == wanted]
    if not found:
        raise NotFound(f"no model {quote(asked.model)} in {asked.source}: {', '.join(draft.name for draft in drafts)}")
    if len(found) > 1:
        raise NotFound(f"{len(found)} models in {asked.source} are called {quote(asked.model)}: give each its own abbr")
    return found


def _named(drafts: list[Draft], asked: Asked) -> list[Draft]:
    wanted = asked.wanted
    if asked.name is not None and len(drafts) > 1:
        raise NotFound(f"--name is for one template, and there are {len(drafts)}: choose by --model one of "
                       f"{', '.join(draft.name for draft in drafts)}")  # fmt: skip
    drafts = [replace(draft, name=wanted) if wanted and len(drafts) == 1 else draft for draft in drafts]
    names = [draft.name for draft in drafts]
    for name in names:
        if not FILE_NAME.fullmatch(name) or name == CHAT.name:
            raise NotFound(f'{quote(name)} is no name for a template: lower-case letters, digits, ".", "_" and "-", '
                           f'and not "{CHAT.name}"')  # fmt: skip
        if names.count(name) > 1:
            raise NotFound(
                f"several templates would be called {quote(name)}: give the models names of their own (abbr)"
            )
    return drafts
