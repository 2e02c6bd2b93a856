"""Finds the source file, reads the file by its format, and chooses and names the drafts."""

from __future__ import annotations

import os
import re
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from importlib.machinery import PathFinder
from pathlib import Path

from gateway.cli.options import CommandError
from gateway.config.schema.kinds import FILE_NAME
from gateway.core.errors import ConfigError
from gateway.workshop.chat_folders import CHAT_TEMPLATE_FILES, chat_template_in, read_chat_folder
from gateway.workshop.comparing.comparison import chat_template_renderer
from gateway.workshop.importer import huggingface
from gateway.workshop.importer.dataset import read_dataset
from gateway.workshop.importer.draft import TOOLS_EXCLUDED, Draft, Reference
from gateway.workshop.importer.environment.loader import load_config
from gateway.workshop.importer.kinds import SOURCE_KINDS, kind_of
from gateway.workshop.importer.lazyllm import read_lazyllm
from gateway.workshop.importer.ollama import read_ollama
from gateway.workshop.importer.opencompass import read_opencompass
from gateway.workshop.importer.source import MAX_SOURCE_BYTES, Source
from gateway.workshop.importing.import_options import STDOUT, ImportOptions
from gateway.workshop.parity.sides import chat_reference
from metatemplate.files.template_file import BUILT_IN
from metatemplate.values.words import quoted

MODELFILE = "Modelfile"
MAX_DRAFT_NAME = 64
"""The maximum length of a name that is made from the source."""
PACKAGES = ("opencompass", "ais_bench")
"""The packages whose configs a Python config reads by their full names, such as ``opencompass.configs.datasets.…``."""


def read_drafts(options: ImportOptions) -> list[Draft]:
    """Return the chosen drafts of a source, with their names. Raises ``CommandError`` or ``ConfigError``."""
    path = _file_of(options)
    if options.python is not None and path.suffix != ".py":
        raise CommandError(f"--python applies only to configs in Python, and {path} does not end in .py")
    kind = options.kind
    if kind != "auto":
        _check_options(options, kind)  # before a config is run
    source = source_of(options, path)
    if kind == "auto":
        kind = kind_of(source)
        _check_options(options, kind)
    match kind:
        case "hf":
            drafts = [_of_folder(source, path, options)]
        case "opencompass":
            drafts = read_opencompass(source, turns=options.turns)
        case "lazyllm":
            drafts = read_lazyllm(source, marks_of=options.marks_of)
        case "ollama":
            drafts = [read_ollama(source, subset=options.without)]
        case _:
            drafts = read_dataset(source)
    drafts = _numbered([replace(draft, name=_as_name(draft.name)) for draft in drafts])
    names = ", ".join([draft.name for draft in drafts])
    if options.model is not None:
        drafts = [draft for draft in drafts if draft.name == _as_name(options.model)]
        if not drafts:
            raise CommandError(f"no model or dataset {quoted(options.model)} in {options.source}; choose from {names}")
    if options.name is not None and len(drafts) > 1:
        what = f"--name needs a single file, but {options.source} makes {len(drafts)}"
        raise CommandError(f"{what}; choose one with --model: {names}")
    if options.template_name and len(drafts) == 1:
        drafts = [replace(drafts[0], name=options.template_name)]
    for name in [draft.name for draft in drafts]:
        if not FILE_NAME.fullmatch(name) or name == BUILT_IN.name:
            form = f'use lower-case letters, digits, ".", "_" and "-", and not "{BUILT_IN.name}"'
            raise CommandError(f"{quoted(name)} is not a valid template name; {form}")
    return drafts


def kind_hint(options: ImportOptions) -> str | None:
    """Return advice if the source seems to have another format than ``--kind``; None if the formats agree."""
    if options.kind == "auto" or options.python is not None:  # with --python, it would run the config again
        return None
    with suppress(ConfigError, CommandError):
        kind = kind_of(source_of(options, _file_of(options)))
        if kind != options.kind:
            return f"{options.source} looks like {SOURCE_KINDS[kind]}; use --kind {kind}, or leave --kind out"
    return None


def _check_options(options: ImportOptions, kind: str) -> None:
    for is_given, option, kinds in (
        (options.marks_of, "--marks-of", ("lazyllm",)),
        (options.form != "jinja", "--as", ("hf",)),
        (options.variant is not None, "--variant", ("hf",)),
        (options.turns != "natural", "--turns", ("opencompass",)),
        (options.python, "--python", ("opencompass", "dataset")),
        (options.root, "--root", ("opencompass", "dataset")),
        (options.without and options.form == "jinja" and kind == "hf", "--without", ("hf with --as meta",)),
        (options.without, "--without", ("hf", "ollama")),
    ):
        if is_given and kind not in kinds:
            raise CommandError(f"{option} applies only to {', '.join(kinds)}, but {options.source} is read as {kind}")


def _numbered(drafts: list[Draft]) -> list[Draft]:
    """Return the drafts with different names: the second with the same name ends in ``-2``."""
    used = {draft.name for draft in drafts}
    numbers = Counter[str]()
    found: list[Draft] = []
    for draft in drafts:
        numbers[draft.name] += 1
        name = draft.name
        while numbers[draft.name] > 1 and name in used:
            end = f"-{numbers[draft.name]}"
            name = draft.name[: MAX_DRAFT_NAME - len(end)] + end
            numbers[draft.name] += name in used
        used.add(name)
        note = f"the name {name} has a number, because several models or datasets are named {draft.name}"
        found.append(draft if name == draft.name else replace(draft, name=name, notes=(note, *draft.notes)))
    return found


def _as_name(text: str) -> str:
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("._-")[:MAX_DRAFT_NAME] or "imported"


# ---------------------------------------------------------------- files


def _file_of(options: ImportOptions) -> Path:
    path = options.source
    if not path.exists():
        raise CommandError(f"{path}: no such file or folder; nothing is downloaded, so give a local path")
    if path.is_file():
        return path
    if not path.is_dir():
        raise CommandError(f"{path} is neither a file nor a folder; give the path of a file")
    if options.kind not in ("auto", "hf", "ollama"):
        raise CommandError(f"{path} is a folder, and --kind {options.kind} reads a file; give the path of a file")
    file = chat_template_in(path) if options.kind in ("auto", "hf") else None
    if file is None and options.kind in ("auto", "ollama") and (path / MODELFILE).is_file():
        file = path / MODELFILE
    if file is None:
        looked = f"{path} has no chat template (in {', '.join(CHAT_TEMPLATE_FILES)}) and no {MODELFILE}"
        raise CommandError(f"{looked}; give another path, or use template: base for a model without a chat format")
    return file


def source_of(options: ImportOptions, path: Path) -> Source:
    """Return a source file, which can read the files in its folder and in the roots.

    With ``--python``, that Python executes the file.
    """
    folder = Path(os.path.realpath(path.parent))
    roots = [Path(os.path.realpath(root)) for root in options.root] or _installed()

    def read_file(name: str) -> bytes | None:
        target = Path(os.path.realpath(name))
        is_inside = any(target.is_relative_to(one) for one in (folder, *roots))
        try:
            return _read(target) if is_inside and target.is_file() else None
        except OSError:  # the name is too long for a file
            return None

    where = (folder / path.name).as_posix()
    source = Source(str(path), _read(path), read_file, where, tuple([root.as_posix() for root in roots]))
    return source if options.python is None else replace(source, loaded=load_config(options.python, source))


def _installed() -> list[Path]:
    """Return the folders of the installed packages in ``PACKAGES``. No code of a package is run."""
    found = [PathFinder.find_spec(name) for name in PACKAGES]
    return [Path(os.path.realpath(one.origin)).parent for one in found if one is not None and one.origin is not None]


def _read(path: Path) -> bytes:
    """Return the bytes of a file, up to one byte more than the size limit."""
    try:
        with path.open("rb") as file:
            return file.read((64 if path.suffix == ".json" else 1) * MAX_SOURCE_BYTES + 1)
    except OSError as error:
        raise CommandError(f"{path} cannot be read ({error.strerror or error})") from None


# ---------------------------------------------------------------- tokenizer folders


def _of_folder(source: Source, path: Path, options: ImportOptions) -> Draft:
    from metatemplate.chat_templates.renderer import JinjaTemplate

    read = read_chat_folder(path, variant=options.variant)
    name = options.template_name or _as_name(read.folder.absolute().name)
    template, renderer = chat_template_renderer(read.spec)
    reference = Reference(f"the chat template ({renderer})", side=chat_reference(template), excluded=(TOOLS_EXCLUDED,))
    if options.form == "meta":
        return huggingface.as_meta(read, source, name, reference, subset=options.without)
    draft = huggingface.as_jinja(read, source, name, alone=options.out == STDOUT)
    is_our_own = isinstance(template, JinjaTemplate)
    return replace(draft, examples_by=reference.name) if is_our_own else replace(draft, reference=reference)
