"""Where do the files go, and how do they get there? Nothing is overwritten unasked, and the YAML comes last."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from gateway.cli.importing.asked import STDOUT, Asked
from gateway.cli.importing.making import Made
from gateway.cli.options import NotFound
from gateway.importer.draft import Draft

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
    return places


def write(one: Made, place: Path, *, force: bool) -> None:
    """The file and what lies beside it; the YAML last, so that it never names what is not there."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        for name, data in one.beside:
            beside = place.parent / one.name / name
            beside.parent.mkdir(parents=True, exist_ok=True)
            _put(beside, data, force=force)
        _put(place, one.text.encode("utf-8"), force=force)
    except OSError as error:
        raise NotFound(f"{place} cannot be written ({error.strerror or error})") from None


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
