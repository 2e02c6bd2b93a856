"""Chooses the paths of the imported files, and writes them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from gateway.cli.options import CommandError
from gateway.workshop.importer.draft import Draft
from gateway.workshop.importing.build import ImportedFile
from gateway.workshop.importing.import_options import STDOUT, ImportOptions
from metatemplate.chat_templates.folder import JINJA, LOOKED_AT, NAMED
from metatemplate.files.reader import PROMPTS, TEMPLATES


def output_paths(options: ImportOptions, drafts: Sequence[Draft]) -> list[Path | None]:
    """Return a path for each draft, or None for standard output. Raises ``CommandError`` for a path that is refused."""
    out = options.out
    paths: list[Path | None]
    if out is None or options.is_folder:
        paths = [Path(out or (PROMPTS if draft.is_prompt else TEMPLATES)) / f"{draft.name}.yaml" for draft in drafts]
    else:
        paths = [None if out == STDOUT else Path(out)]
        if out != STDOUT and Path(out).suffix not in (".yaml", ".yml"):
            raise CommandError(f"--out {out} must end in .yaml for a file, or in / for a folder")
    if len(paths) < len(drafts):
        raise CommandError(
            f"{options.source} makes {len(drafts)} files; give a folder with --out, or choose one with --model: "
            f"{', '.join(draft.name for draft in drafts)}"
        )
    for draft, path in zip(drafts, paths, strict=True):
        if path is not None:
            _check_path(path, path.parent / draft.name if draft.files else None, force=options.force)
    return paths


def _check_path(path: Path, folder: Path | None, *, force: bool) -> None:
    folders = () if folder is None else (folder, folder / NAMED)
    for one in (path, *folders):
        if os.path.lexists(one) and not force:
            raise CommandError(f"{one} exists; overwrite it with --force, or use another --name or --out")
    for one in folders:
        if one.is_symlink():
            raise CommandError(f"{one} is a link to files that do not belong to this import; remove the link")


def write_files(file: ImportedFile, path: Path) -> list[Path]:
    """Write the files of the folder first and the YAML file last, so that the YAML never names a missing file.

    Returns the removed files. An earlier import wrote them, and they would be read together with the new files.
    """
    folder = path.parent / file.name
    written = {folder / name: data for name, data in file.files}
    left = [folder / name for name in LOOKED_AT] + sorted((folder / NAMED).glob(f"*{JINJA}")) if written else []
    removed = [one for one in left if one not in written and os.path.lexists(one)]
    try:
        for one, data in written.items():
            _write(one, data)
        for one in removed:
            one.unlink()
        _write(path, file.text.encode("utf-8"))
    except OSError as error:
        raise CommandError(f"{path} cannot be written ({error.strerror or error})") from None
    return removed


def _write(path: Path, data: bytes) -> None:
    """Write a whole file, or leave the path unchanged on failure."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    try:
        new.write_bytes(data)
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)
