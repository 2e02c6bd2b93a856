"""Which chat template lies in a model's folder? Read to compare with and to import, never to serve from.

What the files mean is said in ``template/chat_files.py``, for this and for templates of ``kind: jinja`` alike.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gateway.config.files.reader import digest_of, leads_to, listed
from gateway.core.errors import ConfigError, Problem, TemplateError
from gateway.template.huggingface.folder.chat_template import GENERATION, read_chat_files, shortened, template_in
from gateway.template.huggingface.folder.named_templates import DEFAULT, PROCESSORS, TEMPLATE, TOKENIZER
from gateway.template.huggingface.folder.reader import NAMED
from gateway.template.registry import build
from gateway.template.spec.template import JinjaSpec, SpecProblem, TemplateSpec
from gateway.template.spec.tools import ToolsSpec
from gateway.template.validation.problems import Problems
from gateway.template.validation.template import SpecError, parse_spec

TEMPLATES = (TEMPLATE, TOKENIZER, *PROCESSORS)
"""Where a folder may keep its template; the first that has one."""

MOST_BYTES = 64 * 1024 * 1024
"""Of one file; ``tokenizer_config.json`` may list some thousand added tokens."""
BLOBS = "blobs"
"""The folder in which a hub's cache keeps the files that those of a snapshot are links to."""


@dataclass(frozen=True, slots=True)
class ChatFolder:
    """A model's folder, read."""

    spec: TemplateSpec
    """Its chat template as one of ``kind: jinja``."""
    folder: Path
    file: str
    """The template's file, by its path in the folder."""
    files: Mapping[str, bytes]
    """All that decide a prompt, by their paths; what is too large is shortened."""
    shortened: tuple[str, ...]
    """Which of them are."""


def chat_template_in(folder: Path) -> Path | None:
    """The file of a folder that holds its chat template; None: none does. Raises ``ConfigError``."""
    files = _Files(folder)
    try:
        name = template_in(files.fetch, files.names)
    except TemplateError as error:
        raise _refusal(folder, error.message) from None
    return None if name is None else folder / name


def folder_of(path: Path) -> Path:
    """The model's folder of a template's file, which may be one of the named templates in it."""
    above = path.absolute().parent
    return above.parent if above.name == NAMED else path.parent


def read_reference(
    path: Path, like: JinjaSpec | None, kwargs: Mapping[str, Any], variant: str | None = None
) -> TemplateSpec:
    """The chat template of a file as a spec of ``kind: jinja``. Raises ``ConfigError``.

    ``like``: ours, if it is a chat template too: the same clock, content and arguments handed over in the same form,
    and the same one of several named templates, if there is such a name. ``kwargs``: variables for the template.
    ``variant``: the named template to be taken.
    """
    return read_chat_folder(path, like, kwargs, variant).spec


def read_chat_folder(
    path: Path, like: JinjaSpec | None = None, kwargs: Mapping[str, Any] | None = None, variant: str | None = None
) -> ChatFolder:
    """The same with the files that it is made of."""
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
        found = [Problem(str(path), 0, _asked_by(problem), problem.message) for problem in error.problems]
        raise ConfigError(tuple(dict.fromkeys(found))) from None
    assert spec.jinja is not None
    used = {name: files.read[name] for name in spec.jinja.files}
    spec = replace(spec, digest=digest_of(used)[:12])
    # How calls are read from an answer is of no matter here; that tools may be written is.
    if any("tools" in script.names for script in _scripts(spec)):
        spec = replace(spec, tools=ToolsSpec(parser="json"))
    return ChatFolder(spec, folder, name, used, tuple([name for name in used if name in files.shortened]))


def _asked_by(problem: SpecProblem) -> str:
    """The option that is at fault; empty: the file itself."""
    first = problem.path[0] if problem.path else "file"
    return str(first) if first in ("variant", "kwargs") else ""


def _same_name(like: JinjaSpec, name: str, files: _Files) -> str | None:
    """The name that ours has been told to take, if there is one of that name here."""
    ours = like.sources[0][0]
    there = read_chat_files(name, files.fetch, files.names, Problems()).templates
    return ours if ours != DEFAULT and ours in there else None


def _scripts(spec: TemplateSpec) -> Any:
    from gateway.template.huggingface.renderer import JinjaTemplate

    template = build(spec)
    assert isinstance(template, JinjaTemplate)
    return template.scripts


class _Files:
    """The files of a folder, each read once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.read: dict[str, bytes] = {}
        self.shortened: list[str] = []

    def fetch(self, name: str) -> bytes | None:
        """See ``chat_files.Fetch``; raises ``ConfigError`` for a file that cannot be read."""
        if name not in self.read:
            path = self._inside(name)
            if not os.path.lexists(path):
                return None
            if not path.is_file():
                raise TemplateError(f"{name} is no file, or a link that leads to none: remove it, or put a file there")
            data = _whole(path)
            if name == TOKENIZER:
                kept = shortened(data, self.fetch(GENERATION))
                self.shortened += [name] if kept is not data else []
                data = kept
            self.read[name] = data
        return self.read[name]

    def names(self, name: str) -> tuple[str, ...]:
        """See ``chat_files.Names``."""
        return listed(self._inside(name), name)

    def _inside(self, name: str) -> Path:
        """A path, if it stays in the folder, or leads into the store of the hub's cache around it."""
        path, folder = self._folder / name, leads_to(self._folder)
        target = leads_to(path)
        if not any(target.is_relative_to(one) for one in (folder, folder.parent.parent / BLOBS)):
            raise TemplateError(f"{name} is a link that leads out of the folder: put the file itself there")
        return path


def _whole(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise _refusal(path, f"cannot be read ({error.strerror or error})") from None
    if len(data) > MOST_BYTES:
        raise _refusal(path, f"has more than {MOST_BYTES} bytes")
    return data


def _refusal(path: Path, message: str) -> ConfigError:
    return ConfigError((Problem(str(path), 0, "", message),))
