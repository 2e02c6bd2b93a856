"""Reads the chat template of a model's folder, for ``gateway parity`` and ``gateway import``.

``metatemplate/chat_templates/folder.py`` contains the rules for such folders.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gateway.core.errors import ConfigError, Problem
from gateway.workshop.importer.huggingface import ChatFolder
from metatemplate.chat_templates.folder import (
    DEFAULT,
    GENERATION,
    NAMED,
    PROCESSORS,
    TEMPLATE_FILE,
    TOKENIZER,
    read_chat_files,
    shortened,
    template_in,
)
from metatemplate.errors import TemplateFailure
from metatemplate.files.reader import FolderFiles, digest_of
from metatemplate.files.template import SpecError, parse_spec
from metatemplate.templates.spec import JinjaSpec, SpecProblem, ToolsSpec

CHAT_TEMPLATE_FILES = (TEMPLATE_FILE, TOKENIZER, *PROCESSORS)
"""The files that may contain a folder's chat template, in order of precedence."""

MAX_FILE_BYTES = 64 * 1024 * 1024
"""The largest size of one file in bytes. ``tokenizer_config.json`` may list thousands of added tokens."""
BLOBS = "blobs"
"""The folder of a Hugging Face cache that contains the files to which a snapshot links."""


def chat_template_in(folder: Path) -> Path | None:
    """Return the file with a folder's chat template, or None if no file has one. Raises ``ConfigError``."""
    files = _Files(folder)
    try:
        name = template_in(files.fetch, files.names)
    except TemplateFailure as error:
        raise ConfigError((Problem(str(folder), 0, "", error.message),)) from None
    return None if name is None else folder / name


def folder_of(path: Path) -> Path:
    """Return the model's folder in which a template file is, directly or in the subfolder of named templates."""
    above = path.absolute().parent
    return above.parent if above.name == NAMED else path.parent


def read_chat_folder(
    path: Path, like: JinjaSpec | None = None, kwargs: Mapping[str, Any] | None = None, variant: str | None = None
) -> ChatFolder:
    """Return the chat template of a file, with the other files that the template needs. Raises ``ConfigError``.

    ``like``: another chat template, from which the clock, content form, argument form and variant are copied.
    ``kwargs``: variables for the template. ``variant``: the name of the named template to use.
    """
    from metatemplate.chat_templates.renderer import JinjaTemplate

    folder = folder_of(path)
    name = path.absolute().relative_to(folder.absolute()).as_posix()
    files = _Files(folder)
    keys: dict[str, Any] = {"kind": "jinja", "file": name, "kwargs": dict(kwargs or {})}
    if like is not None:
        keys |= {"clock": like.clock or "now", "content": like.content, "tool_arguments": like.tool_arguments}
        variant = _same_name(like, name, files) if variant is None else variant
    if variant is not None:
        keys["variant"] = variant
    try:
        spec = parse_spec(keys, name=path.name, fetch=files.fetch, names=files.names)
    except SpecError as error:
        found = [Problem(str(path), 0, _option_of(problem), problem.message) for problem in error.problems]
        raise ConfigError(tuple(dict.fromkeys(found))) from None
    assert spec.jinja is not None
    used = {name: files.read[name] for name in spec.jinja.files}
    spec = replace(spec, digest=digest_of(used)[:12])
    # Any parser of tool calls works here; the entry only shows that the template accepts tools.
    if any("tools" in compiled.names for compiled in JinjaTemplate(spec).compiled):
        spec = replace(spec, tools=ToolsSpec(parser="json"))
    return ChatFolder(
        spec=spec,
        folder=folder,
        file=name,
        files=used,
        shortened=tuple([name for name in used if name in files.shortened]),
        variant=variant,
    )


def _option_of(problem: SpecProblem) -> str:
    """Return the command-line option that causes a problem; empty if the file itself causes it."""
    first = problem.path[0] if problem.path else "file"
    return str(first) if first in ("variant", "kwargs") else ""


def _same_name(like: JinjaSpec, name: str, files: _Files) -> str | None:
    """Return the name of the named template that ``like`` uses; None if the folder has no template with this name."""
    ours = like.sources[0][0]
    try:
        there = read_chat_files(name, files.fetch, files.names).templates
    except TemplateFailure:  # reported when the folder is read
        return None
    return ours if ours != DEFAULT and ours in there else None


class _Files(FolderFiles):
    """The files of a model's folder. They may be links into the blob folder of the surrounding Hugging Face cache."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, self._whole, {}, (Path(os.path.realpath(folder)).parent.parent / BLOBS,))
        self.shortened: list[str] = []

    def _whole(self, path: Path, name: str) -> bytes:
        if not path.is_file():
            raise TemplateFailure(
                f"{name} is not a regular file, or is a broken link; remove it, or replace it with a file"
            )
        try:
            with path.open("rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise TemplateFailure(f"{name} cannot be read ({error.strerror or error})") from None
        if len(data) > MAX_FILE_BYTES:
            raise TemplateFailure(f"{name} is larger than {MAX_FILE_BYTES // 1024**2} MiB, which is the limit")
        if name != TOKENIZER or (kept := shortened(data, self.fetch(GENERATION))) is data:
            return data
        self.shortened.append(name)
        return kept
