"""Where do the files go, and how do they get there? Nothing is overwritten unasked, and the YAML comes last."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from gateway.cli.importing.asked import STDOUT, Asked
from gateway.cli.importing.making import Made
from gateway.cli.options import NotFound
from gateway.importer.draft import Draft
from gateway.template.huggingface.folder.chat_template import LOOKED_AT
from gateway.template.huggingface.folder.reader import JINJA, NAMED

FOLDER = "meta_templates"


def places_of(asked: Asked, drafts: Sequence[Draft]) -> list[Path | None]:
    """Where each file goes; None: standard output. Raises ``NotFound`` before anything is written."""
    out = asked.out
    if out == STDOUT:
        places: list[Path | None] = [None]
    elif out is None or asked.into_folder:
        places = [Path(out or FOLDER) / f"{draft.name}.yaml" for draft in drafts]
    else:
        places = [Path(out)]
        if Path(out).suffix not in (".yaml", ".yml"):
            raise NotFound(f"--out {out}: a template's file ends in .yaml; a folder's name ends in /")
    if len(places) < len(drafts):
        raise NotFound(f"there are {len(drafts)} templates in {asked.source}: give a folder as --out, or choose by "
                       f"--model one of {', '.join(draft.name for draft in drafts)}")  # fmt: skip
    for draft, place in zip(drafts, places, strict=True):
        taken = [] if place is None else [place, *([place.parent / draft.name] if draft.beside else [])]
        for path in taken:
            if os.path.lexists(path) and not asked.force:
                raise NotFound(f"{path} is there already: --force overwrites it, --name or --out writes elsewhere")
        for path in (taken[1], taken[1] / NAMED) if len(taken) > 1 else ():
            if path.is_symlink():
                raise NotFound(f"{path} is a link, and what it leads to is not for us to change: remove the link")
    return places


def write(one: Made, place: Path, *, force: bool) -> list[Path]:
    """The file and what lies beside it; the YAML last, so that it never names what is not there.

    Gives the files of a former import that were removed, because they would count beside those of this one.
    """
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        for name, data in one.beside:
            beside = place.parent / one.name / name
            beside.parent.mkdir(parents=True, exist_ok=True)
            _put(beside, data, force=force)
        left = _left_over(one, place.parent / one.name) if force else []
        for path in left:
            path.unlink()
        _put(place, one.text.encode("utf-8"), force=force)
    except OSError as error:
        raise NotFound(f"{place} cannot be written ({error.strerror or error})") from None
    return left


def _left_over(one: Made, folder: Path) -> list[Path]:
    """What is looked at in the folder of a chat template, and was not brought."""
    if not one.beside:
        return []
    brought = {folder / name for name, _ in one.beside}
    there = [*[folder / name for name in LOOKED_AT], *sorted((folder / NAMED).glob(f"*{JINJA}"))]
    return [path for path in there if path not in brought and os.path.lexists(path)]


def _put(path: Path, data: bytes, *, force: bool) -> None:
    """The whole file or none: a disk that is full leaves no half of it."""
    place = path.with_name(f".{path.name}.new") if force else path
    with place.open("wb" if force else "xb") as file:
        try:
            file.write(data)
            file.flush()
        except OSError:
            place.unlink()
            raise
    if force:
        os.replace(place, path)
